"""The fast path: a failure that starts at step 0 leaves a shift rule no clean reference, so these compare with the
first points.

They open only within the first points after the first gradient update; a change of data ends them. Alone each is an
info. With a second sign, another early rule or a warning of the bounds lint, it is a warning: the best case for
relaxed bounds in time. EarlyPush only adds to their evidence.

>>> from regimescope.detectors import Event, Suite
>>> suite = Suite()
>>> bounds = Event(kind="start", step=0, data={"objective": "dispo", "ratio_source": "behaviour", "neg.w_min": 0.0})
>>> for step in range(6):
...     row = {"accuracy": 0.6 if step < 2 else 0.2, "accuracy.n": 256, "all_wrong_frac": 0.1 if step < 3 else 0.5}
...     row |= {"grad_norm": 1.0 if step < 3 else 4.0}
...     row |= {"R4.ratio_mean": 0.95 if step < 5 else 0.8, "R4.clip_low_frac": 0.9}
...     for finding in suite.update(step, row, [bounds] if step == 0 else ()):
...         print(step, finding.signature, finding.severity, "since", finding.step_onset)
3 early_accuracy info since 2
4 early_all_wrong warning since 3
5 early_r4 warning since 5
>>> {name: value for name, value in suite.findings()[0].evidence.items() if name.endswith("over_first")}  # early_push
{'grad_norm_over_first': 4.0}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from regimescope.detectors.core import median
from regimescope.detectors.driver import RELAX_NEGATIVE, Move
from regimescope.detectors.lifecycle import QUIET, Reading, Streak, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Evidence, Severity

R4_CLIP = "R4.clip_low_frac"
R4_GAP = "R4.dispo_gap"
_NOTHING: Mapping[str, float] = {}


class _Early(Detector):
    """Counts points that can speak, and ends after `until` of them or at a change of data."""

    __slots__ = ("_condition", "_over", "_points", "_streaks", "_until")
    has_grace = True

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._condition = rule.levels["info"]
        self._streaks = Streaks(rule)
        self._until = int(rule.numbers["until"])
        self._points = 0
        self._over = False

    def moves(self, direction: str | None) -> Sequence[Move]:
        return RELAX_NEGATIVE

    def data_changed(self) -> None:
        self._over = True

    def _value(self, point: Point, name: str) -> float | None:
        if not (point.clean and point.updated):
            return None
        value = point.get(name)
        if value is not None:
            self._points += 1
        return value

    def _quiet(self, point: Point) -> Reading:
        """The condition does not hold: nearly all points."""
        self._streaks.update(point.step, None)
        return QUIET

    def _reading(self, point: Point, score: float, evidence: Evidence, late: bool | None = None) -> Reading:
        """The condition holds. `late`: the window is over; by default the rule's own."""
        streaks = self._streaks
        others = (point.signs | point.signs_before) - {self.rule.name}
        level: Severity | None = "warning" if others else "info"
        reached = streaks.update(point.step, level)
        if reached is not None:
            point.signs.add(self.rule.name)
        if self._over or (self._points > self._until if late is None else late):
            reached = level = None  # an open alert lives on, none opens
        onset = streaks.since(point.step)
        if point.early_push:
            evidence = {**evidence, **point.early_push}
        return Reading(level=reached, pending=level, holds=True, onset=onset, score=score, evidence=evidence)


class EarlyAccuracy(_Early):
    """accuracy < effect x the best of the first points, by more than `evidence` binomial deviations; silent without
    accuracy.n."""

    __slots__ = ("_best",)

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._best = 0.0

    def update(self, point: Point) -> Reading | None:
        accuracy = self._value(point, "accuracy")
        responses = point.get("accuracy.n")
        if accuracy is None or responses is None or responses <= 0:
            return None
        condition = self._condition
        best = self._best
        if self._points <= self.rule.numbers["anchor_points"]:
            self._best = max(best, accuracy)
        if best < condition.value or accuracy >= condition.effect * best:
            return self._quiet(point)
        p = min(best, 1 - 0.5 / responses)  # a best of 1 would have no deviation at all
        z = (best - accuracy) / math.sqrt(p * (1 - p) / responses)
        if z <= condition.evidence:
            return self._quiet(point)
        evidence = {"accuracy": accuracy, "accuracy_first_best": best, "z": z}
        return self._reading(point, z / condition.evidence, evidence)


