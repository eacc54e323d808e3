"""length_runaway: responses grow into the length limit.

Longer responses alone are no failure (reasoning grows), so the growth is an info until truncation rises with it; and
while reward rises as well it is taken as meant.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> for step in range(80):
...     grown = min(1.0, max(0, step - 40) / 20)
...     row = {"response_length_mean": 300 + 500 * grown, "truncated_frac": 0.02 + 0.5 * grown}
...     for finding in suite.update(step, row):
...         print(step, finding.signature, finding.severity, finding.state, "since", finding.step_onset)
53 length_runaway warning firing since 40
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regimescope.detectors.core import Shift, log_value, logit
from regimescope.detectors.distress import Benign
from regimescope.detectors.driver import RELAX_NEGATIVE, Move
from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Remedy, Severity

METRIC = "response_length_mean"


class LengthRunaway(Detector):
    """The up-shift of log length, a warning with truncation up within the last `core.recent` points."""

    __slots__ = ("_benign", "_core", "_cut_last", "_shift", "_streaks", "_truncated", "_warned")
    follows_data = True
    has_grace = True

    def __init__(self, rule: Rule, core: Mapping[str, float], benign: Benign) -> None:
        super().__init__(rule)
        self._core, self._benign = core, benign
        self._shift = Shift(log_value, 1, rule.numbers["floor"], core)
        self._truncated = Shift(logit, 1, core["share_floor"], core)
        self._cut_last: int | None = None  # newest point with truncation up
        self._streaks = Streaks(rule)
        self._warned = False  # at the newest point

    def update(self, point: Point) -> Reading | None:
        if not point.clean:
            return None
        truncated, length = point.get("truncated_frac"), point.get(METRIC)
        if truncated is not None:
            self._cut(point, truncated)
        if length is None:
            return None
        shift, info = self._shift, self.rule.levels["info"]
        shift.update(point.step, length)
        level: Severity | None = None
        if shift.effect > info.effect and shift.evidence > info.evidence:
            level = "warning" if self._recently_cut(point) and not self._benign.recent(point) else "info"
        reached = self._streaks.update(point.step, level)
        self._warned = reached == "warning"
        holds = shift.evidence >= self._core["h"] / 4 and shift.effect >= info.effect / 2
        if level is None and not holds:
            return QUIET
        return Reading(
            level=reached, pending=level, holds=holds, onset=shift.onset, score=shift.evidence / self._core["h"],
            size=shift.effect, direction="up",
            evidence={
                METRIC: length, "evidence": shift.evidence, "effect": shift.effect, "truncated_frac": truncated,
                "truncation_effect": self._truncated.effect, "benign": self._benign.recent(point),
            },
        )  # fmt: skip

    def _cut(self, point: Point, truncated: float) -> None:
        shift, warning = self._truncated, self.rule.levels["warning"]
        shift.update(point.step, truncated)
        risen = shift.effect > self.rule.numbers["truncation"] and shift.evidence > self._core["h"]
        if risen and truncated > warning.value:
            self._cut_last = point.index

    def _recently_cut(self, point: Point) -> bool:
        return self._cut_last is not None and point.index - self._cut_last < self._core["recent"]

    def remedy(self) -> Remedy | None:
        """None, so that one is looked for, only with truncation: growth alone moves no bound."""
        return None if self._warned else Remedy(text=self.rule.remedy)

    def moves(self, direction: str | None) -> Sequence[Move]:
        return tuple(move for move in RELAX_NEGATIVE if move.regime == "R3")  # loops often hide behind the length

    def reseat(self) -> None:
        self._shift.reseat()
        self._truncated.reseat()
        self._cut_last = None

    def warming(self) -> tuple[int, int] | None:
        if self._shift.scale is not None:
            return None
        return self._shift.seen, int(self._core["burn_in"] + self._core["min_points"])
