"""What a monitor sees of the files below its root that stands in none: what it cannot read or does not follow, files
that changed under it, a second process that writes.

`problems.all()` is path -> sentence, for pages and commands. Of this process and not of the index: another one finds
the same again, or never saw it.
"""

from __future__ import annotations

import logging
from collections import Counter

from regimescope.monitor.catalog import Run
from regimescope.monitor.segments import SegmentFile

log = logging.getLogger(__name__)

TWO_TICKS = 3
"Ticks in which an older start must have written beside a newer one: what is still on its way comes in one."


class Problems:
    """Of all runs below a root. One thread writes, any may read."""

    def __init__(self) -> None:
        self._unread: dict[str, dict[str, str]] = {}  # run, or "" for the root -> path below it -> why
        self._seen: dict[str, str] = {}
        self._talking: Counter[tuple[int, str]] = Counter()

    def all(self) -> dict[str, str]:
        """Path below the root -> what is wrong there; what to do stands behind a semicolon."""
        found: dict[str, str] = {}
        for run, part in list(self._unread.items()):
            found |= {f"{run}/{path}" if run else path: why for path, why in list(part.items())}
        return {**found, **self._seen}

    def unread_of(self, run: str) -> dict[str, str]:
        """Where to note what of this run (its path; "" = of the root) is not read; forgets what stood there before."""
        self._unread[run] = {}
        return self._unread[run]

    def cannot_read(self, run: str, path: str, why: str) -> None:
        """Note one file more. `path`: below the run folder."""
        self._unread[run][path] = why

    def replaced(self, run: str, name: str) -> None:
        """A segment is not what was read of it: told once, for the index then holds what the file holds."""
        where = f"{run}/segments/{name}"
        why = "shortened or replaced after it was read, so the run was read again; restore it if rows are missing"
        log.warning("%s: %s", where, why)
        self._seen[where] = why

    def look_for_two(self, run: Run, grown: list[SegmentFile]) -> None:
        """A rank that still writes under an older launch while a newer one has it too is a second process. `grown`:
        files that are read to their end; what waited to be read says nothing about now.
        """
        for file in grown:
            mine = run.segments[file.name]
            if mine.launch_no is None or mine.rank is None:
                continue
            newer = [
                s.name
                for s in run.segments.values()
                if s.rank == mine.rank and s.launch_no is not None and s.launch_no > mine.launch_no
            ]
            self._talking[run.run_key, file.name] += bool(newer)
            if self._talking[run.run_key, file.name] >= TWO_TICKS:
                self._seen[run.path] = (
                    f"two processes write as rank {mine.rank}, into {file.name} and {newer[-1]}, and only the newer "
                    "counts; pass rank= and ranks= to each Recorder, or end the other process"
                )
