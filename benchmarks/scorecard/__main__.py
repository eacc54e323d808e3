"""Scorecard: our detectors beside rlwatch, rlprobe, rldoctor, a z-score, PageHinkley and ADWIN, on the same runs.

    ./dev bench scorecard --runs FOLDER --logs FOLDER --write     docs/scorecard.md
    ./dev bench scorecard --quick                                 generated runs only, few of them

--runs: recorded runs of the lab, one CSV per run (may be given more than once). --tuned: the same, for runs that the
rules were tuned on; the tables say so. --logs: public logs. Generated runs are always there. Peers are installed once
into benchmarks/.venv-detectors; without an index that pip can reach the card has ours and the z-score.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._environment import FOLDER
from benchmarks._runs import BenchmarkError
from benchmarks.scorecard import cases, report, workers
from benchmarks.scorecard.watchers import DETECTORS

from regimescope.detectors import load_rules

PAGE = FOLDER.parent / "docs" / "scorecard.md"
VIEWS = {"all columns": False, "log columns only": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Runs that share a table."""

    title: str
    "Heading."
    note: str
    "What to know before reading its figures."
    runs: Sequence[cases.Case]
    "All of it."


def main(argv: Sequence[str]) -> int:
    options = _options(argv)
    begin = time.perf_counter()
    try:
        sets = _sets(options)
        versions = {} if options.no_peers else _peers()
        detectors = [name for name, known in DETECTORS.items() if known.package in (None, *versions)]
        parts = [_part(data, detectors, versions, options.processes) for data in sets]
    except BenchmarkError as error:
        print(f"scorecard: {error}", file=sys.stderr)
        return 2
    text = "\n".join([_head(options, versions, time.perf_counter() - begin), *parts])
    print(text)
    if options.write:
        PAGE.write_text(text + "\n", encoding="utf-8")
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench scorecard", description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument(
        "--runs", type=Path, action="append", default=[], metavar="FOLDER", help="fresh runs of the lab"
    )
    parser.add_argument("--tuned", type=Path, action="append", default=[], metavar="FOLDER", help="runs of the tuning")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="public logs: false alarms only")
    parser.add_argument("--quick", action="store_true", help="few generated runs, short ones")
    parser.add_argument("--no-peers", action="store_true", help="ours and the z-score only, nothing to install")
    parser.add_argument("--processes", type=int, default=2, help="detectors that run at the same time (2)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(FOLDER.parent)}")
    return parser.parse_args(argv)


def _sets(options: argparse.Namespace) -> list[DataSet]:
    size = cases.QUICK if options.quick else cases.FULL
    sets = [DataSet(title=f"Lab runs: {path.name}", note=FRESH, runs=cases.lab(path)) for path in options.runs]
    sets += [DataSet(title=f"Lab runs: {path.name}", note=TUNED, runs=cases.lab(path)) for path in options.tuned]
    if options.logs:
        sets.append(DataSet(title="Public logs", note=LOGS, runs=cases.public(options.logs)))
    noise = f"AR(1) noise with phi {', '.join(map(str, size.phis))}, {' and '.join(size.tails)}"
    note = f"{GENERATED} Healthy runs have {size.steps:,} steps, {noise}; failures start at {cases.ONSETS}."
    return [*sets, DataSet(title="Generated runs", note=note, runs=cases.generated(size))]


def _peers() -> dict[str, str]:
    try:
        return workers.peers()
    except BenchmarkError as error:
        print(f"scorecard: without peers: {error}", file=sys.stderr)
        return {}


def _part(data: DataSet, detectors: Sequence[str], versions: dict[str, str], processes: int) -> str:
    lines = [f"## {data.title}", "", f"{report.describe(data.runs)}. {data.note}", ""]
    for view, plain in VIEWS.items():
        print(f"{data.title}, {view}", file=sys.stderr)
        answers = workers.ask(detectors, data.runs, plain=plain, processes=processes)
        ours = [report.ours(data.runs, answers["ours"]), report.rivals(data.runs, answers, versions)]
        lines += [f"**{view.capitalize()}**", "```", report.card(data.runs, answers, versions), "```"]
        lines += ["Ours:", "```", *filter(None, ours), "```", ""]
    return "\n".join(lines)


def _head(options: argparse.Namespace, versions: dict[str, str], seconds: float) -> str:
    given = [f"--runs {path.name}" for path in options.runs] + [f"--tuned {path.name}" for path in options.tuned]
    given += [f"--logs {options.logs.name}"] if options.logs else []
    return (
        (FOLDER / "scorecard" / "heading.md")
        .read_text(encoding="utf-8")
        .format(
            command=" ".join(["./dev bench scorecard", *given, *(["--quick"] if options.quick else [])]),
            minutes=seconds / 60,
            commit=_commit(),
            rules=load_rules().version,
            python=platform.python_version(),
            machine=platform.machine(),
            peers=", ".join(f"{package} {version}" for package, version in versions.items()) or "none",
            limits=", ".join(sorted({f"{known.package} {known.limit}" for known in DETECTORS.values() if known.limit})),
        )
    )


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=FOLDER.parent, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


FRESH = "Labels: benchmarks/labels.py, by code. Seeds that no rule was tuned on."
TUNED = (
    "Labels: benchmarks/labels.py, by code. **The rules were tuned on these runs**: nothing here is held out. Many "
    "share their first steps with another, so the failures are fewer than they look."
)
LOGS = (
    "Other people's runs, none of which is known to have failed: only false alarms can be counted. Rows are logged "
    "points, often 5 or 10 steps apart; one that repeats the numbers of the row before is left out."
)
GENERATED = (
    "benchmarks/detectors/traces.py, seeds from 500,001 (healthy) and 900,000 (failures) on, none of them the gates'. "
    "The onset is where the failure was put; how soon accuracy, KL and gradient norm follow is an assumption."
)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
