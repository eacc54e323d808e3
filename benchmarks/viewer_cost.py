"""Cost of one viewer: CPU of server and browser while a run logs one step a second, and how fast a step is drawn.

`./dev bench viewer_cost --seconds 60` starts a server on a temporary root, a Recorder that writes steps as our trainer
does, and Overview in a headless Chromium (REGIMESCOPE_CHROMIUM, else the system's). Percent of one core, by CPU time,
so that a shared machine does not count; the written-to-drawn time is wall time and does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from benchmarks._runs import BenchmarkError
from benchmarks._server import cpu_seconds, serving
from benchmarks.screenshots import chromium
from playwright.sync_api import Page

from regimescope.monitor import Bounds, Limits, Recorder, SignBounds, TokenStats, WeightRule

BOUNDS = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
HISTORY = 120
"Steps that are there before the first second."
SETTLE_S = 8.0
"From the first chart to the first measured second."
SCALARS = (
    "accuracy", "reward_mean", "reward_std", "zero_variance_frac", "all_correct_frac", "all_wrong_frac",
    "entropy_mean", "infra_failed_frac", "kl_step", "grad_norm", "lr", "response_length_mean", "response_length_p10",
    "response_length_p50", "response_length_p90", "response_length_p99", "response_length_max", "eos_frac",
    "truncated_frac", "rep4_mean", "repetition_frac", "tail_loop_frac", "lag_mean", "lag_p95", "lag_max",
    "step_seconds", "rollout_seconds", "update_seconds", "tokens", "updates", "ratio_max",
)  # fmt: skip
QUIET = (
    "infra_failed_frac",
    "truncated_frac",
    "repetition_frac",
    "tail_loop_frac",
    "all_wrong_frac",
    "zero_variance_frac",
)
WATCH = """() => {
  window.drawnAt = {};
  const note = () => {
    const label = document.querySelector('.rs-chart[aria-label*=" at step "]')?.getAttribute('aria-label') ?? '';
    const step = label.split(' at step ')[1];
    if (step !== undefined) window.drawnAt[step] ??= Date.now() / 1000;
  };
  const options = { subtree: true, attributes: true, attributeFilter: ['aria-label'] };
  new MutationObserver(note).observe(document.querySelector('.rs-grid'), options);
}"""


class Trainer:
    """Writes steps as our trainer does, one a second, in a thread; remembers when."""

    def __init__(self, folder: Path, updates: int) -> None:
        """updates: optimiser steps, each with a line of buckets."""
        rule, can = WeightRule.capped(BOUNDS), ("set_bounds", "pause", "resume", "stop", "checkpoint")
        self._recorder = Recorder(folder, objective="dispo", rule=rule, limits=Limits(), can=can)
        self._updates, self._step = updates, 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written: dict[int, float] = {}
        "Step -> unix time at which its last line was handed over."
        for _ in range(HISTORY):
            self._write()

    def start(self) -> None:
        """One step a second from now on."""
        self._thread.start()

    def stop(self) -> None:
        """No more steps; ends the run."""
        self._closing.set()
        self._thread.join()
        self._recorder.end("finished")

    def _run(self) -> None:
        due = time.monotonic()
        while not self._closing.wait(max(0.0, due - time.monotonic())):
            self._write()
            due += 1.0

    def _write(self) -> None:
        step, self._step = self._step, self._step + 1
        wave = 0.02 * ((step * 7) % 5 - 2)
        stats = _stats()
        for update in range(self._updates):
            self._recorder.buckets(step, update, stats, revision=0, bounds=BOUNDS)
        self._recorder.hist(step, "response_length", [4, 9, 30, 60, 40, 12, 3], "len1")
        metrics: dict[str, float | tuple[float, float]] = {name: (0.5 + wave, 256.0) for name in SCALARS}
        metrics |= {name: 0.0 for name in QUIET}
        if step % 10 == 0:
            metrics["eval.accuracy"] = 0.5
        self._recorder.step(step, metrics)
        self.written[step] = time.time()


def _stats() -> TokenStats:
    tokens = (300, 280, 500, 520, 40, 60, 300)
    sums = tuple(map(float, tokens))
    signed = (300.0, 280.0, -500.0, -520.0, 40.0, -60.0, 0.0)
    return TokenStats(
        tokens=tokens, clip_high=(3, 0, 5, 0, 0, 0, 0), clip_low=(0, 2, 0, 5, 0, 0, 0), clamped=(0,) * 7,
        ratio_sum=sums, weight_sum=sums, abs_adv_weight_sum=(*sums[:6], 0.0), signed_adv_weight_sum=signed,
        entropy_sum=sums, logp_sum=tuple(-s for s in sums), log_ratio_sum=(0.0,) * 7, log_ratio_sq_sum=(1.0,) * 7,
    )  # fmt: skip


def browser_processes() -> list[psutil.Process]:
    """All processes of the Chromium that this process started."""
    return [p for p in psutil.Process().children(recursive=True) if "chrom" in p.name().lower()]


def spend(server: psutil.Process, seconds: float, page: Page | None = None) -> tuple[float, float]:
    """CPU of server and browser over this time, percent of one core."""
    browsers = browser_processes() if page is not None else []
    begin, at_server, at_browser = time.monotonic(), cpu_seconds([server]), cpu_seconds(browsers)
    if page is None:
        time.sleep(seconds)
    else:
        page.wait_for_timeout(1000 * seconds)
    took = time.monotonic() - begin
    return 100 * (cpu_seconds([server]) - at_server) / took, 100 * (cpu_seconds(browsers) - at_browser) / took


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="./dev bench viewer_cost", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="measured, each of the two (default 60)")
    parser.add_argument("--updates", type=int, default=16, help="bucket lines a step (default 16, as our trainer)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="regimescope-viewer-") as folder:
        try:
            return _measure(Path(folder), args.seconds, args.updates)
        except BenchmarkError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2


def _measure(folder: Path, seconds: float, updates: int) -> int:
    root = folder / "root"
    trainer = Trainer(root / "run", updates)
    with serving(root, folder / "cache") as (address, server):
        trainer.start()
        time.sleep(SETTLE_S)
        alone, _ = spend(server, seconds)
        with chromium() as browser:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(address)
            page.locator(".js-plotly-plot").first.wait_for(timeout=60_000)
            page.wait_for_timeout(1000 * SETTLE_S)
            page.evaluate(WATCH)
            watched, browsing = spend(server, seconds, page)
            drawn = {int(step): at for step, at in page.evaluate("() => window.drawnAt").items()}
        trainer.stop()
    print(f"{updates} updates a step, {seconds:.0f} s each, percent of one core:")
    print(f"  server without viewer {alone:5.1f} %")
    print(f"  server with one viewer{watched:5.1f} %")
    print(f"  browser               {browsing:5.1f} %")
    waits = sorted(at - trainer.written[step] for step, at in drawn.items() if step in trainer.written)
    if len(waits) > 1:
        p95 = statistics.quantiles(waits, n=20)[-1]
        print(f"  written to drawn, {len(waits)} steps: p50 {statistics.median(waits):.2f} s, p95 {p95:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
