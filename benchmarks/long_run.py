"""A million steps through the real path: a process records, `regimescope serve` reads along with its detectors.

`./dev bench long_run` records 1 M steps of 10 numbers (no histograms, one rank) at 4,000 steps a second, samples the
server's resident memory on the way, and at the end stops the server and counts: every point is in the index exactly
once, with the sums that the trainer wrote. DuckDB keeps the index file that it has read or written in memory up to its
limit, by default 1 GB: the server gets a small one (`--index-memory`), so that this cache is full early and anything
else that grows is seen. Flat: from 20 % of the run to its end, by a line through all samples, the memory grows by less
than FLAT_MB per 100,000 steps.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression

import psutil
from benchmarks._runs import BenchmarkError, table
from benchmarks._server import SeriesClient, cpu_seconds, recording, serving
from benchmarks._trainer_worker import HEALTHY

from regimescope.monitor.store import Store

FLAT_MB = 2.0
SETTLED = 0.2
"Before this share of the run what is allocated once looks like growth; in a run shorter than ENOUGH all of it."
ENOUGH = 500_000
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
HEAD = ("steps served", "of the run", "RSS MB", "index MB", "seconds", "server CPU s")
QUIET_S = 60.0
"Without a new step for so long, the server counts as stuck."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The server at some point of the run."""

    steps: int
    rss: float
    "MB."
    index: float
    "MB of the index file."
    seconds: float
    cpu: float


def follow(client: SeriesClient, server: psutil.Process, cache: Path, steps: int) -> list[Sample]:
    """Samples every 0.2 s until every step is served. Raises BenchmarkError when nothing more comes."""
    start = moved = time.monotonic()
    samples: list[Sample] = []
    while not samples or samples[-1].steps < steps:
        served = client.poll(points=False) + 1
        now = time.monotonic()
        if not samples or served > samples[-1].steps:
            moved = now
        elif now - moved > QUIET_S:
            raise BenchmarkError(f"the server is at step {served} of {steps} and moves no more")
        rss = server.memory_info().rss / 1e6
        index = sum(path.stat().st_size for path in cache.rglob("monitor.duckdb")) / 1e6
        cpu = cpu_seconds([server])
        samples.append(Sample(steps=served, rss=rss, index=index, seconds=now - start, cpu=cpu))
        time.sleep(0.2)
    return samples


def growth(samples: list[Sample], steps: int) -> float:
    """MB per 100,000 steps once the run has settled."""
    settled = [sample for sample in samples if sample.steps >= SETTLED * steps]
    at = [sample.steps / 1e5 for sample in settled]
    if len(set(at)) < 2:
        raise BenchmarkError("too few samples to tell anything: give more steps")
    return linear_regression(at, [sample.rss for sample in settled]).slope


def check(root: Path, cache: Path, steps: int, sums: dict[str, float]) -> tuple[int, float]:
    """(points, bytes of the index) when every point is there exactly once; raises BenchmarkError otherwise."""
    os.environ["REGIMESCOPE_CACHE"] = str(cache)
    store = Store.open(root)
    with store.cursor() as con:
        rows = con.execute(
            "SELECT name, count(*), count(DISTINCT step), min(step), max(step), fsum(value) FROM v_scalar GROUP BY name"
        ).fetchall()
        con.execute("FORCE CHECKPOINT").fetchall()
    store.close()
    for name, *found, total in rows:
        if found != [steps, steps, 0, steps - 1] or not math.isclose(total, sums[name], rel_tol=1e-9):
            raise BenchmarkError(f"{name}: rows, distinct steps, first and last step are {found}, sum {total}")
    if {name for name, *_ in rows} != sums.keys():
        raise BenchmarkError(f"the index holds {[name for name, *_ in rows]}")
    assert store.path is not None
    return steps * len(sums), store.path.stat().st_size


def measure(folder: Path, steps: int, rate: float, memory: str) -> bool:
    """Prints everything; whether memory was flat."""
    root, cache = folder / "root", folder / "cache"
    root.mkdir()
    limited = serving(root, cache, REGIMESCOPE_INDEX_MEMORY=memory)
    with limited as (_, server), recording(root / "run", steps, rate) as wait:
        empty = server.memory_info().rss / 1e6
        client = SeriesClient(root, "run", ["accuracy"])
        samples = follow(client, server, cache, steps)
        client.close()
        wrote = wait()
        time.sleep(5.0)
        after = server.memory_info().rss / 1e6
    points, size = check(root, cache, steps, wrote["sums"])
    segments = sum(path.stat().st_size for path in (root / "run" / "segments").iterdir())
    end = samples[-1]
    print(f"{steps:,} steps of {len(HEALTHY)} numbers; RSS of the server without a run: {empty:.0f} MB")
    shown = [next(sample for sample in samples if sample.steps >= share * steps) for share in SHARES]
    print(table(HEAD, [row(sample, steps) for sample in shown]))
    print(f"5 s after the end: {after:.0f} MB. Trainer: {steps / wrote['seconds']:,.0f} steps/s, nothing dropped")
    print(f"served, with detectors: {points / end.seconds:,.0f} points/s, {1e6 * end.cpu / steps:.0f} µs CPU a step")
    print(f"bytes a point: segments {segments / points:.1f}, index after a checkpoint {size / points:.1f}")
    print(f"every one of the {points:,} points is in the index exactly once")
    slope = growth(samples, steps)
    print(f"memory: {slope:+.1f} MB per 100,000 steps, while the index file grew to {end.index:.0f} MB")
    if steps < ENOUGH:
        print(f"fewer than {ENOUGH:,} steps: too short to tell whether it is flat")
        return True
    print(f"target: less than {FLAT_MB:.0f} MB per 100,000 steps: {'met' if slope < FLAT_MB else 'MISSED'}")
    return slope < FLAT_MB


def row(sample: Sample, steps: int) -> list[str]:
    sizes = [f"{sample.steps / steps:.0%}", f"{sample.rss:.0f}", f"{sample.index:.0f}"]
    return [f"{sample.steps:,}", *sizes, f"{sample.seconds:.0f}", f"{sample.cpu:.0f}"]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench long_run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the run (default 1,000,000)")
    parser.add_argument("--rate", type=float, default=4000.0, help="steps a second of the trainer (default 4000)")
    parser.add_argument("--index-memory", default="32MiB", help="limit of the server's index (default 32MiB)")
    args = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="regimescope-bench-") as folder:
            return 0 if measure(Path(folder), args.steps, args.rate, args.index_memory) else 1
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    finally:
        print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
