"""A sharp loss of accuracy: the newest few points against the best mean shortly before.

`add(accuracy)` per point; `update(step)` where accuracy may have been lost, `quiet()` elsewhere. An exponential mean
needs its half-life to follow such a fall, and takes it for noise while few points are known. So this compares plain
means, and takes the noise from the points up to the top, before the fall. Memory: the last `within` points and a mean.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import fmean

from regimescope.detectors.lifecycle import Streak
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Severity

_BESIDES = 1.5  # what is not white noise
_FEW = 6  # the noise of n points counts 1 + 6/n times


class SharpLoss:
    """Critical while the mean of `newest_points` has lost `effect` of the best mean of `top_points`, beyond `evidence`
    standard errors, for so many points in a row.

    >>> from regimescope.detectors import load_rules
    >>> loss = SharpLoss(load_rules()["exploration_decay_sharp"])
    >>> for step in range(40):
    ...     loss.add(0.7 + 0.02 * (step % 3) if step < 30 else 0.3)
    ...     if loss.update(step):
    ...         print(step, round(loss.share, 2))
    ...         break
    35 0.58
    """

    __slots__ = ("_newest", "_points", "_streak", "_tops", "rule", "share")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        numbers = rule.numbers
        self._newest, self._tops = int(numbers["newest_points"]), int(numbers["top_points"])
        self._points: deque[float] = deque(maxlen=self._tops + int(numbers["within"]))
        self._streak = Streak(rule.levels["critical"].points)
        self.share = 0.0  # of the top that is lost; 0 where it is no sharp loss

    def add(self, accuracy: float) -> None:
        self._points.append(accuracy)

    def update(self, step: int) -> Severity | None:
        """critical once it has held long enough."""
        critical, points = self.rule.levels["critical"], list(self._points)
        width = min(self._tops, len(points))
        top, end = max((fmean(points[i - width : i]), i) for i in range(width, len(points) + 1))
        drop = top - fmean(points[-self._newest :])
        holds = top >= critical.value and drop > max(
            critical.effect * top, critical.evidence * self._noise(points[:end])
        )
        self.share = drop / top if holds else 0.0
        return "critical" if self._streak.update(step, holds) else None

    def quiet(self) -> None:
        """Accuracy is near its top."""
        self._streak.count, self.share = 0, 0.0

    def restart(self) -> None:
        """After a resume or a change of bounds or data."""
        self._points.clear()
        self.quiet()

    def _noise(self, points: list[float]) -> float:
        """Standard error of the difference between the two means, from differences of neighbouring points."""
        if len(points) < 2:
            return math.inf
        near = fmean(abs(b - a) for a, b in pairwise(points))
        share = 1 / self._newest + 1 / self._tops
        return _BESIDES * near / 2 * math.sqrt(math.pi * share) * (1 + _FEW / len(points))
