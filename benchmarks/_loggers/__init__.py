"""The loggers that `recording` and `reading` compare: ours, wandb, trackio, mlflow, TensorBoard. One module each.

A module has `start(folder, variant)`, which gives a Logger, and `load(folder, names)`, which reads back what it wrote
with the fastest way that its package offers. All of them run in benchmarks/.venv-peers (our Recorder needs no more than
the standard library); only our reader, `regimescope_index`, runs in the environment of the package.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks._environment import Environment

PEERS = Environment(
    name="peers",
    what="wandb, trackio, mlflow and tensorboard",
    packages=("tensorboard", "trackio", "wandb", "mlflow"),
    size="a minute and 1.1 GB",
)
QUIET = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"No network, no telemetry."

LOGGERS = {
    "regimescope, thread": "regimescope_segments",
    "regimescope, sync": "regimescope_segments",
    "trackio": "trackio_sqlite",
    "wandb": "wandb_offline",
    "tensorboard": "tensorboard_events",
    "mlflow, async": "mlflow_sqlite",
    "mlflow, sync": "mlflow_sqlite",
}
"Name, with its variant behind a comma -> module."


class Loaded(NamedTuple):
    """What a reader gave."""

    data: object
    "The points in memory, in the reader's own form."
    points: int


class Logger(Protocol):
    """An open run."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """All numbers of a step, by the call that the package has for several at once."""

    def close(self) -> None:
        """Ends the run and returns when everything is on disk. Raises RuntimeError where something was dropped."""


class LogModule(Protocol):
    """What a module of this package has for writing."""

    def start(self, folder: Path, variant: str) -> Logger:
        """A new run below an empty folder."""


class LoadModule(Protocol):
    """And for reading."""

    def load(self, folder: Path, names: Sequence[str] | None) -> Loaded:
        """Every point of these metrics (None = of all), from nothing."""


def by_metric(data: Mapping[str, Sequence[object]]) -> Loaded:
    """For readers that give a sequence of points per metric."""
    return Loaded(data, sum(map(len, data.values())))


def metric_names(count: int) -> list[str]:
    return [f"metric_{i:02d}" for i in range(count)]


def payload(steps: int, scalars: int) -> list[dict[str, float]]:
    """What every logger is given, the same for all: doubles with all their digits."""
    draw, names = random.Random(7).random, metric_names(scalars)
    return [{name: draw() for name in names} for _ in range(steps)]
