"""How long a step takes from the log call to the answer of a query, through a real server, at steps of 20 ms and 1 s.

`./dev bench freshness` starts `regimescope serve`, a training process that records in thread mode, and a client that
asks /api/series every 10 ms for what it lacks, as a live chart does. A step counts as visible when the answer that
holds it has arrived; written is the time that the Recorder stamped on it. Wall time: a busy machine counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from benchmarks._runs import BenchmarkError, segment_lines, table
from benchmarks._server import SeriesClient, recording, serving
from benchmarks._trainer_worker import HEALTHY

BAR_S = 1.0
POLL_S = 0.01
HEAD = ("step time", "steps", "p50 ms", "p95 ms", "worst ms")


def visible(client: SeriesClient, steps: int) -> dict[int, float]:
    """Step -> unix time at which an answer held it. Raises BenchmarkError when the last one never comes."""
    seen: dict[int, float] = {}
    moved = time.monotonic()
    while client.last < steps - 1:
        before = client.last
        client.poll()
        now = time.time()
        if client.last > before:
            moved = time.monotonic()
            seen |= {step: now for step in range(before + 1, client.last + 1)}
        elif time.monotonic() - moved > 60:
            raise BenchmarkError(f"the server is at step {client.last} of {steps} and moves no more")
        time.sleep(POLL_S)
    return seen


def measure(folder: Path, every_s: float, seconds: float) -> list[float]:
    """Milliseconds of each step after the first, ascending."""
    root, steps = folder / "root", max(4, round(seconds / every_s))
    root.mkdir(parents=True)
    with serving(root, folder / "cache"), recording(root / "run", steps, 1 / every_s) as wait:
        client = SeriesClient(root, "run", list(HEALTHY)[:6])
        seen = visible(client, steps)
        client.close()
        wait()
    written = {
        int(str(line["s"])): float(str(line["t"])) for line in segment_lines(root / "run") if line["k"] == "step"
    }
    return sorted(1e3 * (seen[step] - written[step]) for step in range(1, steps))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench freshness", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of steps of 20 ms (default 30)")
    parser.add_argument("--slow-seconds", type=float, default=60.0, help="of steps of 1 s (default 60)")
    args = parser.parse_args(argv)
    rows, late = [], []
    try:
        for every_s, seconds in ((0.02, args.seconds), (1.0, args.slow_seconds)):
            with tempfile.TemporaryDirectory(prefix="regimescope-bench-") as folder:
                taken = measure(Path(folder), every_s, seconds)
            p95 = quantiles(taken, n=20, method="inclusive")[-1]
            name = f"{1e3 * every_s:.0f} ms"
            rows.append([name, f"{len(taken)}", f"{median(taken):.0f}", f"{p95:.0f}", f"{taken[-1]:.0f}"])
            late += [f"p95 {p95:.0f} ms at steps of {name}"] if p95 > 1e3 * BAR_S else []
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(table(HEAD, rows))
    print(f"target: visible within {BAR_S:.0f} s at p95: {'MISSED: ' + '; '.join(late) if late else 'met'}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} (the figures are worth something on a quiet one)")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
