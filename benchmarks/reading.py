"""How fast 1 M points are in memory: our index beside trackio, wandb, TensorBoard and mlflow; envelopes over 10 M rows.

`./dev bench reading` writes 25,000 steps of 40 numbers with every logger, then loads one metric, six, and all 40 with
the fastest reader that each package has: ours from the index, by `query.history`, as arrays. A reader
gets a process of its own; figures are medians of its loads. mlflow is given a tenth of the steps and its time is taken
times ten. Then one run of 250,000 steps of 40 metrics: six envelopes of 500 bins, as a page asks for them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks._environment import FOLDER, ONE_THREAD
from benchmarks._loggers import PEERS, QUIET, metric_names
from benchmarks._loggers.regimescope_index import build
from benchmarks._runs import BenchmarkError, table

from regimescope.monitor import Recorder, query
from regimescope.monitor.compaction import Compactor
from regimescope.monitor.private import read_root
from regimescope.monitor.store import Store

OURS, TRACKIO = "regimescope", "trackio"
WRITERS = {
    OURS: "regimescope, bulk",
    TRACKIO: "trackio",
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow, async",
}
READERS = {
    OURS: "regimescope_index",
    TRACKIO: "trackio_sqlite",
    "wandb": "wandb_offline",
    "tensorboard": "tensorboard_events",
    "mlflow": "mlflow_sqlite",
}
SCALE = {"mlflow": 10}
KINDS = ("one", "six", "all")
HEAD = ("reader", *(f"{kind}, s" for kind in KINDS), *(f"{kind}, x ours" for kind in KINDS), "written in, s")
POINTS = 1000
"What an envelope gives: two for each of 500 bins."
BEFORE_MS, AFTER_MS = 600.0, 150.0

Loads = dict[str, dict[str, float]]


# ------------------------------------------------------------------------------------------------------ 1 M points
def write(name: str, folder: Path, steps: int, scalars: int) -> float:
    """A run by this logger; the seconds that it took."""
    folder.mkdir(parents=True)
    said = PEERS.run("_logging_worker", WRITERS[name], str(folder), str(steps), str(scalars), env=QUIET)
    return float(json.loads(said.splitlines()[-1])["wall_s"])


def read(name: str, folder: Path, scalars: int, rounds: int) -> Loads:
    """Kind of load -> seconds and points; ours under our own interpreter."""
    arguments = [READERS[name], str(folder), str(scalars), str(rounds)]
    if name != OURS:
        said = PEERS.run("_reading_worker", *arguments, env=QUIET)
    else:
        command = [sys.executable, "-m", "benchmarks._reading_worker", *arguments]
        env = {**os.environ, **ONE_THREAD}
        done = subprocess.run(command, cwd=FOLDER.parent, env=env, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise BenchmarkError("our own reader failed; its words are above")
        said = done.stdout
    found: Loads = json.loads(said.splitlines()[-1])
    return found


def compare(folder: Path, args: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """Rows of the table, and the bars that were missed."""
    names = [name for name in WRITERS if name == OURS or not args.only or name in args.only]
    loads: dict[str, Loads] = {}
    written: dict[str, float] = {}
    for name in names:
        steps = args.steps // SCALE.get(name, 1)
        written[name] = write(name, folder / name, steps, args.scalars)
        if name == OURS:
            built = timed(lambda: build(folder / OURS))
            private = timed(lambda: read_privately(folder / OURS))
            print(
                f"index from the segments without detectors {built:.2f} s, private in memory with them {private:.2f} s"
            )
        loads[name] = read(name, folder / name, args.scalars, args.rounds)
        complete(name, loads[name], steps, args.scalars)
        shutil.rmtree(folder / name)
    own = {kind: loads[OURS][kind]["seconds"] for kind in KINDS}
    rows, late = [], []
    for name in names:
        scale = SCALE.get(name, 1)
        seconds = {kind: scale * loads[name][kind]["seconds"] for kind in KINDS}
        ratios = [f"{seconds[kind] / own[kind]:.1f}" for kind in KINDS]
        rows.append([name, *(f"{seconds[kind]:.3f}" for kind in KINDS), *ratios, f"{scale * written[name]:.1f}"])
        late += [f"{kind}: {name} is faster" for kind in KINDS if name != OURS and seconds[kind] <= own[kind]]
    if TRACKIO in loads and own["all"] > loads[TRACKIO]["all"]["seconds"] / 2:
        late.append(f"all: {own['all'] / loads[TRACKIO]['all']['seconds']:.2f} of trackio's time")
    return rows, late


def complete(name: str, loads: Loads, steps: int, scalars: int) -> None:
    """Raises BenchmarkError where a reader did not give what was written."""
    for kind, count in zip(KINDS, (1, 6, scalars), strict=True):
        if loads[kind]["points"] != count * steps:
            raise BenchmarkError(f"{name} gave {loads[kind]['points']:.0f} points for {kind}, not {count * steps}")


def read_privately(root: Path) -> None:
    """What a command that only reads does when a server owns the index."""
    with read_root(root, ["run"]):
        pass


def timed(job: Callable[[], None]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


# ------------------------------------------------------------------------------------------------------ envelopes
def write_long(root: Path, steps: int, scalars: int) -> None:
    """One long run in our segments."""
    names, draw = metric_names(scalars), random.Random(11).random
    with Recorder(root / "run", sync=True) as recorder:
        for step in range(steps):
            recorder.step(step, {name: draw() for name in names})


def envelopes(store: Store, rounds: int) -> list[float]:
    """Milliseconds of six envelopes, each round; the first one warms up and is left out."""
    taken = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        with store.cursor() as con:
            run_key = query.run_key_of(con, "run")
            assert run_key is not None
            found = query.envelopes(con, run_key, 0, metric_names(6), None, None, POINTS)
        taken.append(1e3 * (time.perf_counter() - start))
        if not all(0 < len(series.steps) <= POINTS for series in found.values()):
            raise BenchmarkError(f"envelopes of {[len(series.steps) for series in found.values()]} points")
    return taken[1:]


def compact(store: Store) -> None:
    """What the monitor does with a finished run when it is idle."""
    with store.cursor() as con:
        run_key = query.run_key_of(con, "run")
        assert run_key is not None
    compactor = Compactor(store)
    while compactor.work([run_key]):
        pass


def long_run(root: Path, args: argparse.Namespace) -> list[str]:
    """Prints the times; the bars that were missed."""
    rows = args.long_steps * args.scalars
    write_long(root, args.long_steps, args.scalars)
    built = timed(lambda: build(root))
    store = Store.open(root)
    try:
        return _print_envelopes(store, f"{rows / 1e6:.1f} M rows (index built in {built:.0f} s)", args.rounds)
    finally:
        store.close()


def _print_envelopes(store: Store, what: str, rounds: int) -> list[str]:
    late = []
    for label, bar in (("before compaction", BEFORE_MS), ("after compaction", AFTER_MS)):
        if bar == AFTER_MS:
            label = f"{label} ({timed(lambda: compact(store)):.1f} s)"
        taken = envelopes(store, rounds)
        print(f"six envelopes over {what}, {label}: {median(taken):.0f} ms ({min(taken):.0f}-{max(taken):.0f})")
        if median(taken) > bar:
            late.append(f"six envelopes {label} {median(taken):.0f} ms")
    return late


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    late: list[str] = []
    with tempfile.TemporaryDirectory(prefix="regimescope-bench-") as temporary:
        folder = Path(temporary)
        os.environ["REGIMESCOPE_CACHE"] = str(folder / "cache")
        try:
            if args.steps:
                rows, late = compare(folder, args)
                print(f"{args.steps:,} steps of {args.scalars} numbers, loaded by metric; medians of {args.rounds}")
                print(table(HEAD, rows) + "\n")
            if args.long_steps:
                late += long_run(folder / "long", args)
        except BenchmarkError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2
    print(
        f"targets: faster than every peer, all points in <= 1/2 of trackio's time, six envelopes <= {BEFORE_MS:.0f} ms "
        f"before and <= {AFTER_MS:.0f} ms after compaction: {'MISSED: ' + '; '.join(late) if late else 'met'}"
    )
    print(f"load of the machine: {os.getloadavg()[0]:.1f} (the figures are worth something on a quiet one)")
    return 1 if late else 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench reading", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=25_000, help="of each logger; 0 leaves the peers out")
    parser.add_argument("--scalars", type=int, default=40, help="numbers a step (default 40)")
    parser.add_argument("--rounds", type=int, default=5, help="loads, those of slow readers once (default 5)")
    parser.add_argument("--long-steps", type=int, default=250_000, help="of the long run; 0 leaves it out")
    parser.add_argument("--only", nargs="+", metavar="PEER", choices=list(WRITERS), help="these peers alone")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
