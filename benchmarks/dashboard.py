"""The Overview in a real browser: how soon a row is drawn, what it costs, and the same beside TensorBoard and trackio.

`./dev bench dashboard` starts `regimescope serve`, a trainer that records a step a second and a headless Chromium
(REGIMESCOPE_CHROMIUM, else the system's), with 10,000 stored steps, then `--steps`, and with one and five viewers.
CPU is percent of one core, by CPU time, so that a shared machine does not count; seconds are wall time, and it does.
Then the peers on the same rows, each in its own environment. `--quick` is 3 minutes, `--minutes 10` tells about memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import psutil
from benchmarks._browser import first_six, inside, keeps_zoom, spend, tab
from benchmarks._dashboards import LOGGER, PRODUCTS, SEEN, Shown, Writer, open_page, seen_by, waits
from benchmarks._live_trainer import LiveTrainer
from benchmarks._runs import BenchmarkError, table
from benchmarks._server import SeriesClient, serving
from benchmarks.screenshots import chromium
from playwright.sync_api import Browser

SMALL = 10_000
SETTLE_S = 8.0
"From the first charts to the first measured second."
DRAWN_S, SIX_S, SERVER, BROWSER = 2.0, 5.0, 2.0, 15.0
HEAP_MB, NODES, ENOUGH_MIN = 10.0, 1.0, 10.0
BESIDE = 1.5
"Times the slower peer's opening."
OWN = (
    "stored", "viewers", "six charts, s", "drawn p50, s", "p95, s", "server alone, %", "with viewers, %", "browser, %",
    "zoom", "heap, MB", "nodes, %", "server, MB",
)  # fmt: skip
PEER = ("dashboard", "stored", "opening to a chart, s", "rows", "drawn p50, s", "p95, s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What one pair of sizes gave."""

    steps: int
    viewers: int
    six_s: float
    waits: list[float]
    alone: float
    server: float
    browser: float
    "CPU, percent of one core."
    zoom: bool
    heap_mb: float
    nodes: float
    rss_mb: float
    "Growth over the measured time: of the first page's heap, of its nodes in percent, of the server."

    def row(self) -> list[str]:
        seconds = [f"{self.six_s:.1f}", f"{median(self.waits):.2f}", f"{p95(self.waits):.2f}"]
        spent = [f"{self.alone:.1f}", f"{self.server:.1f}", f"{self.browser:.1f}"]
        kept = ["kept" if self.zoom else "LOST", f"{self.heap_mb:+.1f}", f"{self.nodes:+.1f}", f"{self.rss_mb:+.0f}"]
        return [f"{self.steps:,}", f"{self.viewers}", *seconds, *spent, *kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long everything takes."""

    seconds: float
    "Measured of each pair of sizes."
    openings: int
    peer_seconds: float


def p95(values: list[float]) -> float:
    """Of sorted values."""
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


# ------------------------------------------------------------------------------------------------------------- ours
def measure(folder: Path, steps: int, viewers: tuple[int, ...], plan: Plan) -> list[Own]:
    """One history, every number of viewers."""
    root = folder / "root"
    trainer = LiveTrainer(root / "run", history=steps, updates=16)
    found = []
    with serving(root, folder / "cache") as (address, server):
        wait_until_read(root, steps)
        trainer.start()
        time.sleep(SETTLE_S)
        alone, _ = spend([server], plan.seconds / 2)
        with chromium() as browser:
            for count in viewers:
                found.append(_watched(browser, f"{address}/?run=run", server, trainer, steps, count, plan, alone))
        trainer.stop()
    return found


def _watched(
    browser: Browser, address: str, server: psutil.Process, trainer: LiveTrainer,
    steps: int, viewers: int, plan: Plan, alone: float,
) -> Own:  # fmt: skip
    six = []
    for _ in range(plan.openings):
        with tab(browser) as page:
            six.append(first_six(page, address))
    with contextlib.ExitStack() as stack:
        pages = [stack.enter_context(tab(browser)) for _ in range(viewers)]
        for page in pages:
            page.add_init_script(SEEN)
            first_six(page, address)
        page = pages[0]
        page.wait_for_timeout(1000 * SETTLE_S)
        session = page.context.new_cdp_session(page)
        heap, nodes = inside(session)
        rss, first = server.memory_info().rss, trainer.step
        page.evaluate("() => { window.seenAt = {}; }")
        used, browsing = spend([server], plan.seconds, page)
        drawn = waits({s: t for s, t in trainer.written.items() if s > first}, seen_by(page))
        heap_after, nodes_after = inside(session)
        rss_after = server.memory_info().rss
        zoom = keeps_zoom(page)
    if not drawn:
        raise BenchmarkError("no row was drawn in the measured time")
    return Own(
        steps=steps, viewers=viewers, six_s=median(six), waits=drawn, alone=alone, server=used, browser=browsing,
        zoom=zoom, heap_mb=heap_after - heap, nodes=100 * (nodes_after - nodes) / nodes,
        rss_mb=(rss_after - rss) / 1e6,
    )  # fmt: skip


def wait_until_read(root: Path, steps: int) -> None:
    """Until the server has read the whole history, detectors included."""
    client = SeriesClient(root, "run", ["accuracy"])
    while client.poll(points=False) < steps - 1:
        time.sleep(0.2)
    client.close()


def missed(own: Own, minutes: float) -> list[str]:
    """Targets of one viewer that do not hold."""
    if own.viewers > 1:
        return []
    said = [
        (p95(own.waits) <= DRAWN_S, f"drawn p95 {p95(own.waits):.2f} s of {DRAWN_S:.0f}"),
        (own.six_s <= SIX_S, f"six charts {own.six_s:.1f} s of {SIX_S:.0f}"),
        (own.server <= SERVER, f"server {own.server:.1f} % of {SERVER:.0f}"),
        (own.browser <= BROWSER, f"browser {own.browser:.1f} % of {BROWSER:.0f}"),
        (own.zoom, "zoom lost"),
        (minutes < ENOUGH_MIN or own.heap_mb <= HEAP_MB, f"heap {own.heap_mb:+.1f} MB of {HEAP_MB:.0f}"),
        (minutes < ENOUGH_MIN or abs(own.nodes) <= NODES, f"nodes {own.nodes:+.1f} % of {NODES:.0f}"),
    ]
    return [f"{what} ({own.steps:,} steps)" for holds, what in said if not holds]


# ------------------------------------------------------------------------------------------------------- and beside
def beside(folder: Path, steps: int, plan: Plan) -> tuple[list[list[str]], list[str]]:
    """Rows of the table of all three dashboards, and the targets that were missed."""
    opened: dict[str, float] = {}
    drawn: dict[str, list[float]] = {}
    rows = []
    for name in PRODUCTS:
        opened[name], drawn[name] = _product(name, folder / name, steps, plan)
        waited = [f"{len(drawn[name])}", f"{median(drawn[name]):.2f}", f"{p95(drawn[name]):.2f}"]
        rows.append([name, f"{steps:,}", f"{opened[name]:.1f}", *waited])
    own, *peers = PRODUCTS
    late = [f"{name} draws at p95 {p95(drawn[name]):.2f} s" for name in peers if p95(drawn[own]) >= p95(drawn[name])]
    slow = max(opened[name] for name in peers)
    if opened[own] > BESIDE * slow:
        late.append(f"opening {opened[own]:.1f} s, over {BESIDE} x {slow:.1f} s")
    return rows, late


def _product(name: str, folder: Path, steps: int, plan: Plan) -> tuple[float, list[float]]:
    """Median opening, and the waits of the rows."""
    place = folder / "root"
    writer = Writer(LOGGER[name], place, steps, 600 + plan.peer_seconds)
    try:
        with PRODUCTS[name](place) as shown, chromium() as browser:
            if name == "regimescope":
                wait_until_read(place, steps)
            took = [_opening(browser, shown, steps) for _ in range(1 + plan.openings)][1:]  # the first one warms up
            with tab(browser) as page:
                open_page(page, shown, steps - 1)
                first = max(writer.written, default=steps)
                for _ in range(int(plan.peer_seconds)):
                    shown.nudge(page)
                    page.wait_for_timeout(1000)
                seen = seen_by(page)
    finally:
        writer.close()
    found = waits({step: at for step, at in writer.written.items() if step > first}, seen)
    if not found:
        raise BenchmarkError(f"{name}: no row was drawn in {plan.peer_seconds:.0f} s")
    return median(took), found


def _opening(browser: Browser, shown: Shown, steps: int) -> float:
    with tab(browser) as page:
        return open_page(page, shown, steps - 1)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    args = _parser().parse_args(argv)
    plan = Plan(seconds=60 * args.minutes, openings=args.openings, peer_seconds=args.peer_seconds)
    if args.quick:
        plan = Plan(seconds=20.0, openings=3, peer_seconds=20.0)
    sizes = [SMALL] if args.quick else sorted({SMALL, args.steps})
    late: list[str] = []
    print(f"load of the machine: {os.getloadavg()[0]:.1f} (seconds are worth something on a quiet one)")
    try:
        for steps in sizes:
            with tempfile.TemporaryDirectory(prefix="regimescope-bench-") as folder:
                found = measure(Path(folder), steps, (1,) if args.quick else tuple(args.viewers), plan)
            print(table(OWN, [own.row() for own in found]), flush=True)
            late += [text for own in found for text in missed(own, plan.seconds / 60)]
        if not args.alone:
            with tempfile.TemporaryDirectory(prefix="regimescope-bench-") as folder:
                rows, slower = beside(Path(folder), args.peer_steps, plan)
            print(table(PEER, rows))
            late += slower
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(f"targets: {'MISSED: ' + '; '.join(late) if late else 'met'}")
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
    return 1 if late else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev bench dashboard", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10,000 steps, one viewer, 20 s of each: 3 minutes")
    parser.add_argument("--minutes", type=float, default=1.0, help="measured for each number of viewers (default 1)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the long history (default 1,000,000)")
    parser.add_argument("--viewers", type=int, nargs="+", default=[1, 5], help="at a time (default 1 5)")
    parser.add_argument("--openings", type=int, default=5, help="of each page (default 5)")
    parser.add_argument("--peer-steps", type=int, default=SMALL, help=f"history beside the peers (default {SMALL:,})")
    parser.add_argument("--peer-seconds", type=float, default=60.0, help="of rows beside the peers (default 60)")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
