"""reward_stall: accuracy gains nothing for a long stretch, and there is still something to gain. Off.

An exponential mean of accuracy against the same mean `span` points ago; less than two standard errors more is no gain.

>>> from regimescope.detectors.rules import load_rules
>>> from regimescope.detectors.point import Point
>>> from regimescope.detectors.declared import Declared
>>> detector, point = RewardStall(load_rules()["reward_stall"]), Point(Declared())
>>> for step in range(200):
...     point.begin(step, {"accuracy": min(0.6, 0.3 + 0.01 * step)})
...     if detector.update(point).level:
...         break
>>> step > 130
True
"""

from __future__ import annotations

from collections import deque

from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.means import NoisyEwma
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule


class RewardStall(Detector):
    """Speaks after `span` points at the earliest."""

    __slots__ = ("_mean", "_past", "_streaks")
    follows_data = True
    has_grace = True

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._mean = NoisyEwma(rule.numbers["half_life"])
        self._past: deque[tuple[int, float]] = deque(maxlen=int(rule.numbers["span"]))
        self._streaks = Streaks(rule)

    def update(self, point: Point) -> Reading | None:
        accuracy = point.get("accuracy")
        if accuracy is None or not point.clean:
            return None
        self._mean.update(accuracy)
        full = len(self._past) == self._past.maxlen
        since, before = self._past[0] if full else (point.step, 0.0)
        self._past.append((point.step, self._mean.value))
        if not full:
            return QUIET
        condition = self.rule.levels["info"]
        gain, error = self._mean.value - before, self._mean.standard_error()
        stalled = gain <= condition.evidence * error and self._mean.value < condition.value
        reached = self._streaks.update(point.step, "info" if stalled else None)
        if not stalled:
            return QUIET
        evidence = {"accuracy_mean": self._mean.value, "gain": gain, "standard_error": error}
        return Reading(level=reached, pending="info", holds=True, onset=since, evidence=evidence)

    def reseat(self) -> None:
        self._mean.restart()
        self._past.clear()

    def warming(self) -> tuple[int, int] | None:
        span = int(self.rule.numbers["span"])
        return (len(self._past), span) if len(self._past) < span else None
