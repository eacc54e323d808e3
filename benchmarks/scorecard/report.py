"""Tables of the scorecard: targets and figures in Markdown, details in plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.scorecard import rivals, score, views
from benchmarks.scorecard.cases import FAILURES, Case
from benchmarks.scorecard.figure import Bar
from benchmarks.scorecard.generated import COLLAPSES
from benchmarks.scorecard.rivals import OURS
from benchmarks.scorecard.targets import Verdict
from benchmarks.scorecard.watchers import DETECTORS, DIMMED
from benchmarks.scorecard.workers import Answer, Answers

INPUTS = (
    "response_length_mean", "rep4_mean", "accuracy", "accuracy.n", "all_wrong_frac", "entropy_mean", "neg.w_min",
    "R4.clip_low_frac",
)  # fmt: skip
"Without these a rule of ours is blind."
VIEWS = (views.ALL, views.LOG)
"In which every detector is shown the runs."
ACROSS = 3
"Failures side by side in one table."


def title(name: str, versions: Mapping[str, str]) -> str:
    """Of a detector, with its version; `versions`: package -> version."""
    return DETECTORS[name].title.format(versions.get(DETECTORS[name].package or "", ""))


def targets(sets: Mapping[str, Mapping[str, Sequence[Verdict]]]) -> str:
    """`sets`: data set -> view -> verdicts, the same targets in each view."""
    lines = [["data set", "target", *VIEWS]]
    for name, seen in sets.items():
        for i, verdict in enumerate(seen[views.ALL]):
            shown = [seen[view][i] for view in VIEWS]
            lines.append([name if i == 0 else "", verdict.target, *(f"**{v.state}**: {v.measured}" for v in shown)])
    return markdown(lines)


def card(cases: Sequence[Case], answers: Answers, versions: Mapping[str, str]) -> str:
    """One line per detector, and as many tables as the failures need."""
    failures = rivals.failures(cases)
    parts = []
    for start in range(0, len(failures), ACROSS):
        some = failures[start : start + ACROSS]
        runs = {failure: sum(failure in case.onsets for case in cases) for failure in some}
        head = [cell for failure in some for cell in (f"{failure} ({runs[failure]})", "lag", "better in")]
        parts.append(table([["detector", *head], *(_found(n, some, cases, answers, versions) for n in answers)]))
    halved = sum(case.state == "failed" and case.halved is not None for case in cases)
    head = ["detector", *((f"in time ({halved})", "lead") if halved else ()), "false per 1,000", "bound", "µs"]
    parts.append(table([head, *(_alarms(name, cases, answers[name], versions) for name in answers)]))
    return "\n\n".join(parts)


def _found(
    name: str, failures: Sequence[str], cases: Sequence[Case], answers: Answers, versions: Mapping[str, str]
) -> list[str]:
    cells = []
    for failure in failures:
        found = score.found(failure, DETECTORS[name].names.get(failure), cases, answers[name])
        cells += [
            f"{_count(found.named)} / {found.any}",
            f"{_steps(found.named_lag)} / {_steps(found.any_lag)}",
            "" if name == OURS else _better(name, failure, cases, answers),
        ]
    return [title(name, versions), *cells]


def _better(name: str, failure: str, cases: Sequence[Case], answers: Answers) -> str:
    own = rivals.numbers(OURS, failure, cases, answers[OURS])
    other = rivals.numbers(name, failure, cases, answers[name])
    return "ALL" if rivals.beats(other, own) else ", ".join(rivals.better(other, own)) or "-"


def _alarms(name: str, cases: Sequence[Case], answers: Mapping[str, Answer], versions: Mapping[str, str]) -> list[str]:
    lead, false = score.lead(cases, answers), score.false_alarms(cases, answers)
    return [
        title(name, versions),
        *([str(lead.in_time), _steps(lead.median)] if lead.runs else []),
        f"{false.rate:.3f} ({false.episodes} in {false.steps:,})" if false.steps else "-",
        f"{false.bound:.3f}" if false.steps else "-",
        f"{score.microseconds(answers):.0f}",
    ]


def bars(cases: Sequence[Case], answers: Answers, versions: Mapping[str, str]) -> list[Bar]:
    """Over the collapses together; ours by the failure's own name, a peer by any alarm."""
    collapses = [failure for failure in rivals.failures(cases) if failure in COLLAPSES]
    runs = sum(failure in case.onsets for case in cases for failure in collapses)
    return [
        Bar(
            name=title(name, versions),
            found=len(_lags(name, collapses, cases, answer)) / runs if runs else 0.0,
            false=score.false_alarms(cases, answer).rate,
        )
        for name, answer in answers.items()
    ]


def glance(cases: Sequence[Case], answers: Answers, versions: Mapping[str, str]) -> str:
    """The same in numbers."""
    collapses = [failure for failure in rivals.failures(cases) if failure in COLLAPSES]
    runs = sum(failure in case.onsets for case in cases for failure in collapses)
    lines = [["detector", "found", "median lag", "false alarms per 1,000", "µs"]]
    for name, answer in answers.items():
        lags = _lags(name, collapses, cases, answer)
        false = score.false_alarms(cases, answer)
        rate = f"{false.rate:.2f}" if false.steps else "-"
        lag = _steps(median(lags) if lags else None)
        cost = f"{score.microseconds(answer):.0f}"
        lines.append([title(name, versions), f"{len(lags)} of {runs}", lag, rate, cost])
    return markdown(lines)


