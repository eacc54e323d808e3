"""Seconds per RL step of the reference trainer: rollout, update, statistics, recording (one thread).

    ./dev bench trainer_step [--steps 20]

32 prompts x 8 responses of about 35 tokens, 2 passes, up to 32 updates of 16 responses. Medians over the steps after
the first two, once with the Recorder writing in the call (the trainer's default) and once by its thread. Target: at
most 1.5 s, statistics and recording at most 10 % of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks._runs import mean_of, step_rows, table, train

PARTS = ("step", "rollout", "update", "stats", "record")
WARM_UP = 2
TARGET_S, TARGET_SHARE = 1.5, 0.10


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench trainer_step", description="Seconds per RL step, split by part.")
    parser.add_argument("--steps", type=int, default=20, help="measured steps (default 20)")
    args = parser.parse_args(argv)
    rows, good = [], True
    with tempfile.TemporaryDirectory() as folder:
        for label, sync in (("in the call", "true"), ("by a thread", "false")):
            run_dir = Path(folder) / sync
            options = ["--scenario", "healthy", "--steps", str(args.steps + WARM_UP), "--set", "evaluation.every=0"]
            train(run_dir, [*options, "--set", f"record.sync={sync}"])
            measured = step_rows(run_dir)[WARM_UP:]
            seconds = {part: median(row[f"{part}_seconds"] for row in measured) for part in PARTS}
            share = median((row["stats_seconds"] + row["record_seconds"]) / row["step_seconds"] for row in measured)
            good &= seconds["step"] <= TARGET_S and share <= TARGET_SHARE
            figures = [f"{seconds[part]:.3f}" for part in PARTS]
            sizes = [f"{mean_of(measured, 'response_length_mean'):.0f}", f"{mean_of(measured, 'updates'):.0f}"]
            rows.append([label, *figures, f"{share:.1%}", *sizes])
    head = [
        "recorder writes",
        *(f"{part}, s" for part in PARTS),
        "stats + record",
        "tokens a response",
        "updates a step",
    ]
    print(table(head, rows))
    print(
        f"target: step <= {TARGET_S} s, statistics and recording <= {TARGET_SHARE:.0%}: {'met' if good else 'MISSED'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
