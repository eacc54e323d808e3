"""The fixtures of `import_fixtures`, one module per writer: `write_<name>(folder)` writes it and says what was logged.

They run in the peers' environment, that of TRL in TRL's.
"""

from __future__ import annotations

import math
import random

Truth = dict[str, dict[str, list[list[float]]]]
STEPS = 30
BEGIN = 1_790_000_000.0
"Wall time of the first step; a step takes ten seconds."


def numbers(step: int, seed: int = 1) -> dict[str, float]:
    """What a GRPO trainer would log."""
    draw = random.Random(1000 * seed + step)
    return {
        "train/reward": 0.2 + 0.01 * step + draw.gauss(0, 0.02),
        "train/entropy": 1.5 * math.exp(-0.05 * step) + draw.gauss(0, 0.01),
        "train/completions/mean_length": 300 - 4 * step + draw.gauss(0, 5),
        "train/grad_norm": 0.4 + draw.random() / 10,
    }


def note(truth: Truth, run: str, step: int, values: dict[str, float]) -> None:
    for name, value in values.items():
        truth.setdefault(run, {}).setdefault(name, []).append([step, value])
