"""zero_signal: nearly all groups have equal rewards, so their advantages are 0 and nothing is learnt from them.

All wrong is a failure, of the data's difficulty or of what came before; all correct means that the data are solved,
which is an info. Needs no reference: a run that is dead from its first step is found as well.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> for step in range(20):
...     for finding in suite.update(step, {"zero_variance_frac": 0.95, "all_wrong_frac": 0.9}):
...         print(step, finding.signature, finding.severity, finding.state, finding.evidence["kind"])
9 zero_signal warning firing mostly all wrong
"""

from __future__ import annotations

from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Severity

METRIC = "zero_variance_frac"


class ZeroSignal(Detector):
    """zero_variance_frac above its value: info; a warning where at least `effect` of those groups are all wrong. Where
    the log cannot tell, only a run that never had a signal is warned about: others may have mastered their data."""

    __slots__ = ("_had_signal", "_streaks")

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._streaks = Streaks(rule)
        self._had_signal = False

    def update(self, point: Point) -> Reading | None:
        dead = point.get(METRIC)
        if dead is None or not point.clean:
            return None
        info, warning = self.rule.levels["info"], self.rule.levels["warning"]
        if dead <= info.value:
            self._had_signal = True
            self._streaks.update(point.step, None)
            return QUIET
        wrong = _wrong(point, dead)
        suspect = dead > warning.value and (not self._had_signal if wrong is None else wrong >= warning.effect)
        level: Severity = "warning" if suspect else "info"
        reached = self._streaks.update(point.step, level)
        return Reading(
            level=reached, pending=level, holds=True, onset=self._streaks.since(point.step), score=dead / info.value,
            size=dead, evidence={METRIC: dead, "wrong_share": wrong, "kind": _kind(wrong, warning.effect)},
        )  # fmt: skip


def _wrong(point: Point, dead: float) -> float | None:
    """Share of the dead groups that are all wrong, from whichever column tells; None: none does."""
    all_wrong, all_correct = point.get("all_wrong_frac"), point.get("all_correct_frac")
    if all_wrong is not None:
        return min(1.0, all_wrong / dead)
    if all_correct is not None:
        return max(0.0, 1 - all_correct / dead)
    accuracy = point.get("accuracy")
    if accuracy is None:
        return None
    correct = accuracy - (1 - dead) / 2  # half of the responses of the other groups, give or take
    return min(1.0, max(0.0, 1 - correct / dead))


def _kind(wrong: float | None, half: float) -> str:
    if wrong is None:
        return "unknown"
    return "mostly all wrong" if wrong >= half else "mostly all correct"
