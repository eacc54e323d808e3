"""repetition_collapse: responses repeat themselves, in the mean (rep4_mean) or in a growing share (repetition_frac).

Two shifts and the fixed level of RepetitionLevel raise one alert. No other metric is needed. Where accuracy is logged
it has a say: at its floor, what would be a warning is critical; while it holds and nothing else is in distress, a shift
counts one severity less, and once accuracy has gained since the shift began it is an info: healthy runs have bursts of
formulaic answers that pass. The fixed level is critical whatever accuracy does.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> for step in range(40):
...     for finding in suite.update(step, {"rep4_mean": 0.05 if step < 30 else 0.2 if step < 33 else 0.7}):
...         print(step, finding.signature, finding.severity, "since", finding.step_onset)
33 repetition_collapse warning since 29
34 repetition_collapse critical since 29
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regimescope.detectors.core import Shift, logit
from regimescope.detectors.distress import Distress
from regimescope.detectors.driver import RELAX_NEGATIVE, Move
from regimescope.detectors.guards import RepetitionLevel
from regimescope.detectors.lifecycle import QUIET, RANK, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Severity

_CALM: Mapping[Severity, Severity] = {"critical": "warning", "warning": "info"}
"What a shift counts while accuracy holds; where it gained, an info."


class _Rise:
    """The up-shift of one of the two metrics."""

    __slots__ = ("_before", "_early", "_half", "_quarter", "metric", "rule", "shift", "streaks", "value")

    def __init__(self, rule: Rule, core: Mapping[str, float]) -> None:
        self.rule, self.metric = rule, rule.metric
        self._half, self._quarter = core["h"] / 2, core["h"] / 4
        self.shift = Shift(logit, 1, rule.numbers["floor"], core)
        self.streaks = Streaks(rule)
        self.value = 0.0
        self._before: float | None = None  # mean accuracy when the shift began
        self._early: dict[int, float] = {}  # the same by step, of the points before the shift speaks

    def update(
        self, step: int, value: float, *, lost: bool, calm: bool, accuracy: float | None
    ) -> tuple[Severity | None, Severity | None]:
        """Levels whose condition has held long enough, and holds now. `lost`: accuracy is at its floor; `calm`: it is
        logged and holds; `accuracy`: its short mean."""
        self.value = value
        shift = self.shift
        shift.update(step, value)
        if accuracy is not None:
            self._note(step, accuracy)
        level: Severity | None = None
        if shift.evidence > self._half:
            for name, condition in self.rule.levels.items():  # those of an info are those of a warning
                if shift.effect > condition.effect and shift.evidence > condition.evidence and value > condition.value:
                    level = "critical" if lost or name == "critical" else "warning"
        if calm and level is not None:
            level = "info" if self._gained(accuracy) else _CALM[level]
        return self.streaks.update(step, level), level

    def _note(self, step: int, accuracy: float) -> None:
        """The mean accuracy of this point. The first points are judged together, once there are enough."""
        shift = self.shift
        if shift.scale is None:
            self._early[step] = accuracy
        elif shift.evidence <= 0 or self._before is None:
            self._before = self._early.get(shift.onset, accuracy)
            self._early = {}

    def _gained(self, accuracy: float | None) -> bool:
        before = self._before
        return accuracy is not None and before is not None and accuracy > before * (1 + self.rule.numbers["gain"])

    @property
    def holds(self) -> bool:
        return self.shift.evidence >= self._quarter and self.shift.effect >= self.rule.levels["warning"].effect / 2


class RepetitionCollapse(Detector):
    """One alert for both metrics and the level; rows that are switched off are left out."""

    __slots__ = ("_core", "_distress", "_level", "_level_rule", "_rises")
    has_grace = True

    def __init__(self, rows: Sequence[Rule], level_rule: Rule, core: Mapping[str, float], distress: Distress) -> None:
        """`rows`: the rule of rep4_mean, whose name the alert carries, and that of repetition_frac."""
        super().__init__(rows[0])
        self._core, self._distress = core, distress
        self._rises = [_Rise(row, core) for row in rows if row.enabled]
        self._level = RepetitionLevel(level_rule) if level_rule.enabled else None
        self._level_rule = level_rule

    def update(self, point: Point) -> Reading | None:
        if not point.clean:
            return None
        step = point.step
        reached: Severity | None = None
        now: Severity | None = None
        row: Rule | None = None
        seen, lost = False, point.accuracy_floored
        share = point.accuracy_share
        calm = share is not None and share >= self.rule.numbers["calm_share"] and not self._distress.recent(point)
        for rise in self._rises:
            value = point.get(rise.metric)
            if value is None:
                continue
            seen = True
            one_reached, one_now = rise.update(step, value, lost=lost, calm=calm, accuracy=point.accuracy_mean)
            if one_reached is not None and RANK[one_reached] > RANK[reached]:
                reached, row = one_reached, rise.rule
            if one_now is not None and RANK[one_now] > RANK[now]:
                now = one_now
        repetition = point.get(self._level_rule.metric)
        if self._level is not None and repetition is not None:
            seen = True
            guard = self._level.update(step, repetition, dead=lost)
            if guard is not None and RANK[guard] > RANK[reached]:
                reached, row = guard, self._level_rule
        if not seen:
            return None
        above = self._level is not None and self._level.onset is not None
        if now is None and not above and not any(rise.holds for rise in self._rises):
            return QUIET
        return Reading(
            level=reached, pending="critical" if above else now, holds=True, onset=self._onset(step),
            score=self._score(), size=max((rise.shift.effect for rise in self._rises), default=None), direction="up",
            evidence=self._evidence(repetition), row=row,
        )  # fmt: skip

    def _onset(self, step: int) -> int:
        onsets = [rise.shift.onset for rise in self._rises if rise.shift.evidence >= self._core["h"] / 2]
        if not onsets and self._level is not None and self._level.onset is not None:
            onsets = [self._level.onset]
        return min(onsets, default=step)

    def _score(self) -> float | None:
        return max((rise.shift.evidence / self._core["h"] for rise in self._rises), default=None)

    def _evidence(self, repetition: float | None) -> dict[str, float | str | bool | None]:
        evidence: dict[str, float | str | bool | None] = {self._level_rule.metric: repetition}
        for rise in self._rises:
            if rise.shift.seen:
                name, shift = rise.metric, rise.shift
                evidence |= {name: rise.value, f"{name}.evidence": shift.evidence, f"{name}.effect": shift.effect}
        return evidence

    def moves(self, direction: str | None) -> Sequence[Move]:
        return RELAX_NEGATIVE

    def reseat(self) -> None:
        for rise in self._rises:
            rise.shift.reseat()

    def warming(self) -> tuple[int, int] | None:
        waiting = [rise.shift for rise in self._rises if rise.shift.seen and rise.shift.scale is None]
        if not waiting:
            return None
        return min(shift.seen for shift in waiting), int(self._core["burn_in"] + self._core["min_points"])
