"""The paper's claims against the outcomes: `verdicts(outcomes)` compares the two arms of each claim seed by seed, under
each condition that has both.

A claim is *reproduced* where at least two thirds of the seeds agree and none says the opposite, *opposite* where two
thirds say the opposite, else *not reproduced*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regimescope.trainer.lab.outcomes import Outcome
from regimescope.trainer.lab.plan import study

NEEDED = 2 / 3
LEAST = {"accuracy": 0.03, "peak": 0.03, "peak_step": 5.0}
"Smaller differences say nothing."
LEAST_FACTOR = 1.1
"Entropies that are closer than this say nothing."
REPRODUCED, OPPOSITE, NOT = "reproduced", "opposite", "not reproduced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A claim under one condition."""

    text: str
    "The claim."
    own: str
    "Whose, where it is not the paper's."
    condition: str
    agree: int
    "Seeds."
    opposite: int
    "Seeds that say the contrary."
    seeds: int
    detail: str
    "What was compared, seed by seed."

    @property
    def word(self) -> str:
        if self.agree >= NEEDED * self.seeds and not self.opposite:
            return REPRODUCED
        return OPPOSITE if self.opposite >= NEEDED * self.seeds else NOT


def verdicts(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """One per claim and condition in which both arms were run, in the order of grids.toml."""
    table = study()
    cells = {(o.run.condition, o.run.arm, o.run.seed): o for o in outcomes}
    found = []
    for claim in table["claim"]:
        for condition in table["condition"]:
            pairs = [
                (own, other)
                for (where, arm, seed), own in cells.items()
                if (where, arm) == (condition, claim["arm"])
                and (other := cells.get((condition, claim["beside"], seed))) is not None
            ]
            if pairs:
                found.append(_verdict(claim, condition, pairs))
    return found


def _verdict(claim: Mapping[str, Any], condition: str, pairs: Sequence[tuple[Outcome, Outcome]]) -> Verdict:
    signs = [_sign(claim, own, other) for own, other in pairs]
    return Verdict(
        text=claim["text"], own=claim.get("own", ""), condition=condition, agree=signs.count(1),
        opposite=signs.count(-1), seeds=len(signs), detail="; ".join(_detail(claim, *pair) for pair in pairs),
    )  # fmt: skip


def _sign(claim: Mapping[str, Any], own: Outcome, other: Outcome) -> int:
    """1 agrees, -1 says the opposite, 0 neither."""
    if "ends" in claim:
        fails = own.ending != "healthy" if claim["ends"] == "any" else own.ending == claim["ends"]
        if fails and other.ending == "healthy":
            return 1
        return -1 if own.ending == "healthy" and other.ending != "healthy" else 0
    name = claim.get("more") or claim["less"]
    return _compare(name, own.measures[name], other.measures[name]) * (1 if "more" in claim else -1)


def _compare(name: str, value: float, beside: float) -> int:
    if math.isnan(value) or math.isnan(beside):
        return 0
    if name == "entropy":
        far = value > LEAST_FACTOR * beside or beside > LEAST_FACTOR * value
    else:
        far = abs(value - beside) >= LEAST[name]
    return 0 if not far else 1 if value > beside else -1


def _detail(claim: Mapping[str, Any], own: Outcome, other: Outcome) -> str:
    if "ends" in claim:
        return f"{own.ending} / {other.ending}"
    name = claim.get("more") or claim["less"]
    digits = 0 if name == "peak_step" else 3 if name == "entropy" else 2
    return f"{own.measures[name]:.{digits}f} / {other.measures[name]:.{digits}f}"
