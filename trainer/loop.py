"""The training loop. `Trainer.run()` goes from step to step; `Trainer._step` reads from top to bottom and is all there
is to one.

    boundary -> rollouts, verdicts -> old, frozen -> advantages -> stale queue -> passes x updates, measured ->
    record -> step line -> checkpoint

A non-finite loss or gradient is recorded, its update is left out, and the run goes on: the numbers are the signal. A
step without a usable group makes no update and is recorded as `dead_step`. `update.py` has the updates.

With several ranks each samples and evaluates its share of the problems; then all know all rollouts, so advantages,
queue, order of the batches and checkpoint are those of one rank. Each records its share.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regimescope.monitor.record import Recorder
from regimescope.trainer.advantages import GroupAdvantages, group_advantages
from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.boundary import ControlBoundary
from regimescope.trainer.buffer import Experience, StaleQueue, experience_of
from regimescope.trainer.checkpoint import CheckpointFolder, CheckpointMeta
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.errors import RanksError, RankZeroError
from regimescope.trainer.evaluate import judge_answers
from regimescope.trainer.policy import Policy
from regimescope.trainer.ranks import Ranks, weights_checksum
from regimescope.trainer.responses import Metric
from regimescope.trainer.rollout import SamplingSpec, make_engine
from regimescope.trainer.rollout_record import RolloutRecord, Sampled
from regimescope.trainer.run_tasks import EVALUATION_SEED, RunTasks
from regimescope.trainer.sampling import (
    Judged,
    dynamic_sampling,
    evaluate,
    evaluated_by_all,
    joined,
    sample,
)
from regimescope.trainer.step_metrics import combined, of_rank, penalty_metrics, update_metrics
from regimescope.trainer.step_record import StepRecord
from regimescope.trainer.stopwatch import Stopwatch
from regimescope.trainer.update import Updater

SEED_STRIDE = 1_000_003
"Sampling seed of a step: seed x this + step, so a resumed step samples what it would have sampled."
ROUND_STRIDE = 1_000_000_007
"Added to it for each further round of dynamic sampling."


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What the progress bar shows."""

    step: int
    metrics: Mapping[str, Metric]


