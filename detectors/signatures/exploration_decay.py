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
from regimescope.detectors.sharp_loss import SharpLoss
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


class Means:
    """What the draw-down is read off: means of accuracy and of the metrics beside it, and the highest of them."""

    __slots__ = ("_index", "_least", "_needed", "_settled", "_tops", "accuracy", "beside", "peak", "sustained", "top")

    def __init__(self, rule: Rule, core: Mapping[str, float]) -> None:
        numbers = rule.numbers
        self.accuracy, self.sustained = NoisyEwma(numbers["half_life"]), Ewma(numbers["peak_half_life"])
        self.beside = {name: Ewma(numbers["half_life"]) for name in SIGNS}
        self._tops = RecentTop(int(numbers["top_points"]), int(numbers["top_block"]))
        self._needed, self._settled = int(core["min_points"]), int(core["settled"])
        self._least = rule.levels["warning"].effect
        self._index = -1  # of the newest point
        self.peak = 0.0  # highest sustained mean
        self.top: Top | None = None

    @property
    def empty(self) -> bool:
        """No point has entered."""
        return self._index < 0

    def update(self, point: Point, accuracy: float) -> bool:
        """Whether there are points enough. A point that another rule has given already enters once."""
        mean = self.accuracy
        if point.index == self._index:
            return mean.count >= self._needed
        self._index = point.index
        mean.update(accuracy)
        self.sustained.update(accuracy)
        self._tops.add(point.step, accuracy)
        for name, other in self.beside.items():
            value = point.get(name)
            if value is not None:
                other.update(log_value(value))
        if mean.count < self._needed:
            return False
        self.peak = max(self.peak, self.sustained.value)
        mean.moved = mean.count > self._settled and self.peak - mean.value > self._least * self.peak
        self.top = self._tops.update(self.beside)
        return True


class MeansPool:
    """The means of one suite: two rules read them, and nearly always the same ones."""

    __slots__ = ("_core", "_newest", "_rule")

    def __init__(self, rule: Rule, core: Mapping[str, float]) -> None:
        self._rule, self._core = rule, core
        self._newest = Means(rule, core)

    def empty(self) -> Means:
        """Means that no point has entered: the same for all rules that begin anew between two points."""
        if not self._newest.empty:
            self._newest = Means(self._rule, self._core)
        return self._newest


class ExplorationDecay(Detector):
    """Draw-down > effect x peak and > evidence x standard error. The peak counts from `core.min_points` points on: the
    highest sustained mean, or with two signs the recent top where that is higher. Besides, a sharp loss."""

    __slots__ = ("_conditions", "_history", "_means", "_needed", "_pool", "_sharp", "_streaks")
    follows_data = True
    has_grace = True

    def __init__(
        self, rule: Rule, core: Mapping[str, float], history: BucketHistory, pool: MeansPool, sharp: Rule | None = None
    ) -> None:
        """`sharp`: the row of the sharp loss; None or switched off: without."""
        super().__init__(rule)
        self._sharp = SharpLoss(sharp) if sharp is not None and sharp.enabled else None
        self._pool, self._means = pool, pool.empty()
        self._needed = int(core["min_points"])
        self._history = history
        self._streaks = Streaks(rule)
        self._conditions = _conditions(rule)

    def update(self, point: Point) -> Reading | None:
        accuracy = point.get("accuracy")
        if accuracy is None or not point.clean:
            return None
        means, fall, sharp = self._means, self._sharp, None
        if fall is not None:
            fall.add(accuracy)
        if not means.update(point, accuracy) or means.top is None:
            return QUIET
        least, mean, sustained = self.rule.levels["warning"].effect, means.accuracy, means.peak
        high = max(sustained, means.top.value)
        if sustained - mean.value > least / 2 * sustained or high - mean.value > least * high:
            sharp = None if fall is None else fall.update(point.step)
            signs, count = self._signs()
            peak = high if count > 1 else sustained
            if (fall is not None and fall.share) or peak - mean.value > least / 2 * peak:
                return self._reading(point, peak, signs, self._conditions[min(count, 2)], sharp)
        elif fall is not None:
            fall.quiet()
        self._streaks.update(point.step, None)  # most points: the standard error, which costs, is not needed
        return QUIET

    def _reading(
        self,
        point: Point,
        peak: float,
        signs: Sequence[str],
        conditions: Sequence[Condition],
        sharp: Severity | None,
    ) -> Reading:
        mean, top = self._means.accuracy, self._means.top
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
        reached, row = self._streaks.update(point.step, level), None
        if self._sharp is not None and self._sharp.share:
            level, share = "critical", self._sharp.share
            score = max(score, share / self._sharp.rule.levels["critical"].effect)
            if sharp is not None and reached != "critical":
                reached, row = sharp, self._sharp.rule
        return Reading(
            level=reached, pending=level, holds=True, row=row,
            onset=top.step if top else point.step, size=share, score=score, direction=self._direction(),
            evidence={
                "accuracy_mean": mean.value, "accuracy_peak": peak, "share_lost": share, "standard_error": noise,
                "log_entropy_change": self._change(ENTROPY), "also_up": ", ".join(signs) or None,
            },
        )  # fmt: skip

    @property
    def mean(self) -> float:
        """Of accuracy, at the newest point; 0 before the first."""
        return self._means.accuracy.value

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
        means, top = self._means, self._means.top
        if top is None or name not in top.beside:
            return None
        return means.beside[name].value - top.beside[name]

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
        onset = self._means.top.step if self._means.top else 0
        return raising(self._history, onset) if direction == "down" else ()

    def reseat(self) -> None:
        self._means = self._pool.empty()
        if self._sharp is not None:
            self._sharp.restart()

    def warming(self) -> tuple[int, int] | None:
        count = self._means.accuracy.count
        return (count, self._needed) if count < self._needed else None


def _conditions(rule: Rule) -> Sequence[Sequence[Condition]]:
    """For no sign, one, and two or more; the mildest severity first. Two signs make enough of less evidence where the
    loss is larger; what is enough with one stays enough."""
    numbers, warning, critical = rule.numbers, rule.levels["warning"], rule.levels["critical"]

    def warns(effect: float, evidence: float) -> Condition:
        return "warning", warning.effect * effect, warning.evidence * evidence

    def is_critical(effect: float, evidence: float) -> Condition:
        return "critical", critical.effect * effect, critical.evidence * evidence

    one, sign_effect = warns(1.0, numbers["one_sign"]), numbers["sign_effect"]
    return [
        (warns(1.0, 1.0), is_critical(1.0, 1.0)),
        (one, is_critical(sign_effect, numbers["one_sign_critical"])),
        (
            warns(numbers["two_signs_effect"], numbers["two_signs"]),
            one,
            is_critical(sign_effect, numbers["two_signs_critical"]),
        ),
    ]
