"""entropy_collapse: the policy loses its entropy and accuracy suffers.

A falling entropy is normal (healthy runs lose nine tenths of it), so nothing is said while accuracy has gained since
the fall began. Without a known gain it is an info that says how far the floor is. It becomes a warning when accuracy
loses what `exploration_decay` warns about; in a log without accuracy, when dead groups multiply and most of them are
all wrong (dead groups alone multiply in every run that masters its data). Which bound helps is measured, not taken
from a paper: the sign of R1's effect on entropy is disputed (2602.00983 says up, 2510.06062 down), so no weight is
raised whose effect was measured as pulling entropy down.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> for step in range(200):
...     lost = max(0, step - 60) / 60
...     row = {"entropy_mean": 0.5 * 0.3**lost, "accuracy": 0.7 - 0.15 * lost + 0.01 * (-1) ** step}
...     for finding in suite.update(step, row):
...         if finding.signature == "entropy_collapse":
...             print(step, finding.signature, finding.severity, finding.state, "since", finding.step_onset)
114 entropy_collapse warning firing since 62
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from regimescope.detectors.core import Shift, log_value
from regimescope.detectors.distress import Distress
from regimescope.detectors.driver import BucketHistory, Move
from regimescope.detectors.entropy_moves import raising
from regimescope.detectors.lifecycle import QUIET, Reading, Streak
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Level, Rule
from regimescope.detectors.signatures.exploration_decay import ExplorationDecay, MeansPool
from regimescope.detectors.types import Remedy

METRIC = "entropy_mean"


class EntropyCollapse(Detector):
    """The down-shift of log entropy, with the draw-down of accuracy that exploration_decay watches."""

    __slots__ = (
        "_before", "_core", "_decay", "_distress", "_fall", "_fall_streak", "_history", "_lost", "_shift", "_streak",
        "_warned",
    )  # fmt: skip
    has_grace = True

    def __init__(
        self,
        rule: Rule,
        fall: Rule,
        decay: Rule,
        core: Mapping[str, float],
        distress: Distress,
        history: BucketHistory,
        pool: MeansPool,
    ) -> None:
        """`fall`: the row of the info; `decay`: exploration_decay's row, which says how much accuracy must be lost, and
        whose means `pool` shares."""
        super().__init__(rule)
        self._fall, self._core, self._distress, self._history = fall, core, distress, history
        numbers = rule.numbers
        self._shift = Shift(log_value, -1, numbers["floor"], core, fast=numbers["fast"], slow=numbers["slow"])
        self._decay = ExplorationDecay(decay, core, history, pool)
        self._lost: Reading | None = None  # what exploration_decay read off the newest accuracy; None: there was none
        self._before: float | None = None  # mean accuracy when entropy began to fall
        self._streak, self._fall_streak = Streak(rule.levels["warning"].points), Streak(fall.levels["info"].points)
        self._warned = False  # in the present episode

    def update(self, point: Point) -> Reading | None:
        self._lost = self._decay.update(point) or self._lost
        entropy = point.get(METRIC)
        if entropy is None or not point.clean:
            return None
        shift, warning = self._shift, self.rule.levels["warning"]
        shift.update(point.step, entropy)
        if self._lost is not None and (self._before is None or shift.evidence <= 0):
            self._before = self._decay.mean
        if shift.evidence < self._core["h"] / 4 or shift.effect < warning.effect / 2:
            self._streak.count = self._fall_streak.count = 0
            self._warned = False
            return QUIET
        fell = self._fall.enabled and self._beyond(self._fall.levels["info"]) and not self._gained()
        suffers = self.rule.enabled and self._beyond(warning) and self._suffers(point)
        known = self._fall_streak.update(point.step, fell)
        warned = self._streak.update(point.step, suffers)
        self._warned = self._warned or warned
        return Reading(
            level="warning" if warned else "info" if known else None,
            pending="warning" if suffers else "info" if fell else None,
            holds=True,
            onset=shift.onset,
            score=shift.evidence / warning.evidence,
            size=shift.effect,
            direction="down",
            evidence=self._evidence(entropy),
            row=None if self._warned else self._fall,
        )

    def _beyond(self, level: Level) -> bool:
        return self._shift.effect > level.effect and self._shift.evidence > level.evidence

    def _gained(self) -> bool:
        return self._before is not None and self._decay.mean > self._before * (1 + self._fall.numbers["gain"])

    def _suffers(self, point: Point) -> bool:
        if self._lost is not None:  # with entropy up since accuracy was at its top, the loss has another name
            return self._lost.pending is not None and self._lost.direction != "up"
        wrong, dead = point.get("all_wrong_frac"), point.get("zero_variance_frac")
        if wrong is None or dead is None:
            return False
        return "zero_variance_frac" in self._distress.signs and wrong > dead / 2

    def _evidence(self, entropy: float) -> dict[str, float | str | bool | None]:
        shift = self._shift
        evidence: dict[str, float | str | bool | None] = {
            METRIC: entropy, "evidence": shift.evidence, "effect": shift.effect, "points_to_floor": self._to_floor(),
        }  # fmt: skip
        if self._lost is not None:
            evidence["share_lost"] = self._lost.size
        return evidence

    def _to_floor(self) -> float:
        """Points until entropy is `floor_share` of its reference, at its mean rate since the onset; 0: it is there."""
        fallen = self._shift.effect
        left = math.log(1 / self.rule.numbers["floor_share"]) - fallen
        return max(0.0, left * self._shift.points_since_onset / fallen)

    def remedy(self) -> Remedy | None:
        """None, so that one is looked for, only once accuracy suffers: a fall alone moves no bound."""
        return None if self._warned else Remedy(text=self._fall.remedy)

    def moves(self, direction: str | None) -> Sequence[Move]:
        return raising(self._history, self._shift.onset)

    def reseat(self) -> None:
        self._shift.reseat()
        self._decay.reseat()
        self._lost = self._before = None

    def data_changed(self) -> None:
        """Accuracy means something else now; entropy keeps its reference."""
        self._decay.reseat()
        self._lost = self._before = None

    def warming(self) -> tuple[int, int] | None:
        if self._shift.scale is not None:
            return None
        return self._shift.seen, int(self._core["burn_in"] + self._core["min_points"])
