"""What a log call costs: our Recorder beside wandb offline, trackio, mlflow and TensorBoard.

`./dev bench recording` logs 2,000 steps of 40 numbers in a tight loop, then 500 steps of 20 ms. Every logger runs in a
process of its own, all of them under one interpreter (benchmarks/.venv-peers; our Recorder is standard library only),
in rounds that take turns. Figures are medians over the rounds, with the lowest and highest of the call's median.

Written: until everything is on disk, the queue drained. CPU: of the logging process, and of the processes that it
started. mlflow gets a tenth of the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks._loggers import LOGGERS, PEERS, QUIET
from benchmarks._runs import BenchmarkError, table

THREAD, SYNC = "regimescope, thread", "regimescope, sync"
SLOW = {"mlflow, async": 10, "mlflow, sync": 10}
"Logger -> by what its steps are divided."
PACED = (THREAD, SYNC, "trackio", "wandb")
STEP_S = 0.02
HEAD = (
    "logger", "call p50 µs", "lowest-highest", "p99 µs", "x thread", "x sync", "written, ms a step",
    "CPU µs a step", "+ children", "bytes a point",
)  # fmt: skip
PACED_HEAD = ("logger, 20 ms steps", "call p50 µs", "p99 µs", "worst µs")
MORE = (
    "What the figures leave out: the peers do more in or behind the call than write a segment. wandb's second process "
    "keeps summaries and can\nsync; trackio and mlflow fill a database that can be queried at once; ours is filled by "
    "the monitor, outside the training process\n(./dev bench ingestion)."
)

Measured = dict[str, float]


def measure(names: list[str], steps: int, scalars: int, rounds: int, every_s: float) -> dict[str, list[Measured]]:
    """Logger -> what each round gave."""
    found: dict[str, list[Measured]] = {name: [] for name in names}
    for i in range(rounds):
        turn = i % len(names)  # nobody always comes first
        for name in [*names[turn:], *names[:turn]]:
            own = max(1, steps // SLOW.get(name, 1))
            with tempfile.TemporaryDirectory(prefix="regimescope-bench-") as folder:
                data = Path(folder) / "data"
                data.mkdir()
                arguments = [name, str(data), str(own), str(scalars), str(every_s)]
                said = PEERS.run("_logging_worker", *arguments, env=QUIET)
            result: Measured = json.loads(said.splitlines()[-1])
            found[name].append({**result, "steps": own})
    return found


def middle(rounds: list[Measured]) -> Measured:
    """Medians over the rounds."""
    return {key: median(r[key] for r in rounds) for key in rounds[0]}


def rows(found: dict[str, list[Measured]]) -> list[list[str]]:
    mid = {name: middle(rounds) for name, rounds in found.items()}
    lines = []
    for name, m in mid.items():
        calls = sorted(r["p50_us"] for r in found[name])
        ratios = [f"{m['p50_us'] / mid[base]['p50_us']:.1f}" if base in mid else "-" for base in (THREAD, SYNC)]
        costs = [f"{m[key] / m['steps'] * unit:.{digits}f}" for key, unit, digits in COSTS]
        span = f"{calls[0]:.1f}-{calls[-1]:.1f}"
        lines.append(
            [name, f"{m['p50_us']:.1f}", span, f"{m['p99_us']:.0f}", *ratios, *costs, f"{m['bytes_per_point']:.0f}"]
        )
    return lines


COSTS = (("wall_s", 1e3, 3), ("cpu_s", 1e6, 0), ("child_cpu_s", 1e6, 0))


def missed(tight: dict[str, list[Measured]], paced: dict[str, list[Measured]]) -> list[str]:
    """The bars that were missed."""
    call = {name: middle(rounds)["p50_us"] for name, rounds in tight.items()}
    bars = []
    if "wandb" in call:
        bars.append((f"thread is 1/{call['wandb'] / call[THREAD]:.0f} of wandb", call[THREAD] > call["wandb"] / 50))
    if "trackio" in call:
        bars.append(
            (f"thread is 1/{call['trackio'] / call[THREAD]:.0f} of trackio", call[THREAD] > call["trackio"] / 10)
        )
        bars.append((f"sync is {call[SYNC] / call['trackio']:.2f} of trackio", call[SYNC] >= call["trackio"]))
    if paced:
        own = middle(paced[THREAD])
        bars.append((f"20 ms steps: p99 {own['p99_us']:.0f} µs", own["p99_us"] >= 200))
        bars.append((f"20 ms steps: worst {own['worst_us']:.0f} µs", own["worst_us"] >= 1000))
    return [what for what, is_missed in bars if is_missed]


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    names = [name for name in LOGGERS if not args.only or name.startswith(("regimescope", *args.only))]
    paced: dict[str, list[Measured]] = {}
    try:
        tight = measure(names, args.steps, args.scalars, args.rounds, 0.0)
        if args.paced:
            paced = measure([n for n in names if n in PACED], args.paced, args.scalars, args.rounds, STEP_S)
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(f"{args.steps:,} steps of {args.scalars} numbers, tight loop; medians of {args.rounds} rounds")
    print(table(HEAD, rows(tight)))
    mid = {name: middle(rounds) for name, rounds in paced.items()}
    if mid:
        keys = ("p50_us", "p99_us", "worst_us")
        print(f"\n{args.paced} steps of {STEP_S * 1e3:.0f} ms; medians of {args.rounds} rounds, of the worst call too")
        print(table(PACED_HEAD, [[name, *(f"{m[key]:.0f}" for key in keys)] for name, m in mid.items()]))
    late = missed(tight, paced)
    print(
        "\ntargets: call in thread mode <= 1/50 of wandb and <= 1/10 of trackio, sync below trackio, with 20 ms steps "
        f"p99 < 200 µs and worst < 1,000 µs (thread): {'MISSED: ' + '; '.join(late) if late else 'met'}\n{MORE}"
    )
    print(f"load of the machine: {os.getloadavg()[0]:.1f} (the figures are worth something on a quiet one)")
    return 1 if late else 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench recording", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=2000, help="of the tight loop (default 2000)")
    parser.add_argument("--scalars", type=int, default=40, help="numbers a step (default 40)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each logger (default 5)")
    parser.add_argument("--paced", type=int, default=500, help="steps of 20 ms; 0 leaves them out (default 500)")
    parser.add_argument("--only", nargs="+", metavar="PEER", help="these peers alone")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
