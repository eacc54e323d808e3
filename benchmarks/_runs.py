"""Real training runs for the benchmarks: run `regimescope train`, read its step lines, ask `regimescope
check` what it finds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from regimescope.cli import main as cli

T = TypeVar("T")
COMMAND = [sys.executable, "-m", "regimescope.cli"]


class BenchmarkError(Exception):
    """A run that did not do what the benchmark needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What `regimescope check --json` says about one episode."""

    signature: str
    severity: str
    step_onset: int
    step_detected: int
    driver: str | None


def start_training(run_dir: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """A trainer in a process of its own; its output goes to `run_dir.log` beside the folder."""
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    with open(log_of(run_dir), "wb") as log:
        return subprocess.Popen(
            [*COMMAND, "train", "--run-dir", str(run_dir), *options], stdout=log, stderr=subprocess.STDOUT
        )


def train(run_dir: Path, options: Sequence[str]) -> None:
    """Run a training to its end in this process. Raises BenchmarkError with the trainer's own words."""
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    with open(log_of(run_dir), "w") as log, redirect_stdout(log), redirect_stderr(log):
        code = cli(["train", "--run-dir", str(run_dir), *options])
    if code != 0:
        raise BenchmarkError(f"regimescope train {' '.join(options)} ended with {code}:\n{log_of(run_dir).read_text()}")


def log_of(run_dir: Path) -> Path:
    return run_dir.with_name(run_dir.name + ".log")


def step_rows(run_dir: Path) -> list[dict[str, float]]:
    """Metrics of every finished step, weights dropped; the later launch wins where two tell of the same step."""
    rows: dict[int, dict[str, float]] = {}
    for line in segment_lines(run_dir):
        if line["k"] == "step":
            metrics = {name: value[0] if isinstance(value, list) else value for name, value in line["m"].items()}
            rows[line["s"]] = {name: float(value) for name, value in metrics.items()}
    return [rows[step] for step in sorted(rows)]


def segment_lines(run_dir: Path) -> list[Mapping[str, object]]:
    """All complete lines of the trainer's segments, oldest launch first."""
    lines: list[Mapping[str, object]] = []
    for path in sorted((run_dir / "segments").glob("r*.jsonl"), key=lambda p: p.name.split("-")[1]):
        lines += [json.loads(text) for text in path.read_text().splitlines(keepends=True) if text.endswith("\n")]
    return lines


def check(run_dir: Path) -> list[Alert]:
    """What the detectors find, oldest first. Raises BenchmarkError."""
    done = subprocess.run([*COMMAND, "check", str(run_dir), "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise BenchmarkError(f"regimescope check {run_dir}: {done.stderr or done.stdout}")
    found = [
        Alert(
            signature=alert["signature"],
            severity=alert["severity"],
            step_onset=alert["step_onset"],
            step_detected=alert["step_detected"],
            driver=alert["driver"],
        )
        for alert in json.loads(done.stdout)["alerts"]
    ]
    return sorted(found, key=lambda alert: alert.step_detected)


def in_parallel(jobs: Sequence[Callable[[], T]], workers: int) -> list[T]:
    """Results in the order of `jobs`, `workers` of them at a time, each in a process that is used again."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def mean_of(rows: Sequence[Mapping[str, float]], name: str) -> float:
    """Mean of a metric over the rows that have it; NaN for none."""
    values = [row[name] for row in rows if name in row]
    return sum(values) / len(values) if values else float("nan")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
