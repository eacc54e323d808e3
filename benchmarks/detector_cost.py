"""Cost of the detectors: CPU microseconds per step of the whole suite; target <= 50. And per env slice beside it.

The stream is a healthy run of a trainer that logs everything: about 30 scalars and all columns of the seven buckets,
109 keys a step.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence

from regimescope.detectors import Event, Slices, Suite, load_rules, slice_inputs
from regimescope.detectors.types import BUCKETS

COLUMNS = (
    "token_frac", "grad_mass", "clip_high_frac", "clip_low_frac", "clip_gap", "ratio_mean", "weight_mean", "tokens",
    "entropy_mean", "entropy_effect", "log_ratio_mean",
)  # fmt: skip
SCALARS = (
    "response_length_p10", "response_length_p50", "response_length_p90", "response_length_p99", "response_length_max",
    "lr", "lag_mean", "lag_p95", "lag_max", "step_seconds", "rollout_seconds", "update_seconds", "tokens", "eos_frac",
    "tail_loop_frac", "all_correct_frac",
)  # fmt: skip
BOUNDS = {"pos.w_min": 0.8, "pos.w_max": 11.0, "neg.w_min": 0.0, "neg.w_max": 101.0}


def stream(steps: int, seed: int = 0) -> list[dict[str, float]]:
    """Healthy steps: every metric that a rule reads, with noise, and the rest constant."""
    rng = random.Random(seed)
    constant = {name: 0.1 for name in SCALARS} | {f"{bucket}.{column}": 0.1 for bucket in BUCKETS for column in COLUMNS}
    return [
        constant
        | {
            "accuracy": min(1, max(0, rng.gauss(0.6, 0.03))), "accuracy.n": 256.0, "reward_mean": rng.gauss(0.2, 0.06),
            "loss": 0.01, "updates": 32.0, "infra_failed_frac": 0.0, "mismatch_k1": 0.001,
            "response_length_mean": rng.gauss(400, 20), "entropy_mean": rng.gauss(0.4, 0.02),
            "rep4_mean": abs(rng.gauss(0.06, 0.01)), "repetition_frac": abs(rng.gauss(0.01, 0.004)),
            "truncated_frac": abs(rng.gauss(0.02, 0.01)), "zero_variance_frac": abs(rng.gauss(0.2, 0.05)),
            "all_wrong_frac": abs(rng.gauss(0.05, 0.02)), "grad_norm": rng.lognormvariate(-1, 0.2),
            "kl_step": rng.lognormvariate(-4, 0.3),
        }
        for _ in range(steps)
    ]  # fmt: skip


def microseconds_per_step(rows: Sequence[dict[str, float]]) -> float:
    """Of a fresh suite over the rows."""
    suite = Suite()
    event = Event(kind="start", step=0, data={"objective": "dispo", "ratio_source": "behaviour", **BOUNDS})
    begin = time.process_time()
    for step, row in enumerate(rows):
        suite.update(step, row, [event] if step == 0 else ())
    return 1e6 * (time.process_time() - begin) / len(rows)


def microseconds_per_slice(rows: Sequence[dict[str, float]], k: int) -> float:
    """Of fresh suites of k slices over the rows, each with what the monitor reads for it; per slice and step."""
    names = slice_inputs(load_rules())
    parts = [{name: value for name, value in row.items() if name.removesuffix(".n") in names} for row in rows]
    slices = Slices(Suite())
    begin = time.process_time()
    for step, part in enumerate(parts):
        slices.update(step, {f"task{i:02}": part for i in range(k)})
    return 1e6 * (time.process_time() - begin) / len(rows) / k


def main(argv: Sequence[str]) -> int:
    rows = stream(int(argv[0]) if argv else 3000)
    runs = sorted(microseconds_per_step(rows) for _ in range(5))
    spread = f"best {runs[0]:.1f}, worst {runs[-1]:.1f}"
    print(f"{len(rows)} steps, {len(rows[0])} keys a step: {runs[2]:.1f} microseconds per step ({spread})")
    for k in (4, 16, 64):
        runs = sorted(microseconds_per_slice(rows[:1000], k) for _ in range(3))
        spread = f"best {runs[0]:.1f}, worst {runs[-1]:.1f}"
        print(f"{k} slices: {k * runs[1]:.0f} microseconds per step besides, {runs[1]:.1f} per slice ({spread})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
