"""How far the tail is: bytes not read yet and for how long, what was lost, when the last tick was. Kept in memory, so
that GET /api/health can tell it while the index is unusable.

Everything is timed by this process's clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from regimescope.monitor.segments import find_runs, list_segments


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """One segment, as the index has it."""

    offset: int
    "Bytes read."
    lost: int
    dropped: int
    bad_lines: int
    refused: str | None
    "Why nothing more of it is read."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The tail of one run."""

    path: str
    unread_bytes: int
    "Of files that are not refused."
    lag_s: float
    "How long the oldest unread byte waits at most; 0 = nothing is unread."
    lost: int
    "Holes in the sequence numbers."
    dropped: int
    "What the recorder says it dropped."
    bad_lines: int
    refused: int
    "Files of which nothing more is read."


class Progress:
    """Written by the thread that ingests, read by any."""

    def __init__(self) -> None:
        self._files: dict[str, Mapping[str, FileRead]] = {}
        self._behind_since: dict[str, float] = {}  # path -> when a tick first left lines of it unread
        self._ticked = time.monotonic()
        self.ticks = 0
        "Ticks that went through."

    def ticked(
        self, started: float, files: Mapping[str, Mapping[str, FileRead]], behind: Iterable[str], paths: Iterable[str]
    ) -> None:
        """A tick went through. `started`: monotonic. `files`: runs of which something was read. `behind`: paths of
        which lines wait for the next tick. `paths`: all runs that there are.
        """
        self._files.update(files)
        for path in self._files.keys() - set(paths):
            del self._files[path]
        self._behind_since = {path: self._behind_since.get(path, started) for path in behind}
        self._ticked = started
        self.ticks += 1

    def idle(self, started: float) -> None:
        """A tick went through and found nothing."""
        self._behind_since = {}
        self._ticked = started
        self.ticks += 1

    @property
    def tick_age_s(self) -> float:
        """Seconds since the last tick that went through began."""
        return time.monotonic() - self._ticked

    @property
    def waiting_s(self) -> float:
        """Seconds for which lines that a tick left unread have waited; 0 = every tick reads all there is."""
        return max((time.monotonic() - since for since in dict(self._behind_since).values()), default=0.0)

    def runs(self, root: Path) -> list[RunProgress]:
        """Every run that is there, by path; looks at the sizes of its files now."""
        known = dict(self._files)
        return [self._run(root, path, known.get(path, {})) for path in sorted({*known, *find_runs(root)})]

    def _run(self, root: Path, path: str, known: Mapping[str, FileRead]) -> RunProgress:
        unread = 0
        for file in list_segments(root / path):
            read = known.get(file.name)
            if read is None:
                unread += file.size
            elif read.refused is None:
                unread += max(0, file.size - read.offset)
        since = self._behind_since.get(path, self._ticked)
        return RunProgress(
            path=path,
            unread_bytes=unread,
            lag_s=max(0.0, time.monotonic() - since) if unread else 0.0,
            lost=sum(f.lost for f in known.values()),
            dropped=sum(f.dropped for f in known.values()),
            bad_lines=sum(f.bad_lines for f in known.values()),
            refused=sum(f.refused is not None for f in known.values()),
        )
