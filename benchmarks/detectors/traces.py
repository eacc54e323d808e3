"""Generated runs: healthy families and incidents, with autocorrelated noise.

A run is a list of mappings from canonical metric names to values, one per step. Levels are those of a small RLVR run
(400 tokens, half of the answers right); noise is AR(1), normal or Student-t with 4 degrees of freedom, its standard
deviation per metric in NOISE. `healthy(family, ...)`, `incident(kind, ...)`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Run = list[dict[str, float]]
Paths = dict[str, Callable[[int], float]]

LEVEL = {
    "response_length_mean": math.log(400), "entropy_mean": math.log(0.5), "grad_norm": math.log(0.3),
    "kl_step": math.log(0.01), "accuracy": 0.0, "rep4_mean": -2.8, "repetition_frac": -4.5, "truncated_frac": -3.5,
    "zero_variance_frac": -1.2, "all_wrong_frac": -2.5,
}  # fmt: skip
"In log for positive metrics, in logit for shares."
NOISE = {
    "response_length_mean": 0.05, "entropy_mean": 0.05, "grad_norm": 0.2, "kl_step": 0.25, "accuracy": 0.15,
    "rep4_mean": 0.1, "repetition_frac": 0.3, "truncated_frac": 0.4, "zero_variance_frac": 0.25, "all_wrong_frac": 0.3,
}  # fmt: skip
POSITIVE = ("response_length_mean", "entropy_mean", "grad_norm", "kl_step")
RESPONSES = 256.0
Tails = Literal["normal", "t4"]
TAILS: tuple[Tails, ...] = ("normal", "t4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Noise of a run."""

    phi: float = 0.6
    "Lag-1 correlation of the AR(1)."
    tails: Tails = "normal"
    "Distribution of the innovations; both have unit variance."


def ar1(rng: random.Random, noise: Noise) -> Iterator[float]:
    """Unit-variance AR(1), from its stationary start."""
    scale, x = math.sqrt(1 - noise.phi**2), rng.gauss(0, 1)
    while True:
        yield x
        x = noise.phi * x + scale * (rng.gauss(0, 1) if noise.tails == "normal" else _student4(rng))


def _student4(rng: random.Random) -> float:
    """Student-t with 4 degrees of freedom, scaled to unit variance: a normal over sqrt(chi²(4)/4), over sqrt(2)."""
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(2, 2) / 4) / math.sqrt(2)


def run(paths: Paths, steps: int, seed: int, noise: Noise) -> Run:
    """Levels plus the given paths (added in log or logit) plus noise."""
    rng = random.Random(seed)
    sources = {name: ar1(rng, noise) for name in LEVEL}
    flat: Callable[[int], float] = lambda step: 0.0  # noqa: E731
    moves = {name: paths.get(name, flat) for name in LEVEL}
    rows: Run = []
    for step in range(steps):
        row: dict[str, float] = {}
        for name, level in LEVEL.items():
            x = level + moves[name](step) + NOISE[name] * next(sources[name])
            row[name] = math.exp(x) if name in POSITIVE else 1 / (1 + math.exp(-x))
        row["accuracy.n"] = RESPONSES
        row["reward_mean"] = 2 * row["accuracy"] - 1
        rows.append(row)
    return rows


def _ramp(start: float, span: float, height: float) -> Callable[[int], float]:
    """0 before `start`, `height` after `span` further steps, straight between."""
    return lambda step: height * min(1.0, max(0.0, (step - start) / span))


def _saturating(height: float, span: float) -> Callable[[int], float]:
    return lambda step: height * (1 - math.exp(-step / span))


