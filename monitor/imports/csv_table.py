"""A table: CSV or the like, a row per step, W&B's export of a chart among them.

A column must be the step. Summaries, a row per run, are refused: they have no time. Columns `run - metric` of several
runs want `--run`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.json_rows import STEP_KEYS, TIME_KEYS
from regimescope.monitor.imports.numbers import number_of
from regimescope.monitor.imports.rows import LogRow, Notes
from regimescope.monitor.imports.text import Progress, text_lines

NAME = "CSV"
_DELIMITERS = ",\t;"
_RUN_COLUMNS = ("run_id", "run_name", "run", "name", "run id", "run name")
_NO_METRIC = frozenset({*STEP_KEYS, *TIME_KEYS, "epoch", "wall_time"})


def looks_like_one(head: str) -> bool:
    """Whether the first lines have the same number of columns, two or more, a header without numbers and a column that
    has nothing else.
    """
    lines = [line for line in head.splitlines()[:8] if line.strip()][:-1] or head.splitlines()[:1]
    mark = _delimiter(lines[0]) if lines else ""
    if not mark or len(lines[0]) > 100_000:
        return False
    rows = list(csv.reader(lines, delimiter=mark))
    header = rows[0]
    named = [name for name in header if name.strip()]
    if len(named) < 2 or len(named) < len(header) - 1 or any(number_of(name) is not None for name in named):
        return False
    regular = len(set(map(len, rows))) == 1 and all(len(name) < 200 and "{" not in name for name in header)
    return regular and any(map(_numeric, zip(*rows[1:], strict=True)))


def _numeric(column: tuple[str, ...]) -> bool:
    filled = [cell for cell in column if cell.strip()]
    return bool(filled) and all(number_of(cell) is not None for cell in filled)


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count) if any(mark in line for mark in _DELIMITERS) else ""


def read(
    path: Path, notes: Notes, *, run: str | None, columns: Mapping[str, str], progress: Progress | None = None
) -> Iterator[LogRow]:
    """A row per line of the table. Raises ImportFailed."""
    notes.format = NAME
    lines = (line for line in text_lines(path, notes, progress=progress) if line is not None)
    first = next(line for line in lines if line.strip())
    mark = _delimiter(first)
    header = next(csv.reader([first], delimiter=mark))
    step = _step_column(path, header, columns)
    wanted = _columns(path, header, step, run, notes)
    seen: set[str] = set()
    labels = [i for i, name in enumerate(header) if name.lower() in _RUN_COLUMNS]
    made = None
    for number, cells in enumerate(csv.reader(lines, delimiter=mark), 2):
        if not cells:
            continue
        if len(cells) != len(header):
            notes.leave_out("rows with another number of columns", f"line {number}")
            continue
        if labels:
            seen.add(cells[labels[0]])
            if len(seen) > 1:
                raise ImportFailed(_several(path, header[labels[0]], seen))
        at = number_of(cells[step])
        values = {name: value for i, name in wanted if (value := number_of(cells[i])) is not None}
        if at is None or at < 0 or at != int(at):
            notes.leave_out("rows without a step", f"line {number}")
        elif values:
            made = LogRow(values=values, step=int(at))
            yield made
    if made is None:
        raise ImportFailed(f"{path}: no row with a step in column {header[step]!r} and a number beside it")


def _step_column(path: Path, header: list[str], columns: Mapping[str, str]) -> int:
    named = next((name for name, what in columns.items() if what == "step"), None)
    if named is not None:
        if named not in header:
            raise ImportFailed(f"{path} has no column {named!r}: its columns are {_listed(header)}")
        return header.index(named)
    by_lower = {name.strip().lower(): i for i, name in reversed(list(enumerate(header)))}
    for key in STEP_KEYS:
        if key.lower() in by_lower:
            return by_lower[key.lower()]
    label = next((name for name in header if name.lower() in _RUN_COLUMNS), None)
    summary = f"; with its column {label!r} it looks like a summary, a row per run, which has no time" if label else ""
    raise ImportFailed(
        f"{path} has no column for the step{summary}. Name one with --map COLUMN=step; its columns are "
        f"{_listed(header)}"
    )


def _columns(path: Path, header: list[str], step: int, run: str | None, notes: Notes) -> list[tuple[int, str]]:
    """Position and key of every column that may be a metric. `run - key` is W&B's way of naming runs."""
    named = {i: name.partition(" - ") for i, name in enumerate(header) if " - " in name}
    runs = list(dict.fromkeys(parts[0] for parts in named.values()))
    if len(runs) > 1 and run not in runs:
        raise ImportFailed(f"{path} holds {len(runs)} runs: choose one with --run, of {_listed(runs)}")
    mine = run if run in runs else (runs[0] if runs else None)
    if mine is not None:
        notes.name = mine
    found = []
    for i, name in enumerate(header):
        if i == step or name.strip() in _NO_METRIC or not name.strip():
            continue
        owner, dash, key = named.get(i, ("", "", name))
        if dash and owner != mine:
            notes.leave_out("columns of other runs", name)
        elif dash and key.endswith(("__MIN", "__MAX")):
            continue
        else:
            found.append((i, key.strip()))
    return found


def _several(path: Path, label: str, seen: set[str]) -> str:
    return (
        f"{path} holds several runs (column {label!r}: {_listed(sorted(seen))}, ...): it is a summary, or several runs "
        "in one table; keep the rows of one run over its steps"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
