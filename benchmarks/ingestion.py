"""How fast the monitor reads: rows a second with and without histograms, with the detectors, and bytes per row.

`./dev bench ingestion` writes runs as a trainer does and reads each into an index file on disk, in this process, in
rounds that take turns; medians, with the lowest and highest. A step has 40 scalars; with histograms also the seven
buckets and the log-ratio histograms of both signs, about 80 filled bins each. Rows: of all tables. Bytes: of the blocks
that the index uses after a checkpoint (the file also holds free ones, which are used again), over the scalar rows of
the run that has nothing else but the ends of its steps. Its values are random doubles, which nothing compresses.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks._loggers import metric_names
from benchmarks._runs import table

from regimescope.monitor import Bounds, Recorder, SignBounds, TokenStats, WeightRule
from regimescope.monitor.edges import LR1
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.token_stats import RatioHist

BAR_ROWS, BAR_BYTES = 50_000.0, 9.5
FILLED = 80
"Bins of a histogram that hold something."
BOUNDS = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
TABLES = ("scalar", "bucket_step", "ratio_hist", "hist", "step_done", "event")
FULL = "with buckets and histograms"
KINDS = {"scalars": ("plain", False), FULL: ("full", False), "the same, and the detectors": ("full", True)}
"What is read -> which run, and whether the detectors run over it."
HEAD = ("what is read", "rows", "segment, MB", "seconds", "lowest-highest", "rows/s", "CPU s")


def statistics(draw: random.Random) -> TokenStats:
    """One update's buckets and histograms, with numbers as a model makes them."""
    tokens = (300, 280, 500, 520, 40, 60, 300)
    sums = tuple(n * draw.random() for n in tokens)
    return TokenStats(
        tokens=tokens, clip_high=(3, 0, 5, 0, 0, 0, 0), clip_low=(0, 2, 0, 5, 0, 0, 0), clamped=(0,) * 7,
        ratio_sum=sums, weight_sum=sums, abs_adv_weight_sum=sums, signed_adv_weight_sum=sums, entropy_sum=sums,
        logp_sum=sums, log_ratio_sum=sums, log_ratio_sq_sum=sums, hist_pos=histogram(draw), hist_neg=histogram(draw),
    )  # fmt: skip


def histogram(draw: random.Random) -> RatioHist:
    first = (len(LR1) + 1 - FILLED) // 2
    filled = range(first, first + FILLED)
    counts = tuple(draw.randrange(1, 900) if i in filled else 0 for i in range(len(LR1) + 1))
    sums = tuple(n * draw.random() for n in counts)
    return RatioHist(counts=counts, ratio_sum=sums, abs_adv_sum=sums, abs_adv_ratio_sum=sums)


def write(root: Path, steps: int, scalars: int, histograms: bool) -> None:
    """A run of this many steps."""
    draw, names = random.Random(5), metric_names(scalars)
    stats = [statistics(draw) for _ in range(64)]
    with Recorder(root / "run", rule=WeightRule.capped(BOUNDS), sync=True) as recorder:
        for step in range(steps):
            if histograms:
                recorder.buckets(step, 0, stats[step % 64], revision=0, bounds=BOUNDS)
                recorder.ratio_hist(step, stats[step % 64])
            recorder.step(step, {name: draw.random() for name in names})


def read(root: Path, index: Path, detectors: bool) -> tuple[float, float]:
    """Seconds and CPU seconds of reading the run from its beginning into a new index."""
    index.unlink(missing_ok=True)
    store = Store.open(root, path=index)
    start, cpu = time.perf_counter(), time.process_time()
    if detectors:
        Monitor(root, store=store).catch_up()
    else:
        Ingester(store).catch_up()
    taken = time.perf_counter() - start, time.process_time() - cpu
    store.close()
    return taken


def counted(root: Path, index: Path) -> tuple[int, int, int]:
    """Rows of all tables, scalar rows, and bytes of the blocks in use after a checkpoint."""
    store = Store.open(root, path=index)
    with store.cursor() as con:
        rows = {name: con.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in TABLES}
        con.execute("FORCE CHECKPOINT").fetchall()
        used = con.execute("SELECT block_size * used_blocks FROM pragma_database_size()").fetchall()[0][0]
    store.close()
    return sum(rows.values()), rows["scalar"], used


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    with tempfile.TemporaryDirectory(prefix="regimescope-bench-") as temporary:
        folder = Path(temporary)
        os.environ["REGIMESCOPE_CACHE"] = str(folder / "cache")
        write(folder / "plain", args.plain_steps, args.scalars, False)
        write(folder / "full", args.steps, args.scalars, True)
        taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for i in range(args.rounds + 1):  # the first round warms up and is left out
            for kind, (name, detectors) in KINDS.items():
                spent = read(folder / name, folder / f"{name}.duckdb", detectors)
                if i:
                    taken[kind].append(spent)
        sizes = {name: counted(folder / name, folder / f"{name}.duckdb") for name in ("plain", "full")}
        segments = {name: _size(folder / name / "run" / "segments") for name in sizes}
    rates, rows = {}, []
    for kind, (name, _) in KINDS.items():
        walls = [wall for wall, _ in taken[kind]]
        wall, cpu, count = median(walls), median(cpu for _, cpu in taken[kind]), sizes[name][0]
        rates[kind] = count / wall
        span = f"{min(walls):.2f}-{max(walls):.2f}"
        figures = [f"{segments[name] / 1e6:.0f}", f"{wall:.2f}", span, f"{rates[kind]:,.0f}", f"{cpu:.2f}"]
        rows.append([kind, f"{count:,}", *figures])
    print(table(HEAD, rows))
    late = judge(rates[FULL], sizes["plain"][2] / sizes["plain"][1], sizes["full"][2] / args.steps)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} (the figures are worth something on a quiet one)")
    return 1 if late else 0


def judge(rate: float, row_bytes: float, step_bytes: float) -> list[str]:
    """Prints the sizes and the targets; those that were missed."""
    print(f"index: {row_bytes:.1f} bytes a scalar row; {step_bytes:,.0f} a step with histograms")
    late = [f"{rate:,.0f} rows/s with histograms"] if rate < BAR_ROWS else []
    late += [f"{row_bytes:.1f} bytes a scalar row"] if row_bytes > BAR_BYTES else []
    verdict = f"MISSED: {'; '.join(late)}" if late else "met"
    print(f"targets: {BAR_ROWS:,.0f} rows/s with histograms, {BAR_BYTES} bytes a scalar row: {verdict}")
    return late


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench ingestion", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5000, help="with histograms (default 5000)")
    parser.add_argument("--plain-steps", type=int, default=25_000, help="without (default 25,000)")
    parser.add_argument("--scalars", type=int, default=40, help="numbers a step (default 40)")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (default 5)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
