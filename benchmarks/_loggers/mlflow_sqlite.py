"""mlflow on a local SQLite file: `log_metrics` of one dict a step, sync or async; its client reads a metric a call."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import mlflow
from benchmarks._loggers import Loaded, by_metric
from mlflow import MlflowClient

logging.getLogger("alembic").setLevel(logging.ERROR)
logging.getLogger("mlflow").setLevel(logging.ERROR)


class Run:
    """A run of one experiment."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        mlflow.set_tracking_uri(address(folder))
        mlflow.set_experiment("bench")
        self._sync = sync
        mlflow.start_run()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        mlflow.log_metrics(dict(metrics), step=step, synchronous=self._sync)

    def close(self) -> None:
        if not self._sync:
            mlflow.flush_async_logging()
        mlflow.end_run()


def start(folder: Path, variant: str) -> Run:
    return Run(folder, sync=variant == "sync")


def load(folder: Path, names: Sequence[str] | None) -> Loaded:
    client, run = opened(folder)
    run_id = run.info.run_id
    return by_metric({name: client.get_metric_history(run_id, name) for name in (names or run.data.metrics)})


@cache
def opened(folder: Path) -> tuple[MlflowClient, mlflow.entities.Run]:
    """A client, which takes seconds to open a database, and the run."""
    client = MlflowClient(address(folder))
    experiment = client.get_experiment_by_name("bench")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def address(folder: Path) -> str:
    return f"sqlite:///{folder.resolve()}/mlflow.db"
