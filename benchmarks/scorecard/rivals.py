"""Whether a peer is better than ours: recall, lag and false alarms beside ours, per failure.

A peer gets credit for any alarm, ours only for one under the failure's own name, so ties go to the peer. As good in all
three at once, and it beats ours: that is the target. Better in one alone is shown, and is no more than that: who always
speaks has the best recall and lag.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.scorecard import score
from benchmarks.scorecard.cases import FAILURES, Case
from benchmarks.scorecard.watchers import DETECTORS
from benchmarks.scorecard.workers import Answer, Answers

OURS = "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What a detector is worth for one failure."""

    recall: float
    "Share of the runs that have it, 0 to 1."
    lag: float
    "Median steps from the onset, of those found; infinite without one."
    false: float
    "False alarms per 1,000 healthy rows; NaN without healthy runs."


def numbers(name: str, failure: str, cases: Sequence[Case], answers: Mapping[str, Answer]) -> Numbers:
    """Of a detector: ours under the failure's own name, a peer by any alarm."""
    known = DETECTORS[name].names.get(failure)
    found = score.found(failure, known, cases, answers)
    hits, lag = (found.named or 0, found.named_lag) if name == OURS else (found.any, found.any_lag)
    return Numbers(
        recall=hits / found.runs if found.runs else math.nan,
        lag=math.inf if lag is None else lag,
        false=score.false_alarms(cases, answers).rate,
    )


def better(other: Numbers, own: Numbers) -> list[str]:
    """Those of the three in which the other is better."""
    return [
        *(["recall"] if other.recall > own.recall else []),
        *(["lag"] if other.lag < own.lag else []),
        *(["alarms"] if other.false < own.false else []),
    ]


def beats(other: Numbers, own: Numbers) -> bool:
    """As good in all three."""
    if math.isnan(own.recall):  # healthy runs alone
        return other.false < own.false
    found = other.recall > 0 or own.recall == 0
    return found and other.recall >= own.recall and other.lag <= own.lag and not other.false > own.false


def title(name: str) -> str:
    """Of a detector, without its version."""
    return DETECTORS[name].title.replace(" {}", "")


def failures(cases: Sequence[Case]) -> list[str]:
    """Those that some run has."""
    return [failure for failure in FAILURES if any(failure in case.onsets for case in cases)]


def beaten(cases: Sequence[Case], answers: Answers) -> dict[str, list[str]]:
    """Failure -> peers that beat ours; "false alarms" where no run failed."""
    table: dict[str, list[str]] = {}
    for failure in failures(cases) or ["false alarms"]:
        own = numbers(OURS, failure, cases, answers[OURS])
        table[failure] = [
            name
            for name, answer in answers.items()
            if name != OURS and beats(numbers(name, failure, cases, answer), own)
        ]
    return table