class EarlyAllWrong(_Early):
    """all_wrong_frac above the value and at least `effect` times its first value."""

    __slots__ = ("_first",)

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._first: float | None = None

    def update(self, point: Point) -> Reading | None:
        wrong = self._value(point, "all_wrong_frac")
        if wrong is None:
            return None
        if self._first is None:
            self._first = wrong
        condition = self._condition
        if wrong <= condition.value or wrong < condition.effect * self._first:
            return self._quiet(point)
        evidence = {"all_wrong_frac": wrong, "all_wrong_first": self._first}
        return self._reading(point, wrong / condition.value, evidence)


class EarlyR4(_Early):
    """R4 tokens lose probability while the bound of A<0 keeps their weight: R4.ratio_mean low, R4.clip_low_frac high.
    Or (row early_gap) the bounds in force hold gradient mass there that DISPO's would let go on the same tokens.

    A lint with its effect measured. Speaks at the first points that have R4 tokens; not where the ratio is to another
    policy than the one that generated (proximal), nor where engine noise alone moves it (infer).
    """

    __slots__ = ("_gap_points", "_gap_rule", "_gap_streak")

    def __init__(self, rule: Rule, gap_rule: Rule) -> None:
        super().__init__(rule)
        self._gap_rule = gap_rule
        self._gap_streak = Streak(gap_rule.levels["info"].points)
        self._gap_points = 0

    def update(self, point: Point) -> Reading | None:
        ratio, clipped = point.get("R4.ratio_mean"), point.get(R4_CLIP)
        if ratio is None or clipped is None or point.declared.ratio_source in ("proximal", "infer"):
            return None
        self._points += 1
        condition, held = self._condition, self._held(point)
        low = ratio < condition.value and clipped > condition.effect
        if not low and held is None:
            return self._quiet(point)
        score = (1 - ratio) / (1 - condition.value) if low else 0.0
        evidence = {"R4.ratio_mean": ratio, R4_CLIP: clipped}
        if held is None:
            return self._reading(point, score, evidence)
        rule = self._gap_rule
        score, evidence = max(score, held / rule.levels["info"].value), {**evidence, "early_gap": held}
        reading = self._reading(point, score, evidence, late=self._gap_points > rule.numbers["until"])
        return reading if low else replace(reading, onset=self._gap_streak.since, row=rule)

    def _held(self, point: Point) -> float | None:
        """Share of all gradient mass that the bounds hold beyond DISPO's, once it has been large for long enough."""
        gap = point.get(R4_GAP)
        if gap is None or not self._gap_rule.enabled:
            return None
        self._gap_points += 1
        large = self._gap_streak.update(point.step, -gap > self._gap_rule.levels["info"].value)
        return -gap if large else None


class EarlyPush:
    """Gradient norm and KL against the median of their first points: evidence of the other early rules, no alert.

    Too many healthy runs show it for a rule of its own, and it is blind where the first values are already high.
    `update` gives by how much each metric is above, once that has held long enough.
    """

    __slots__ = ("_condition", "_first", "_numbers", "_over", "_seen", "_streaks")

    def __init__(self, rule: Rule) -> None:
        self._condition, self._numbers = rule.levels["info"], rule.numbers
        names = rule.metric.split("|")
        self._first: dict[str, list[float]] = {name: [] for name in names}
        self._seen = dict.fromkeys(names, 0)
        self._streaks = {name: Streak(self._condition.points) for name in names}
        self._over = False

    def update(self, point: Point) -> Mapping[str, float]:
        """Keys such as `grad_norm_over_first`, a factor; nearly always empty."""
        if self._over or not (point.clean and point.updated):
            return _NOTHING
        found: dict[str, float] = {}
        over = True
        for name, first in self._first.items():
            value = point.get(name)
            if value is not None:
                self._seen[name] += 1
            over = over and self._seen[name] > self._numbers["until"]
            if value is None or self._seen[name] > self._numbers["until"]:
                continue
            if len(first) < self._numbers["anchor_points"]:
                first.append(value)
                continue
            factor = value / (median(first) or math.inf)  # a metric that starts at 0 has no factor
            if self._streaks[name].update(point.step, factor >= self._condition.effect):
                found[f"{name}_over_first"] = factor
        self._over = over
        return found or _NOTHING

    def data_changed(self) -> None:
        """The first points are those of other data."""
        self._over = True
