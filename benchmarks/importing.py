"""How fast foreign logs are read: points and MB a second per format, beside EventAccumulator, tbparse and pandas.

`./dev bench importing` writes a log of 10,000 steps of 20 numbers in each format and reads it to the end, ours and the
peers each in a process of its own, seconds of the CPU, the best of three. Then a log five and one ten times as long,
read by ours alone: peak memory may not grow by more than 10 MB between them. A reader of ours gives rows of Python
numbers, pandas gives columns. Target: ten times EventAccumulator and tbparse.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._environment import FOLDER, ONE_THREAD, Environment
from benchmarks._import_logs import METRICS, WRITERS, write_events
from benchmarks._runs import BenchmarkError, table

IMPORTS = Environment(
    name="imports",
    what="tensorboard, tbparse and pandas",
    packages=("tensorboard", "tbparse", "pandas"),
    size="a minute and 300 MB",
)
PEERS = {
    "TensorBoard": ("accumulator", "tbparse"),
    "CSV": ("pandas_csv",),
    "JSON lines": ("pandas_jsonl",),
}
TARGET, GROWTH_MB = 10.0, 10.0
LONG = (5, 10)
HEAD = ("format", "MB", "points", "MB/s", "points/s", "peer", "points/s", "ours is x", "peak, MB", *(
    f"x{times}, MB" for times in LONG
))  # fmt: skip

Measured = dict[str, float]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench importing", description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000, help="of the log (default 10,000)")
    parser.add_argument("--rounds", type=int, default=3, help="readings, of which the fastest counts (default 3)")
    parser.add_argument("--only", choices=tuple(WRITERS), action="append", help="formats (default: all)")
    args = parser.parse_args(argv)
    rows, good = [], True
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in args.only or WRITERS:
                found, holds = _format(name, Path(folder), args.steps, args.rounds)
                rows += found
                good &= holds
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(table(HEAD, rows))
    print(f"load {os.getloadavg()[0]:.1f}; targets {'hold' if good else 'are MISSED'}")
    return 0 if good else 1


def _format(name: str, folder: Path, steps: int, rounds: int) -> tuple[list[tuple[str, ...]], bool]:
    """Rows of a format, one per peer, and whether its targets hold."""
    log = folder / "log"
    WRITERS[name](log, steps)
    mb, ours = log.stat().st_size / 1e6, _ours(log, rounds)
    if ours["points"] < steps * METRICS:
        raise BenchmarkError(f"{name}: {ours['points']:,} points were read of {steps * METRICS:,}")
    speed = ours["points"] / ours["seconds"]
    peers = {peer: _peer(peer, log, rounds) for peer in PEERS.get(name, ())}
    peaks = [_long(name, folder, steps * times) for times in LONG]
    good = max(peaks) - min(peaks) <= GROWTH_MB
    sizes = (f"{mb:.0f}", f"{ours['points']:,.0f}", f"{mb / ours['seconds']:.0f}", f"{speed:,.0f}")
    memory = tuple(f"{peak:.0f}" for peak in (ours["peak_mb"], *peaks))
    if not peers:
        return [(name, *sizes, "", "", "", *memory)], good
    rows = []
    for peer, found in peers.items():
        times = speed / (found["points"] / found["seconds"])
        good &= name != "TensorBoard" or times >= TARGET
        rows.append((name, *sizes, peer, f"{found['points'] / found['seconds']:,.0f}", f"{times:.1f}", *memory))
    return rows, good


def _long(name: str, folder: Path, steps: int) -> float:
    """Peak memory of our reader over a log of so many steps, in MB."""
    log = folder / "long"
    if name == "TensorBoard":
        write_events(log, steps, checked=False)
    else:
        WRITERS[name](log, steps)
    return _ours(log, 1)["peak_mb"]


def _ours(log: Path, rounds: int) -> Measured:
    command = [sys.executable, "-m", "benchmarks._importing_worker", "ours", str(log), str(rounds)]
    done = subprocess.run(
        command, cwd=FOLDER.parent, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise BenchmarkError("our own reader failed; its words are above")
    found: Measured = json.loads(done.stdout.splitlines()[-1])
    return found


def _peer(peer: str, log: Path, rounds: int) -> Measured:
    """TensorBoard's readers want a folder or a name of theirs."""
    named = log
    if peer in ("accumulator", "tbparse"):
        named = log.with_name("events.out.tfevents.1790000000.host.1")
        named.unlink(missing_ok=True)
        named.hardlink_to(log)
    found: Measured = json.loads(IMPORTS.run("_importing_worker", peer, str(named), str(rounds)).splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
