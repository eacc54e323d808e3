"""weight_imbalance: tokens of correct answers come to weigh more than those of wrong ones. Off until measured.

The mean weight w over all tokens with A>0 minus that over A<0: an up-shift. ASPO (arXiv 2510.06062) names the
cause: the ratio of tokens that already gained keeps growing, so their weight does as well.

>>> from regimescope.detectors.rules import load_rules
>>> from regimescope.detectors.point import Point
>>> from regimescope.detectors.declared import Declared
>>> rules = load_rules()
>>> detector, point = WeightImbalance(rules["weight_imbalance"], rules.core), Point(Declared())
>>> for step in range(34):
...     heavy = {"R1.weight_mean": 1.05 if step < 30 else 1.6, "R1.token_frac": 0.3}
...     point.begin(step, heavy | {"R4.weight_mean": 0.95, "R4.token_frac": 0.3})
...     reading = detector.update(point)
>>> reading.level, reading.onset, round(reading.evidence["weight_gap"], 2)
('info', 29, 0.65)
"""

from __future__ import annotations

from collections.abc import Mapping

from regimescope.detectors.core import Shift, identity
from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule

POSITIVE = ("R1", "R2", "pos_eq1")
NEGATIVE = ("R3", "R4", "neg_eq1")


class WeightImbalance(Detector):
    """Needs tokens on both sides; a step of one sign alone has no difference."""

    __slots__ = ("_core", "_shift", "_streaks")
    has_grace = True

    def __init__(self, rule: Rule, core: Mapping[str, float]) -> None:
        super().__init__(rule)
        self._core = core
        self._shift = Shift(identity, 1, rule.numbers["floor"], core)
        self._streaks = Streaks(rule)

    def update(self, point: Point) -> Reading | None:
        positive, negative = _mean_weight(point, POSITIVE), _mean_weight(point, NEGATIVE)
        if positive is None or negative is None or not point.clean:
            return None
        shift, condition = self._shift, self.rule.levels["info"]
        shift.update(point.step, positive - negative)
        moved = shift.evidence > condition.evidence and shift.effect > condition.effect
        reached = self._streaks.update(point.step, "info" if moved else None)
        if not moved and not (shift.evidence >= self._core["h"] / 4 and shift.effect >= condition.effect / 2):
            return QUIET
        return Reading(
            level=reached, pending="info" if moved else None, holds=True, onset=shift.onset,
            score=shift.evidence / self._core["h"], size=shift.effect, direction="up",
            evidence={"weight_gap": positive - negative, "weight_positive": positive, "weight_negative": negative},
        )  # fmt: skip

    def reseat(self) -> None:
        self._shift.reseat()


def _mean_weight(point: Point, buckets: tuple[str, ...]) -> float | None:
    """Over all tokens of these buckets; None without any."""
    total = tokens = 0.0
    for bucket in buckets:
        share, weight = point.get(f"{bucket}.token_frac"), point.get(f"{bucket}.weight_mean")
        if share and weight is not None:
            total += share * weight
            tokens += share
    return total / tokens if tokens else None