def healthy_paths(family: str, steps: int) -> Paths:
    """The families of healthy runs, by name."""
    learns: Paths = {"accuracy": _saturating(1.2, 200), "zero_variance_frac": _saturating(0.8, 300)}
    wave: Callable[[int], float] = lambda step: 0.05 * math.sin(2 * math.pi * step / 100)  # noqa: E731
    families: dict[str, Paths] = {
        "plain": {},
        "learning": learns,
        "length growth": {
            **learns,
            "response_length_mean": _saturating(1.1, 400),
            "truncated_frac": _saturating(0.8, 400),
        },
        "entropy falling": {**learns, "entropy_mean": _saturating(-2.3, 300)},
        "early dip": {
            "accuracy": lambda step: -0.4 * math.exp(-(((step - 12) / 5) ** 2)) + _saturating(1.0, 100)(step)
        },
        "intended shortening": {**learns, "response_length_mean": _ramp(steps // 4, 150, math.log(0.65))},
        "epoch wave": {name: wave for name in ("response_length_mean", "entropy_mean", "accuracy")},
        "curriculum": {
            "accuracy": _ramp(steps // 2, 1, -0.8),
            "response_length_mean": _ramp(steps // 2, 1, 0.4),
            "entropy_mean": _ramp(steps // 2, 1, 0.2),
            "truncated_frac": _ramp(steps // 2, 1, 0.8),
            "zero_variance_frac": _ramp(steps // 2, 1, -0.4),
            "all_wrong_frac": _ramp(steps // 2, 1, 0.8),
        },
        "mastery": {
            "accuracy": _saturating(4.0, 300),
            "entropy_mean": _saturating(-2.3, 300),
            "zero_variance_frac": _saturating(3.6, 300),
            "all_wrong_frac": _saturating(-3.0, 300),
        },
        "resume step": {"entropy_mean": _ramp(steps // 2, 1, 0.15), "grad_norm": _ramp(steps // 2, 1, 0.3)},
    }
    return families[family]


FAMILIES = (
    "plain",
    "learning",
    "length growth",
    "entropy falling",
    "early dip",
    "intended shortening",
    "epoch wave",
    "resume step",
    "mastery",
)


def healthy(family: str, steps: int, seed: int, noise: Noise | None = None) -> Run:
    """A run in which no warning is right."""
    return run(healthy_paths(family, steps), steps, seed, noise or Noise())


def incident(kind: str, onset: int, steps: int, seed: int, noise: Noise | None = None) -> Run:
    """A run that fails from `onset` on: "repetition", "length", "decay", "entropy", "runaway" or "zero".

    Lags of the side effects are assumptions.
    """
    collapse: Paths = {
        "accuracy": _ramp(onset + 2, 12, -4.0), "grad_norm": _ramp(onset + 1, 8, 2.0), "kl_step": _ramp(onset, 6, 2.5),
        "zero_variance_frac": _ramp(onset + 4, 12, 4.0), "all_wrong_frac": _ramp(onset + 4, 12, 4.0),
    }  # fmt: skip
    kinds: dict[str, Paths] = {
        "repetition": {
            **collapse, "rep4_mean": _ramp(onset, 15, 4.5), "repetition_frac": _ramp(onset, 15, 6.0),
            "entropy_mean": _ramp(onset, 15, -1.5), "response_length_mean": _ramp(onset, 15, 0.9),
            "truncated_frac": _ramp(onset, 15, 5.0),
        },
        "length": {**collapse, "response_length_mean": _ramp(onset, 15, -4.2), "entropy_mean": _ramp(onset, 15, 1.0)},
        "decay": {"accuracy": _ramp(onset, 200, -1.5), "entropy_mean": _ramp(onset, 200, 0.9)},
        "entropy": {
            "entropy_mean": _ramp(onset, 80, -2.5), "accuracy": _ramp(onset + 20, 120, -1.5),
            "zero_variance_frac": _ramp(onset + 20, 80, 3.0), "all_wrong_frac": _ramp(onset + 20, 80, 2.5),
        },
        "runaway": {
            "response_length_mean": _ramp(onset, 20, 1.2), "truncated_frac": _ramp(onset + 5, 20, 3.5),
            "accuracy": _ramp(onset + 8, 30, -1.0),
        },
        "zero": {
            "zero_variance_frac": _ramp(onset, 15, 5.0), "all_wrong_frac": _ramp(onset, 15, 6.0),
            "accuracy": _ramp(onset, 15, -4.0), "grad_norm": _ramp(onset, 15, -2.0),
        },
    }  # fmt: skip
    return run(kinds[kind], steps, seed, noise or Noise())
