"""The targets beside what was measured: met, missed or open. By code, so that nobody can round in their favour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.scorecard import rivals, score
from benchmarks.scorecard.cases import Case
from benchmarks.scorecard.generated import COLLAPSES
from benchmarks.scorecard.watchers import DETECTORS
from benchmarks.scorecard.workers import Answer, Answers

Kind = Literal["fresh", "tuned", "public", "generated"]
State = Literal["met", "missed", "open"]

LAG = {"length": 10, "repetition": 10, "decay": 60}
"Most steps from the onset to the critical alert, median."
IN_TIME = 0.7
"Least share of the failed runs in which a bound binds with a warning by the step at which accuracy is half gone."
WARNINGS = 1
"Most false alarms on healthy runs of the lab, and on public logs."
HEALTHY_ROWS = 5_000
"Least healthy rows of the lab from which that is claimed."
RATE = 0.05
"Most false alarms per 1,000 healthy generated rows."
SAME = 2.0
"Most steps by which the median lag may grow with the run's length: the reference differs."
COST = 50.0
"Most CPU microseconds per row, in runs of LONG rows and more."
LONG = 500
"In shorter runs the warm-up, some milliseconds once a run, is most of it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target on one data set in one view."""

    target: str
    "In words."
    state: State
    "open: what there is does not allow to say."
    measured: str
    "With counts."


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Runs that share a table."""

    title: str
    "Heading."
    kind: Kind
    "Decides which targets apply."
    note: str
    "What to know before reading its figures."
    runs: Sequence[Case]
    "All of it."


def verdicts(data: DataSet, answers: Answers) -> list[Verdict]:
    """Every target that applies to the data set, in one view."""
    own = answers[rivals.OURS]
    found = [] if data.kind == "public" else _collapses(data.runs, own)
    if data.kind in ("fresh", "tuned"):
        found.append(_in_time(data.runs, own))
    return [*found, _quiet(data, own), *_peers(data.runs, answers), _cost(own)]


def _collapses(cases: Sequence[Case], own: Mapping[str, Answer]) -> list[Verdict]:
    verdicts = []
    for failure in COLLAPSES:
        found = score.found(failure, DETECTORS[rivals.OURS].names[failure], cases, own)
        if not found.runs:
            continue
        recall = f"{found.critical} of {found.runs} (warning or critical: {found.named})"
        lag = "no critical" if found.critical_lag is None else f"{found.critical_lag:g}"
        early = "-" if found.named_lag is None else f"{found.named_lag:g}"
        most = LAG[failure]
        soon = found.critical_lag is not None and found.critical_lag <= most
        verdicts += [
            Verdict(
                target=f"{failure}: critical under its own name in every run",
                state=_met(found.critical == found.runs),
                measured=recall,
            ),
            Verdict(
                target=f"{failure}: that alert at most {most} steps after the onset, median",
                state=_met(soon),
                measured=f"{lag} (first warning: {early})",
            ),
        ]
    return verdicts


def _in_time(cases: Sequence[Case], own: Mapping[str, Answer]) -> Verdict:
    lead = score.lead([case for case in cases if score.binds(case)], own)
    return Verdict(
        target=f"a warning by the step at which accuracy is half gone, in {IN_TIME} of the runs in which a bound binds",
        state=_met(lead.in_time >= IN_TIME * lead.runs) if lead.runs else "open",
        measured=f"{lead.in_time} of {lead.runs}" if lead.runs else "no such run",
    )


def _quiet(data: DataSet, own: Mapping[str, Answer]) -> Verdict:
    false = score.false_alarms(data.runs, own)
    lab = data.kind in ("fresh", "tuned")
    if data.kind == "generated":
        target, holds = f"healthy: no critical, at most {RATE} warnings per 1,000 rows", false.rate <= RATE
    else:
        least = f" in at least {HEALTHY_ROWS:,} rows" if lab else ""
        target, holds = f"healthy: no critical, at most {WARNINGS} warning{least}", false.episodes <= WARNINGS
    measured = f"{false.critical} critical, {false.episodes - false.critical} warnings in {false.steps:,} rows"
    if not false.steps:
        return Verdict(target=target, state="open", measured="no healthy run")
    few = holds and not false.critical and lab and false.steps < HEALTHY_ROWS
    return Verdict(
        target=target,
        state="open" if few else _met(holds and not false.critical),
        measured=f"{measured}{', too few' if few else ''}; 95 % bound {false.bound:.3g} per 1,000",
    )


def _peers(cases: Sequence[Case], answers: Answers) -> list[Verdict]:
    peers = len(answers) - 1
    if not peers:
        return []
    beaten = {failure: names for failure, names in rivals.beaten(cases, answers).items() if names}
    return [
        Verdict(
            target="no peer as good in recall, lag and false alarms at once, on any failure"
            if rivals.failures(cases)
            else "no peer with fewer false alarms",
            state=_met(not beaten),
            measured="; ".join(f"{failure}: {', '.join(map(rivals.title, names))}" for failure, names in beaten.items())
            or f"none of {peers}",
        )
    ]


def _cost(own: Mapping[str, Answer]) -> Verdict:
    cost, rows = score.microseconds(own), sum(answer.rows for answer in own.values()) / len(own)
    short = cost > COST and rows < LONG
    return Verdict(
        target=f"at most {COST:g} µs of CPU per row",
        state="open" if short else _met(cost <= COST),
        measured=f"{cost:.0f}; runs of {rows:,.0f} rows{', most of it the warm-up' if short else ''}",
    )


def same_lag(growth: float | None) -> Verdict:
    """`growth`: of `run_length.growth`, for ours."""
    return Verdict(
        target=f"a collapse is found no later in a run ten times as long, within {SAME:g} steps",
        state=_met(growth is not None and growth <= SAME),
        measured="not found in every run" if growth is None else f"at most {growth:g} steps later",
    )


def _met(holds: bool) -> State:
    return "met" if holds else "missed"
