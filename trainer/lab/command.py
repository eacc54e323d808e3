"""`regimescope lab`: the regime study on the tiny policy, on one machine, resumable. docs/lab.md has our result.

    regimescope lab                                     quick: four arms, two conditions, three seeds
    regimescope lab --grid paper --out lab-paper        thirteen arms; the same command goes on after an interruption
    regimescope lab --grid rescue                       bounds relaxed after alerts, and rollbacks

Writes into OUT: `runs/` (run folders that the dashboard shows), `outcomes.md`, `outcomes.json`, `figures.html`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from regimescope.trainer.errors import ConfigError
from regimescope.trainer.lab.outcomes import outcome
from regimescope.trainer.lab.plan import GRIDS, planned
from regimescope.trainer.lab.report import write_study
from regimescope.trainer.lab.rescue import write_rescue
from regimescope.trainer.lab.runs import Runs, held


def main(argv: list[str]) -> int:
    """Carry out a grid and write its tables and figures. Raises RegimescopeError."""
    args = _parser().parse_args(argv)
    if min(args.seeds, args.jobs, 1 if args.steps is None else args.steps) < 1 or args.first_seed < 0:
        raise ConfigError("--seeds, --jobs and --steps must be 1 or greater, --first-seed 0 or greater")
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    out = args.out or Path(f"lab-{args.grid}")
    begin = time.monotonic()
    write = _rescue if args.grid == "rescue" else _study
    with held(out):
        page = write(args, seeds, out)
    print(page)
    _say(f"{(time.monotonic() - begin) / 60:.0f} minutes; written to {out}; regimescope serve {out / 'runs'}")
    return 0


def _study(args: argparse.Namespace, seeds: Sequence[int], out: Path) -> str:
    plan = planned(args.grid, seeds=seeds, arms=args.arms, conditions=args.conditions, steps=args.steps)
    done = Runs(out, _say).carry_out(plan, args.jobs)
    return write_study(out, args.grid, [outcome(one) for one in done])


def _rescue(args: argparse.Namespace, seeds: Sequence[int], out: Path) -> str:
    if args.arms or args.conditions or args.steps:
        raise ConfigError("--arms, --conditions and --steps are for the study; a rescue has recipes of its own")
    return write_rescue(out, seeds, args.jobs, _say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope lab",
        description="The regime study of DISPO (arXiv 2602.00983) on a policy of 0.1 M parameters, with its twins.",
        epilog="The same command goes on after any interruption. docs/lab.md says what such a small model shows.",
    )
    parser.add_argument("--grid", choices=[*GRIDS, "rescue"], default="quick", help="which runs (default: quick)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds of each (default 3)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="S", help="the first of them (default 0)")
    parser.add_argument("--arms", type=_names, default=[], metavar="A,B", help="only these, beside DISPO")
    parser.add_argument("--conditions", type=_names, default=[], metavar="A,B", help="only these")
    parser.add_argument("--steps", type=int, metavar="N", help="steps of each run (default: the grid's)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="runs at a time (all cores)")
    parser.add_argument("--out", type=Path, metavar="D", help="folder of the study (default: ./lab-GRID)")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
