"""length_collapse: responses get shorter while the run is in distress.

A shorter mean length alone is no collapse (healthy runs went from 370 to 50 tokens), so the shift needs distress or a
fast fall, and is discounted while reward rises or truncation falls. What would be a warning is critical where accuracy
is at its floor. At the floor of length (LengthFloor) it is critical whatever else is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regimescope.detectors.core import Shift, log_value
from regimescope.detectors.distress import Benign, Distress
from regimescope.detectors.driver import RELAX_NEGATIVE, Move
from regimescope.detectors.guards import LengthFloor
from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Severity

METRIC = "response_length_mean"


class LengthCollapse(Detector):
    """Both conditions raise one alert: the shift of log length and the floor; either may be switched off."""

    __slots__ = ("_benign", "_core", "_distress", "_floor", "_floor_rule", "_shift", "_still", "_streaks")
    follows_data = True
    has_grace = True

    def __init__(
        self, rule: Rule, floor_rule: Rule, core: Mapping[str, float], distress: Distress, benign: Benign
    ) -> None:
        super().__init__(rule)
        self._core, self._distress, self._benign, self._floor_rule = core, distress, benign, floor_rule
        self._shift = Shift(log_value, -1, rule.numbers["floor"], core) if rule.enabled else None
        self._floor = LengthFloor(floor_rule) if floor_rule.enabled else None
        self._streaks = Streaks(rule)
        self._still = min(core["h"] / 4, rule.levels["info"].evidence)  # with less evidence the shift says nothing

    def update(self, point: Point) -> Reading | None:
        length = point.get(METRIC)
        if length is None or not point.clean:
            return None
        shift, floor = self._shift, self._floor
        floored = floor is not None and floor.update(point.step, length, dead=point.accuracy_floored)
        if shift is not None:
            shift.update(point.step, length)
            if shift.evidence < self._still and (floor is None or not floor.below):
                self._streaks.update(point.step, None)
                return QUIET
        level = self._level(point)
        reached = self._streaks.update(point.step, level)
        holds = (
            shift is not None
            and shift.evidence >= self._core["h"] / 4
            and shift.effect >= self.rule.levels["warning"].effect / 2
        ) or (floor is not None and floor.below)
        if not holds and level is None:
            return QUIET
        return Reading(
            level="critical" if floored else reached,
            pending="critical" if floor is not None and floor.below else level,
            holds=holds,
            onset=self._onset(point.step),
            score=self._score(),
            size=shift.effect if shift is not None else None,
            direction="down",
            evidence=self._evidence(point, length),
            row=self._floor_rule if floored else None,
        )

    def _level(self, point: Point) -> Severity | None:
        shift, levels = self._shift, self.rule.levels
        if shift is None or shift.effect <= levels["info"].effect or shift.evidence <= levels["info"].evidence:
            return None
        distressed, lost = self._distress.recent(point), point.accuracy_floored
        if self._benign.recent(point) and not lost and not (distressed and self._distress.entropy_moved()):
            return "info"
        critical, warning = levels["critical"], levels["warning"]
        if distressed and shift.effect > critical.effect and shift.evidence > critical.evidence:
            return "critical"
        fast = shift.effect / shift.points_since_onset >= self.rule.numbers["fast_per_point"]
        if (distressed or fast) and shift.effect > warning.effect and shift.evidence > warning.evidence:
            return "critical" if lost else "warning"
        return "info"

    def _onset(self, step: int) -> int:
        shift, floor = self._shift, self._floor
        if shift is not None and shift.evidence >= self._core["h"] / 2:
            return shift.onset
        return floor.onset if floor is not None and floor.onset is not None else step

    def _score(self) -> float | None:
        return self._shift.evidence / self._core["h"] if self._shift is not None else None

    def _evidence(self, point: Point, length: float) -> dict[str, float | str | bool | None]:
        shift, floor = self._shift, self._floor
        evidence: dict[str, float | str | bool | None] = {METRIC: length, "distress": ", ".join(self._distress.signs)}
        if shift is not None:
            evidence |= {"evidence": shift.evidence, "effect": shift.effect, "benign": self._benign.recent(point)}
        if floor is not None:
            evidence |= {"length_anchor": floor.anchor, "length_floor": floor.floor}
        return evidence

    def moves(self, direction: str | None) -> Sequence[Move]:
        return RELAX_NEGATIVE

    def reseat(self) -> None:
        if self._shift is not None:
            self._shift.reseat()

    def data_changed(self) -> None:
        self.reseat()
        if self._floor is not None:
            self._floor.restart()

    def warming(self) -> tuple[int, int] | None:
        shift = self._shift
        if shift is None or shift.scale is not None:
            return None
        return shift.seen, int(self._core["burn_in"] + self._core["min_points"])
