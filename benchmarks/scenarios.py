"""Outcomes of the scenarios on several seeds, scans of a key, and rescues by relaxed bounds, all as real runs.

    ./dev bench scenarios                                                        # all recipes, seeds 0 1 2
    ./dev bench scenarios --scenario length-collapse --vary update.lr=3e-4,4e-4   # a scan
    ./dev bench scenarios --scenario repetition-collapse --rescue 6              # bounds of A<0 relaxed at step 6

A rescue issues a real command to the living run and compares the last ten steps with the healthy twin of the same seed:
the same recipe with the relaxed bounds from the start. The two recipes that decay are run beside the bounds that they
are about (DISPO's, online SFT's), same seed: the twin.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks._runs import (
    COMMAND,
    Alert,
    BenchmarkError,
    check,
    in_parallel,
    mean_of,
    segment_lines,
    start_training,
    step_rows,
    table,
    train,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a scenario is for."""

    critical: str | None = None
    "Signature that must become critical; None = its alerts are not judged."
    quiet: bool = False
    "No warning and no critical alert."
    twin: tuple[str, ...] = ()
    "Settings under which the same seed must do better and raise no warning; none = no twin."


EXPECTED = {
    "healthy": Expected(quiet=True),
    "length-collapse": Expected(critical="length_collapse"),
    "repetition-collapse": Expected(critical="repetition_collapse"),
    "cispo-decay": Expected(critical="accuracy_collapse", twin=("objective=dispo",)),
    "exploration-decay": Expected(twin=("bounds.pos=[1, 1]",)),
}
BETTER = 0.1
"By this much the twin's accuracy over the last ten steps must be higher."
HEAD = (
    "setting",
    "seed",
    "steps",
    "accuracy 0-4",
    "best 5",
    "last 5",
    "length",
    "rep-4",
    "entropy",
    "half at",
    "warnings",
    "critical",
)
GOOD_SHARE = 0.8
"A rescued run must come this near to its healthy twin."


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    scenario: str
    seed: int
    settings: tuple[str, ...]
    steps: int | None

    @property
    def label(self) -> str:
        return " ".join([self.scenario, *self.settings])

    @property
    def options(self) -> list[str]:
        steps = [] if self.steps is None else ["--steps", str(self.steps)]
        sets = itertools.chain.from_iterable(("--set", text) for text in self.settings)
        return ["--scenario", self.scenario, "--seed", str(self.seed), *steps, *sets]

    def twin(self) -> Case | None:
        """The same seed under the settings that it is compared with."""
        settings = EXPECTED[self.scenario].twin
        return replace(self, settings=(*self.settings, *settings)) if settings else None


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    work = _outcomes if args.rescue is None else _rescues
    if args.keep and args.keep.exists() and any(args.keep.iterdir()):
        print(f"bench: --keep {args.keep} is not empty: name a folder of its own", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        try:
            return work(args.keep or Path(folder), args)
        except BenchmarkError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev bench scenarios", description="Outcomes, scans and rescues of the scenarios."
    )
    parser.add_argument(
        "--scenario", action="append", choices=sorted(EXPECTED), help="one of them; may be repeated (default: all)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="S")
    parser.add_argument("--steps", type=int, help="steps (default: the recipe's)")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="of the trainer, in every run")
    parser.add_argument(
        "--vary", action="append", default=[], metavar="key=v1,v2", help="scan; two of them make a grid"
    )
    parser.add_argument("--rescue", type=int, metavar="K", help="relax the bounds of A<0 to [0, 101] at step K")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default 2)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the runs there; empty or new")
    return parser


def _cases(args: argparse.Namespace) -> list[Case]:
    axes = []
    for text in args.vary:
        key, _, values = text.partition("=")
        axes.append([f"{key}={value}" for value in values.split(",")])
    return [
        Case(scenario=scenario, seed=seed, settings=(*args.set, *point), steps=args.steps)
        for scenario in args.scenario or EXPECTED
        for point in itertools.product(*axes)
        for seed in args.seeds
    ]


def _outcomes(root: Path, args: argparse.Namespace) -> int:
    cases = _cases(args)
    twins = [case.twin() for case in cases]
    runs = [case for case in [*cases, *twins] if case is not None]
    folders = {case: root / f"{i:03d}-{case.scenario}-s{case.seed}" for i, case in enumerate(runs)}
    in_parallel([partial(train, folder, case.options) for case, folder in folders.items()], args.jobs)
    rows, bad = [], 0
    for case, twin in zip(cases, twins, strict=True):
        for one in (case, twin):
            if one is not None:
                rows.append(_outcome_row(one, step_rows(folders[one]), check(folders[one])))
        bad += not _as_expected(case, folders[case], None if twin is None else folders[twin])
    print(table(HEAD, rows))
    print(f"{len(cases) - bad} of {len(cases)} as expected")
    return 1 if bad else 0


