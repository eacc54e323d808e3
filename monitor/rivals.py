"""Other processes that record into the same run: `rivals(run_dir, rank)` at the start of a Recorder, `start_after` for
the name of its file.

Two processes that write as one rank (a launcher that forgot `rank=`, an old process that still lives) would each
supersede the other's numbers. Whoever starts later sees it: on Linux a process of this host that holds a segment of
that rank open. Elsewhere, and for processes of other users and hosts, nothing is said here; the monitor sees both files
grow. Standard library only.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from regimescope.monitor.errors import RunError
from regimescope.monitor.launch import list_segments


def start_after(run_dir: Path) -> int:
    """Time of a start, ns since 1970: now, but behind every start that the folder knows. So files sort in the order of
    the starts whatever the clocks of their hosts say.
    """
    with suppress(RunError):
        known = [name.start_ns for name, _ in list_segments(run_dir) if not name.is_monitor]
        return max(time.time_ns(), 1 + max(known, default=0))
    return time.time_ns()


def rivals(run_dir: Path, rank: int) -> list[str]:
    """Segments of this rank that another living process of this host has open. Never raises."""
    try:
        segments = list_segments(run_dir)
    except RunError:
        return []
    mine = [(name, path) for name, path in segments if name.rank == rank and name.pid != os.getpid()]
    return [path.name for name, path in mine if _holds(name.pid, path)]


def _holds(pid: int, path: Path) -> bool:
    """Whether that process has the file open, as /proc tells; a number that was given again holds something else."""
    try:
        wanted = path.stat()
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                found = os.stat(descriptor.path)
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    except OSError:  # no such process, not ours to see, or no /proc
        return False
    return False
