"""The runs that detectors are scored on: recorded ones and public logs; `generated.py` has those without a trainer.

    lab(folder)        run folders below it, and its CSVs, labelled by `benchmarks/labels.py`
    public(folder)     logs of other people's runs, none of which is known to have failed: false alarms only

A run is `failed`, `healthy`, or `unclear`: accuracy fell below half and came back, bounds were changed on the way, or
it has not ended. An alarm in an unclear run is neither right nor wrong, and is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from benchmarks._runs import BenchmarkError
from benchmarks.detectors.given_runs import BOUNDS, objective_of, read_rows
from benchmarks.detectors.run_folders import Folder, Step, is_root, read_folders
from benchmarks.labels import Labels, halved, label
from benchmarks.scorecard.public_logs import read_log

Row = dict[str, float]
FAILURES = ("length", "repetition", "decay", "entropy", "runaway", "zero")
"The first three are the collapses that recorded runs are labelled for; all six are generated."
MAPPED = {"eval.accuracy_greedy": "eval.accuracy"}
"Names of the given runs that are not canonical."


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run."""

    name: str
    "Unique in its data set."
    objective: str
    "What it declares."
    rows: Sequence[Row]
    "In order."
    state: Literal["failed", "healthy", "unclear"]
    "See above."
    onsets: Mapping[str, int]
    "Failure -> the step of its onset."
    halved: int | None
    "First step at which accuracy was below half of its best, in a failed run."
    steps: Sequence[Step] = ()
    "Of a run folder: what the suites are given live, row by row. Empty: the bounds in the rows tell the events."
    arm: str = ""
    "Condition and arm of the lab's study, where it tells."


def lab(folder: Path) -> list[Case]:
    """Every run folder below it; else every CSV in it. Raises BenchmarkError when there is none."""
    if is_root(folder):
        found = [_run(run) for run in read_folders(folder)]
    else:
        found = [_recorded(path) for path in sorted(folder.glob("*.csv")) if path.stem != "expected"]
    if not found:
        raise BenchmarkError(
            f"{folder} holds no run: --runs and --tuned take a folder with run folders (segments/) or one CSV per run"
        )
    return found


def _recorded(path: Path) -> Case:
    rows = [lab_row(row) for row in read_rows(path)]
    changed = _moved(rows) or path.stem in _relaxed(path.parent)
    return _labelled(path.stem, objective_of(path.stem), rows, changed=changed)


def _run(run: Folder) -> Case:
    rows = [{**step.metrics, "step": float(step.step)} for step in run.steps]
    events = [event for step in run.steps for event in step.events]
    objective = str(next((event.data.get("objective", "") for event in events), ""))
    case = _labelled(run.path, objective, rows, changed=_moved(rows), ended=run.ended)
    arm = " ".join(str(run.note[key]) for key in ("condition", "arm") if key in run.note)
    return replace(case, steps=run.steps, arm=arm)


def _moved(rows: Sequence[Row]) -> bool:
    """Whether bounds were changed on the way."""
    return len({tuple(row.get(name) for name in BOUNDS) for row in rows}) > 1


def _labelled(name: str, objective: str, rows: Sequence[Row], *, changed: bool, ended: bool = True) -> Case:
    labels = label(rows)
    onsets = {name: onset for name in FAILURES if (onset := getattr(labels, name, None)) is not None}
    return Case(
        name=name,
        objective=objective,
        rows=rows,
        state=_state(rows, labels, changed=changed) if ended else "unclear",
        onsets=onsets if ended else {},  # a label says "for good"
        halved=labels.halved,
    )


def lab_row(row: Row) -> Row:
    """Under canonical names. The lab's rewards are +1 and -1, so a log without them still tells mean and deviation."""
    row = {MAPPED.get(name, name): value for name, value in row.items()}
    if "accuracy" in row:
        mean = row.setdefault("reward_mean", 2 * row["accuracy"] - 1)
        row.setdefault("reward_std", math.sqrt(max(0.0, 1 - mean * mean)))
    return row


def _state(rows: Sequence[Row], labels: Labels, *, changed: bool) -> Literal["failed", "healthy", "unclear"]:
    if labels.gone is not None or labels.decay is not None:
        return "failed"
    return "unclear" if changed or halved(rows) is not None else "healthy"


def _relaxed(folder: Path) -> set[str]:
    """Runs whose bounds were changed on the way, told by a MANIFEST.tsv where the rows do not tell."""
    path = folder / "MANIFEST.tsv"
    if not path.exists():
        return set()
    head, *lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    if "bounds_changed_at" not in head:
        return set()
    column = head.index("bounds_changed_at")
    return {line[0] for line in lines if int(line[column]) >= 0}


def public(folder: Path) -> list[Case]:
    """Every log of the folder that has rows of at least two steps. Raises BenchmarkError when there is none."""
    found = [(path, read_log(path)) for path in sorted(folder.iterdir()) if path.is_file()]
    logs = [
        Case(name=path.name, objective="", rows=rows, state="healthy", onsets={}, halved=None)
        for path, rows in found
        if len(rows) > 1
    ]
    if not logs:
        raise BenchmarkError(f"{folder} holds no log that can be read: console text, trainer_state.json or JSON lines")
    return logs
