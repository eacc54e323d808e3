"""Guards: fixed limits that need no baseline and work from the first point on.

Each class is one row (or family of rows) of rules.toml. LengthFloor and RepetitionLevel are parts of the collapse
signatures, which raise one alert for both; the others are detectors of their own.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> good = {"loss": 0.1, "accuracy": 0.6, "truncated_frac": 0.02, "infra_failed_frac": 0.0}
>>> bad = {"accuracy": 0.02, "truncated_frac": 0.97}
>>> for step in range(60):
...     row = good if step < 20 else {**good, **bad}
...     row = {**row, "loss": float("nan")} if step == 10 else {**row, "infra_failed_frac": 0.3} if step == 50 else row
...     _ = suite.update(step, row)
>>> for finding in suite.findings():
...     if finding.signature != "exploration_decay":
...         print(finding.step_detected, finding.signature, finding.severity, "since", finding.step_onset)
10 nonfinite critical since 10
24 truncation_saturated warning since 20
26 accuracy_collapse critical since 24
50 infra_failed critical since 50
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from regimescope.detectors.driver import RELAX_NEGATIVE, Move
from regimescope.detectors.lifecycle import QUIET, Reading, Streak, Streaks
from regimescope.detectors.means import Ewma
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import BUCKETS, Severity

_SCALARS = ("loss", "grad_norm", "entropy_mean")


class Nonfinite(Detector):
    """The loss, gradient norm, entropy or a statistic of a bucket with tokens is NaN or infinite."""

    __slots__ = ("_streaks",)

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._streaks = Streaks(rule)

    def update(self, point: Point) -> Reading | None:
        metrics = point.metrics
        finite = point.finite
        bad = [] if finite is metrics else [n for n in metrics if n not in finite and self._is_bad(point, n)]
        level = self._streaks.update(point.step, "critical" if bad else None)
        if not bad:
            return QUIET
        evidence = {name: str(metrics[name]) for name in bad[:5]}
        return Reading(
            level=level, pending="critical", holds=True, onset=self._streaks.since(point.step), evidence=evidence
        )

    @staticmethod
    def _is_bad(point: Point, name: str) -> bool:
        if math.isfinite(point.metrics[name]):
            return False
        bucket, dot, column = name.partition(".")
        if not dot:
            return name in _SCALARS
        if bucket not in BUCKETS or column in ("w_min", "w_max"):  # an absent upper bound is infinite
            return False
        metrics = point.metrics
        return (
            metrics.get(f"{bucket}.tokens", 1) != 0 and metrics.get(f"{bucket}.token_frac", 1) != 0
        )  # mean of nothing


class LengthFloor:
    """Mean length at or below max(value, anchor / anchor_share), anchor = longest of the first points.

    Armed if the anchor is long enough: tasks with short answers stay quiet. `onset` is where the length went below the
    geometric middle between anchor and floor.
    """

    __slots__ = ("_numbers", "_seen", "_streak", "_value", "anchor", "floor", "onset")

    def __init__(self, rule: Rule) -> None:
        level = rule.levels["critical"]
        self._numbers, self._value = rule.numbers, level.value
        self._streak = Streak(level.points)
        self._seen = 0
        self.anchor = self.floor = 0.0
        self.onset: int | None = None

    def update(self, step: int, length: float, *, dead: bool) -> bool:
        """`dead`: accuracy is at its floor; then a length of anchor / dead_share is low enough."""
        if self._seen < self._numbers["anchor_points"]:
            self._seen += 1
            self.anchor = max(self.anchor, length)
            self.floor = max(self._value, self.anchor / self._numbers["anchor_share"])
        if length * length >= self.anchor * self.floor:
            self.onset = None
        elif self.onset is None:
            self.onset = step
        limit = max(self.floor, self.anchor / self._numbers["dead_share"]) if dead else self.floor
        return self._streak.update(step, length <= limit and self.anchor >= self._numbers["anchor_least"])

    @property
    def below(self) -> bool:
        """At the present point, for however long."""
        return self._streak.count > 0

    def restart(self) -> None:
        """New data: the anchor is found again."""
        self._seen, self.anchor, self.onset = 0, 0.0, None


class RepetitionLevel:
    """rep4_mean above the value; a run that was above from its first three points on is only warned about.

    While accuracy is at its floor, dead_value is enough where that is also dead_rise times the largest of the first
    three points: a collapse in the first steps leaves the shift no clean reference.
    """

    __slots__ = ("_above_at_start", "_first", "_numbers", "_seen", "_streak", "_value")

    def __init__(self, rule: Rule) -> None:
        level = rule.levels["critical"]
        self._numbers, self._value, self._streak = rule.numbers, level.value, Streak(level.points)
        self._seen, self._first = 0, 0.0
        self._above_at_start = True

    def update(self, step: int, repetition: float, *, dead: bool) -> Severity | None:
        """`dead`: accuracy is at its floor."""
        above = repetition > self._value
        if self._seen < 3:
            self._seen += 1
            self._first = max(self._first, repetition)
            self._above_at_start = self._above_at_start and above
        if dead:
            numbers = self._numbers
            above = above or repetition > max(numbers["dead_value"], numbers["dead_rise"] * self._first)
        if not self._streak.update(step, above):
            return None
        return "warning" if self._above_at_start else "critical"

    @property
    def onset(self) -> int | None:
        return self._streak.since if self._streak.count else None


class AccuracyFloor(Detector):
    """A short mean of accuracy below a quarter of the best mean of `window` points (at the start: of three or more)."""

    __slots__ = ("_best", "_mean", "_recent", "_streaks")
    follows_data = True

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._streaks = Streaks(rule)
        self._recent: deque[float] = deque(maxlen=int(rule.numbers["window"]))
        self._mean = Ewma(rule.numbers["half_life"])
        self._best = 0.0

    def update(self, point: Point) -> Reading | None:
        accuracy = point.get("accuracy")
        if accuracy is None or not point.clean:
            return None
        recent = self._recent
        recent.append(accuracy)
        self._mean.update(accuracy)
        if len(recent) >= 3:
            self._best = max(self._best, sum(recent) / len(recent))
        level = self.rule.levels["critical"]
        low = self._best >= level.value and self._mean.value < level.effect * self._best
        reached = self._streaks.update(point.step, "critical" if low else None)
        share = self._mean.value / self._best if self._best > 0 else 1.0
        point.accuracy_floored, point.accuracy_mean, point.accuracy_share = low, self._mean.value, share
        if not low:
            return QUIET
        return Reading(
            level=reached, pending="critical", holds=True, onset=self._streaks.since(point.step),
            score=min(10.0, level.effect / share) if share > 0 else 10.0, direction="down",
            evidence={"accuracy": self._mean.value, "accuracy_best": self._best},
        )  # fmt: skip

    def moves(self, direction: str | None) -> Sequence[Move]:
        return RELAX_NEGATIVE

    def data_changed(self) -> None:
        self._best = 0.0
        self._recent.clear()
        self._mean.restart()


class NoSignal(Detector):
    """All groups or rewards are equal, and the loss or gradient is exactly 0: nothing is learnt. Off until measured.

    A step that made no update logs neither loss nor gradient norm; then nothing changes.

    >>> from regimescope.detectors.declared import Declared
    >>> from regimescope.detectors.rules import load_rules
    >>> detector, point = NoSignal(load_rules()["no_signal"]), Point(Declared())
    >>> for step in range(5):
    ...     point.begin(step, {"reward_std": 0.0, "grad_norm": 0.0})
    ...     reading = detector.update(point)
    >>> reading.level, reading.onset
    ('warning', 0)
    """

    __slots__ = ("_streaks",)

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._streaks = Streaks(rule)

    def update(self, point: Point) -> Reading | None:
        dead, spread = point.get("zero_variance_frac"), point.get("reward_std")
        loss, norm = point.get("loss"), point.get("grad_norm")
        if not point.clean or (dead is None and spread is None) or (loss is None and norm is None):
            return None
        holds = (dead == 1 or spread == 0) and (loss == 0 or norm == 0)
        reached = self._streaks.update(point.step, "warning" if holds else None)
        if not holds:
            return QUIET
        seen = {"zero_variance_frac": dead, "reward_std": spread, "loss": loss, "grad_norm": norm}
        return Reading(
            level=reached, pending="warning", holds=True, onset=self._streaks.since(point.step),
            evidence={name: value for name, value in seen.items() if value is not None},
        )  # fmt: skip


class Above(Detector):
    """|metric| above the value of a level: truncation, engine mismatch."""

    __slots__ = ("_inclusive", "_least", "_policy", "_streaks")

    def __init__(self, rule: Rule, *, inclusive: bool = False, policy: bool = False) -> None:
        """`inclusive`: the value itself counts. `policy`: the metric judges the policy, so points without a verdict on
        it are left out."""
        super().__init__(rule)
        self._streaks = Streaks(rule)
        self._inclusive, self._policy = inclusive, policy
        self._least = min(condition.value for condition in rule.levels.values())

    def update(self, point: Point) -> Reading | None:
        value = point.get(self.rule.metric)
        if value is None or (self._policy and not point.clean):
            return None
        size = abs(value)
        if size < self._least and not self._streaks.active:
            return QUIET
        level: Severity | None = None
        for name, condition in self.rule.levels.items():
            if size > condition.value or (self._inclusive and size == condition.value):
                level = "critical" if name == "critical" else "warning" if name == "warning" else "info"
        reached = self._streaks.update(point.step, level)
        if level is None:
            return QUIET
        return Reading(
            level=reached, pending=level, holds=True, onset=self._streaks.since(point.step), score=size / self._least,
            direction="up", evidence={self.rule.metric: value},
        )  # fmt: skip
