"""Tables of the scorecard in plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.scorecard import score
from benchmarks.scorecard.cases import FAILURES, Case
from benchmarks.scorecard.watchers import DETECTORS, Detector
from benchmarks.scorecard.workers import Answer, Answers

INPUTS = (
    "response_length_mean", "rep4_mean", "accuracy", "accuracy.n", "all_wrong_frac", "entropy_mean", "neg.w_min",
    "R4.clip_low_frac",
)  # fmt: skip
"Without these a rule of ours is blind."


def columns(cases: Sequence[Case]) -> tuple[str, ...]:
    runs = {failure: sum(failure in case.onsets for case in cases) for failure in FAILURES}
    head = [cell for failure in FAILURES if runs[failure] for cell in (f"{failure} ({runs[failure]})", "lag")]
    halved = sum(case.state == "failed" and case.halved is not None for case in cases)
    return ("detector", *head, *((f"in time ({halved})", "lead") if halved else ()), "false per 1,000", "bound", "µs")


def card(cases: Sequence[Case], answers: Answers, versions: Mapping[str, str]) -> str:
    """One line per detector; `versions`: package -> version."""
    return table([columns(cases), *(_line(DETECTORS[name], versions, cases, answers[name]) for name in answers)])


def _line(
    detector: Detector, versions: Mapping[str, str], cases: Sequence[Case], answers: Mapping[str, Answer]
) -> tuple[str, ...]:
    cells = []
    for failure in FAILURES:
        found = score.found(failure, detector.names.get(failure), cases, answers)
        if found.runs:
            cells.append(f"{_count(found.named)} / {found.any}")
            cells.append(f"{_steps(found.named_lag)} / {_steps(found.any_lag)}")
    lead = score.lead(cases, answers)
    if lead.runs:
        cells += [str(lead.in_time), _steps(lead.median)]
    false = score.false_alarms(cases, answers)
    rate = f"{false.rate:.3f} ({false.episodes} in {false.steps:,})" if false.steps else "-"
    return (
        _title(detector, versions),
        *cells,
        rate,
        f"{false.bound:.3f}" if false.steps else "-",
        f"{score.microseconds(answers):.0f}",
    )


def ours(cases: Sequence[Case], answers: Mapping[str, Answer]) -> str:
    """What the table has no room for: criticals, the lint, and each run in which ours is wrong."""
    names = DETECTORS["ours"].names
    lines = []
    for failure in FAILURES:
        found = score.found(failure, names[failure], cases, answers)
        if found.runs:
            lines.append(
                f"{failure}: critical under its own name in {found.critical} of {found.runs}, "
                f"median lag {_steps(found.critical_lag)}"
            )
    false = score.false_alarms(cases, answers)
    if false.steps:
        lines.append(f"healthy: {false.episodes} warnings, {false.critical} of them critical, in {false.steps:,} rows")
    linted = {
        state: (
            sum(score.linted(answers[c.name]) for c in cases if c.state == state),
            sum(c.state == state for c in cases),
        )
        for state in ("failed", "healthy", "unclear")
    }
    binding = score.lead([case for case in cases if score.binds(case)], answers)
    if binding.runs:
        lines.append(f"in time where a bound binds before accuracy is half gone: {binding.in_time} of {binding.runs}")
    lint = ", ".join(f"{some} of {all_} {state}" for state, (some, all_) in linted.items() if all_)
    lines.append(f"bounds lint (apart): a warning in {lint} runs")
    lines += [f"false alarm: {text}" for text in _false(cases, answers)]
    lines += [f"missed: {text}" for text in _missed(cases, answers, names)]
    return "\n".join(lines)


def _false(cases: Sequence[Case], answers: Mapping[str, Answer]) -> list[str]:
    return [
        f"{case.name}, step {case.rows[group[0][0]]['step']:.0f}: "
        + ", ".join(sorted({f"{n} {v}" for _, n, v in group}))
        for case in cases
        if case.state == "healthy"
        for group in score.episodes(answers[case.name])
    ]


def _missed(cases: Sequence[Case], answers: Mapping[str, Answer], names: Mapping[str, Sequence[str]]) -> list[str]:
    texts = []
    for case in cases:
        for failure, onset in case.onsets.items():
            if score.first(case, answers[case.name], failure, score.named(names[failure])) is None:
                said = sorted({name for _, name, _ in answers[case.name].alarms if name != score.LINT})
                texts.append(f"{case.name}, {failure} from {onset}; said: {', '.join(said) or 'nothing'}")
    return texts


def rivals(cases: Sequence[Case], answers: Answers, versions: Mapping[str, str]) -> str:
    """Per failure the peers that are, by any alarm, at least as good as ours under its own name in recall, lag and
    false alarms, all three."""
    parts = []
    false = {name: score.false_alarms(cases, answer).rate for name, answer in answers.items()}
    for failure in FAILURES:
        own = score.found(failure, DETECTORS["ours"].names[failure], cases, answers["ours"])
        if not own.runs or own.named_lag is None:
            continue
        as_good = []
        for name, answer in answers.items():
            other = score.found(failure, None, cases, answer)
            good = other.any >= (own.named or 0) and other.any_lag is not None and other.any_lag <= own.named_lag
            if name != "ours" and good and not false[name] > false["ours"]:
                as_good.append(_title(DETECTORS[name], versions))
        parts.append(f"{failure}: {'; '.join(as_good) or 'none'}")
    return f"as good as ours in recall, lag and false alarms at once: {', '.join(parts)}" if parts else ""


def describe(cases: Sequence[Case]) -> str:
    """What is in a data set."""
    states = {state: [case for case in cases if case.state == state] for state in ("failed", "healthy", "unclear")}
    parts = [
        f"{len(some)} {state} ({sum(len(case.rows) for case in some):,} rows)" for state, some in states.items() if some
    ]
    absent = [name for name in INPUTS if not any(name in row for case in cases for row in case.rows)]
    blind = f". No run has {', '.join(absent)}" if absent else ""
    return f"{len(cases)} runs: {', '.join(parts)}{blind}"


def table(lines: Sequence[Sequence[str]]) -> str:
    """Aligned, two spaces between columns."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _title(detector: Detector, versions: Mapping[str, str]) -> str:
    return detector.title.format(versions.get(detector.package or "", ""))


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _steps(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