class Trainer:
    """One run: policy, optimiser, random states and waiting rollouts, between a recorder and a control boundary."""

    def __init__(
        self,
        config: TrainConfig,
        policy: Policy,
        tasks: RunTasks,
        recorder: Recorder,
        checkpoints: CheckpointFolder,
        *,
        interrupted: threading.Event,
        ranks: Ranks | None = None,
        reference: Policy | None = None,
        first_step: int = 0,
        weight_version: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """`state`: that of a checkpoint whose weights `policy` has; then the run goes on exactly. `interrupted`: set by
        a signal. `ranks`: None = this process alone. `reference`: of the KL penalty."""
        self.config = config
        self.policy = policy
        self.first_step = first_step
        self.dead_steps = 0
        "Steps in a row without a usable group."
        self._recorder = recorder
        self._checkpoints = checkpoints
        self._interrupted = interrupted
        self._ranks = ranks or Ranks()
        self._finished_step = first_step - 1
        self._saved: Path | None = None
        self._saved_step = -1
        self._weight_version = weight_version
        self._engine = make_engine("transformers", policy, weight_version=weight_version)
        self._verifier = Verifier()
        self._problems, self._held_out = tasks.training, tasks.held_out
        self._reference = reference
        self._queue = StaleQueue(config.rollout.stale)
        self._updater = Updater(config, policy, recorder, self._problems.envs, self._ranks)
        self._record = StepRecord(config.record, recorder, self._verifier, self._problems.envs, self._ranks)
        self._record_seconds = 0.0  # of the last step line, which cannot hold its own
        if state is not None:
            self._restore(state)
        self._rollouts = RolloutRecord(
            policy,
            recorder,
            limit=config.record.rollouts_limit,
            rank=self._ranks.rank,
            stale=config.rollout.stale,
            waiting=len(self._queue),
        )

    # ---------------------------------------------------------------------------------------------------- the loop
    def run(self, boundary: ControlBoundary) -> Iterator[StepReport]:
        """Train up to `config.steps`, one report per step. Ends early at the boundary, or after `max_dead_steps`."""
        limit = self.config.update.max_dead_steps
        for step in range(self.first_step, self.config.steps):
            if not boundary.visit(step):
                return
            yield self._step(step, boundary)
            if limit is not None and self.dead_steps >= limit:
                return

    def _step(self, step: int, boundary: ControlBoundary) -> StepReport:
        config, clock, start = self.config, Stopwatch(), time.perf_counter()
        objective, revision = config.build_objective(boundary.bounds), boundary.revision

        with clock("rollout"):
            judged, chosen = dynamic_sampling(lambda turn: self._sample(step, turn), rounds=config.rollout.resample)
            mine = self._ranks.share(len(judged.rewards))
            own = judged if self._ranks.size == 1 else judged.of_groups(mine)
            seen = evaluate(self.policy, own, config.rollout.temperature)  # before any update
            old, ref = evaluated_by_all(self._ranks, seen), None
            if self._reference is not None:
                ref = evaluated_by_all(self._ranks, evaluate(self._reference, own, config.rollout.temperature))

        groups = self._advantages(judged)
        fresh = experience_of(judged, groups, old, ref, chosen)
        experience = self._queue.push(fresh)
        sampled = Sampled(judged=judged, groups=groups, old=old, entropies=seen.entropies, mine=mine, revision=revision)
        tap = self._rollouts.push(step, sampled, experience)

        totals = None
        if experience is not None and len(experience):
            lag = self._weight_version - experience.weight_version
            totals = self._updater.train(experience, step, objective, revision=revision, lag=lag, clock=clock, tap=tap)
            self._weight_version += totals.skipped < len(totals.grad_norms)
            self._engine.sync(self.policy.model.named_parameters(), self._weight_version)
        self.dead_steps = self.dead_steps + 1 if experience is not None and totals is None else 0

        metrics = self._record.metrics(sampled)
        if config.rollout.resample:
            metrics["sampled_prompts"] = float(len(mine))
        if totals is not None:
            metrics |= update_metrics(totals)
            metrics |= penalty_metrics(totals, kl=objective.kl is not None, mismatch=objective.mismatch is not None)
        if config.evaluation.every and step % config.evaluation.every == 0:
            metrics |= self._evaluate(step)
        with clock("record"):
            self._record.write(step, sampled, totals, self.dead_steps)
            if tap is not None:
                self._recorder.rollouts(step, tap.rows(None if totals is None else totals.lag))

        metrics |= {
            "lr": config.update.lr,
            "updates": float(len(totals.grad_norms) - totals.skipped if totals is not None else 0),
        }
        metrics |= {f"{part}_seconds": clock.seconds.get(part, 0.0) for part in ("rollout", "update", "stats")}
        metrics["record_seconds"] = clock.seconds.get("record", 0.0) + self._record_seconds
        metrics["step_seconds"] = max(time.perf_counter() - start, config.pace)
        line_start = time.perf_counter()
        self._recorder.step(step, of_rank(metrics, self._ranks.rank))
        self._record_seconds = time.perf_counter() - line_start
        metrics = self._agree(step, metrics)

        self._finished_step = step
        if self._checkpoint_due(step):
            self._ranks.agreed(lambda: self.save_checkpoint(boundary))
        self._interrupted.wait(max(0.0, start + config.pace - time.perf_counter()))
        return StepReport(step=step, metrics=metrics)

    # -------------------------------------------------------------------------------------------------- the others
    def _sample(self, step: int, turn: int) -> Judged:
        """The responses of one round of this step, judged: each rank's share of the problems, then all of them."""
        own, seed = self.config.rollout, self.config.seed * SEED_STRIDE + step + turn * ROUND_STRIDE
        problems = self._problems.take(own.prompts)
        mine = self._ranks.share(len(problems))
        spec = SamplingSpec(
            n=own.group, temperature=own.temperature, max_tokens=own.max_tokens, seed=seed, first=mine.start
        )
        asked = problems[mine.start : mine.stop]
        judged = sample(self.policy, self._engine, self._verifier, asked, spec, overlong=own.overlong)
        return joined(self._ranks.gather(judged))

    def _advantages(self, judged: Judged) -> GroupAdvantages:
        own = self.config.advantage
        return group_advantages(
            judged.rewards,
            std=own.std,
            ddof=own.ddof,
            eps=own.eps,
            singleton="raw" if own.singleton == "raw" else "drop",
            equal_groups="keep" if own.equal_groups == "keep" else "drop",
        )

    def _evaluate(self, step: int) -> dict[str, Metric]:
        """`eval.accuracy`: share of held-out problems answered correctly by one sample each; per task on its slice.

        A rank has the numbers of its share of the problems.
        """
        self._recorder.state("evaluating", step=step)
        own = self.config.rollout
        mine = self._ranks.share(len(self._held_out))
        asked = self._held_out[mine.start : mine.stop]
        spec = SamplingSpec(
            n=1, temperature=own.temperature, max_tokens=own.max_tokens, seed=EVALUATION_SEED, first=mine.start
        )
        correct = judge_answers(self._engine, self.policy, asked, spec, self._verifier) if asked else []
        envs = [problem.env for problem in asked]
        if len(self._problems.envs) > 1:
            for env in dict.fromkeys(envs):  # in a fixed order: the same seed writes the same lines
                own_ones = [right for right, of in zip(correct, envs, strict=True) if of == env]
                self._recorder.scalars(step, {"eval.accuracy": _share(own_ones)}, slice=("env", env))
        self._recorder.state("running", step=step)
        return {"eval.accuracy": _share(correct)} if asked else {}

    def _agree(self, step: int, metrics: dict[str, Metric]) -> dict[str, Metric]:
        """The means of all ranks, for the progress bar. Raises RanksError where the weights are no longer the same."""
        if self._ranks.size == 1:
            return metrics
        found = self._ranks.gather((weights_checksum(self._updater.parameters), of_rank(metrics, self._ranks.rank)))
        if len({checksum for checksum, _ in found}) > 1:
            self._recorder.event("ranks_differ", {"ranks": self._ranks.size}, step=step)
            raise (RanksError if self._ranks.rank == 0 else RankZeroError)(
                f"the ranks have different weights after step {step}: see whether the machines compute alike, "
                "and resume from the checkpoint before"
            )
        return combined([shown for _, shown in found])

    def close(self) -> None:
        """End the processes that the run started."""
        self._verifier.close()
        self._engine.close()

    def _checkpoint_due(self, step: int) -> bool:
        every = self.config.checkpoint.every
        return step + 1 == self.config.steps or (every > 0 and (step + 1) % every == 0)

    def save_checkpoint(self, boundary: ControlBoundary, *, asked_for: bool = False) -> Path | None:
        """Save the last finished step; None when there is none. Raises CheckpointError. For rank 0 alone."""
        if self._finished_step < 0:
            return None
        if self._saved is not None and self._finished_step == self._saved_step and not asked_for:
            return self._saved
        meta = CheckpointMeta(
            step=self._finished_step,
            revision=boundary.revision,
            bounds=boundary.bounds,
            weight_version=self._weight_version,
        )
        self._recorder.state("checkpointing", step=meta.step)
        folder = self._checkpoints.save(self.policy, meta, self._state(), asked_for=asked_for)
        relative = folder.relative_to(self._recorder.run_dir)
        told: dict[str, object] = {"path": str(relative), "asked_for": asked_for}
        if self._checkpoints.deleted:  # so that nobody is told to go back to one that is gone
            told["deleted"] = self._checkpoints.deleted
        self._recorder.event("checkpoint", told, step=meta.step)
        self._saved, self._saved_step = folder, meta.step
        self._recorder.state("running", step=meta.step)
        return folder

    def _state(self) -> dict[str, Any]:
        """Everything besides the weights that the next step depends on. The engine has no state: each call is
        seeded."""
        return {
            "optimizer": self._updater.optimizer.state_dict(),
            "problems": self._problems.state(),
            "order": self._updater.order.get_state(),
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "waiting": [experience.to_state() for experience in self._queue],
            "dead_steps": self.dead_steps,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._updater.optimizer.load_state_dict(state["optimizer"])
        for group in self._updater.optimizer.param_groups:
            group["lr"] = self.config.update.lr  # it may have been changed for the resumed run
        self._problems.restore(state["problems"])
        self._updater.order.set_state(state["order"])
        torch.set_rng_state(state["torch"])
        random.setstate(state["python"])
        waiting = [Experience.from_state(entry) for entry in state["waiting"]]
        self._queue = StaleQueue(self.config.rollout.stale, waiting)
        self.dead_steps = state["dead_steps"]


def _share(flags: Sequence[bool]) -> tuple[float, float]:
    return sum(flags) / len(flags), float(len(flags))
