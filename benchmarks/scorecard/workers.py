"""Each detector over a data set, in a process of its own; the peers under `benchmarks/.venv-detectors`.

Pins: benchmarks/detectors-constraints.txt.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks._environment import FOLDER, Environment
from benchmarks._runs import BenchmarkError
from benchmarks.scorecard.cases import Case
from benchmarks.scorecard.views import ALL, seen
from benchmarks.scorecard.watchers import DETECTORS
from benchmarks.scorecard.worker import Alarms

PEERS = ("rlwatch", "diptest", "rlprobe", "rldoctor", "river")
ENVIRONMENT = Environment(
    name="detectors", what="the peers of the detectors", packages=PEERS, size="a minute and 0.5 GB"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one detector said about one run."""

    alarms: Alarms
    "Index of the row, name, level."
    rows: int
    "That it was given."
    seconds: float
    "CPU time."


Answers = Mapping[str, Mapping[str, Answer]]
"Detector -> run -> answer."


def peers() -> dict[str, str]:
    """Package -> version, of what is installed. Raises BenchmarkError when the environment cannot be built."""
    code = f"import importlib.metadata as m; print(*[f'{{p}}=={{m.version(p)}}' for p in {PEERS!r}])"
    done = subprocess.run([str(ENVIRONMENT.python()), "-c", code], capture_output=True, text=True, check=True)
    return dict(pin.split("==") for pin in done.stdout.split())


def ask(detectors: Sequence[str], cases: Sequence[Case], *, view: str, processes: int, whole: bool = False) -> Answers:
    """Every detector over every run, in that view; `whole`: also those that are limited get all rows."""
    runs = [described(case, view, whole) for case in cases]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool:
        job = Path(folder) / "job.json"
        job.write_text(json.dumps(runs), encoding="utf-8")
        asked = {name: pool.submit(_ask, name, job, Path(folder) / f"{name}.json") for name in detectors}
        return {name: future.result() for name, future in asked.items()}


def described(case: Case, view: str, whole: bool) -> dict[str, object]:
    """A run as the worker reads it."""
    run: dict[str, object] = {"name": case.name, "objective": case.objective, "rows": seen(case, view), "whole": whole}
    if view == ALL and case.steps:
        run["told"] = [
            {"events": [[e.kind, e.step, dict(e.data)] for e in step.events], "parts": step.parts}
            for step in case.steps
        ]
    return run


def _ask(name: str, job: Path, out: Path) -> Mapping[str, Answer]:
    if DETECTORS[name].package is None:
        command = [sys.executable, "-m", "benchmarks.scorecard.worker", name, str(job), str(out)]
        done = subprocess.run(command, cwd=FOLDER.parent)
        if done.returncode:
            raise BenchmarkError(f"the worker of {name} ended with {done.returncode}; its own words are above")
    else:
        ENVIRONMENT.run("scorecard.worker", name, str(job), str(out))
    answers = json.loads(out.read_text(encoding="utf-8"))
    return {run: Answer(**answer) for run, answer in answers.items()}
