"""Ours, at the rules that are shipped: warnings and criticals, when they open and when they rise. Infos are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.detectors.given_runs import BOUNDS
from benchmarks.scorecard.watchers import Alarm

from regimescope.detectors import Event, Suite


class Watcher:
    """The bounds of the row become events, where the row has them."""

    def __init__(self, folder: Path, objective: str) -> None:
        self._suite = Suite()
        self._objective = objective
        self._bounds: dict[str, float] | None = None
        self._said: dict[tuple[str, int], str] = {}

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        step = int(row["step"])
        alarms = []
        for finding in self._suite.update(step, row, self._events(step, row)):
            episode = (finding.rule, finding.ordinal)
            if finding.severity != "info" and self._said.get(episode) != finding.severity:
                self._said[episode] = finding.severity
                alarms.append(Alarm(finding.signature, finding.severity))
        return alarms

    def _events(self, step: int, row: Mapping[str, float]) -> list[Event]:
        bounds = {name: row[name] for name in BOUNDS if name in row}
        before, self._bounds = self._bounds, bounds
        if before is None:
            data = {"objective": self._objective, "ratio_source": "behaviour", **bounds}
            return [Event(kind="start", step=step, data=data if bounds else {})]
        if bounds and bounds != before:
            return [Event(kind="bounds_changed", step=step, data=bounds)]
        return []

    def close(self) -> None:
        pass
