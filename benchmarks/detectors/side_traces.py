"""What a run logs beside the metrics of traces.py: engine mismatch, held-out evaluations, the buckets of R4.

`with_sides(rows, ...)` adds them to a generated run, from a random source of their own, so that the rest of the run
stays as it is. `side_incident(kind, ...)` is a run that fails in one of them.
"""

from __future__ import annotations

import math
import random

from benchmarks.detectors.traces import Noise, Paths, Run, ar1, healthy_paths, run

LEVEL = {
    "mismatch_k1": math.log(0.001), "mismatch_logp_abs": math.log(0.012), "mismatch_k3": math.log(0.0003),
    "R4.log_ratio_mean": math.log(0.12), "R4.token_frac": -1.4,
}  # fmt: skip
"In log of the size, in logit for the share."
NOISE = {
    "mismatch_k1": 0.15, "mismatch_logp_abs": 0.15, "mismatch_k3": 0.25, "R4.log_ratio_mean": 0.35,
    "R4.token_frac": 0.25,
}  # fmt: skip
"k1 of a recorded public run has 0.08; the two of R4 are the medians of the tiny Qwen3 runs."
EVERY = 10
ANSWERS = 200
HARDER = -0.5
"Logit of the held-out problems against the training ones."
TRANSFER = 0.7
"Share of the gain in training that healthy runs show on held-out problems, in logit."
MISMATCH = ("mismatch_k1", "mismatch_logp_abs", "mismatch_k3")


def with_sides(
    rows: Run, family: str, seed: int, noise: Noise, paths: Paths | None = None, transfer: float = TRANSFER
) -> Run:
    """The rows with the side metrics of a healthy run. `paths` are added to their levels; `transfer` as above.

    Mismatch and the log-ratios of R4 grow by a half over the run, as both do in real ones.
    """
    rng = random.Random(seed)
    sources = {name: ar1(rng, noise) for name in LEVEL}
    learnt = healthy_paths(family, len(rows)).get("accuracy", lambda step: 0.0)
    grown = math.log(1.5) / max(1, len(rows))
    sides: Run = []
    for step, row in enumerate(rows):
        side: dict[str, float] = {}
        for name, level in LEVEL.items():
            x = level + NOISE[name] * next(sources[name]) + (paths[name](step) if paths and name in paths else 0.0)
            if name == "R4.token_frac":
                side[name] = 1 / (1 + math.exp(-x))
            else:
                side[name] = math.exp(x + grown * step) * (-1 if name == "R4.log_ratio_mean" else 1)
        if step % EVERY == EVERY - 1:
            p = 1 / (1 + math.exp(-(HARDER + transfer * learnt(step))))
            side["eval.accuracy"] = sum(rng.random() < p for _ in range(ANSWERS)) / ANSWERS
        sides.append(row | side)
    return sides


def side_incident(kind: str, onset: int, steps: int, seed: int, noise: Noise | None = None) -> Run:
    """A run that fails from `onset` on: "mismatch" (the engine is off tenfold at once), "heldout" (it learns what does
    not transfer), "push" (R4 is pushed down four times as far, with the gradient norm)."""
    noise = noise or Noise()

    def jump(step: int) -> float:
        return math.log(10.0) if step >= onset else 0.0

    def rise(step: int) -> float:
        return math.log(4.0) * min(1.0, max(0.0, (step - onset) / 8))

    def learns(step: int) -> float:
        return 1.5 * min(1.0, max(0.0, (step - onset) / 80))

    if kind == "heldout":
        return with_sides(run({"accuracy": learns}, steps, seed, noise), "plain", seed, noise)
    if kind == "push":
        rows = run({"grad_norm": rise}, steps, seed, noise)
        return with_sides(rows, "plain", seed, noise, {"R4.log_ratio_mean": rise})
    return with_sides(run({}, steps, seed, noise), "plain", seed, noise, dict.fromkeys(MISMATCH, jump))
