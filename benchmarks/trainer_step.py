"""Seconds per RL step of the reference trainer: its parts (one thread), and TRL's GRPOTrainer on the same work.

    ./dev bench trainer_step [--steps 20] [--rounds 3] [--no-trl]

First table: 32 prompts x 8 responses of about 35 tokens, 2 passes, up to 32 updates of 16 responses. Medians over the
steps after the first two, once with the Recorder writing in the call (the trainer's default) and once by its thread.
Target: at most 1.5 s, statistics and recording at most 10 % of it.

Second table: the same RL step by TRL (benchmarks/trl-constraints.txt, an environment of its own), in turns with ours,
medians over all rounds. Alike: the model (warm start A), the prompts in their order, 32 x 8 responses of at most 96
tokens sampled at temperature 1 by transformers on the policy's own weights, 2 passes, 16 responses an update and a
forward pass, CISPO with a cap of 5, Adam and its learning rate, float32, one thread, +1 and -1 as rewards. Groups with
equal rewards stay in both (TRL keeps them, ours is told to), so both make 32 updates a step.
- `rollout`: generation, verdicts, advantages, log-probabilities of the generating weights. `generate` is TRL's way, a
  loop over the same model with the same cache is ours; our verdict asks math-verify, TRL's compares integers.
- `the rest`: the updates with everything around them; ours measures and records all statistics (the Recorder writes in
  the call), TRL logs its own metrics once an RL step.
- Not alike: each samples its own responses, so the mean lengths are shown. Left out: start, the first two steps,
  checkpoints, evaluation. TRL's gradient checkpointing and bf16 (its defaults) are off, they would only slow it here.
The ratios are worth something on a machine that does nothing else: its load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks import _trl
from benchmarks._runs import BenchmarkError, mean_of, step_rows, table, train

from regimescope.trainer.config import TrainConfig
from regimescope.trainer.task import TASKS, ProblemStream
from regimescope.trainer.tokenizer import EOS_ID

Rows = Sequence[Mapping[str, float]]

PARTS = ("step", "rollout", "update", "stats", "record")
WARM_UP = 2
TARGET_S, TARGET_SHARE = 1.5, 0.10
QUIET = ["--set", "evaluation.every=0"]
HEAD = (
    "trainer", "step, s", "rollout, s", "the rest, s", "the rest an update, ms", "updates a step", "tokens a response"
)  # fmt: skip


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench trainer_step", description="Seconds per RL step, split by part.")
    parser.add_argument("--steps", type=int, default=20, help="measured steps of each row and round (default 20)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of ours and TRL's (default 3)")
    parser.add_argument("--no-trl", action="store_true", help="leave TRL out")
    args = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory() as folder:
            good = parts(Path(folder), args.steps)
            if not args.no_trl:
                against_trl(Path(folder), args.steps, args.rounds)
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0 if good else 1


def parts(folder: Path, steps: int) -> bool:
    """Print the first table; whether the target is met."""
    rows, good = [], True
    for label, sync in (("in the call", "true"), ("by a thread", "false")):
        run_dir = folder / sync
        options = ["--scenario", "healthy", "--steps", str(steps + WARM_UP), *QUIET]
        train(run_dir, [*options, "--set", f"record.sync={sync}"])
        measured = step_rows(run_dir)[WARM_UP:]
        seconds = {part: median(row[f"{part}_seconds"] for row in measured) for part in PARTS}
        share = median((row["stats_seconds"] + row["record_seconds"]) / row["step_seconds"] for row in measured)
        good &= seconds["step"] <= TARGET_S and share <= TARGET_SHARE
        figures = [f"{seconds[part]:.3f}" for part in PARTS]
        sizes = [f"{mean_of(measured, 'response_length_mean'):.0f}", f"{mean_of(measured, 'updates'):.0f}"]
        rows.append([label, *figures, f"{share:.1%}", *sizes])
    sizes_head = ["tokens a response", "updates a step"]
    head = ["recorder writes", *(f"{part}, s" for part in PARTS), "stats + record", *sizes_head]
    print(table(head, rows))
    verdict = "met" if good else "MISSED"
    print(f"target: step <= {TARGET_S} s, statistics and recording <= {TARGET_SHARE:.0%}: {verdict}")
    return good


def against_trl(folder: Path, steps: int, rounds: int) -> None:
    """Print the second table. Raises BenchmarkError, also where TRL cannot be installed."""
    _trl.python()
    load = os.getloadavg()[0]
    ours, theirs = [], []
    for seed in range(rounds):
        ours.append(our_steps(folder / f"ours-{seed}", steps, seed))
        theirs.append(trl_steps(folder / f"plan-{seed}.json", steps, seed))
    mine, other = (figures([row for rows in turns for row in rows]) for turns in (ours, theirs))
    ratios = [f"{a / b:.2f}" for a, b in zip(mine, other, strict=True)]
    rows = [["ours", *written(mine)], ["TRL's GRPOTrainer", *written(other)], ["ours / TRL's", *ratios]]
    print(f"\n{table(HEAD, rows)}")
    by_round = [figures(a)[0] / figures(b)[0] for a, b in zip(ours, theirs, strict=True)]
    print(f"ratio of the step by round: {', '.join(f'{ratio:.2f}' for ratio in by_round)}")
    print(f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores")


def our_steps(run_dir: Path, steps: int, seed: int) -> Rows:
    """Our step lines after the warm-up."""
    options = ["--preset", "cispo-scalerl", "--steps", str(steps + WARM_UP), "--seed", str(seed), *QUIET]
    train(run_dir, [*options, "--set", "advantage.equal_groups=keep"])
    return step_rows(run_dir)[WARM_UP:]


def trl_steps(plan_file: Path, steps: int, seed: int) -> Rows:
    """TRL's, on the problems that our trainer asks with this seed; see `_trl_step_worker`."""
    config = TrainConfig()
    problems = ProblemStream(TASKS["A"], seed=seed).take((steps + WARM_UP) * config.rollout.prompts)
    plan = {
        "model": str(_trl.FOLDER.parent / "trainer/warm/A"),
        "eos_id": EOS_ID,
        "seed": seed,
        "prompts": config.rollout.prompts,
        "group": config.rollout.group,
        "max_tokens": config.rollout.max_tokens,
        "passes": config.update.passes,
        "batch": config.update.batch,
        "lr": config.update.lr,
        "problems": [(problem.text, problem.answer) for problem in problems],
    }
    plan_file.write_text(json.dumps(plan), "utf-8")
    return [json.loads(line) for line in _trl.run("_trl_step_worker", str(plan_file)).splitlines()][WARM_UP:]


def figures(rows: Rows) -> list[float]:
    """Medians of step, rollout, the rest (s) and the rest per update (ms); means of updates and length."""
    step, rollout = (median(row[f"{part}_seconds"] for row in rows) for part in ("step", "rollout"))
    rest = median(row["step_seconds"] - row["rollout_seconds"] for row in rows)
    each = median((row["step_seconds"] - row["rollout_seconds"]) / row["updates"] for row in rows)
    return [step, rollout, rest, 1e3 * each, mean_of(rows, "updates"), mean_of(rows, "response_length_mean")]


def written(values: list[float]) -> list[str]:
    """The cells of one trainer."""
    digits = (3, 3, 3, 1, 0, 1)
    return [f"{value:.{count}f}" for value, count in zip(values, digits, strict=True)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
