"""mlflow's file store: `mlruns/<experiment>/<run>/metrics/<key>`, a line `milliseconds value step` per number.

`find(folder)` gives the runs below a folder, which may be the store, an experiment or a run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.numbers import number_of
from regimescope.monitor.imports.points import Point, rows_of
from regimescope.monitor.imports.rows import LogRow, Notes
from regimescope.monitor.imports.sqlite_file import finite_or_not

NAME = "mlflow file store"
_MOST_FILES = 400
"Metrics of a run that are read side by side: each is an open file."


def find(folder: Path) -> dict[str, Path]:
    """Name (where it is the only one of that name, else id) -> folder of each run with metrics."""
    candidates = [folder, *folder.glob("*"), *folder.glob("*/*"), *folder.glob("mlruns/*/*")]
    runs = [path for path in dict.fromkeys(candidates) if (path / "meta.yaml").is_file() and _metrics(path)]
    names = [_tag(path, "mlflow.runName") or path.name for path in runs]
    return {name if names.count(name) == 1 else path.name: path for name, path in sorted(zip(names, runs, strict=True))}


def read(folder: Path, runs: dict[str, Path], notes: Notes, *, run: str | None) -> Iterator[LogRow]:
    """Rows of the run that is asked for, or of the only one. Raises ImportFailed, OSError."""
    name = run if run in runs else next((name for name, path in runs.items() if path.name == run), None)
    listed = ", ".join(list(runs)[:12]) + (f" and {len(runs) - 12} more" if len(runs) > 12 else "")
    if run is not None and name is None:
        raise ImportFailed(f"{folder} has no run {run!r}: choose one with --run, of {listed}")
    if name is None and len(runs) > 1:
        raise ImportFailed(f"{folder} holds {len(runs)} runs: choose one with --run, of {listed}")
    name = name or next(iter(runs))
    notes.format, notes.name = NAME, name
    path = runs[name]
    notes.config = {
        file.relative_to(path / "params").as_posix(): file.read_text("utf-8", "replace")
        for file in sorted((path / "params").rglob("*"))
        if file.is_file()
    }
    files = _metrics(path)
    for file in files[_MOST_FILES:]:
        notes.leave_out(f"metrics beyond the first {_MOST_FILES}", file.name)
    sources = [_points(file, file.relative_to(path / "metrics").as_posix(), notes) for file in files[:_MOST_FILES]]
    return rows_of(heapq.merge(*sources, key=_time), notes)


def _time(point: Point) -> float:
    return point[3] or 0.0


def _metrics(path: Path) -> list[Path]:
    return sorted(file for file in (path / "metrics").rglob("*") if file.is_file())


def _tag(path: Path, name: str) -> str:
    file = path / "tags" / name
    return file.read_text("utf-8", "replace").strip() if file.is_file() else ""


def _points(file: Path, key: str, notes: Notes) -> Iterator[Point]:
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.split()
            value = number_of(parts[1]) if len(parts) >= 2 else None
            if value is None or not parts[0].isdigit() or (len(parts) > 2 and not parts[2].lstrip("-").isdigit()):
                notes.leave_out("lines that are no number of a metric", f"{key}, line {number}")
                continue
            yield key, int(parts[2]) if len(parts) > 2 else 0, finite_or_not(value), int(parts[0]) / 1000
