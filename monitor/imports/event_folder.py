"""A folder of TensorBoard event files: one run, or several in subfolders, of which `--run` chooses.

Files are launches in the order of their wall times, as a job that begins again writes a new one. Files that were
written at the same time are one launch where their tags differ (a writer for evaluations), and a copy of the beginning
of another file is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports import event_file
from regimescope.monitor.imports.points import rows_of
from regimescope.monitor.imports.rows import LogRow, Notes
from regimescope.monitor.imports.text import Progress

NAME, is_event_file = event_file.NAME, event_file.is_event_file
DEEPEST = 6
"Folders below the one that was named which are looked into."
_MOST_LAUNCHES = 32
"Files; with more of them, only a step that falls is a launch."
_COMPARED = 1 << 16


def find(folder: Path) -> dict[str, list[Path]]:
    """Runs below a folder: path from there ('.' = the folder itself) -> event files with numbers. Raises OSError."""
    found: dict[str, list[Path]] = {}
    for at, folders, files in os.walk(folder):
        here = Path(at)
        inner = here.relative_to(folder)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if len(inner.parts) < DEEPEST else []
        events = [here / name for name in sorted(files) if _holds_numbers(here / name)]
        if events:
            found[inner.as_posix()] = events
    return found


def _holds_numbers(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        if not event_file.is_event_file(file.read(64)):
            return False
    return next(event_file.read_points(path, Notes()), None) is not None


def read(
    folder: Path, runs: dict[str, list[Path]], notes: Notes, *, run: str | None, progress: Progress | None = None
) -> Iterator[LogRow]:
    """Rows of the run that is asked for, or of the only one. Raises ImportFailed, OSError."""
    name = _chosen(folder, runs, run, notes)
    notes.format = NAME
    if name != ".":
        notes.name = Path(name).name
    groups = [runs[name]] if len(runs[name]) == 1 else _groups(runs[name], notes)
    return _launches(groups, notes, progress)


def read_file(path: Path, notes: Notes, progress: Progress | None = None) -> Iterator[LogRow]:
    """Rows of a single file. Raises OSError."""
    notes.format = NAME
    return rows_of(event_file.read_points(path, notes, progress), notes)


def _chosen(folder: Path, runs: dict[str, list[Path]], run: str | None, notes: Notes) -> str:
    named = run if run in runs else next((name for name in runs if Path(name).name == run), None)
    if run is not None and named is None:
        raise ImportFailed(f"{folder} has no run {run!r}: choose one with --run, of {_listed(runs)}")
    if named is None and len(runs) > 1 and "." not in runs:
        raise ImportFailed(f"{folder} holds {len(runs)} runs: choose one with --run, of {_listed(runs)}")
    chosen = named or ("." if "." in runs else next(iter(runs)))
    others = [name for name in runs if name != chosen]
    for name in others if run is None else ():
        notes.leave_out("runs in subfolders (--run takes one)", name)
    return chosen


def _without_copies(files: list[Path], notes: Notes) -> list[Path]:
    """Without files that another one begins with, byte by byte; of equal ones the last stays."""
    kept = []
    for place, path in enumerate(files):
        others = files[place + 1 :] + [other for other in files[:place] if other.stat().st_size > path.stat().st_size]
        if any(_begins_with(other, path) for other in others):
            notes.leave_out("event files are copies of the beginning of another", path.name)
        else:
            kept.append(path)
    return kept


def _begins_with(longer: Path, shorter: Path) -> bool:
    if longer.stat().st_size < shorter.stat().st_size:
        return False
    with open(longer, "rb") as a, open(shorter, "rb") as b:
        while data := b.read(_COMPARED):
            if a.read(len(data)) != data:
                return False
    return True


def _groups(files: list[Path], notes: Notes) -> list[list[Path]]:
    """Files of each launch. Raises ImportFailed: two writers of the same tags at the same time."""
    times = {path: event_file.wall_times(path) for path in files}
    ordered = _without_copies(sorted(files, key=lambda path: (times[path], path.name)), notes)
    groups: list[list[Path]] = [[ordered[0]]]
    until = times[ordered[0]][1]
    for before, path in pairwise(ordered):
        first, last = times[path]
        if first >= until:
            groups.append([path])
        elif common := event_file.tags_of(before) & event_file.tags_of(path):
            raise ImportFailed(
                f"{before.parent}: {before.name} and {path.name} were written at the same time and share the tag "
                f"{min(common)!r}, so they are two runs, or two ranks of one: import one of the files"
            )
        else:
            groups[-1].append(path)
        until = max(until, last)
    return groups


def _launches(groups: list[list[Path]], notes: Notes, progress: Progress | None) -> Iterator[LogRow]:
    sizes = [sum(path.stat().st_size for path in group) for group in groups]
    done, told = 0, len(groups) <= _MOST_LAUNCHES
    for place, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        points = chain.from_iterable(event_file.read_points(path, notes) for path in group)
        yield from rows_of(points, notes, begins=told and place > 0)
        done += size
        if progress is not None:
            progress(done, sum(sizes))


def _listed(names: dict[str, list[Path]]) -> str:
    found = list(names)
    return ", ".join(found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "")
