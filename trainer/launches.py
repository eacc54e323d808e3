"""One process of a run, from where it begins to its end: `train(run_dir, point, ranks)`.

A rollback ends a launch and begins the next one: other segments, launch id and revision, with the weights, optimiser
and random states of the checkpoint. The control folder, the signals and the settings stay.
"""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from tqdm import tqdm

from regimescope import __version__
from regimescope.monitor.control import Ack, ControlFolder, ControlState
from regimescope.monitor.ids import uuid7
from regimescope.monitor.record import Recorder
from regimescope.trainer.boundary import CAN, Back, ControlBoundary, Wanted
from regimescope.trainer.checkpoint import CheckpointFolder
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.loop import StepReport, Trainer
from regimescope.trainer.loss.statistics import EQ_TOL
from regimescope.trainer.policy import Policy, load_policy
from regimescope.trainer.ranks import Ranks
from regimescope.trainer.resume import StartPoint, keep_rollback, rollback_start, store_config
from regimescope.trainer.run_tasks import RunTasks, open_run_tasks

PLAIN_LINES = 20
"Progress lines of a whole run where there is no terminal."


def train(run_dir: Path, point: StartPoint, ranks: Ranks) -> int:
    """Train to the end; returns the exit code. Raises RegimescopeError."""
    config = point.config
    torch.set_num_threads(config.threads)
    policy, reference, tasks = ranks.together(lambda: _load(point))
    ranks.agreed(lambda: store_config(run_dir, config))
    signals = _Signals()
    process = _Process(run_dir=run_dir, config=config, ranks=ranks, tasks=tasks, reference=reference, signals=signals)
    with signals:
        _announce(run_dir, point, policy.parameter_count)
        for env in tasks.training.shared:
            _say(f"{env} has too few problems for a held-out part: eval.accuracy asks those that are trained on")
        outcome = process.launch(point, policy, None)
        while outcome.back is not None:
            back = outcome.back
            _say(f"back to the checkpoint of step {back.point.first_step - 1}, revision {back.point.revision}")
            outcome = process.launch(back.point, back.policy, back)
    _farewell(run_dir, outcome.last, config.steps, outcome.dead_steps, outcome.dropped)
    return signals.exit_code if signals.at_once else max(ranks.gather(signals.exit_code))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """How a launch ended."""

    last: int
    "Last finished step."
    dead_steps: int
    dropped: int
    "Records that could not be written."
    back: Back | None
    "The launch after it."


class _Process:
    """What all launches of this process share."""

    def __init__(
        self,
        *,
        run_dir: Path,
        config: TrainConfig,
        ranks: Ranks,
        tasks: RunTasks,
        reference: Policy | None,
        signals: _Signals,
    ) -> None:
        self.run_dir, self.config, self.ranks = run_dir, config, ranks
        self.tasks, self.reference, self.signals = tasks, reference, signals
        self.checkpoints = CheckpointFolder(run_dir, keep=config.checkpoint.keep)
        self.folder: ControlFolder | None = None

    def launch(self, point: StartPoint, policy: Policy, after: Back | None) -> _Outcome:
        """From `point` to the end of the run or to a rollback. `after`: the rollback that made it."""
        ranks, signals = self.ranks, self.signals
        recorder = self._recorder(point)
        with recorder:
            folder = self._folder(recorder.launch)
            if after is not None:
                recorder.ack(_rolled_back(after))
            trainer = self._trainer(point, policy, recorder)
            boundary = ControlBoundary(
                folder,
                recorder,
                bounds=point.bounds,
                revision=point.revision,
                interrupted=signals.interrupted,
                checkpoint=lambda: trainer.save_checkpoint(boundary, asked_for=True),
                rollback=self._roll_back,
                ranks=ranks,
                after=after,
            )
            try:
                last = _follow(trainer, boundary, signals)
            finally:
                trainer.close()
            finished = last + 1 >= self.config.steps
            if not finished and not signals.at_once and boundary.back is None:  # at once: maybe weights of half a step
                ranks.agreed(lambda: trainer.save_checkpoint(boundary))
            recorder.end("rollback" if boundary.back is not None else "finished" if finished else "stopped")
        return _Outcome(last=last, dead_steps=trainer.dead_steps, dropped=recorder.dropped, back=boundary.back)

    def _recorder(self, point: StartPoint) -> Recorder:
        config, record, limits = self.config, self.config.record, self.config.accepted_limits()
        effect = (record.effect_every, record.effect_seed) if record.statistics and record.effect_every else None
        launch = self.ranks.agreed(lambda: str(uuid7()))  # what a Recorder alone would choose
        return self.ranks.together(
            lambda: Recorder(
                self.run_dir,
                name=run_name(config),
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
                rank=self.ranks.rank,
                ranks=self.ranks.size,
                rollouts=record.rollouts(),
                sync=record.sync,
            )
        )

    def _folder(self, launch: str) -> ControlFolder:
        """One for all launches: it knows which commands were answered."""
        if self.folder is None:
            limits = self.config.accepted_limits()
            self.folder = self.ranks.together(
                lambda: ControlFolder(self.run_dir, launch=launch, can=CAN, limits=limits)
            )
        self.folder.relaunch(launch)
        return self.folder

    def _trainer(self, point: StartPoint, policy: Policy, recorder: Recorder) -> Trainer:
        return self.ranks.together(
            lambda: Trainer(
                self.config,
                policy,
                self.tasks,
                recorder,
                self.checkpoints,
                interrupted=self.signals.interrupted,
                ranks=self.ranks,
                reference=self.reference,
                first_step=point.first_step,
                weight_version=point.weight_version,
                state=None if point.checkpoint is None else point.checkpoint.state,
            )
        )

    def _roll_back(self, wanted: Wanted, before: ControlState) -> tuple[StartPoint, Policy]:
        """Load the checkpoint on every rank, then write down that the run goes on from it. Raises CheckpointError,
        PolicyError, ControlError, RanksError; then nothing has changed."""

        def load() -> tuple[StartPoint, Policy]:
            point = rollback_start(
                self.run_dir,
                self.config,
                step=wanted.checkpoint,
                bounds=wanted.bounds,
                revision=before.revision + 1,
            )
            return point, load_policy(point.model_source)

        point, policy = self.ranks.together(load)
        self.ranks.agreed(lambda: keep_rollback(self.run_dir, point, before))
        return point, policy


def _rolled_back(after: Back) -> Ack:
    point = after.point
    return Ack(
        id=after.command,
        step=point.first_step,
        status="applied",
        revision=point.revision,
        applied=point.bounds,
        message=f"back to the checkpoint of step {point.first_step - 1}",
    )


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


def run_name(config: TrainConfig) -> str:
    """Shown to people, and the beginning of a new run folder's name."""
    return f"{config.name or config.objective}-s{config.seed}"


def _announce(run_dir: Path, point: StartPoint, parameters: int) -> None:
    config, bounds = point.config, point.bounds
    pos, neg = (f"[{side.w_min:g}, {side.w_max:g}]" for side in (bounds.pos, bounds.neg))
    begin = "" if point.first_step == 0 else f", going on at step {point.first_step}"
    print(f"{run_name(config)}: {config.objective}, {parameters:,} parameters{begin}")
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
