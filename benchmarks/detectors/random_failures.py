"""Warnings of infra_failed where failures are random: `python -m benchmarks.detectors.random_failures [STEPS]`.

Per batch size, rollouts that fail with a chance of 0.67 % each: warnings and criticals per 1,000 steps, and how many
failed rollouts of one step speak at once.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from itertools import count

from regimescope.detectors import Suite

CHANCE = 0.0067
SIZES = (8, 16, 24, 32, 64, 128, 256, 512, 1024)


def row(failed: int, rollouts: int) -> dict[str, float]:
    return {"infra_failed_frac": failed / rollouts, "infra_failed_frac.n": float(rollouts)}


def at_once(rollouts: int) -> int:
    """Fewest failed rollouts of a single step that are found in it."""
    return next(failed for failed in count(1) if Suite().update(0, row(failed, rollouts)))


def main(argv: Sequence[str]) -> int:
    steps = int(argv[0]) if argv else 20_000
    for rollouts in SIZES:
        rng, suite = random.Random(rollouts), Suite()
        for step in range(steps):
            suite.update(step, row(sum(rng.random() < CHANCE for _ in range(rollouts)), rollouts))
        rate = 1000 * len(suite.findings()) / steps
        print(f"{rollouts:5} rollouts a step: {rate:.3f} per 1,000 in {steps} steps; {at_once(rollouts)} speak at once")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
