"""Ours, at the rules that are shipped: warnings and criticals, when they open and when they rise. Infos are none. An
alert that another one explains is dimmed on the page, and here: it finds nothing and is no false alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scorecard.watchers import DIMMED, Alarm

from regimescope.detectors import Event, Slices, Suite
from regimescope.detectors.declared import BOUNDS

Episode = tuple[str, str | None, int]
"Rule, slice, ordinal."


class Watcher:
    """`tell` before `update`: events and env slices of the row, as the monitor gives them. Without it the bounds of the
    row become events, where the row has them."""

    def __init__(self, folder: Path, objective: str) -> None:
        self._suite = Suite()
        self._slices = Slices(self._suite)
        self._objective = objective
        self._bounds: dict[str, float] | None = None
        self._told: list[Event] | None = None
        self._parts: Mapping[str, Mapping[str, float]] = {}
        self._said: dict[Episode, str] = {}

    def tell(self, events: Sequence[tuple[str, int, dict[str, Any]]], parts: Mapping[str, Mapping[str, float]]) -> None:
        self._told = [Event(kind=kind, step=step, data=data) for kind, step, data in events]
        self._parts = parts

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        step = int(row["step"])
        events = self._events(step, row) if self._told is None else self._told
        found = self._suite.update(step, row, events)
        if self._told is not None:
            found = [*found, *self._slices.update(step, self._parts, events)]
        alarms = []
        for finding in found:
            episode = (finding.rule, finding.slice, finding.ordinal)
            level = finding.severity if finding.inhibited_by is None else DIMMED
            if finding.severity != "info" and self._said.get(episode) != level:
                self._said[episode] = level
                alarms.append(Alarm(finding.signature, level))
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
