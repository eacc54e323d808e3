"""river's PageHinkley per metric, on the bad side, on values standardised by median and MAD of the first 45."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.scorecard.watchers import Alarm, metrics
from river.drift import PageHinkley

FIRST = 45


class Watcher:
    """Silent for the first 45 points of a metric; those are its reference."""

    def __init__(self, folder: Path, objective: str) -> None:
        self._first: dict[str, list[float]] = {}
        self._scale: dict[str, tuple[float, float]] = {}
        self._rules: dict[str, PageHinkley] = {}

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        return [Alarm(name, "warning") for name, value in metrics.watched(row) if self._drifts(name, value)]

    def _drifts(self, name: str, value: float) -> bool:
        if name not in self._scale:
            first = self._first.setdefault(name, [])
            first.append(value)
            if len(first) == FIRST:
                middle = median(first)
                self._scale[name] = (middle, median(abs(x - middle) for x in first) or 1e-9)
                mode = "up" if metrics.WORSE[name] > 0 else "down"
                self._rules[name] = PageHinkley(min_instances=10, delta=0.5, threshold=20, mode=mode)
            return False
        middle, mad = self._scale[name]
        rule = self._rules[name]
        rule.update((value - middle) / mad)
        return bool(rule.drift_detected)

    def close(self) -> None:
        pass
