"""A training process for `long_run` and `freshness`: it does nothing but record, in thread mode.

    python -m benchmarks._trainer_worker RUN_DIR STEPS STEPS_PER_SECOND       prints one JSON object at the end

Ten canonical scalars a step, noise around healthy values, so that the detectors have all their work. Prints the sum of
each metric and the seconds; exits with 1 where a record was dropped.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from pathlib import Path

from regimescope.monitor import Recorder

HEALTHY = {
    "accuracy": (0.6, 0.03),
    "reward_mean": (0.2, 0.06),
    "response_length_mean": (400.0, 20.0),
    "entropy_mean": (0.4, 0.02),
    "rep4_mean": (0.06, 0.01),
    "repetition_frac": (0.05, 0.01),
    "truncated_frac": (0.05, 0.01),
    "zero_variance_frac": (0.2, 0.02),
    "grad_norm": (0.4, 0.05),
    "kl_step": (0.02, 0.004),
}
"Metric -> mean and deviation."


def main(run_dir: Path, steps: int, rate: float) -> int:
    """Record so many steps at this rate, and say what was recorded."""
    draw = random.Random(3).gauss
    values: dict[str, list[float]] = {name: [] for name in HEALTHY}
    recorder = Recorder(run_dir)
    start = time.monotonic()
    for step in range(steps):
        ahead = step / rate - (time.monotonic() - start)
        if ahead > 0.001:  # shorter sleeps are not kept
            time.sleep(ahead)
        metrics = {name: draw(*around) for name, around in HEALTHY.items()}
        recorder.step(step, metrics)
        for name, value in metrics.items():
            values[name].append(value)
    recorder.end("finished")
    seconds = time.monotonic() - start
    print(json.dumps({"seconds": seconds, "sums": {name: math.fsum(found) for name, found in values.items()}}))
    if recorder.dropped:
        print(f"{recorder.dropped} records were dropped: give a lower rate", file=sys.stderr)
    return 1 if recorder.dropped else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