def _as_expected(case: Case, folder: Path, twin: Path | None) -> bool:
    wanted = EXPECTED[case.scenario]
    found = {alert.signature: alert.severity for alert in check(folder) if alert.severity != "info"}
    critical = [signature for signature, severity in found.items() if severity == "critical"]
    good = (wanted.critical is None or wanted.critical in critical) and not (wanted.quiet and found)
    if twin is not None:
        own, other = (mean_of(step_rows(path)[-10:], "accuracy") for path in (folder, twin))
        good &= other - own >= BETTER and all(alert.severity == "info" for alert in check(twin))
    return good


def _outcome_row(case: Case, rows: list[dict[str, float]], alerts: Sequence[Alert]) -> list[str]:
    accuracy = [row["accuracy"] for row in rows]
    windows = [sum(accuracy[i : i + 5]) / 5 for i in range(max(1, len(accuracy) - 4))]
    named = {
        severity: ", ".join(
            f"{a.signature} {a.driver or ''}@{a.step_detected}" for a in alerts if a.severity == severity
        )
        or "-"
        for severity in ("warning", "critical")
    }
    return [
        case.label,
        str(case.seed),
        str(len(rows)),
        f"{windows[0]:.2f}",
        f"{max(windows):.2f}",
        f"{windows[-1]:.2f}",
        f"{mean_of(rows[:5], 'response_length_mean'):.0f} to {mean_of(rows[-5:], 'response_length_mean'):.0f}",
        f"{mean_of(rows[:5], 'rep4_mean'):.2f} to {mean_of(rows[-5:], 'rep4_mean'):.2f}",
        f"{mean_of(rows[:5], 'entropy_mean'):.2f} to {mean_of(rows[-5:], 'entropy_mean'):.2f}",
        _halved(accuracy),
        named["warning"],
        named["critical"],
    ]


def _halved(accuracy: Sequence[float]) -> str:
    """First step from which the 3-step mean of the accuracy stays below half of its best so far."""
    best, at = accuracy[0], -1
    for step in range(2, len(accuracy)):
        mean = sum(accuracy[step - 2 : step + 1]) / 3
        best = max(best, mean)
        if mean >= best / 2:
            at = -1
        elif at < 0:
            at = step
    return "-" if at < 0 else str(at)


def _rescues(root: Path, args: argparse.Namespace) -> int:
    cases = _cases(args)
    results = in_parallel(
        [partial(_rescue, root / f"rescue-{i:03d}", case, args.rescue) for i, case in enumerate(cases)], args.jobs
    )
    print(
        table(
            ("setting", "seed", "applied at", "accuracy, last 10", "healthy twin", "share", "rescued"),
            [row for row, _ in results],
        )
    )
    return 0 if all(good for _, good in results) else 1


def _rescue(root: Path, case: Case, at: int) -> tuple[list[str], bool]:
    run_dir, twin = root / "run", root / "twin"
    process = start_training(run_dir, case.options)
    _wait_for_step(
        run_dir, process, at - 2
    )  # then step at - 1 is under way, and the next boundary is that of step `at`
    reason = f"rescue at step {at}"
    steer = [*COMMAND, "bounds", str(run_dir), "--neg-min", "0", "--neg-max", "101", "--why", reason]
    answer = subprocess.run(steer, capture_output=True, text=True)
    if process.wait() != 0 or answer.returncode != 0:
        raise BenchmarkError(f"rescue of {case.label}, seed {case.seed}: {answer.stdout}{answer.stderr}")
    train(twin, [*case.options, "--set", "bounds.neg=[0, 101]"])
    applied = next(line["s"] for line in segment_lines(run_dir) if line["k"] == "ack" and line["status"] == "applied")
    accuracy, healthy = (mean_of(step_rows(folder)[-10:], "accuracy") for folder in (run_dir, twin))
    share = accuracy / healthy
    good = share > GOOD_SHARE
    row = [
        case.label,
        str(case.seed),
        str(applied),
        f"{accuracy:.2f}",
        f"{healthy:.2f}",
        f"{share:.2f}",
        "yes" if good else "no",
    ]
    return row, good


def _wait_for_step(run_dir: Path, process: subprocess.Popen[bytes], step: int) -> None:
    while step >= 0 and len(step_rows(run_dir)) <= step:
        if process.poll() is not None:
            raise BenchmarkError(f"the trainer ended before step {step}")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