def _lags(name: str, failures: Sequence[str], cases: Sequence[Case], answers: Mapping[str, Answer]) -> list[int]:
    known = DETECTORS[name].names
    return [
        lag
        for failure in failures
        for lag in score.lags(failure, cases, answers, score.named(known[failure]) if name == OURS else score.anything)
    ]


def ours(cases: Sequence[Case], answers: Mapping[str, Answer]) -> str:
    """What the tables have no room for: the lint, and each run in which ours is wrong."""
    names = DETECTORS[OURS].names
    linted = {
        state: (
            sum(score.linted(answers[c.name]) for c in cases if c.state == state),
            sum(c.state == state for c in cases),
        )
        for state in ("failed", "healthy", "unclear")
    }
    lint = ", ".join(f"{some} of {all_} {state}" for state, (some, all_) in linted.items() if all_)
    lines = [f"bounds lint (apart): a warning in {lint} runs"]
    lines += [f"false alarm: {text}" for text in _false(cases, answers)]
    lines += [f"not in time, though a bound binds: {text}" for text in _late(cases, answers)]
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


def _late(cases: Sequence[Case], answers: Mapping[str, Answer]) -> list[str]:
    texts = []
    for case in cases:
        if case.state != "failed" or case.halved is None or not score.binds(case):
            continue
        step = score.first(case, answers[case.name], None)
        if step is None or step > case.halved:
            when = "never" if step is None else f"at {step}"
            texts.append(f"{case.name}, half gone at {case.halved}, first alarm {when}")
    return texts


def _missed(cases: Sequence[Case], answers: Mapping[str, Answer], names: Mapping[str, Sequence[str]]) -> list[str]:
    texts = []
    for case in cases:
        for failure, onset in case.onsets.items():
            accepted = score.first(case, answers[case.name], failure, score.named(names[failure]))
            if accepted is None:
                heard = [(name, level) for _, name, level in answers[case.name].alarms if name != score.LINT]
                clear = {name for name, level in heard if level != DIMMED}
                said = sorted(clear | {f"{name} (dimmed)" for name, _ in heard if name not in clear})
                texts.append(f"{case.name}, {failure} from {onset}; said: {', '.join(said) or 'nothing'}")
    return texts


def beside(cases: Sequence[Case], by_view: Mapping[str, Mapping[str, Answer]]) -> str:
    """Ours by what the log holds."""
    failures = rivals.failures(cases)
    runs = {failure: sum(failure in case.onsets for case in cases) for failure in failures}
    head = ["ours sees", *(cell for failure in failures for cell in (f"{failure} ({runs[failure]})", "lag"))]
    halved = score.lead(cases, by_view[views.ALL]).runs
    head += [f"in time ({halved})", "lead"] if halved else []
    lines = [[*head, "false"]]
    for view, answers in by_view.items():
        cells = []
        for failure in failures:
            found = score.found(failure, DETECTORS[OURS].names[failure], cases, answers)
            cells += [f"{_count(found.named)} / {found.any}", f"{_steps(found.named_lag)} / {_steps(found.any_lag)}"]
        lead = score.lead(cases, answers)
        cells += [str(lead.in_time), _steps(lead.median)] if halved else []
        lines.append([view, *cells, str(score.false_alarms(cases, answers).episodes)])
    return table(lines)


def countless(cases: Sequence[Case], by_view: Mapping[str, Mapping[str, Answer]]) -> str:
    """What it costs that a log does not tell how many responses an accuracy is of."""
    told, untold = (score.lead(cases, by_view[view]) for view in (views.LOG, views.COUNTLESS))
    if not told.runs or not any("accuracy.n" in row for case in cases for row in case.rows):
        return ""
    if told == untold:
        return "Without accuracy.n the rule that compares with the first accuracies is silent; it changes nothing here."
    return (
        f"Without accuracy.n the rule that compares with the first accuracies is silent: in time {untold.in_time} "
        f"instead of {told.in_time} of {told.runs}, median lead {_steps(untold.median)} instead of "
        f"{_steps(told.median)} steps."
    )


def describe(cases: Sequence[Case]) -> str:
    """What is in a data set."""
    states = {state: [case for case in cases if case.state == state] for state in ("failed", "healthy", "unclear")}
    parts = [
        f"{len(some)} {state} ({sum(len(case.rows) for case in some):,} rows)" for state, some in states.items() if some
    ]
    having = {failure: sum(failure in case.onsets for case in cases) for failure in FAILURES}
    what = ", ".join(f"{failure} {count}" for failure, count in having.items() if count)
    absent = [name for name in INPUTS if not any(name in row for case in cases for row in case.rows)]
    blind = f". No run has {', '.join(absent)}" if absent else ""
    return f"{len(cases)} runs: {', '.join(parts)}{f'; failures: {what}' if what else ''}{blind}"


def arms(cases: Sequence[Case]) -> str:
    """Which arms of the lab's study failed; empty where no run tells its arm."""
    known = sorted({case.arm for case in cases if case.arm})
    counts = [[case.state for case in cases if case.arm == arm] for arm in known]
    parts = [f"{arm} {states.count('failed')} of {len(states)}" for arm, states in zip(known, counts, strict=True)]
    return f"Failed, by arm: {', '.join(parts)}." if parts else ""


def table(lines: Sequence[Sequence[str]]) -> str:
    """Aligned, two spaces between columns."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """The first line is the head."""
    head, *rest = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rest])


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _steps(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
