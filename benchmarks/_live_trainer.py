"""A trainer for the dashboard benchmark: a thread that records a step a second as our trainer does, and knows when.

    trainer = LiveTrainer(run_dir, history=10_000, updates=16)
    trainer.start(); ...; trainer.stop()
    trainer.written[step]         # unix time at which its last line was handed over

The history has six scalars alone; the steps of `start()` have all, with buckets and a histogram.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from regimescope.monitor import Bounds, Limits, Recorder, SignBounds, TokenStats, WeightRule

BOUNDS = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
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
STORED = ("accuracy", "reward_mean", "entropy_mean", "grad_norm", "response_length_mean", "truncated_frac")
"What the history has: a million steps of all of them would take half an hour to write and read."


class LiveTrainer:
    """Writes steps as our trainer does, one a second, in a thread; remembers when."""

    def __init__(self, folder: Path, *, history: int, updates: int) -> None:
        """history: steps that are there before the first second. updates: optimiser steps, each a line of buckets."""
        rule, can = WeightRule.capped(BOUNDS), ("set_bounds", "pause", "resume", "stop", "checkpoint")
        self._recorder = Recorder(folder, objective="dispo", rule=rule, limits=Limits(), can=can, sync=True)
        self._updates, self.step = updates, 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written: dict[int, float] = {}
        "Live step -> unix time at which its last line was handed over."
        for step in range(history):
            self._recorder.step(step, {name: value for name, value in _metrics(step).items() if name in STORED})
        self.step = history

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
        step, self.step = self.step, self.step + 1
        stats = _stats()
        for update in range(self._updates):
            self._recorder.buckets(step, update, stats, revision=0, bounds=BOUNDS)
        self._recorder.hist(step, "response_length", [4, 9, 30, 60, 40, 12, 3], "len1")
        self._recorder.step(step, _metrics(step))
        self.written[step] = time.time()


def _metrics(step: int) -> dict[str, float | tuple[float, float]]:
    wave = 0.02 * ((step * 7) % 5 - 2)
    metrics: dict[str, float | tuple[float, float]] = {name: (0.5 + wave, 256.0) for name in SCALARS}
    metrics |= {name: 0.0 for name in QUIET}
    return metrics | ({"eval.accuracy": 0.5} if step % 10 == 0 else {})


def _stats() -> TokenStats:
    tokens = (300, 280, 500, 520, 40, 60, 300)
    sums = tuple(map(float, tokens))
    signed = (300.0, 280.0, -500.0, -520.0, 40.0, -60.0, 0.0)
    return TokenStats(
        tokens=tokens, clip_high=(3, 0, 5, 0, 0, 0, 0), clip_low=(0, 2, 0, 5, 0, 0, 0), clamped=(0,) * 7,
        ratio_sum=sums, weight_sum=sums, abs_adv_weight_sum=(*sums[:6], 0.0), signed_adv_weight_sum=signed,
        entropy_sum=sums, logp_sum=tuple(-s for s in sums), log_ratio_sum=(0.0,) * 7, log_ratio_sq_sum=(1.0,) * 7,
    )  # fmt: skip
