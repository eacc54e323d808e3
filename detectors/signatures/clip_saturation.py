"""clip_saturation: a bound came to hold a large share of its regime's tokens. Off until measured.

Per regime the side that can bind there (r > 1 in R1 and R3: high; r < 1 in R2 and R4: low): an up-shift of the clipped
share that ends above a level. R3 held down or R4 held up is what the collapses are made of, so these warn.

>>> from regimescope.detectors.rules import load_rules
>>> from regimescope.detectors.point import Point
>>> from regimescope.detectors.declared import Declared
>>> rules = load_rules()
>>> detector, point = ClipSaturation(rules["clip_saturation"], rules.core), Point(Declared())
>>> for step in range(34):
...     point.begin(step, {"R4.clip_low_frac": 0.05 if step < 30 else 0.8})
...     reading = detector.update(point)
>>> reading.level, reading.onset, reading.evidence["binds"]
('warning', 29, 'R4.clip_low_frac')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regimescope.detectors.core import Shift, logit
from regimescope.detectors.driver import RELAX_NEGATIVE, Move
from regimescope.detectors.lifecycle import QUIET, RANK, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Evidence, Severity

SIDES: Mapping[str, Severity] = {
    "R1.clip_high_frac": "info",
    "R2.clip_low_frac": "info",
    "R3.clip_high_frac": "warning",
    "R4.clip_low_frac": "warning",
}
"The share to watch and how much it says."


class ClipSaturation(Detector):
    """One alert for the four sides; silent where the ratio is to a policy that generated nothing (proximal)."""

    __slots__ = ("_core", "_shifts", "_streaks")
    has_grace = True

    def __init__(self, rule: Rule, core: Mapping[str, float]) -> None:
        super().__init__(rule)
        self._core = core
        self._shifts = {name: Shift(logit, 1, core["share_floor"], core) for name in SIDES}
        self._streaks = Streaks(rule)

    def update(self, point: Point) -> Reading | None:
        if not point.clean or point.declared.ratio_source == "proximal":
            return None
        seen = {name: value for name in SIDES if (value := point.get(name)) is not None}
        if not seen:
            return None
        condition = self.rule.levels["info"]
        level: Severity | None = None
        leading: str | None = None
        for name, value in seen.items():
            shift = self._shifts[name]
            shift.update(point.step, value)
            moved = shift.evidence > condition.evidence and shift.effect > condition.effect
            if moved and value > condition.value and RANK[SIDES[name]] > RANK[level]:
                level, leading = SIDES[name], name
        reached = self._streaks.update(point.step, level)
        if leading is None:
            leading = self._holding()
        if leading is None:
            return QUIET
        shift = self._shifts[leading]
        return Reading(
            level=reached, pending=level, holds=True, onset=shift.onset, score=shift.evidence / self._core["h"],
            size=shift.effect, direction="up", evidence=self._evidence(seen, leading),
        )  # fmt: skip

    def _holding(self) -> str | None:
        """A side whose shift is not over yet."""
        least, quarter = self.rule.levels["info"].effect / 2, self._core["h"] / 4
        held = (name for name, shift in self._shifts.items() if shift.evidence >= quarter and shift.effect >= least)
        return next(held, None)

    @staticmethod
    def _evidence(seen: Mapping[str, float], leading: str) -> Evidence:
        return {"binds": leading, **seen}

    def moves(self, direction: str | None) -> Sequence[Move]:
        return RELAX_NEGATIVE

    def reseat(self) -> None:
        for shift in self._shifts.values():
            shift.reseat()
