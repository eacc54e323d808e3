"""exploration_decay: accuracy loses what it had gained, slowly, while entropy says in which direction exploration went
wrong.

A draw-down of an exponential mean of accuracy from its peak, beyond its own noise. Up (entropy rose since the peak):
too much weight on R1; down: too little. Any collapse sets this off as well, which is why the collapse signatures
inhibit it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regimescope.detectors.core import log_value
from regimescope.detectors.driver import BucketHistory, Move
from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.means import Ewma, NoisyEwma
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Severity

MOVES: Mapping[str, tuple[Move, ...]] = {
    "up": (
        Move(regime="R1", entropy=True, bound="pos.w_max", direction="lower", target=1.28),
        Move(regime="R2", side="low", entropy=True, bound="pos.w_min", direction="lower", target=0.0),
    ),
    "down": (
        Move(regime="R1", side="high", bound="pos.w_max", direction="raise", target=11.0),
        Move(regime="R2", entropy=True, bound="pos.w_min", direction="raise", target=0.8),
    ),
    "unclear": (),
}
"Direction only; 2602.00983 and docs/signatures/exploration_decay.md."


class ExplorationDecay(Detector):
    """Draw-down > effect x peak and > evidence x standard error. The peak counts from `core.min_points` points on."""

    __slots__ = (
        "_accuracy",
        "_entropy",
        "_entropy_at_top",
        "_history",
        "_needed",
        "_peak",
        "_streaks",
        "_sustained",
        "_top",
        "_top_step",
    )
    follows_data = True
    has_grace = True

    def __init__(self, rule: Rule, core: Mapping[str, float], history: BucketHistory) -> None:
        super().__init__(rule)
        self._accuracy, self._entropy = NoisyEwma(rule.numbers["half_life"]), Ewma(rule.numbers["half_life"])
        self._sustained = Ewma(rule.numbers["peak_half_life"])
        self._needed = int(core["min_points"])
        self._history = history
        self._streaks = Streaks(rule)
        self._peak = 0.0  # highest sustained mean
        self._top = 0.0  # highest mean: where the decay began
        self._top_step = 0
        self._entropy_at_top: float | None = None

    def update(self, point: Point) -> Reading | None:
        accuracy = point.get("accuracy")
        if accuracy is None or not point.clean:
            return None
        self._accuracy.update(accuracy)
        self._sustained.update(accuracy)
        entropy = point.get("entropy_mean")
        if entropy is not None:
            self._entropy.update(log_value(entropy))
        mean = self._accuracy
        if mean.count < self._needed:
            return QUIET
        self._peak = max(self._peak, self._sustained.value)
        if mean.value >= self._top:
            self._top, self._top_step = mean.value, point.step
            self._entropy_at_top = self._entropy.value if self._entropy.count else None
        drop, warning = self._peak - mean.value, self.rule.levels["warning"]
        if drop < warning.effect / 2 * self._peak:  # most points: the standard error, which costs, is not needed
            self._streaks.update(point.step, None)
            return QUIET
        noise = mean.standard_error()
        level: Severity | None = None
        for name, condition in self.rule.levels.items():
            if drop > condition.effect * self._peak and drop > condition.evidence * noise:
                level = "critical" if name == "critical" else "warning"
        reached = self._streaks.update(point.step, level)
        share = drop / self._peak if self._peak else 0.0
        score = share / warning.effect
        if noise > 0:
            score = min(score, drop / (warning.evidence * noise))
        return Reading(
            level=reached, pending=level, holds=True, onset=self._top_step, size=share, score=score,
            direction=self._direction(),
            evidence={
                "accuracy_mean": mean.value, "accuracy_peak": self._peak, "share_lost": share, "standard_error": noise,
                "log_entropy_change": self._entropy_change(),
            },
        )  # fmt: skip

    @property
    def mean(self) -> float:
        """Of accuracy, at the newest point; 0 before the first."""
        return self._accuracy.value

    def _entropy_change(self) -> float | None:
        return None if self._entropy_at_top is None else self._entropy.value - self._entropy_at_top

    def _direction(self) -> str:
        change = self._entropy_change()
        if change is None:
            return "unclear"
        if abs(change) > self.rule.numbers["entropy_change"]:
            return "up" if change > 0 else "down"
        effect = self._history.largest_entropy_effect()
        return "unclear" if effect is None or effect == 0 else "up" if effect > 0 else "down"

    def moves(self, direction: str | None) -> Sequence[Move]:
        return MOVES[direction or "unclear"]

    def reseat(self) -> None:
        self._accuracy.restart()
        self._sustained.restart()
        self._entropy.restart()
        self._peak = self._top = 0.0

    def warming(self) -> tuple[int, int] | None:
        return (self._accuracy.count, self._needed) if self._accuracy.count < self._needed else None
