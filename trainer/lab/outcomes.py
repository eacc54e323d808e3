"""What became of a run: `outcome(done)` labels its rows (labels.py), measures it, and asks the detectors.

The ending is judged over the whole run, the alerts step by step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from regimescope.monitor import query
from regimescope.monitor.check import LINT
from regimescope.monitor.private import read_run
from regimescope.trainer.lab.labels import Labels, label
from regimescope.trainer.lab.plan import LabRun
from regimescope.trainer.lab.runs import Done

Row = Mapping[str, float]
METRICS = ("accuracy", "response_length_mean", "rep4_mean", "entropy_mean", "truncated_frac", "grad_norm", "kl_step")
"What is kept of each step."
ENTROPY_STEPS = (5, 25)
"Steps over which entropy is compared, while accuracy is not gone: the start is the warm start's."
WINDOW = 5
LAST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerted:
    """An alert of level warning or critical, the lint and what others explain left out."""

    signature: str
    severity: str
    step_onset: int
    step_detected: int
    driver: str | None
    inhibited: bool
    "Another alert explains it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run, judged."""

    run: LabRun
    rows: Sequence[Row]
    "METRICS and `step` of every finished step, in order; what a step lacks is absent."
    labels: Labels
    alerts: Sequence[Alerted]
    "By the step of detection."
    seconds: float
    "Wall time of the training."

    @property
    def ending(self) -> str:
        """healthy, length, repetition, decay, or lost: accuracy gone without either."""
        if self.labels.length is not None and self.labels.repetition is not None:
            return "length" if self.labels.length <= self.labels.repetition else "repetition"
        if self.labels.length is not None:
            return "length"
        if self.labels.repetition is not None:
            return "repetition"
        if self.labels.gone is not None:
            return "lost"
        return "healthy" if self.labels.decay is None else "decay"

    @property
    def measures(self) -> Mapping[str, float]:
        """By the names that a claim uses; NaN where the run has none."""
        windows = _windows(self.rows)
        best = max(range(len(windows)), key=windows.__getitem__, default=0)
        first, last = ENTROPY_STEPS
        alive = math.inf if self.labels.gone is None else self.labels.gone
        return {
            "accuracy": _mean(self.rows[-LAST:], "accuracy"),
            "peak": windows[best] if windows else math.nan,
            "peak_step": float(self.rows[best]["step"]) if windows else math.nan,
            "entropy": _mean([r for r in self.rows if first <= r["step"] < min(last, alive)], "entropy_mean"),
        }


def outcome(done: Done) -> Outcome:
    """Raises RunError when the folder holds no readable run."""
    with read_run(str(done.folder), None, rollouts=False) as view, view.monitor.store.cursor() as con:
        key = view.run.run_key
        found = query.history(con, key, 0, METRICS)
        alerts = [
            Alerted(
                signature=a.signature, severity=a.severity, step_onset=a.step_onset, step_detected=a.step_detected,
                driver=a.driver, inhibited=a.inhibited_by is not None,
            )
            for a in query.alerts(con, key)
            if a.severity != "info" and a.signature != LINT and a.slice is None
        ]  # fmt: skip
    rows: dict[int, dict[str, float]] = {}
    for name, series in found.items():
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            rows.setdefault(int(step), {"step": float(step)})[name] = value
    ordered = [rows[step] for step in sorted(rows)]
    return Outcome(
        run=done.run, rows=ordered, labels=label(ordered), seconds=done.seconds,
        alerts=sorted(alerts, key=lambda alert: alert.step_detected),
    )  # fmt: skip


def _windows(rows: Sequence[Row]) -> list[float]:
    """Mean accuracy of WINDOW rows, from each row on."""
    return [_mean(rows[i : i + WINDOW], "accuracy") for i in range(len(rows) - WINDOW + 1)]


def _mean(rows: Sequence[Row], name: str) -> float:
    values = [row[name] for row in rows if name in row]
    return fmean(values) if values else math.nan
