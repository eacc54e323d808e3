"""How often an alert of a signature was false where nothing was wrong, as the scorecard measured it.

    lines("exploration_decay")    # ["Generated runs: 2 in 162,000 healthy steps; ...", ...]

The counts are false_alarms.toml, which `python -m benchmarks.scorecard.false_alarms` takes from docs/scorecard.md.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regimescope.monitor.ui.texts import number, signature_text

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Healthy runs over which false alarms were counted."""

    kind: str
    "real | generated"
    name: str
    runs: int
    steps: int
    "Healthy steps in all."
    without: tuple[str, ...]
    "Metrics that none of them has: a rule that watches one could not speak."
    warnings: Mapping[str, int]
    "Warnings and criticals by signature; those less than 20 steps apart are one."


@cache
def measured() -> tuple[Measured, ...]:
    """All of the data file."""
    with (Path(__file__).parent / "false_alarms.toml").open("rb") as file:
        return tuple(Measured(**{**entry, "without": tuple(entry["without"])}) for entry in tomllib.load(file)["set"])


def lines(signature: str) -> list[str]:
    """A sentence per data set in which the rule could see its metric, real runs first."""
    metric = signature_text(signature).metric
    some = [found for found in measured() if metric and metric not in found.without]
    return [_line(found, found.warnings.get(signature, 0)) for found in some]


def _line(found: Measured, count: int) -> str:
    most = number(1000 * upper_bound(count) / found.steps, 2)
    where = "Generated runs" if found.kind == "generated" else f"Real runs, {found.name}"
    return f"{where}: {count or 'none'} in {found.steps:,} healthy steps; at most {most} per 1,000 (95 %)"


def upper_bound(count: int) -> float:
    """The Poisson mean at which `count` or fewer have a chance of 5 %: what may be true behind `count` seen ones."""
    low, high = 0.0, 10.0 + 4 * count
    for _ in range(80):
        mean = (low + high) / 2
        chance = sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(count + 1))
        low, high = (mean, high) if chance > 1 - LEVEL else (low, mean)
    return high
