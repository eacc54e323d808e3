"""The training loop. `Trainer.run()` goes from step to step; `Trainer._step` reads from top to bottom and is all there
is to one.

    boundary -> rollouts, verdicts -> old, frozen -> advantages -> stale queue -> passes x updates, measured ->
    record -> step line -> checkpoint

A non-finite loss or gradient is recorded, its update is left out, and the run goes on: the numbers are the signal. A
step without a usable group makes no update and is recorded as `dead_step`. `update.py` has the updates.
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
from regimescope.trainer.buffer import Experience, StaleQueue, experience_of, infer_of
from regimescope.trainer.checkpoint import CheckpointFolder, CheckpointMeta
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.evaluate import judge_answers
from regimescope.trainer.loss.mismatch import mismatch_metrics
from regimescope.trainer.policy import Policy
from regimescope.trainer.responses import Metric
from regimescope.trainer.rollout import SamplingSpec, make_engine
from regimescope.trainer.run_tasks import EVALUATION_SEED, RunTasks
from regimescope.trainer.sampling import Evaluated, Judged, dynamic_sampling, evaluate, sample
from regimescope.trainer.step_metrics import length_counts, penalty_metrics, rollout_metrics, update_metrics
from regimescope.trainer.stopwatch import Stopwatch
from regimescope.trainer.update import Updater, UpdateTotals

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
        reference: Policy | None = None,
        first_step: int = 0,
        weight_version: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """`state`: that of a checkpoint whose weights `policy` has; then the run goes on exactly. `interrupted`: set by
        a signal. `reference`: of the KL penalty."""
        self.config = config
        self.policy = policy
        self.first_step = first_step
        self.dead_steps = 0
        "Steps in a row without a usable group."
        self._recorder = recorder
        self._checkpoints = checkpoints
        self._interrupted = interrupted
        self._finished_step = first_step - 1
        self._saved: Path | None = None
        self._saved_step = -1
        self._weight_version = weight_version
        self._engine = make_engine("transformers", policy, weight_version=weight_version)
        self._verifier = Verifier()
        self._failed_before: dict[str, int] = {}
        self._problems, self._held_out = tasks.training, tasks.held_out
        self._reference = reference
        self._queue = StaleQueue(config.rollout.stale)
        self._updater = Updater(config, policy, recorder, self._problems.envs)
        self._record_seconds = 0.0  # of the last step line, which cannot hold its own
        if state is not None:
            self._restore(state)

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
            old = evaluate(self.policy, judged, config.rollout.temperature)  # before any update
            ref = None
            if self._reference is not None:
                ref = evaluate(self._reference, judged, config.rollout.temperature)

        groups = self._advantages(judged)
        fresh = experience_of(judged, groups, old, ref, chosen)
        experience = self._queue.push(fresh)

        totals = None
        if experience is not None and len(experience):
            lag = self._weight_version - experience.weight_version
            totals = self._updater.train(experience, step, objective, revision=revision, lag=lag, clock=clock)
            self._weight_version += totals.skipped < len(totals.grad_norms)
            self._engine.sync(self.policy.model.named_parameters(), self._weight_version)
        self.dead_steps = self.dead_steps + 1 if experience is not None and totals is None else 0

        metrics = self._rollout_metrics(judged, groups, old)
        metrics |= mismatch_metrics(torch.cat(old.logps), torch.cat([infer_of(r) for r in judged.responses]))
        if config.rollout.resample:
            metrics["sampled_prompts"] = float(len(judged.rewards))
        if totals is not None:
            metrics |= update_metrics(totals)
            metrics |= penalty_metrics(totals, kl=objective.kl is not None, mismatch=objective.mismatch is not None)
        if config.evaluation.every and step % config.evaluation.every == 0:
            metrics |= self._evaluate(step)
        with clock("record"):
            self._record(step, judged, groups, old, totals)

        metrics |= {
            "lr": config.update.lr,
            "updates": float(len(totals.grad_norms) - totals.skipped if totals is not None else 0),
        }
        metrics |= {f"{part}_seconds": clock.seconds.get(part, 0.0) for part in ("rollout", "update", "stats")}
        metrics["record_seconds"] = clock.seconds.get("record", 0.0) + self._record_seconds
        metrics["step_seconds"] = max(time.perf_counter() - start, config.pace)
        line_start = time.perf_counter()
        self._recorder.step(step, metrics)
        self._record_seconds = time.perf_counter() - line_start

        self._finished_step = step
        if self._checkpoint_due(step):
            self.save_checkpoint(boundary)
        self._interrupted.wait(max(0.0, start + config.pace - time.perf_counter()))
        return StepReport(step=step, metrics=metrics)

    # -------------------------------------------------------------------------------------------------- the others
    def _sample(self, step: int, turn: int) -> Judged:
        """The responses of one round of this step, judged."""
        own, seed = self.config.rollout, self.config.seed * SEED_STRIDE + step + turn * ROUND_STRIDE
        problems = self._problems.take(own.prompts)
        spec = SamplingSpec(n=own.group, temperature=own.temperature, max_tokens=own.max_tokens, seed=seed)
        return sample(self.policy, self._engine, self._verifier, problems, spec, overlong=own.overlong)

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

    def _rollout_metrics(self, judged: Judged, groups: GroupAdvantages, old: Evaluated) -> dict[str, Metric]:
        own = self.config.record
        return rollout_metrics(judged, groups, old.entropy, short_tokens=own.short_tokens, sure_run=own.sure_run)

    def _record(
        self, step: int, judged: Judged, groups: GroupAdvantages, old: Evaluated, totals: UpdateTotals | None
    ) -> None:
        """Everything but the step line: histograms, and the numbers of every task."""
        envs = self._problems.envs if len(self._problems.envs) > 1 else ()
        for env in envs:
            of = [i for i in range(len(judged.rewards)) if judged.responses[i * judged.group].env == env]
            if of:
                rows = [i * judged.group + j for i in of for j in range(judged.group)]
                part = GroupAdvantages(advantages=groups.advantages[of], usable=groups.usable[of])
                seen = Evaluated(logps=[old.logps[i] for i in rows], entropy=old.entropy[rows])
                own = judged.of_groups(of)
                self._recorder.step(step, self._rollout_metrics(own, part, seen), slice=("env", env))
                self._recorder.hist(step, "response_length", length_counts(own.responses), "len1", slice=("env", env))
        if totals is not None and totals.stats is not None:
            self._recorder.ratio_hist(step, totals.stats)
            for name, stats in totals.slices.items():
                self._recorder.ratio_hist(step, stats, slice=name)
        self._recorder.hist(step, "response_length", length_counts(judged.responses), "len1")
        if self.dead_steps:
            self._recorder.event("dead_step", {"in_a_row": self.dead_steps}, step=step)
        failed = {**self._verifier.failures, "timeout": self._verifier.timeouts}
        new = {kind: n - self._failed_before.get(kind, 0) for kind, n in failed.items()}
        if any(new.values()):  # those responses count in infra_failed_frac
            self._recorder.event("verifier_failed", {kind: n for kind, n in new.items() if n}, step=step)
        self._failed_before = failed

    def _evaluate(self, step: int) -> dict[str, Metric]:
        """`eval.accuracy`: share of held-out problems answered correctly by one sample each; per task on its slice."""
        self._recorder.state("evaluating", step=step)
        own = self.config.rollout
        spec = SamplingSpec(n=1, temperature=own.temperature, max_tokens=own.max_tokens, seed=EVALUATION_SEED)
        correct = judge_answers(self._engine, self.policy, self._held_out, spec, self._verifier)
        envs = [problem.env for problem in self._held_out]
        if len(self._problems.envs) > 1:
            for env in dict.fromkeys(envs):  # in a fixed order: the same seed writes the same lines
                own_ones = [right for right, of in zip(correct, envs, strict=True) if of == env]
                self._recorder.scalars(step, {"eval.accuracy": _share(own_ones)}, slice=("env", env))
        self._recorder.state("running", step=step)
        return {"eval.accuracy": _share(correct)}

    def close(self) -> None:
        """End the processes that the run started."""
        self._verifier.close()
        self._engine.close()

    def _checkpoint_due(self, step: int) -> bool:
        every = self.config.checkpoint.every
        return step + 1 == self.config.steps or (every > 0 and (step + 1) % every == 0)

    def save_checkpoint(self, boundary: ControlBoundary, *, asked_for: bool = False) -> Path | None:
        """Save the last finished step; None when there is none. Raises CheckpointError."""
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
        self._recorder.event("checkpoint", {"path": str(relative), "asked_for": asked_for}, step=meta.step)
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
