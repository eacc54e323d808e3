"""What recorded rollouts cost: the call, the file, its bytes, for small and for long responses.

    ./dev bench rollouts [--rounds 40] [--dir DIR]

`call`: time that `recorder.rollouts` keeps the training loop, with `sync=True` (choosing and writing are in the call)
and with the writer thread. `own CPU`: processor time of the whole process per step, the thread's included. Rows carry
texts, token ids and all five arrays of random numbers, which compress badly. Medians, each step after the file of the
one before is there.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks._runs import table

from regimescope.monitor import Recorder, Rollout, RolloutOptions

SIZES = ((16, 60), (16, 4000), (256, 4000))
"Responses of a step, and tokens of each; 16 are kept."
HEAD = ("responses x tokens", "mode", "call, ms", "call p99, ms", "own CPU, ms", "bytes of a file", "dropped")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench rollouts", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40, metavar="N", help="sampled steps per row (default 40)")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where to write (default: a folder that is removed)")
    args = parser.parse_args(argv)
    found = []
    for count, tokens in SIZES:
        rows = _rows(count, tokens)
        for sync in (True, False):
            with tempfile.TemporaryDirectory(dir=args.dir) as folder:
                found.append(_measured(Path(folder), rows, args.rounds, sync=sync))
    print(table(HEAD, found))
    return 0


def _measured(folder: Path, rows: list[Rollout], rounds: int, *, sync: bool) -> tuple[str, ...]:
    calls: list[float] = []
    with Recorder(folder, rollouts=RolloutOptions(every=1), sync=sync) as recorder:
        cpu = time.process_time()
        for step in range(rounds):
            start = time.perf_counter()
            recorder.rollouts(step, rows)
            calls.append(time.perf_counter() - start)
            while not list((folder / "rollouts").glob(f"s{step:08d}-*.parquet")):
                time.sleep(0.002)
        cpu = time.process_time() - cpu
    sizes = [path.stat().st_size for path in (folder / "rollouts").iterdir()]
    p99 = sorted(calls)[min(len(calls) - 1, len(calls) * 99 // 100)]
    return (
        f"{len(rows)} x {rows[0].length:,}",
        "sync" if sync else "thread",
        f"{1e3 * median(calls):.3f}",
        f"{1e3 * p99:.3f}",
        f"{1e3 * cpu / rounds:.1f}",
        f"{median(sizes):,.0f}",
        str(recorder.dropped),
    )


def _rows(count: int, tokens: int) -> list[Rollout]:
    draw, words = np.random.default_rng(0), random.Random(0)
    found = []
    for number in range(count):
        old = -draw.exponential(0.5, tokens).astype(np.float32)
        change = draw.normal(0.0, 0.05, tokens).astype(np.float32)
        found.append(
            Rollout(
                sample_id=number,
                length=tokens,
                group_id=number // 8,
                env="math",
                prompt="A train goes 60 km in 45 minutes. How far does it go in 3 hours? " * 4,
                response=" ".join(f"{words.getrandbits(12):x}" for _ in range(tokens)),
                reward=float(number % 2),
                advantage=1.0,
                correct=number % 2 == 1,
                finish_reason="eos",
                repetition=0.1,
                update=1,
                revision=0,
                weight_version=3,
                lag=0,
                token_ids=draw.integers(0, 150_000, tokens),
                logp_old=old,
                logp_new=old + change,
                entropy=draw.exponential(0.8, tokens).astype(np.float32),
                weight=np.exp(change),
                bucket=draw.integers(0, 7, tokens).astype(np.uint8),
            )
        )
    return found
