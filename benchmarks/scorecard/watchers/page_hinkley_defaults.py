"""river's PageHinkley per metric at its defaults, on raw values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from benchmarks.scorecard.watchers import Alarm, metrics
from river.drift import PageHinkley


class Watcher:
    """One rule per metric."""

    def __init__(self, folder: Path, objective: str) -> None:
        self._rules: dict[str, PageHinkley] = defaultdict(PageHinkley)

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        alarms = []
        for name, value in metrics.watched(row):
            self._rules[name].update(value)
            if self._rules[name].drift_detected:
                alarms.append(Alarm(name, "warning"))
        return alarms

    def close(self) -> None:
        pass
