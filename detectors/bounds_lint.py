"""The bounds lint: what the configuration alone tells about the negative pair, at start and at every revision.

DISPO (2602.00983) reports sudden collapse of its CISPO runs when either bound of A<0 is tight. Reported apart from what
detectors find; a bound is proposed as soon as it is declared, before it binds.

>>> from regimescope.detectors import Event, Suite
>>> start = Event(kind="start", step=0, data={"objective": "dispo", "neg.w_min": 1.0, "neg.w_max": 11.0})
>>> for finding in Suite().update(0, {}, [start]):
...     print(finding.signature, finding.rule, finding.severity, finding.remedy.direction, finding.remedy.target)
bounds_lint bounds_r3 info raise 101.0
bounds_lint bounds_r4 warning lower 0.0
"""

from __future__ import annotations

import math
from abc import abstractmethod

from regimescope.detectors.declared import Declared
from regimescope.detectors.lifecycle import QUIET, Reading
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Direction, Remedy, Severity

WEIGHTED = ("dispo", "cispo")
"Objectives that cap the weight on both sides; elsewhere a bound of A<0 is PPO's ordinary clip."
GATED = ("dapo", "grpo")
"Objectives whose upper bound of A<0, where there is one, is verl's dual clip."


class _Lint(Detector):
    """Judges the declared bounds when they change, and repeats the answer in between."""

    __slots__ = ("_reading", "_version")

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._version = -1
        self._reading = QUIET

    def update(self, point: Point) -> Reading | None:
        if point.declared.version != self._version:
            self._version = point.declared.version
            self._reading = self._judge(point)
        if self._reading.level == "warning":
            point.signs.add(self.rule.name)
        return self._reading

    def _judge(self, point: Point) -> Reading:
        value = _bound(point.declared, self.rule.metric)
        level = None if value is None else self._level(value, _kind(point.declared))
        if level is None:
            return QUIET
        evidence = {self.rule.metric: value, "objective": point.declared.objective}
        return Reading(level=level, pending=level, holds=True, onset=point.step, evidence=evidence)

    @abstractmethod
    def _level(self, value: float, kind: str | None) -> Severity | None:
        """Severity of this value of the bound; None = nothing to say."""

    def remedy(self) -> Remedy:
        target = self.rule.levels["info"].value
        direction: Direction = "lower" if self.rule.metric == "neg.w_min" else "raise"
        return Remedy(bound=self.rule.metric, direction=direction, target=target, text=self.rule.remedy)


class UpperBound(_Lint):
    """w_max of A<0 below 101: R3 is cut."""

    __slots__ = ()

    def _level(self, value: float, kind: str | None) -> Severity | None:
        if value <= self.rule.levels["warning"].value and kind in WEIGHTED:
            return "warning"
        return "info" if value < self.rule.levels["info"].value and kind is not None else None


class LowerBound(_Lint):
    """w_min of A<0 above 0: R4 keeps weight."""

    __slots__ = ()

    def _level(self, value: float, kind: str | None) -> Severity | None:
        if kind not in WEIGHTED:
            return None
        if value >= self.rule.levels["warning"].value:
            return "warning"
        return "info" if value > self.rule.levels["info"].value else None


def _kind(declared: Declared) -> str | None:
    name = (declared.objective or "").lower()
    return next((known for known in WEIGHTED + GATED if name.startswith(known)), None)


def _bound(declared: Declared, name: str) -> float | None:
    """The bound in force; None where there is nothing to say: unknown, none, a side with base 1, A<0 switched off."""
    value = declared.bounds.get(name)
    if value is None or not math.isfinite(value) or declared.bases.get("neg") == "1":
        return None
    return None if declared.bounds.get("neg.w_max") == 0 else value
