"""What a detector's alarms are worth: recall, lag, lead, false alarms.

A failure is found by the first alarm from MARGIN steps before its onset on (before accuracy halved, where that came
first): labels are not exact to the step, and a warning may come before the change has got its size. Alarms less than
APART rows apart are one false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from benchmarks.scorecard.cases import Case
from benchmarks.scorecard.watchers import DIMMED
from benchmarks.scorecard.workers import Answer

MARGIN = 10
APART = 20
BINDS = 0.1
"Share of a regime's tokens that are clipped, from which on its bound binds."
LINT = "bounds_lint"
"Tells what the configuration alone tells: neither found nor false."


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How one failure was found, over the runs that have it."""

    runs: int
    "That have it."
    named: int | None
    "Found under its own name; None: the detector has no name for it."
    named_lag: float | None
    "Median of detection minus onset, of those."
    critical: int | None
    "Found under its own name and as critical."
    critical_lag: float | None
    "Median of detection minus onset, of those."
    any: int
    "Found by any alarm."
    any_lag: float | None
    "Median of detection minus onset, of those."


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """How long before accuracy halved, over the failed runs in which it did."""

    runs: int
    "In which it did."
    in_time: int
    "Alarm at that step or before."
    median: float | None
    "Steps, of the runs with an alarm."


@dataclass(frozen=True, slots=True, kw_only=True)
class False_:
    """False alarms over healthy runs."""

    steps: int
    "Healthy rows that it was given."
    episodes: int
    "Alarms, close ones taken together."
    critical: int
    "Of them, with a critical one."

    @property
    def rate(self) -> float:
        "Episodes per 1,000 rows."
        return 1000 * self.episodes / self.steps if self.steps else math.nan

    @property
    def bound(self) -> float:
        "95 % upper bound of the rate."
        return 1000 * poisson_upper(self.episodes) / self.steps if self.steps else math.nan


Accept = Callable[[str, str], bool]
"Whether an alarm of that name and level counts."


def anything(name: str, level: str) -> bool:
    return level != DIMMED


def named(names: Sequence[str], levels: Sequence[str] = ("warning", "critical")) -> Accept:
    return lambda name, level: name in names and level in levels


def found(failure: str, names: Sequence[str] | None, cases: Iterable[Case], answers: Mapping[str, Answer]) -> Found:
    """`names`: alarms that mean this failure; None where it has none."""
    having = [case for case in cases if failure in case.onsets]
    by_any = lags(failure, having, answers)
    by_name = lags(failure, having, answers, named(names or ()))
    critical = lags(failure, having, answers, named(names or (), ("critical",)))
    return Found(
        runs=len(having),
        named=None if names is None else len(by_name),
        named_lag=_median(by_name),
        critical=None if names is None else len(critical),
        critical_lag=_median(critical),
        any=len(by_any),
        any_lag=_median(by_any),
    )


def lags(failure: str, cases: Iterable[Case], answers: Mapping[str, Answer], accept: Accept = anything) -> list[int]:
    """Steps from the onset to the first alarm that is accepted, of the runs in which there is one."""
    return [
        step - case.onsets[failure]
        for case in cases
        if failure in case.onsets and (step := first(case, answers[case.name], failure, accept)) is not None
    ]


def lead(cases: Iterable[Case], answers: Mapping[str, Answer]) -> Lead:
    """Any alarm but the lint, of the run's first failure."""
    halved = [case for case in cases if case.state == "failed" and case.halved is not None]
    steps = [
        case.halved - step
        for case in halved
        if case.halved is not None and (step := first(case, answers[case.name], None)) is not None
    ]
    return Lead(runs=len(halved), in_time=sum(step >= 0 for step in steps), median=_median(steps))


def first(case: Case, answer: Answer, failure: str | None, accept: Accept = anything) -> int | None:
    """Step of the first alarm that counts for the failure (None: for whichever came first)."""
    onsets = [case.onsets[failure]] if failure else list(case.onsets.values())
    since = min([*onsets, *([case.halved] if case.halved is not None else [])]) - MARGIN
    return next(
        (
            step
            for index, name, level in answer.alarms
            if name != LINT and (step := int(case.rows[index]["step"])) >= since and accept(name, level)
        ),
        None,
    )


def false_alarms(cases: Iterable[Case], answers: Mapping[str, Answer]) -> False_:
    """Over the healthy runs."""
    healthy = [case for case in cases if case.state == "healthy"]
    groups = [group for case in healthy for group in episodes(answers[case.name])]
    return False_(
        steps=sum(answers[case.name].rows for case in healthy),
        episodes=len(groups),
        critical=sum(any(level == "critical" for _, _, level in group) for group in groups),
    )


def episodes(answer: Answer) -> list[list[tuple[int, str, str]]]:
    """Alarms but the lint, those close together in one."""
    groups: list[list[tuple[int, str, str]]] = []
    for alarm in answer.alarms:
        if alarm[1] == LINT or alarm[2] == DIMMED:
            continue
        if groups and alarm[0] - groups[-1][-1][0] < APART:
            groups[-1].append(alarm)
        else:
            groups.append([alarm])
    return groups


def binds(case: Case) -> bool:
    """Whether a regime was clipped for more than BINDS of its tokens by the step at which accuracy had halved."""
    until = math.inf if case.halved is None else case.halved
    columns = [f"{regime}.clip_{side}_frac" for regime in ("R1", "R2", "R3", "R4") for side in ("low", "high")]
    return any(row.get(name, 0.0) > BINDS for row in case.rows if row["step"] <= until for name in columns)


def linted(answer: Answer) -> bool:
    return any(name == LINT for _, name, _ in answer.alarms)


def microseconds(answers: Mapping[str, Answer]) -> float:
    """CPU time per row."""
    return 1e6 * sum(answer.seconds for answer in answers.values()) / sum(answer.rows for answer in answers.values())


def poisson_upper(count: int, level: float = 0.95) -> float:
    """Upper bound of a Poisson mean of which `count` were seen: the mean at which so few have probability 1 - level.
    0 gives 3.0. Above 100 by Wilson and Hilferty (PNAS 17, 1931), within 0.1 %."""
    if count > 100:
        freedom = count + 1
        return freedom * (1 - 1 / (9 * freedom) + NormalDist().inv_cdf(level) / (3 * math.sqrt(freedom))) ** 3
    low, high = 0.0, 10.0 + 4 * count
    for _ in range(80):
        mean = (low + high) / 2
        term = total = math.exp(-mean)
        for k in range(1, count + 1):
            term *= mean / k
            total += term
        low, high = (mean, high) if total > 1 - level else (low, mean)
    return high


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
