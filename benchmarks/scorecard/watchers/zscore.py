"""The z-score rule that W&B's alerts offer: a value more than 3 standard deviations off the mean of the 30 values
before it, on the bad side, metric by metric."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from benchmarks.scorecard.watchers import Alarm, metrics

WINDOW, THRESHOLD = 30, 3.0


class Watcher:
    """One window per metric."""

    def __init__(self, folder: Path, objective: str) -> None:
        self._windows: dict[str, deque[float]] = {}

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        alarms = []
        for name, value in metrics.watched(row):
            window = self._windows.setdefault(name, deque(maxlen=WINDOW))
            if len(window) == WINDOW:
                mean = sum(window) / WINDOW
                sd = math.sqrt(sum((x - mean) ** 2 for x in window) / WINDOW)
                if metrics.WORSE[name] * (value - mean) > THRESHOLD * sd > 0:
                    alarms.append(Alarm(name, "warning"))
            window.append(value)
        return alarms

    def close(self) -> None:
        pass
