"""infra_failed: more rollouts fail for reasons of sandbox, verifier or time-out than chance explains.

A few failures are normal: at one in 150, six of 256 rollouts fail in every hundredth step. So the rule adds up what
each point says for a rate of `failing` against one of `chance` (Wald's sequential test, 1945, started anew at 0), given
the number of rollouts behind it: a bad step speaks at once, a small batch after a few, and a rate that stays below the
value of the warning never.

>>> from regimescope.detectors import Suite
>>> suite = Suite()
>>> for step, failed in enumerate((2, 0, 6, 1, 13, 60)):
...     for finding in suite.update(step, {"infra_failed_frac": failed / 256, "infra_failed_frac.n": 256}):
...         print(step, finding.signature, finding.severity, "since", finding.step_onset)
4 infra_failed warning since 4
5 infra_failed critical since 4
"""

from __future__ import annotations

import math

from regimescope.detectors.lifecycle import QUIET, Reading, Streaks
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Severity


class InfraFailed(Detector):
    """Evidence and share above those of a level. State: one sum and the step at which it left 0."""

    __slots__ = ("_critical", "_evidence", "_failed", "_name", "_onset", "_passed", "_rollouts", "_streaks", "_warning")

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        numbers = rule.numbers
        self._failed = math.log(numbers["failing"] / numbers["chance"])  # what each rollout says
        self._passed = math.log((1 - numbers["failing"]) / (1 - numbers["chance"]))
        self._rollouts = numbers["rollouts"]
        self._warning, self._critical = rule.levels["warning"], rule.levels["critical"]
        self._name = f"{rule.metric}.n"
        self._streaks = Streaks(rule)
        self._evidence = 0.0
        self._onset = 0

    def update(self, point: Point) -> Reading | None:
        share = point.get(self.rule.metric)
        if share is None:
            return None
        if self._evidence == 0:
            if share == 0 and not self._streaks.active:  # most points
                return QUIET
            self._onset = point.step
        rollouts = point.get(self._name) or self._rollouts
        warning, critical = self._warning, self._critical
        evidence = self._evidence + rollouts * (share * self._failed + (1 - share) * self._passed)
        evidence = self._evidence = min(2 * warning.evidence, max(0.0, evidence))
        level: Severity | None = None
        if share > critical.value and evidence > critical.evidence:
            level = "critical"
        elif share > warning.value and evidence > warning.evidence:
            level = "warning"
        reached = self._streaks.update(point.step, level)
        if level is None:
            return QUIET
        return Reading(
            level=reached, pending=level, holds=True, onset=self._onset, score=share / warning.value, direction="up",
            evidence={self.rule.metric: share, "rollouts": rollouts, "evidence": evidence},
        )  # fmt: skip
