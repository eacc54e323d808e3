"""mlflow: a SQLite file, and its file store."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from pathlib import Path

import mlflow
from benchmarks._fixtures import BEGIN, STEPS, Truth, note, numbers
from mlflow.entities import Metric


def write_mlflow(folder: Path) -> Truth:
    """Two runs in a SQLite file."""
    truth = _mlflow(f"sqlite:///{folder}/mlflow.db", folder)
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db", isolation_level=None)) as con:
        con.execute("UPDATE experiments SET artifact_location = 'mlflow-artifacts:/store'")  # was this machine's folder
        con.execute("VACUUM")
    return truth


def write_mlflow_files(folder: Path) -> Truth:
    """Two runs in a file store."""
    return _mlflow(f"file://{folder}/mlruns", folder)


def _mlflow(address: str, folder: Path) -> Truth:

    mlflow.set_tracking_uri(address)
    client, truth = mlflow.MlflowClient(), {}
    experiment = client.create_experiment("fixtures", artifact_location="mlflow-artifacts:/store")
    for seed, name in ((1, "first"), (2, "second")):
        run = client.create_run(experiment, run_name=name, tags={"mlflow.user": "user"}).info.run_id
        client.log_param(run, "epsilon_high", 5.0)
        for step in range(STEPS):
            values = numbers(step, seed)
            if step == 3:
                values |= {"train/grad_norm": math.inf, "train/entropy": math.nan}
            t = int(1000 * (BEGIN + 10 * step))
            client.log_batch(run, metrics=[Metric(key, value, t, step) for key, value in values.items()])
            note(truth, name, step, values)
        client.set_terminated(run)
    for path in folder.rglob("meta.yaml"):  # they hold this machine's folder
        path.write_text(path.read_text().replace(str(folder), "/store"))
    return truth
