"""A private index for commands that only read: the segments of some runs in memory, detectors run over them, nothing
written, nobody locked out.

`with read_run("runs/a", None) as view:` gives one run, `with read_root(root) as monitor:` all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regimescope.monitor import query
from regimescope.monitor.errors import RunError
from regimescope.monitor.segments import find_runs, list_segments
from regimescope.monitor.service import Monitor
from regimescope.monitor.steer import find_run
from regimescope.monitor.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run, read to its end."""

    folder: Path
    run: query.RunRow
    monitor: Monitor


@contextlib.contextmanager
def read_root(root: Path, only: list[str] | None = None, *, rollouts: bool = True) -> Iterator[Monitor]:
    """A monitor that has read every run below the root (or those of `only`) and writes nothing; `rollouts`: their files
    too. Raises RunError.
    """
    if not root.is_dir():
        raise RunError(f"no folder {root}: give the folder that holds the runs")
    monitor = Monitor(root, read_only=True, store=Store.in_memory(root), only=only, rollouts=rollouts)
    try:
        monitor.catch_up()
        yield monitor
    finally:
        monitor.stop()


@contextlib.contextmanager
def read_run(run: str, root: str | None, *, rollouts: bool = True) -> Iterator[RunView]:
    """One run by its folder, or by its path below the root; `rollouts`: their files too. Raises RunError: no folder, no
    segments, a root in place of a run.
    """
    folder, above = find_run(run, root)
    folder = folder.resolve()
    _check(folder)
    base = above.resolve() if above is not None else folder.parent
    path = folder.relative_to(base).as_posix()
    with read_root(base, [path], rollouts=rollouts) as monitor:
        with monitor.store.cursor() as con:
            row = query.run_by_path(con, path)
            refused = [s.refused for s in query.segments(con, row.run_key) if s.refused] if row else []
        refused += [f"{name}: {why}" for name, why in monitor.problems.items()]
        if row is None or row.launch_no is None:
            reason = (
                refused[0]
                if refused
                else "none of their lines is a header of a trainer; is this a folder of the Recorder?"
            )
            raise RunError(f"cannot read the segments of {folder}: {reason}")
        yield RunView(folder=folder, run=row, monitor=monitor)


def _check(folder: Path) -> None:
    if list_segments(folder):
        return
    below = [path for path in find_runs(folder) if path != "."]
    if below:
        listed = ", ".join(below[:5]) + (f" and {len(below) - 5} more" if len(below) > 5 else "")
        raise RunError(f"{folder} is no run, it is a root with runs below it: name one of {listed}")
    raise RunError(f"{folder} holds no segments: a run folder has segments/*.jsonl, written by the Recorder")
