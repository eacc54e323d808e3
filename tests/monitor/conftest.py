"""Runs written by the real Recorder, for the tests of the store: short, synthetic, with a collapse on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from regimescope.monitor.bounds import Bounds, Limits, SignBounds, WeightRule
from regimescope.monitor.record import Recorder
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.token_stats import TokenStats

DISPO = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
CAN = ("set_bounds", "pause", "resume", "stop", "checkpoint")


def stats(scale: int = 1, *, r4_clipped: int = 0) -> TokenStats:
    """Seven buckets of plain numbers; R4 holds 400 tokens, of which some are clipped low."""
    tokens = tuple(scale * n for n in (300, 280, 500, 400, 40, 60, 120))
    sums = tuple(float(n) for n in tokens)
    zero = (0.0,) * 7
    return TokenStats(
        tokens=tokens,
        clip_high=(scale * 6, 0, 0, 0, 0, 0, 0),
        clip_low=(0, 0, 0, scale * r4_clipped, 0, 0, 0),
        clamped=(0,) * 7,
        ratio_sum=sums,
        weight_sum=sums,
        abs_adv_weight_sum=(*sums[:6], 0.0),
        signed_adv_weight_sum=zero,
        entropy_sum=sums,
        logp_sum=tuple(-x for x in sums),
        log_ratio_sum=zero,
        log_ratio_sq_sum=zero,
    )


def collapsing(step: int) -> dict[str, float]:
    """Metrics of a run whose responses shrink to nothing from step 20 on."""
    if step < 20:
        return {"length": 35.0 + (step % 3), "accuracy": 0.5 + 0.01 * (step % 4)}
    return {"length": max(1.0, 35.0 - 6.0 * (step - 19)), "accuracy": max(0.0, 0.5 - 0.1 * (step - 19))}


@dataclass
class Trainer:
    """Writes the rows of a run as a trainer would, without training."""

    run_dir: Path
    bounds: Bounds = DISPO
    revision: int = 0
    options: dict[str, object] = field(default_factory=dict)

    stats = staticmethod(stats)
    collapsing = staticmethod(collapsing)

    def open(self, **options: object) -> Recorder:
        """A recorder for one launch of one rank."""
        given: dict[str, object] = {
            "name": "test", "objective": "dispo", "framework": "regimescope", "rule": WeightRule.capped(self.bounds),
            "limits": Limits(), "can": CAN, "sync": True, "launch": "launch-a", "revision": self.revision,
            **self.options, **options,
        }  # fmt: skip
        return Recorder(self.run_dir, **given)  # type: ignore[arg-type]

    def step(self, recorder: Recorder, step: int, **metrics: float) -> None:
        """One step with one update. A collapse at step c: length falls to 3 tokens, accuracy to nothing."""
        recorder.buckets(step, 0, stats(), revision=self.revision, bounds=self.bounds)
        length, accuracy = metrics.pop("length", 35.0), metrics.pop("accuracy", 0.5)
        values: dict[str, float | tuple[float, float]] = {
            "accuracy": (accuracy, 256.0),
            "reward_mean": (2 * accuracy - 1, 256.0),
            "response_length_mean": (length, 256.0),
            "entropy_mean": (0.8, 2000.0),
            "lag_mean": (0.0, 2000.0),
            **metrics,
        }
        recorder.step(step, values)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty root, with a cache folder of its own."""
    monkeypatch.setenv("REGIMESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("REGIMESCOPE_ROOT", raising=False)
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def trainer(root: Path) -> Trainer:
    """The trainer of root/run."""
    return Trainer(root / "run")


@pytest.fixture
def collapsed(trainer: Trainer) -> Trainer:
    """40 steps, dead from step 20 on, finished."""
    with trainer.open() as recorder:
        for step in range(40):
            trainer.step(recorder, step, **collapsing(step))
        recorder.end("finished")
    return trainer


@pytest.fixture
def watch(root: Path) -> Iterator[Callable[..., Monitor]]:
    """Makes monitors over the root with a private index, stopped at the end of the test."""
    made: list[Monitor] = []

    def make(**options: object) -> Monitor:
        monitor = Monitor(root, **{"store": Store.in_memory(root), **options})  # type: ignore[arg-type]
        made.append(monitor)
        return monitor

    yield make
    for monitor in made:
        monitor.stop()
