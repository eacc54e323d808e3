"""negative_push: tokens of wrong answers are pushed down further and further (R4), before anything else gives way.

An up-shift of the mean log r of R4, whose size doubles and passes ln 0.75, or of the share of tokens in R4; with the
gradient norm doubled it weighs more. A precursor: it was found in one group of runs, and healthy runs show it too.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> for step in range(40):
...     for finding in suite.update(step, {"R4.log_ratio_mean": -0.1 if step < 30 else -0.6}):
...         print(step, finding.signature, finding.severity, "since", finding.step_onset)
33 negative_push info since 29
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from regimescope.detectors.core import Shift, logit
from regimescope.detectors.distress import Distress
from regimescope.detectors.driver import RELAX_NEGATIVE, Move
from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Severity

LOG_RATIO = "R4.log_ratio_mean"
SHARE = "R4.token_frac"
_LEAST = 1e-3  # a mean log r of this size is next to none


def depth(log_ratio: float) -> float:
    """log of how far below 0 the mean log r lies."""
    return math.log(-log_ratio if log_ratio < -_LEAST else _LEAST)


class NegativePush(Detector):
    """Silent where the ratio is to another policy than the one that generated (proximal, infer)."""

    __slots__ = ("_core", "_distress", "_grad_norm_last", "_ratio", "_share", "_streaks")
    has_grace = True

    def __init__(self, rule: Rule, core: Mapping[str, float], distress: Distress) -> None:
        """`distress` watches the gradient norm."""
        super().__init__(rule)
        self._core, self._distress = core, distress
        self._ratio = Shift(depth, 1, rule.numbers["floor"], core)
        self._share = Shift(logit, 1, core["share_floor"], core)
        self._grad_norm_last: int | None = None  # point at which the gradient norm last was shifted
        self._streaks = Streaks(rule)

    def update(self, point: Point) -> Reading | None:
        log_ratio, share = point.get(LOG_RATIO), point.get(SHARE)
        if (log_ratio is None and share is None) or not point.clean:
            return None
        if point.declared.ratio_source in ("proximal", "infer"):
            return None
        if self._moved(self._distress.grad_norm, self.rule.numbers["grad_norm_effect"]):
            self._grad_norm_last = point.index
        if log_ratio is not None:
            self._ratio.update(point.step, log_ratio)
        if share is not None:
            self._share.update(point.step, share)
        if max(self._ratio.evidence, self._share.evidence) < self._core["h"] / 4 and not self._streaks.active:
            return QUIET
        condition = self.rule.levels["info"]
        deeper = log_ratio is not None and self._moved(self._ratio, condition.effect) and log_ratio < -condition.value
        more = share is not None and self._moved(self._share, self.rule.numbers["share_effect"])
        level: Severity | None = None
        if deeper or more:
            level = "warning" if "warning" in self.rule.levels and self._grad_norm_recent(point) else "info"
        reached = self._streaks.update(point.step, level)
        if level is None and not self._holds():
            return QUIET
        leading = self._ratio if deeper or not more else self._share
        return Reading(
            level=reached, pending=level, holds=True, onset=leading.onset,
            score=leading.evidence / self._core["h"], size=leading.effect, direction="up",
            evidence={
                LOG_RATIO: log_ratio, SHARE: share, "log_ratio_effect": self._ratio.effect,
                "share_effect": self._share.effect, "grad_norm_effect": self._distress.grad_norm.effect,
            },
        )  # fmt: skip

    def _moved(self, shift: Shift, effect: float) -> bool:
        return shift.evidence > self._core["h"] and shift.effect > effect

    def _grad_norm_recent(self, point: Point) -> bool:
        return self._grad_norm_last is not None and point.index - self._grad_norm_last < self._core["recent"]

    def _holds(self) -> bool:
        quarter = self._core["h"] / 4
        pairs = ((self._ratio, self.rule.levels["info"].effect), (self._share, self.rule.numbers["share_effect"]))
        return any(shift.evidence >= quarter and shift.effect >= effect / 2 for shift, effect in pairs)

    def moves(self, direction: str | None) -> Sequence[Move]:
        return RELAX_NEGATIVE[:1]

    def reseat(self) -> None:
        for shift in (self._ratio, self._share):
            shift.reseat()

    def warming(self) -> tuple[int, int] | None:
        waiting = [shift for shift in (self._ratio, self._share) if shift.seen and shift.scale is None]
        if not waiting:
            return None
        return min(shift.seen for shift in waiting), int(self._core["burn_in"] + self._core["min_points"])
