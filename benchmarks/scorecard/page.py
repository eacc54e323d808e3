"""docs/scorecard.md: asks the detectors, and puts the answers in order. Texts: heading.md, details.md."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks._environment import FOLDER
from benchmarks.scorecard import generated, rivals, run_length, targets, views, workers
from benchmarks.scorecard import report as tables
from benchmarks.scorecard.cases import Case
from benchmarks.scorecard.figure import Panel, figure
from benchmarks.scorecard.targets import DataSet, Verdict
from benchmarks.scorecard.watchers import DETECTORS
from benchmarks.scorecard.workers import Answers

from regimescope.detectors import load_rules

ByView = Mapping[str, Answers]
Lengths = tuple[Sequence[Case], Answers]


def ask(data: DataSet, detectors: Sequence[str], processes: int) -> ByView:
    """Every detector in the two views, ours in the others too."""
    print(f"{data.title}: {len(data.runs)} runs", file=sys.stderr)
    both = {view: workers.ask(detectors, data.runs, view=view, processes=processes) for view in tables.VIEWS}
    if data.kind == "public":
        return both
    return both | {view: workers.ask([rivals.OURS], data.runs, view=view, processes=processes) for view in views.BESIDE}


def ask_lengths(detectors: Sequence[str], processes: int, *, quick: bool) -> Lengths:
    """The same collapse in short and in long runs."""
    print("lag against the length of a run", file=sys.stderr)
    runs = generated.lengths(generated.LATE[:2], 1) if quick else generated.lengths()
    return runs, workers.ask(detectors, runs, view=views.ALL, processes=processes, whole=True)


def page(
    command: str,
    minutes: float,
    sets: Sequence[DataSet],
    answers: Sequence[ByView],
    lengths: Lengths,
    versions: Mapping[str, str],
) -> str:
    """All of it."""
    found = {
        data.title: {view: targets.verdicts(data, seen[view]) for view in tables.VIEWS}
        for data, seen in zip(sets, answers, strict=True)
    }
    same = targets.same_lag(run_length.growth(rivals.OURS, *_of_ours(lengths)))
    parts = [
        _text("heading.md").format(
            summary=_summary(sets, found),
            targets=tables.targets({**found, "Lag against length": {view: [same] for view in tables.VIEWS}}),
            glance=_glance(sets, answers, versions),
            command=command,
            minutes=minutes,
            commit=_commit(),
            rules=load_rules().version,
            python=platform.python_version(),
            machine=platform.machine(),
            peers=", ".join(f"{package} {version}" for package, version in versions.items()) or "none",
        ),
        _text("details.md").format(
            limits=", ".join(sorted({f"{known.package} {known.limit}" for known in DETECTORS.values() if known.limit})),
            lengths=_lengths(lengths, versions),
        ),
        *(_part(data, seen, versions) for data, seen in zip(sets, answers, strict=True)),
    ]
    return "\n".join(parts)


def _of_ours(lengths: Lengths) -> tuple[Sequence[Case], Mapping[str, workers.Answer]]:
    runs, answers = lengths
    return runs, answers[rivals.OURS]


def _summary(sets: Sequence[DataSet], found: Mapping[str, Mapping[str, Sequence[Verdict]]]) -> str:
    """How many targets were met, per kind of data."""
    parts = []
    for kind, what in KINDS.items():
        states = [v.state for data in sets if data.kind == kind for v in found[data.title][views.ALL]]
        if states:
            opened = f", {states.count('open')} open" if "open" in states else ""
            parts.append(f"{states.count('met')} of {len(states)} {what}{opened}")
    return "; ".join(parts)


def _glance(sets: Sequence[DataSet], answers: Sequence[ByView], versions: Mapping[str, str]) -> str:
    """Ours and the peers over all failures of a data set, all columns."""
    parts = []
    for data, seen in zip(sets, answers, strict=True):
        if data.kind != "public":
            parts += [f"**{data.title}**", "", tables.glance(data.runs, seen[views.ALL], versions), ""]
    return "\n".join(parts).rstrip()


def picture(sets: Sequence[DataSet], answers: Sequence[ByView], versions: Mapping[str, str]) -> str:
    """The figure of the page, an SVG: the data sets with failures, all columns."""
    return figure(
        [
            Panel(title=data.title, bars=tables.bars(data.runs, seen[views.ALL], versions))
            for data, seen in zip(sets, answers, strict=True)
            if data.kind != "public"
        ]
    )


def _lengths(lengths: Lengths, versions: Mapping[str, str]) -> str:
    head, *rest = run_length.lines(*lengths)
    return tables.table([head, *([tables.title(name, versions), *cells] for name, *cells in rest)])


def _part(data: DataSet, seen: ByView, versions: Mapping[str, str]) -> str:
    lines = [f"## {data.title}", "", f"{tables.describe(data.runs)}. {data.note} {tables.arms(data.runs)}".rstrip(), ""]
    for view in tables.VIEWS:
        ours = tables.ours(data.runs, seen[view][rivals.OURS])
        lines += [f"**{view.capitalize()}**", "```", tables.card(data.runs, seen[view], versions), "```"]
        lines += ["Ours:", "```", ours, "```", ""]
    if len(seen) > len(tables.VIEWS):
        own = {view: answers[rivals.OURS] for view, answers in seen.items()}
        lines += ["**Ours by what is logged**", "```", tables.beside(data.runs, own), "```"]
        lines += [tables.countless(data.runs, own), ""]
    return "\n".join(lines)


def _text(name: str) -> str:
    return (FOLDER / "scorecard" / name).read_text(encoding="utf-8")


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=FOLDER.parent, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


KINDS = {
    "fresh": "on lab runs of fresh seeds",
    "tuned": "on lab runs that the rules were tuned on",
    "public": "on public logs",
    "generated": "on generated runs",
}
FRESH = "Labels: benchmarks/labels.py, by code. Seeds on which no threshold was chosen; what was looked at, see above."
TUNED = (
    "Labels: benchmarks/labels.py, by code. **The rules were tuned on these runs**: nothing here is held out. Many may "
    "share their first steps with another, so the failures are fewer than they look."
)
LOGS = (
    "Other people's runs, none of which is known to have failed: only false alarms can be counted. Rows are logged "
    "points, often 5 or 10 steps apart; one that repeats the numbers of the row before is left out."
)
GENERATED = (
    "benchmarks/detectors/traces.py, seeds from 500,001 (healthy) and 900,000 (failures) on, none of them the gates'. "
    "The onset is where the failure was put; how soon accuracy, KL and gradient norm follow is an assumption. Healthy "
    "runs have {steps} steps, AR(1) noise with phi {phis}, {tails}; failures start at {onsets}."
)
