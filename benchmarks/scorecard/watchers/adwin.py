"""river's ADWIN per metric, looked at after each value; a change either way is an alarm, it knows no bad side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.scorecard.watchers import Alarm, metrics
from river.drift import ADWIN


class Watcher:
    """One window per metric."""

    def __init__(self, folder: Path, objective: str) -> None:
        self._rules: dict[str, ADWIN] = {}

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        alarms = []
        for name, value in metrics.watched(row):
            rule = self._rules.setdefault(name, ADWIN(clock=1))
            rule.update(value)
            if rule.drift_detected:
                alarms.append(Alarm(name, "warning"))
        return alarms

    def close(self) -> None:
        pass
