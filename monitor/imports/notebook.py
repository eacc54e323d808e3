"""Console text inside notebooks: outputs of an .ipynb, and the stream export of a notebook service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.json_rows import whole_json
from regimescope.monitor.imports.rows import Notes
from regimescope.monitor.imports.text import plain, text_lines

_BREAK = re.compile(r"\r\n|\n|\r")


def is_notebook(head: str, path: Path) -> bool:
    """Whether a JSON object has cells. `head`: its beginning."""
    if not head.startswith("{"):
        return False
    if '"cells"' in head or '"nbformat"' in head:
        return True
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return b'"nbformat"' in file.read()


def output_lines(path: Path, notes: Notes) -> Iterator[str]:
    """Lines of all text outputs, cell by cell. Raises ImportFailed."""
    notes.format = "notebook outputs"
    record = whole_json(path)
    cells = record.get("cells") if isinstance(record, dict) else None
    if not isinstance(cells, list):
        raise ImportFailed(f"{path}: a notebook without cells")
    for cell in cells:
        for output in (cell.get("outputs") or []) if isinstance(cell, dict) else []:
            yield from map(plain, _BREAK.split(_text(output)))


def _text(output: object) -> str:
    if not isinstance(output, dict):
        return ""
    text = output.get("text") or (output.get("data") or {}).get("text/plain") or ""
    return "".join(map(str, text)) if isinstance(text, list) else str(text)


def is_export(head: str) -> bool:
    """Whether it is a list of pieces of a stream, each a JSON object with `stream_name`."""
    return head[:400].lstrip("[,\n ").startswith("{") and '"stream_name"' in head[:400]


def export_lines(path: Path, notes: Notes) -> Iterator[str]:
    """Lines of the streams, put together from their pieces."""
    notes.format = "notebook service export"
    rest = ""
    for number, line in enumerate(text_lines(path, notes), 1):
        item = (line or "").strip().strip("[],")
        if not item:
            continue
        try:
            piece = json.loads(item)
        except ValueError:
            notes.leave_out("lines that are no JSON", f"line {number}")
            continue
        *lines, rest = _BREAK.split(rest + str(piece.get("data", "")))
        yield from map(plain, lines)
    yield plain(rest)
