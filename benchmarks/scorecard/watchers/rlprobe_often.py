"""rlprobe, asked every 5 rows: what it would find if it were asked more often than by default."""

from __future__ import annotations

from benchmarks.scorecard.watchers import rlprobe


class Watcher(rlprobe.Watcher):
    """The same, more often."""

    every = 5
