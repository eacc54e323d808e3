"""heldout_gap: accuracy rises on the training problems and not on the held-out ones: reward hacking, or leaked data.

Compared are evaluations, at most the last `window` of them: the mean of the first third, at least two, against that of
the last, and the same for training accuracy, averaged from one evaluation to the next. The gain in training has to be
beyond its noise, that of the held-out problems within theirs, and the difference beyond both. A bound never helps.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> for step in range(120):
...     row = {"accuracy": 0.4 + 0.003 * step + 0.01 * (step % 2)}
...     if step % 10 == 9:
...         row["eval.accuracy"] = 0.4 + 0.01 * (step % 4)
...     for finding in suite.update(step, row):
...         print(step, finding.signature, finding.severity, finding.remedy.bound)
99 heldout_gap warning None
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.means import Ewma, NoisyEwma
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule

HELDOUT = "eval.accuracy"
TRAINING = "accuracy"


class _Evaluation(NamedTuple):
    """One evaluation, and training since the one before."""

    step: int
    heldout: float
    binomial: float
    "Standard deviation of the held-out accuracy that its number of answers explains; 0 where the number is unknown."
    training: float
    "Mean training accuracy since the last evaluation."
    points: int
    "Points behind that mean."


class HeldoutGap(Detector):
    """Speaks at evaluations, from the `evaluations`-th on; its counts (`for`, keep_firing) are evaluations."""

    __slots__ = ("_count", "_jumps", "_kept", "_last", "_noise", "_streaks", "_sum")
    follows_data = True
    has_grace = True

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._streaks = Streaks(rule)
        self._kept: deque[_Evaluation] = deque(maxlen=int(rule.numbers["window"]))
        self._noise = NoisyEwma(rule.numbers["half_life"])  # of training accuracy, point by point
        self._jumps = Ewma(rule.numbers["window"])  # mean |difference| of successive evaluations
        self._last: float | None = None
        self._sum, self._count = 0.0, 0

    def update(self, point: Point) -> Reading | None:
        training, heldout = point.get(TRAINING), point.get(HELDOUT)
        if training is not None and point.clean:
            self._noise.update(training)
            self._sum += training
            self._count += 1
        if heldout is None or not point.clean or self._count == 0:
            return None
        if self._last is not None:
            self._jumps.update(abs(heldout - self._last))
        self._last = heldout
        answers = point.get(f"{HELDOUT}.n")
        binomial = math.sqrt(max(0.0, heldout * (1 - heldout)) / answers) if answers else 0.0
        self._kept.append(_Evaluation(point.step, heldout, binomial, self._sum / self._count, self._count))
        self._sum, self._count = 0.0, 0
        if len(self._kept) < self.rule.numbers["evaluations"]:
            return QUIET
        return self._judge(point.step)

    def _judge(self, step: int) -> Reading:
        condition, numbers, kept = self.rule.levels["warning"], self.rule.numbers, list(self._kept)
        third = max(2, len(kept) // 3)
        first, last = kept[:third], kept[-third:]
        trained = (sum(new.training for new in last) - sum(old.training for old in first)) / third
        before = sum(old.heldout for old in first) / third
        gained = sum(new.heldout for new in last) / third - before
        trained_se, gained_se = self._training_error(third), self._heldout_error(third)
        gap, gap_se = trained - gained, math.hypot(trained_se, gained_se)
        flat = gained <= numbers["flat"] * gained_se and before < condition.value
        wide = (
            min(trained, gap) > condition.effect
            and trained > condition.evidence * trained_se
            and gap > condition.evidence * gap_se
        )
        reached = self._streaks.update(step, "warning" if flat and wide else None)
        if not flat or gap < condition.effect / 2:
            return QUIET
        return Reading(
            level=reached, pending="warning" if wide else None, holds=True, onset=first[-1].step, size=gap,
            score=gap / max(condition.effect, condition.evidence * gap_se),
            evidence={
                HELDOUT: kept[-1].heldout, "heldout_gain": gained, "heldout_gain_error": gained_se,
                "training_gain": trained, "training_gain_error": trained_se, "evaluations": float(len(kept)),
            },
        )  # fmt: skip

    def _training_error(self, third: int) -> float:
        """Of the difference of two means over so many intervals each: the exponential mean's, which averages (2 - a)/a
        points, on half of the points of a mean."""
        rate = 1 - 0.5 ** (1 / self.rule.numbers["half_life"])
        points = min(evaluation.points for evaluation in self._kept) * third / 2
        return self._noise.standard_error() * math.sqrt((2 - rate) / rate / points)

    def _heldout_error(self, third: int) -> float:
        """Of the difference of two means of so many evaluations, sqrt(2/third) of the deviation of one. That from
        differences, E|d| = 2 sigma / sqrt(pi) for normal noise, and from the number of answers."""
        binomial = max(evaluation.binomial for evaluation in self._kept)
        deviation = max(binomial, self._jumps.value * math.sqrt(math.pi) / 2)
        return max(self.rule.numbers["floor"], deviation * math.sqrt(2 / third))

    def reseat(self) -> None:
        """What was trained on or with has changed: the comparison begins anew."""
        self._kept.clear()
        self._noise.restart()
        self._sum, self._count = 0.0, 0

    def warming(self) -> tuple[int, int] | None:
        needed = int(self.rule.numbers["evaluations"])
        return (len(self._kept), needed) if len(self._kept) < needed else None
