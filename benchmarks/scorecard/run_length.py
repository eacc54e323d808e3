"""Lag against the length of a run: the same collapse late in short and in long runs, as a table.

Every detector gets all rows here, so this shows as well what a row costs once there are many before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.scorecard import generated, score
from benchmarks.scorecard.cases import Case
from benchmarks.scorecard.watchers import DETECTORS
from benchmarks.scorecard.workers import Answer, Answers


def onsets(cases: Sequence[Case]) -> list[int]:
    return sorted({onset for case in cases for onset in case.onsets.values()})


def lag(name: str, failure: str, onset: int, cases: Sequence[Case], answers: Mapping[str, Answer]) -> float | None:
    """Median, by the failure's own name where the detector has one, else by any alarm; None: not in every run."""
    these = [case for case in cases if case.onsets.get(failure) == onset]
    names = DETECTORS[name].names.get(failure)
    found = score.found(failure, names, these, answers)
    hits, steps = (found.any, found.any_lag) if names is None else (found.named, found.named_lag)
    return steps if hits == found.runs else None


def growth(name: str, cases: Sequence[Case], answers: Mapping[str, Answer]) -> float | None:
    """Most steps by which a collapse is found later in a longer run than in the shortest; None: one is not found in
    every run."""
    late = onsets(cases)
    most = 0.0
    for failure in generated.COLLAPSES:
        known = [value for onset in late if (value := lag(name, failure, onset, cases, answers)) is not None]
        if len(known) < len(late):
            return None
        most = max(most, max(known) - known[0])
    return most


def lines(cases: Sequence[Case], answers: Answers) -> list[list[str]]:
    """The table: a head, then a line per detector; names are those of DETECTORS."""
    late = onsets(cases)
    cells = " / ".join(f"{onset:,}" for onset in late)
    table = [["", *(f"{failure}: {cells}" for failure in generated.COLLAPSES), f"µs a row: {cells}"]]
    for name, answer in answers.items():
        lags = [
            " / ".join(_steps(lag(name, failure, onset, cases, answer)) for onset in late)
            for failure in generated.COLLAPSES
        ]
        costs = [
            score.microseconds({c.name: answer[c.name] for c in cases if onset in c.onsets.values()}) for onset in late
        ]
        table.append([name, *lags, " / ".join(f"{cost:,.0f}" for cost in costs)])
    return table


def _steps(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
