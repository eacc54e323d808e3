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
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from tqdm import tqdm

from regimescope import __version__
from regimescope.monitor.control import ControlFolder
from regimescope.monitor.ids import uuid7
from regimescope.monitor.record import Recorder
from regimescope.trainer.boundary import CAN, ControlBoundary
from regimescope.trainer.checkpoint import CheckpointFolder
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.config_file import load_config, scenario_names
from regimescope.trainer.errors import ConfigError, RankZeroError
from regimescope.trainer.loop import StepReport, Trainer
from regimescope.trainer.loss.published import published_names
from regimescope.trainer.loss.statistics import EQ_TOL
from regimescope.trainer.policy import Policy, load_policy
from regimescope.trainer.ranks import Ranks, only_rank_0_talks
from regimescope.trainer.resume import StartPoint, agreed_start, fresh_start, has_run, resumed_start, store_config
from regimescope.trainer.run_tasks import RunTasks, open_run_tasks

PLAIN_LINES = 20
"Progress lines of a whole run where there is no terminal."


def main(argv: list[str]) -> int:
    """Run the trainer; returns the exit code. Raises RegimescopeError for a user's mistake."""
    with only_rank_0_talks():
        args = _parser().parse_args(argv)
        try:
            with Ranks.open() as ranks, ExitStack() as held:
                run_dir, point = agreed_start(ranks, lambda: _start(args, held))
                return _train(run_dir, point, ranks)
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
    return root / f"{_run_name(config)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def _run_name(config: TrainConfig) -> str:
    return f"{config.name or config.objective}-s{config.seed}"


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


def _train(run_dir: Path, point: StartPoint, ranks: Ranks) -> int:
    config = point.config
    torch.set_num_threads(config.threads)
    policy, reference, tasks = ranks.together(lambda: _load(point))
    ranks.agreed(lambda: store_config(run_dir, config))
    limits = config.accepted_limits()
    record = config.record
    effect = (record.effect_every, record.effect_seed) if record.statistics and record.effect_every else None
    launch = ranks.agreed(lambda: str(uuid7()))  # what a Recorder alone would choose
    recorder = ranks.together(
        lambda: Recorder(
            run_dir,
            name=_run_name(config),
            objective=config.objective,
            framework=f"regimescope {__version__}",
            ratio_source="behaviour",
            eq_tol=EQ_TOL,
            rule=config.build_objective(point.bounds).rule,
            limits=limits,
            revision=point.revision,
            start=point.start,
            first_step=point.first_step,
            effect=effect,
            can=(*CAN, "entropy_effect") if effect else CAN,
            config=config.to_dict(),
            launch=launch,
            rank=ranks.rank,
            ranks=ranks.size,
            rollouts=config.record.rollouts(),
            sync=config.record.sync,
        )
    )
    signals = _Signals()
    with recorder, signals:
        checkpoints = CheckpointFolder(run_dir, keep=config.checkpoint.keep)
        trainer = ranks.together(
            lambda: Trainer(
                config,
                policy,
                tasks,
                recorder,
                checkpoints,
                interrupted=signals.interrupted,
                ranks=ranks,
                reference=reference,
                first_step=point.first_step,
                weight_version=point.weight_version,
                state=None if point.checkpoint is None else point.checkpoint.state,
            )
        )
        boundary = ControlBoundary(
            ranks.together(lambda: ControlFolder(run_dir, launch=recorder.launch, can=CAN, limits=limits)),
            recorder,
            bounds=point.bounds,
            revision=point.revision,
            interrupted=signals.interrupted,
            checkpoint=lambda: trainer.save_checkpoint(boundary, asked_for=True),
            ranks=ranks,
        )
        _announce(run_dir, point, policy.parameter_count)
        for env in tasks.training.shared:
            _say(f"{env} has too few problems for a held-out part: eval.accuracy asks those that are trained on")
        try:
            last = _follow(trainer, boundary, signals)
        finally:
            trainer.close()
        finished = last + 1 >= config.steps
        if not finished and not signals.at_once:  # at once: the weights may be those of half a step
            ranks.agreed(lambda: trainer.save_checkpoint(boundary))
        recorder.end("finished" if finished else "stopped")
    _farewell(run_dir, last, config.steps, trainer.dead_steps, recorder.dropped)
    return signals.exit_code if signals.at_once else max(ranks.gather(signals.exit_code))


