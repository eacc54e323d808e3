"""trackio on its local SQLite file: `trackio.log` of one dict a step; read by its `SQLiteStorage`.

TRACKIO_DIR says where, before the package is imported: the worker sets it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import trackio
from benchmarks._loggers import Loaded, by_metric
from trackio.sqlite_storage import SQLiteStorage

PROJECT, RUN = "bench", "run"


class Run:
    """A local run without its samples of CPU and GPU."""

    def __init__(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            trackio.init(project=PROJECT, name=RUN, embed=False, auto_log_gpu=False, auto_log_cpu=False)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        trackio.log(dict(metrics), step=step)

    def close(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            trackio.finish()


def start(folder: Path, variant: str) -> Run:
    return Run()


def load(folder: Path, names: Sequence[str] | None) -> Loaded:
    """One metric by `get_metric_values`; more by `get_logs`: a dict a step, with all metrics whatever is asked for."""
    if names is not None and len(names) == 1:
        return by_metric({names[0]: SQLiteStorage.get_metric_values(PROJECT, RUN, names[0])})
    logs = SQLiteStorage.get_logs(PROJECT, RUN)
    return Loaded(logs, len(logs) * (len(names) if names else len(logs[0].keys() - {"timestamp", "step"})))
