"""Which format a log has, by its content; the name of the file says nothing.

`open_log(path)` gives its rows (those of a dump of rollouts: `dump_join.py`). Structured files are told by their first
bytes, consoles by the first lines of a trainer in them, however late they come.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports import csv_table, json_rows, notebook, pattern, trl_console, verl_console
from regimescope.monitor.imports.folder import file_rows, folder_rows, is_binary
from regimescope.monitor.imports.rows import LogRow, Notes, Rows
from regimescope.monitor.imports.text import Progress, encoding_of, head_of, text_lines

ENOUGH = 20
"Rows of a console format that settle what it is."
_TEXT_CONTROL = frozenset(range(32)) - {7, 8, 9, 10, 12, 13, 27}


class ConsoleReader(Protocol):
    """Lines in, rows out."""

    def feed(self, line: str) -> Iterator[LogRow]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """A format of console text."""

    name: str
    reader: Callable[[Notes], ConsoleReader]


CONSOLES = (
    Console(name=verl_console.NAME, reader=verl_console.Reader),
    Console(name=trl_console.NAME, reader=trl_console.Reader),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user said about the log."""

    pattern: str | None = None
    "Regular expression of a console that no reader knows."
    run: str | None = None
    "Which run of a file that holds several."
    columns: tuple[tuple[str, str], ...] = ()
    "Of a table: (column, what it is), `step` above all."
    follow: bool = False
    "Wait for more at the end."


def open_log(path: Path, notes: Notes, options: Options, progress: Progress | None = None) -> Rows:
    """The rows of a log; `notes` gets the format and what is left out. Raises ImportFailed, OSError."""
    if not path.exists():
        raise ImportFailed(f"no log {path}: give a file, or a folder of event files")
    if path.is_dir() or is_binary(head_of(path)):
        return _binary(path, notes, options, progress)
    head = head_of(path)
    if not head.strip() and not options.follow:
        raise ImportFailed(f"{path} is empty: nothing was written to it yet")
    structured = _structured(path, head, notes, options, progress)
    if structured is not None:
        return structured
    _check_text(path, head)
    lines = text_lines(path, notes, follow=options.follow, progress=progress)
    return _console(path, lines, notes, options)


def _binary(path: Path, notes: Notes, options: Options, progress: Progress | None) -> Rows:
    """Rows of a folder or of a file that is no text. Raises ImportFailed, OSError."""
    if options.follow:
        raise ImportFailed(f"{path} cannot be watched, only text can: import it, and again when there is more")

    def console(log: Path) -> Rows:
        lines = text_lines(log, notes, progress=progress)
        return _console(log, lines, notes, options)

    read = folder_rows if path.is_dir() else file_rows
    return read(path, notes, run=options.run, console=console, progress=progress)


def _structured(path: Path, head: bytes, notes: Notes, options: Options, progress: Progress | None) -> Rows | None:
    """Rows of a file that is told by its first bytes; None = text of another kind."""
    text = head.decode(encoding_of(path), "replace").lstrip()
    if options.pattern is not None:
        return None
    if notebook.is_export(text):
        return _console(path, notebook.export_lines(path, notes), notes, options)
    first = text.partition("\n")[0].strip()
    if _is_object(first) and first != "{":
        return json_rows.read_lines(path, notes, follow=options.follow, progress=progress)
    if text.startswith(("{", "[")) and not options.follow and _may_be_json(text):
        if notebook.is_notebook(text, path):
            return _console(path, notebook.output_lines(path, notes), notes, options)
        return json_rows.read_whole(path, notes)
    if csv_table.looks_like_one(text):
        return csv_table.read(path, notes, run=options.run, columns=dict(options.columns), progress=progress)
    return None


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _may_be_json(text: str) -> bool:
    """Whether a brace at the start opens a JSON value: a name in double quotes, or a row, comes next."""
    return text[1:].lstrip()[:1] in ('"', "{", "[", "]", "}")


def _check_text(path: Path, head: bytes) -> None:
    strange = sum(byte in _TEXT_CONTROL for byte in head)
    if encoding_of(path) == "utf-8" and strange > 0.02 * len(head):
        raise ImportFailed(
            f"{path} is a binary file of no known format: want a console log, JSON lines, CSV, trainer_state.json, a "
            "notebook, TensorBoard events or a .wandb file"
        )


def _console(path: Path, lines: Iterable[str | None], notes: Notes, options: Options) -> Rows:
    if options.pattern is not None:
        notes.format = pattern.NAME
        return _fed(lines, pattern.Reader(notes, options.pattern))
    source = iter(lines)
    kept, console = _which(source, options.follow)
    if console is None:
        raise ImportFailed(_nothing(path, kept))
    notes.format = f"{console.name}{f', {notes.format}' if notes.format else ''}"
    return _fed(_again(kept, source), console.reader(notes))


def _which(lines: Iterator[str | None], follow: bool) -> tuple[list[str], Console | None]:
    """The console format of the first rows, and the lines read for it, as many as matter."""
    kept: list[str] = []
    votes: Counter[str] = Counter()
    trial = {console.name: console.reader(Notes()) for console in CONSOLES}

    def vote(line: str) -> None:
        for console in CONSOLES:
            votes[console.name] += sum(1 for _ in trial[console.name].feed(line))

    since = 0
    for line in lines:
        vote(line or "")
        found = max(votes.values())
        if line is None:
            if found:
                break
            continue
        kept.append(line)
        since += found > 0
        if found >= ENOUGH or since > _LINES_KEPT:
            break
        if not found and len(kept) > _LINES_KEPT:
            del kept[: _LINES_KEPT // 2]
    if not follow:
        vote("")  # a row of verl that is still open ends with the text
    best = max(CONSOLES, key=lambda console: votes[console.name])
    return kept, best if votes[best.name] else None


_LINES_KEPT = 2000
"Lines before the first row that are read again (progress bars and the like), and lines after it that settle it."


def _again(kept: list[str], rest: Iterator[str | None]) -> Iterator[str | None]:
    while kept:
        yield kept.pop(0)
    yield from rest


def _fed(lines: Iterable[str | None], reader: ConsoleReader) -> Rows:
    for line in lines:
        yield from reader.feed(line or "")
        if line is None:
            yield None
    yield from reader.feed("")


def _nothing(path: Path, kept: list[str]) -> str:
    """Why a text has no rows, as far as it can be told."""
    error = next((line.strip() for line in reversed(kept) if _ERROR_HINT in line and len(line) < 300), None)
    crashed = any(line.startswith("Traceback (most recent call last)") for line in kept)
    if crashed and error is None:
        error = next((line.strip() for line in reversed(kept) if "Error" in line and len(line) < 300), None)
    if crashed and error:
        return f"{path}: the job ended before its first step ({error}), so there is nothing to import"
    return (
        f"{path}: no line of a trainer in it. Known consoles: {', '.join(c.name for c in CONSOLES)}; for other text "
        r"give --pattern 'step (?P<step>\d+).*reward (?P<reward_mean>\S+)'"
    )


_ERROR_HINT = "Error: "
