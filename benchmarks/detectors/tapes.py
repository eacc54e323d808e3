"""Tapes: what the detectors were given in a run of our own trainer, small enough for a repository.

    ./dev bench detectors tapes ROOT RUN ... --into FOLDER      a tape of each run folder below ROOT

A tape is a JSON Lines file. First line: the names. Then a line per step: its number, a value per name (null = absent)
and its events. Names that no rule reads are left out, values have six digits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.detectors import run_folders
from benchmarks.detectors.run_folders import Step

from regimescope.detectors import Event, load_rules
from regimescope.detectors.blind import inputs
from regimescope.detectors.driver import KEYS


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench detectors tapes", description="What the detectors were given in runs of our own trainer."
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("runs", nargs="+", help="paths below the root")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--prefix", default="own_", help="of the files' names")
    options = parser.parse_args(argv)
    found = {run.path: run for run in run_folders.read_folders(options.root)}
    unknown = [name for name in options.runs if name not in found]
    if unknown:
        print(f"tapes: {options.root} has no run {', '.join(unknown)}", file=sys.stderr)
        return 2
    for name in options.runs:
        path = options.into / f"{options.prefix}{Path(name).name}.jsonl"
        write(path, found[name].steps)
        print(f"{path.name}: {len(found[name].steps)} steps, {path.stat().st_size / 1000:.0f} kB")
    return 0


def write(path: Path, steps: Sequence[Step]) -> None:
    """A tape of these steps."""
    names = sorted(_read_by_rules() & {name for step in steps for name in step.metrics})
    lines: list[Any] = [names]
    for step in steps:
        values = [_short(step.metrics[name]) if name in step.metrics else None for name in names]
        lines.append([step.step, values, [[e.kind, e.step, dict(e.data)] for e in step.events]])
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")


def read(path: Path) -> list[Step]:
    """The steps of a tape."""
    names, *lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return [
        Step(
            step=number,
            metrics={name: float(value) for name, value in zip(names, values, strict=True) if value is not None},
            parts={},
            events=[Event(kind=kind, step=at, data=data) for kind, at, data in events],
        )
        for number, values, events in lines
    ]


def _read_by_rules() -> set[str]:
    """Names that an enabled rule, the driver or the suite itself reads."""
    rules = load_rules()
    named = {name for rule in rules if rule.enabled for name in inputs(rule)}
    bounds = {f"{sign}.{side}" for sign in ("pos", "neg") for side in ("w_min", "w_max")}
    return named | {f"{name}.n" for name in named} | set(KEYS) | bounds | {"updates", "infra_failed_frac", "lag_mean"}


def _short(value: float) -> float:
    return float(f"{value:.6g}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
