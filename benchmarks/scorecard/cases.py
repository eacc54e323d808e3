"""The runs that detectors are scored on: recorded ones, generated ones, public logs.

    lab(folder)        CSVs of a folder, labelled by `benchmarks/labels.py`
    generated(size)    of `benchmarks/detectors/traces.py`; the onset is where the failure was put
    public(folder)     logs of other people's runs, none of which is known to have failed: false alarms only

A run is `failed`, `healthy`, or `unclear`: accuracy fell below half and came back, or bounds were changed on the way.
An alarm in an unclear run is neither right nor wrong, and is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks._runs import BenchmarkError
from benchmarks.detectors import traces
from benchmarks.detectors.given_runs import BOUNDS, objective_of, read_rows
from benchmarks.labels import Labels, halved, label
from benchmarks.scorecard.public_logs import read_log

Row = dict[str, float]
FAILURES = ("length", "repetition", "decay")
LOG_COLUMNS = (
    "step", "accuracy", "accuracy.n", "reward_mean", "reward_std", "loss", "entropy_mean", "response_length_mean",
    "rep4_mean", "repetition_frac", "truncated_frac", "zero_variance_frac", "all_wrong_frac", "eval.accuracy",
)  # fmt: skip
"What a plain log holds: no bounds, no buckets, no KL, no gradient norm."
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is generated."""

    steps: int
    "Of a healthy run."
    phis: tuple[float, ...]
    "Correlations of the noise."
    tails: tuple[traces.Tails, ...]
    "Its distributions."
    seeds: int
    "Of each failure at each onset."


FULL = Size(steps=3000, phis=(0.0, 0.6, 0.8), tails=traces.TAILS, seeds=4)
QUICK = Size(steps=1000, phis=(0.6,), tails=("normal",), seeds=1)
ONSETS = (3, 8, 20, 40, 200, 260, 320)
"Of generated failures."
AFTER = {"length": 80, "repetition": 80, "decay": 220}
"Steps that follow the onset of a generated failure."


def lab(folder: Path) -> list[Case]:
    """Every CSV with a step column. Raises BenchmarkError when there is none."""
    paths = sorted(path for path in folder.glob("*.csv") if path.stem != "expected")
    if not paths:
        raise BenchmarkError(f"{folder} holds no CSV: --runs and --tuned take a folder with one CSV per run")
    return [_recorded(path) for path in paths]


def _recorded(path: Path) -> Case:
    rows = [_lab_row(row) for row in read_rows(path)]
    labels = label(rows)
    return Case(
        name=path.stem,
        objective=objective_of(path.stem),
        rows=rows,
        state=_state(rows, labels, path),
        onsets={name: onset for name in FAILURES if (onset := getattr(labels, name)) is not None},
        halved=labels.halved,
    )


def _lab_row(row: Row) -> Row:
    """Under canonical names. The lab's rewards are +1 and -1, so a log without them still tells mean and deviation."""
    row = {MAPPED.get(name, name): value for name, value in row.items()}
    if "accuracy" in row:
        mean = row.setdefault("reward_mean", 2 * row["accuracy"] - 1)
        row.setdefault("reward_std", math.sqrt(max(0.0, 1 - mean * mean)))
    return row


def _state(rows: Sequence[Row], labels: Labels, path: Path) -> Literal["failed", "healthy", "unclear"]:
    if labels.gone is not None or labels.decay is not None:
        return "failed"
    changed = len({tuple(row.get(name) for name in BOUNDS) for row in rows}) > 1 or path.stem in _relaxed(path.parent)
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


def generated(size: Size) -> list[Case]:
    """Healthy families under every noise, and each failure at early and late onsets."""
    return [*_generated_healthy(size), *_generated_failed(size)]


def _generated_healthy(size: Size) -> Iterator[Case]:
    seed = 500_000  # others than those of the gates
    for phi in size.phis:
        for tails in size.tails:
            for family in traces.FAMILIES:
                seed += 1
                rows = traces.healthy(family, size.steps, seed, traces.Noise(phi=phi, tails=tails))
                yield Case(
                    name=f"{family}, phi {phi}, {tails}", objective="dispo", rows=_steps(rows), state="healthy",
                    onsets={}, halved=None,
                )  # fmt: skip


def _generated_failed(size: Size) -> Iterator[Case]:
    for kind, after in AFTER.items():
        for onset in ONSETS:
            for seed in range(size.seeds):
                rows = _steps(traces.incident(kind, onset, onset + after, 900_000 + 1000 * onset + seed))
                yield Case(
                    name=f"{kind} from {onset}, seed {seed}", objective="dispo", rows=rows, state="failed",
                    onsets={kind: onset}, halved=halved(rows),
                )  # fmt: skip


def _steps(rows: traces.Run) -> list[Row]:
    return [_lab_row({"step": float(step), **row}) for step, row in enumerate(rows)]


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


def log_columns(case: Case) -> list[Row]:
    """The rows as a plain log has them."""
    return [{name: row[name] for name in LOG_COLUMNS if name in row} for row in case.rows]