def _load(point: StartPoint) -> tuple[Policy, Policy | None, RunTasks]:
    """(policy, reference of the KL penalty, problems)."""
    config = point.config
    policy = load_policy(point.model_source)
    reference = load_policy(config.model.path) if config.kl.coef > 0 else None
    return policy, reference, open_run_tasks(config, policy)


def _follow(trainer: Trainer, boundary: ControlBoundary, signals: _Signals) -> int:
    """Run to the end with progress on stderr; returns the last finished step."""
    config, last = trainer.config, trainer.first_step - 1
    every = max(1, config.steps // PLAIN_LINES)
    terminal = sys.stderr.isatty()
    with tqdm(
        total=config.steps, initial=trainer.first_step, unit="step", disable=not terminal, dynamic_ncols=True
    ) as bar:
        try:
            for report in trainer.run(boundary):
                last = report.step
                bar.set_postfix_str(_figures(report))
                bar.update()
                if not terminal and (last % every == 0 or last + 1 == config.steps):
                    _say(f"step {last} of {config.steps}: {_figures(report)}")
        except KeyboardInterrupt:
            _say("ended at once: the unfinished step is lost")
    return last


def _figures(report: StepReport) -> str:
    shown = {"accuracy": "accuracy", "length": "response_length_mean", "rep4": "rep4_mean", "entropy": "entropy_mean"}
    values = {label: report.metrics[name] for label, name in shown.items() if name in report.metrics}
    return ", ".join(
        f"{label} {value[0] if isinstance(value, tuple) else value:.3g}" for label, value in values.items()
    )


class _Signals:
    """Ctrl-C and SIGTERM set `interrupted`; a further Ctrl-C sets `at_once` and raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()
        self.at_once = False
        self.exit_code = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.interrupted.is_set() and number == signal.SIGINT:
            self.at_once = True
            raise KeyboardInterrupt
        self.exit_code = 128 + number
        self.interrupted.set()
        _say(
            "stopping after this step (Ctrl-C again: at once)"
            if number == signal.SIGINT
            else "stopping after this step"
        )


def _announce(run_dir: Path, point: StartPoint, parameters: int) -> None:
    config, bounds = point.config, point.bounds
    pos, neg = (f"[{side.w_min:g}, {side.w_max:g}]" for side in (bounds.pos, bounds.neg))
    begin = "" if point.first_step == 0 else f", going on at step {point.first_step}"
    print(f"{_run_name(config)}: {config.objective}, {parameters:,} parameters{begin}")
    print(f"  bounds A>0 {pos}, A<0 {neg}, revision {point.revision}")
    print(f"  run    {run_dir}")
    print(f"  watch  regimescope serve {shlex.quote(str(run_dir.parent))}")
    movable = config.accepted_limits()
    relaxed = "--neg-min 0" if movable.neg is not None else "--pos-max 2" if movable.pos is not None else None
    if relaxed is not None:
        print(f'  steer  regimescope bounds {shlex.quote(str(run_dir))} {relaxed} --why "..."')
    sys.stdout.flush()


def _farewell(run_dir: Path, last: int, steps: int, dead_steps: int, dropped: int) -> None:
    if dropped:
        _say(f"{dropped} records could not be written to {run_dir}: was the disk full?")
    if dead_steps:
        _say(f"the last {dead_steps} steps had no group with differing rewards: nothing is left to learn from")
    if last + 1 >= steps:
        print(f"finished: {steps} steps. `regimescope check {shlex.quote(str(run_dir))}` runs the detectors over it.")
    else:
        print(
            f"stopped after step {last}. Go on with: regimescope train --run-dir {shlex.quote(str(run_dir))} --resume"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
