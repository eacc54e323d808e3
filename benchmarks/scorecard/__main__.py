"""Scorecard: our detectors beside rlwatch, rlprobe, rldoctor, a z-score, PageHinkley and ADWIN, on the same runs.

    ./dev bench scorecard --runs FOLDER --logs FOLDER --write     docs/scorecard.md and its figure
    ./dev bench scorecard --quick                                 generated runs only, few of them

--runs: recorded runs of the lab, as run folders (anywhere below FOLDER) or one CSV per run; may be given more than
once. --tuned: the same, for runs that the rules were tuned on; the page says so. --logs: public logs. Generated runs
are always there. Peers are installed once into benchmarks/.venv-detectors; without an index that pip can reach the card
has ours and the z-score.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks._environment import FOLDER
from benchmarks._runs import BenchmarkError
from benchmarks.scorecard import cases, generated, page, workers
from benchmarks.scorecard.targets import DataSet
from benchmarks.scorecard.watchers import DETECTORS

PAGE = FOLDER.parent / "docs" / "scorecard.md"


def main(argv: Sequence[str]) -> int:
    options = _options(argv)
    begin = time.perf_counter()
    try:
        sets = _sets(options)
        versions = {} if options.no_peers else _peers()
        detectors = [name for name, known in DETECTORS.items() if known.package in (None, *versions)]
        answers = [page.ask(data, detectors, options.processes) for data in sets]
        lengths = page.ask_lengths(detectors, options.processes, quick=options.quick)
    except BenchmarkError as error:
        print(f"scorecard: {error}", file=sys.stderr)
        return 2
    minutes = (time.perf_counter() - begin) / 60
    text = page.page(_command(options), minutes, sets, answers, lengths, versions)
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
        PAGE.with_suffix(".svg").write_text(page.picture(sets, answers, versions), encoding="utf-8")
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
    sets = [
        DataSet(title=f"Fresh lab runs: {path.name}", kind="fresh", note=page.FRESH, runs=cases.lab(path))
        for path in options.runs
    ]
    sets += [
        DataSet(title=f"Tuned lab runs: {path.name}", kind="tuned", note=page.TUNED, runs=cases.lab(path))
        for path in options.tuned
    ]
    if options.logs:
        sets.append(DataSet(title="Public logs", kind="public", note=page.LOGS, runs=cases.public(options.logs)))
    size = generated.QUICK if options.quick else generated.FULL
    note = page.GENERATED.format(
        steps=f"{size.steps:,}",
        phis=", ".join(map(str, size.phis)),
        tails=" and ".join(size.tails),
        onsets=", ".join(map(str, generated.ONSETS)),
    )
    return [*sets, DataSet(title="Generated runs", kind="generated", note=note, runs=generated.generated(size))]


def _peers() -> dict[str, str]:
    try:
        return workers.peers()
    except BenchmarkError as error:
        print(f"scorecard: without peers: {error}", file=sys.stderr)
        return {}


def _command(options: argparse.Namespace) -> str:
    given = [f"--runs {path.name}" for path in options.runs] + [f"--tuned {path.name}" for path in options.tuned]
    given += [f"--logs {options.logs.name}"] if options.logs else []
    return " ".join(["./dev bench scorecard", *given, *(["--quick"] if options.quick else []), "--write"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
