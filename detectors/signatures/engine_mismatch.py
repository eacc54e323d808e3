"""engine_mismatch: trainer and rollout engine begin to disagree about the same tokens.

Per estimator (k1, mean absolute difference, k3; never one against another) the fixed level and an up-shift of its size
raise one alert. Frameworks define the estimators differently, so the shift against the run's own past is the safer
part. A bound never helps; where the change began at a weight sync, the remedy names it.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> for step in range(40):
...     for finding in suite.update(step, {"mismatch_k1": 0.001 if step < 30 else 0.02}):
...         print(step, finding.rule, finding.severity, finding.state, "since", finding.step_onset)
33 mismatch_k1 warning firing since 29
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from regimescope.detectors.core import Shift, Transform
from regimescope.detectors.guards import Above
from regimescope.detectors.lifecycle import QUIET, RANK, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Evidence, Remedy, Severity


class EngineMismatch(Detector):
    """One estimator. The alert carries the name of the level's rule; either part may be switched off."""

    __slots__ = ("_condition", "_core", "_level", "_shift", "_shift_rule", "_streaks", "_sync", "_texts", "_wait")

    def __init__(self, rule: Rule, shift_rule: Rule, core: Mapping[str, float], texts: Mapping[str, str]) -> None:
        super().__init__(rule)
        condition = self._condition = shift_rule.levels["warning"]
        self._core, self._texts, self._shift_rule = core, texts, shift_rule
        self._level = Above(rule) if rule.enabled else None
        # what is too small to speak even after the shift counts as nothing
        transform = _log_size(condition.value / math.exp(condition.effect))
        self._shift = Shift(transform, 1, shift_rule.numbers["floor"], core) if shift_rule.enabled else None
        self._streaks = Streaks(shift_rule)
        self._wait = 0  # points after a reseat in which the shift waits; the level does not
        self._sync: int | None = None  # weight sync at which the present change began

    def update(self, point: Point) -> Reading | None:
        value = point.get(self.rule.metric)
        if value is None:
            return None
        level = (self._level.update(point) or QUIET) if self._level is not None else QUIET
        shift, now = self._shift, self._shifted(point.step, value)
        reached = self._streaks.update(point.step, now)
        moved = (
            shift is not None and shift.evidence >= self._core["h"] / 4 and shift.effect >= self._condition.effect / 2
        )
        if level is QUIET and now is None and not moved:
            return QUIET
        by_shift = RANK[reached] > RANK[level.level]
        onset = shift.onset if shift is not None and shift.evidence >= self._core["h"] / 2 else level.onset
        self._sync = self._near_sync(point, onset)
        return Reading(
            level=reached if by_shift else level.level,
            pending=now if RANK[now] > RANK[level.pending] else level.pending,
            holds=True, onset=onset, score=self._score(level), size=shift.effect if shift is not None else None,
            direction="up", evidence=self._evidence(value), row=self._shift_rule if by_shift else None,
        )  # fmt: skip

    def _shifted(self, step: int, value: float) -> Severity | None:
        shift, condition = self._shift, self._condition
        if shift is None:
            return None
        shift.update(step, value)
        if self._wait:
            self._wait -= 1
            return None
        moved = shift.evidence > condition.evidence and shift.effect > condition.effect
        return "warning" if moved and abs(value) > condition.value else None

    def _near_sync(self, point: Point, onset: int) -> int | None:
        """The sync that fell on the change. Where weights are synced every few steps, it says nothing."""
        sync, gap, within = point.sync_step, point.sync_gap, self._shift_rule.numbers["sync_within"]
        if sync is None or (gap is not None and gap <= 2 * within):
            return None
        return sync if abs(sync - onset) <= within else None

    def _score(self, level: Reading) -> float | None:
        scores = [] if level.score is None else [level.score]
        if self._shift is not None:
            scores.append(self._shift.evidence / self._core["h"])
        return max(scores, default=None)

    def _evidence(self, value: float) -> Evidence:
        evidence: dict[str, float | str | bool | None] = {self.rule.metric: value}
        if self._shift is not None and self._shift.scale is not None:
            evidence |= {"evidence": self._shift.evidence, "effect": self._shift.effect}
        if self._sync is not None:
            evidence["weight_sync"] = self._sync
        return evidence

    def remedy(self) -> Remedy | None:
        if self._sync is None:
            return None
        return Remedy(text=self._texts["weight_sync"].format(sync=self._sync))

    def reseat(self) -> None:
        if self._shift is not None:
            self._shift.reseat()
            self._wait = int(self._core["grace"])


def _log_size(least: float) -> Transform:
    return lambda value: math.log(max(abs(value), least))


class ClippedWhenFresh(Detector):
    """Clipping where there can be none: one update, on rollouts of the very weights that are trained (lag 0).

    There the ratio is 1 by construction, so what is clipped is the difference between two evaluations of the same
    weights. Off until measured: in low precision a bound at 1 clips rounding.
    """

    __slots__ = ("_streaks",)

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._streaks = Streaks(rule)

    def update(self, point: Point) -> Reading | None:
        if point.declared.ratio_source != "behaviour" or point.get("updates") != 1 or point.get("lag_max") != 0:
            return None
        share: float | None = None
        for clipped in self.rule.metric.split("|"):
            regime = clipped.partition(".")[0]
            part, tokens = point.get(clipped), point.get(f"{regime}.token_frac")
            if part is not None and tokens is not None:
                share = (share or 0.0) + part * tokens
        if share is None:
            return None
        limit = self.rule.levels["warning"].value
        reached = self._streaks.update(point.step, "warning" if share > limit else None)
        if share <= limit:
            return QUIET
        return Reading(
            level=reached, pending="warning", holds=True, onset=self._streaks.since(point.step), score=share / limit,
            direction="up", evidence={"clipped_frac": share},
        )  # fmt: skip
