"""exploration_decay: accuracy loses what it had gained, slowly, while entropy says in which direction exploration went
wrong.

A draw-down of an exponential mean of accuracy from its peak, beyond its own noise. Healthy accuracy wanders as well, so
the draw-down alone has to be large; it may be smaller where other metrics moved with it since accuracy was at its top:
entropy, gradient norm or length up (*signs*). Up (entropy rose): too much weight on R1; down: too little. Any collapse
sets this off as well, which is why the collapse signatures inhibit it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regimescope.detectors.core import log_value
from regimescope.detectors.driver import BucketHistory, Move
from regimescope.detectors.entropy_moves import lowering, raising
from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.means import Ewma, NoisyEwma
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Severity

ENTROPY, LENGTH = "entropy_mean", "response_length_mean"
SIGNS = {ENTROPY: "sign_entropy", "grad_norm": "sign_grad_norm", LENGTH: "sign_length"}
"Metric to the number of the rule that its log must have risen by since the top of accuracy."

Condition = tuple[Severity, float, float]
"Severity, effect, evidence."


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """Where accuracy was highest."""

    value: float
    "Mean of the last points there."
    step: int
    "Of the middle one of them."
    beside: Mapping[str, float]
    "Log means of the metrics of SIGNS that were known."


class RecentTop:
    """Highest mean of `points` accuracies in the present block of points or the one before it.

    The highest of a whole run would be a lucky one of long ago; and an exponential mean at a warm start still holds the
    points before the climb.
    """

    __slots__ = ("_before", "_block", "_now", "_points", "_seen", "_steps")

    def __init__(self, points: int, block: int) -> None:
        self._points: deque[float] = deque(maxlen=points)
        self._steps: deque[int] = deque(maxlen=points)
        self._block = block
        self.restart()

    def restart(self) -> None:
        self._points.clear()
        self._steps.clear()
        self._seen = 0  # points of the present block
        self._now: Top | None = None
        self._before: Top | None = None

    def add(self, step: int, accuracy: float) -> None:
        self._points.append(accuracy)
        self._steps.append(step)

    def update(self, means: Mapping[str, Ewma]) -> Top:
        """After `add`, once there are enough points: the top as it is now."""
        if self._seen == self._block:
            self._before, self._now, self._seen = self._now, None, 0
        self._seen += 1
        points, now, before = self._points, self._now, self._before
        value = sum(points) / len(points)
        if now is None or value > now.value:
            beside = {name: mean.value for name, mean in means.items() if mean.count}
            self._now = now = Top(value=value, step=self._steps[len(points) // 2], beside=beside)
        return before if before is not None and before.value > now.value else now


class ExplorationDecay(Detector):
    """Draw-down > effect x peak and > evidence x standard error. The peak counts from `core.min_points` points on: the
    highest sustained mean, or with two signs the recent top where that is higher."""

    __slots__ = (
        "_accuracy", "_conditions", "_history", "_means", "_needed", "_peak", "_streaks", "_sustained", "_top",
        "_tops",
    )  # fmt: skip
    follows_data = True
    has_grace = True

    def __init__(self, rule: Rule, core: Mapping[str, float], history: BucketHistory) -> None:
        super().__init__(rule)
        numbers = rule.numbers
        self._accuracy, self._sustained = NoisyEwma(numbers["half_life"]), Ewma(numbers["peak_half_life"])
        self._means = {name: Ewma(numbers["half_life"]) for name in SIGNS}
        self._tops = RecentTop(int(numbers["top_points"]), int(numbers["top_block"]))
        self._needed = int(core["min_points"])
        self._history = history
        self._streaks = Streaks(rule)
        self._conditions = _conditions(rule)
        self._peak = 0.0  # highest sustained mean
        self._top: Top | None = None

    def update(self, point: Point) -> Reading | None:
        accuracy = point.get("accuracy")
        if accuracy is None or not point.clean:
            return None
        mean = self._accuracy
        mean.update(accuracy)
        self._sustained.update(accuracy)
        self._tops.add(point.step, accuracy)
        for name, other in self._means.items():
            value = point.get(name)
            if value is not None:
                other.update(log_value(value))
        if mean.count < self._needed:
            return QUIET
        self._peak = max(self._peak, self._sustained.value)
        self._top = top = self._tops.update(self._means)
        least = self.rule.levels["warning"].effect
        high = max(self._peak, top.value)
        if self._peak - mean.value > least / 2 * self._peak or high - mean.value > least * high:
            signs, count = self._signs()
            peak = high if count > 1 else self._peak
            if peak - mean.value > least / 2 * peak:
                return self._reading(point, peak, signs, self._conditions[min(count, 2)])
        self._streaks.update(point.step, None)  # most points: the standard error, which costs, is not needed
        return QUIET

    def _reading(self, point: Point, peak: float, signs: Sequence[str], conditions: Sequence[Condition]) -> Reading:
        mean = self._accuracy
        drop, noise = peak - mean.value, mean.standard_error()
        level: Severity | None = None
        for name, effect, evidence in conditions:
            if drop > effect * peak and drop > evidence * noise:
                level = name
        _, effect, evidence = conditions[0]
        share = drop / peak
        score = share / effect
        if noise > 0:
            score = min(score, drop / (evidence * noise))
        return Reading(
            level=self._streaks.update(point.step, level), pending=level, holds=True,
            onset=self._top.step if self._top else point.step, size=share, score=score, direction=self._direction(),
            evidence={
                "accuracy_mean": mean.value, "accuracy_peak": peak, "share_lost": share, "standard_error": noise,
                "log_entropy_change": self._change(ENTROPY), "also_up": ", ".join(signs) or None,
            },
        )  # fmt: skip

    @property
    def mean(self) -> float:
        """Of accuracy, at the newest point; 0 before the first."""
        return self._accuracy.value

    def _signs(self) -> tuple[list[str], int]:
        """Metrics that rose since accuracy was at its top, and what they count: much longer answers count twice."""
        numbers, signs, count = self.rule.numbers, [], 0
        for name, least in SIGNS.items():
            change = self._change(name)
            if change is not None and change > numbers[least]:
                signs.append(name)
                count += 2 if name == LENGTH and change > numbers["sign_length_twice"] else 1
        return signs, count

    def _change(self, name: str) -> float | None:
        """Of the log mean of a metric since accuracy was at its top."""
        if self._top is None or name not in self._top.beside:
            return None
        return self._means[name].value - self._top.beside[name]

    def _direction(self) -> str:
        change = self._change(ENTROPY)
        if change is None:
            return "unclear"
        if abs(change) > self.rule.numbers["entropy_change"]:
            return "up" if change > 0 else "down"
        effect = self._history.largest_entropy_effect()
        return "unclear" if effect is None or effect == 0 else "up" if effect > 0 else "down"

    def moves(self, direction: str | None) -> Sequence[Move]:
        if direction == "up":
            return lowering()
        onset = self._top.step if self._top else 0
        return raising(self._history, onset) if direction == "down" else ()

    def reseat(self) -> None:
        for mean in (self._accuracy, self._sustained, *self._means.values()):
            mean.restart()
        self._tops.restart()
        self._peak, self._top = 0.0, None

    def warming(self) -> tuple[int, int] | None:
        return (self._accuracy.count, self._needed) if self._accuracy.count < self._needed else None


def _conditions(rule: Rule) -> Sequence[Sequence[Condition]]:
    """For no sign, one, and two or more; the mildest severity first."""
    numbers, warning, critical = rule.numbers, rule.levels["warning"], rule.levels["critical"]
    factors = (
        (1.0, 1.0, 1.0),
        (numbers["sign_effect"], numbers["one_sign"], numbers["one_sign"]),
        (numbers["sign_effect"], numbers["two_signs"], numbers["two_signs_critical"]),
    )
    return [
        (
            ("warning", warning.effect, warning.evidence * for_warning),
            ("critical", critical.effect * effect, critical.evidence * for_critical),
        )
        for effect, for_warning, for_critical in factors
    ]
