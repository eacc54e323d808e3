"""`regimescope train`: the reference RLVR trainer on the command line. docs/trainer.md has the configuration,
scenarios, resume and pace.

    regimescope train --scenario length-collapse --pace 3
    regimescope train --run-dir runs/mine --resume

Exit codes: 0 finished or stopped by command, 2 a user's mistake, 130 Ctrl-C, 143 SIGTERM. Ctrl-C ends cleanly after the
step; twice, at once. Under torchrun it is one run of several ranks; rank 0 alone talks, holds the folder and answers
commands.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from regimescope.trainer.config import TrainConfig
from regimescope.trainer.config_file import load_config, scenario_names
from regimescope.trainer.errors import ConfigError, RankZeroError
from regimescope.trainer.launches import run_name, train
from regimescope.trainer.loss.published import published_names
from regimescope.trainer.ranks import Ranks, only_rank_0_talks
from regimescope.trainer.resume import StartPoint, agreed_start, fresh_start, has_run, resumed_start


def main(argv: list[str]) -> int:
    """Run the trainer; returns the exit code. Raises RegimescopeError for a user's mistake."""
    with only_rank_0_talks():
        args = _parser().parse_args(argv)
        try:
            with Ranks.open() as ranks, ExitStack() as held:
                run_dir, point = agreed_start(ranks, lambda: _start(args, held))
                return train(run_dir, point, ranks)
        except RankZeroError:  # rank 0 says why
            return 2


def _start(args: argparse.Namespace, held: ExitStack) -> tuple[Path, StartPoint]:
    """(run folder, held until `held` is closed, and where to begin). Raises RegimescopeError for a user's mistake."""
    settings = _settings(args)
    if args.resume:
        if args.run_dir is None:
            raise ConfigError("--resume needs --run-dir: the folder of the run to go on with")
        sources = args.config is not None or args.preset is not None or args.scenario is not None
        given = _config(args, settings) if sources else None
        held.enter_context(_only_trainer(args.run_dir))
        return args.run_dir, resumed_start(args.run_dir, given, settings, step=args.checkpoint)
    if args.checkpoint is not None:
        raise ConfigError("--checkpoint goes with --resume: the step whose checkpoint the run goes back to")
    config = _config(args, settings)
    point = fresh_start(config)
    run_dir = args.run_dir or _new_run_dir(config)
    if has_run(run_dir):
        raise ConfigError(f"{run_dir} already holds a run: choose another --run-dir, or go on with it by --resume")
    held.enter_context(_only_trainer(run_dir))
    return run_dir, point


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope train",
        description="Reference RLVR trainer: verifiable problems, any published objective, recorded and steered live.",
        epilog="Without arguments: DISPO on the tiny policy, 60 steps of about a second. docs/trainer.md has all keys.",
    )
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG.toml", help="configuration file")
    parser.add_argument("--preset", metavar="NAME", help=f"a published objective: {', '.join(published_names())}")
    parser.add_argument(
        "--scenario", metavar="|".join(scenario_names()), help="recipe of a run that goes well, or fails on purpose"
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="D",
        help="folder of the run (default: a new one below $REGIMESCOPE_ROOT, else ./runs)",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="steps in all")
    parser.add_argument("--seed", type=int, metavar="S", help="seed of problems, samples and batches")
    parser.add_argument("--pace", type=float, metavar="S", help="at least S seconds per step, to watch and to act")
    parser.add_argument(
        "--set", action="append", default=[], metavar="key=value", help="one key of the configuration; may be repeated"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the newest checkpoint of --run-dir, under the bounds acked last",
    )
    parser.add_argument(
        "--checkpoint", type=int, metavar="STEP", help="with --resume: go back to the checkpoint of this step"
    )
    return parser


def _settings(args: argparse.Namespace) -> list[str]:
    """The options that are keys of the configuration, as settings; they win over --set."""
    shortcuts = {"steps": args.steps, "seed": args.seed, "pace": args.pace}
    return [*args.set, *(f"{key}={value}" for key, value in shortcuts.items() if value is not None)]


def _config(args: argparse.Namespace, settings: list[str]) -> TrainConfig:
    return load_config(args.config, preset=args.preset, scenario=args.scenario, settings=settings)


def _new_run_dir(config: TrainConfig) -> Path:
    root = Path(os.environ.get("REGIMESCOPE_ROOT") or "runs")
    return root / f"{run_name(config)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


@contextmanager
def _only_trainer(run_dir: Path) -> Iterator[None]:
    """Hold the run folder; a second trainer there is a mistake."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = open(run_dir / "trainer.lock", "a")  # noqa: SIM115  (held for the whole run)
    except OSError as error:
        raise ConfigError(f"cannot write into {run_dir}: {error.strerror}; choose another --run-dir") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"another trainer is running in {run_dir}: wait for its end, or choose another --run-dir"
            ) from None
        yield
