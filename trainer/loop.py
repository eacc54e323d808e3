"""The training loop. `Trainer.run()` goes from step to step; `Trainer._step` reads from top to bottom and is all there
is to one.

    boundary -> rollouts -> old, frozen -> verdicts, advantages -> stale queue -> passes x updates -> statistics ->
    record -> step line -> checkpoint

A non-finite loss or gradient is recorded, its update is left out, and the run goes on: the numbers are the signal. A
step without a usable group makes no update and is recorded as `dead_step`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regimescope.monitor.bounds import WeightRule
from regimescope.monitor.record import Recorder
from regimescope.trainer.advantages import GroupAdvantages, group_advantages
from regimescope.trainer.boundary import ControlBoundary
from regimescope.trainer.buffer import Experience, StaleQueue, update_batches
from regimescope.trainer.checkpoint import CheckpointFolder, CheckpointMeta
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.evaluate import accuracy
from regimescope.trainer.objective import TokenTerms, policy_loss
from regimescope.trainer.policy import Policy, token_logps
from regimescope.trainer.responses import Metric
from regimescope.trainer.rollout import SamplingSpec, make_engine
from regimescope.trainer.sampling import Judged, evaluate_old, sample
from regimescope.trainer.statistics import BUCKET_SIZE, token_sums, unpack
from regimescope.trainer.step_metrics import UpdateTotals, length_counts, rollout_metrics, update_metrics
from regimescope.trainer.task import ProblemStream
from regimescope.trainer.verifier import Verifier

SEED_STRIDE = 1_000_003
"Sampling seed of a step: seed x this + step, so a resumed step samples what it would have sampled."
EVALUATION_SEED = 7
"Problems and samples of the held-out evaluation are the same in every run."


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What the progress bar shows."""

    step: int
    metrics: Mapping[str, Metric]


class Stopwatch:
    """Seconds per part of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start


class Trainer:
    """One run: policy, optimiser, random states and waiting rollouts, between a recorder and a control boundary."""

    def __init__(
        self,
        config: TrainConfig,
        policy: Policy,
        recorder: Recorder,
        checkpoints: CheckpointFolder,
        *,
        interrupted: threading.Event,
        first_step: int = 0,
        weight_version: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """`state`: that of a checkpoint whose weights `policy` has; then the run goes on exactly. `interrupted`: set by
        a signal."""
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
        spec = config.task_spec()
        self._problems = ProblemStream(spec, seed=config.seed)
        self._held_out = ProblemStream(spec, seed=EVALUATION_SEED, held_out=True).take(config.evaluation.prompts)
        self._queue = StaleQueue(config.rollout.stale)
        self._order = torch.Generator().manual_seed(config.seed)
        self._parameters = [p for p in policy.model.parameters() if p.requires_grad]
        betas = (config.update.beta1, config.update.beta2)
        self._optimizer = torch.optim.Adam(self._parameters, lr=config.update.lr, betas=betas, fused=True)
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
        rule, revision = WeightRule.capped(boundary.bounds), boundary.revision

        with clock("rollout"):
            judged = self._sample(step)
            old, entropy_sum = evaluate_old(self.policy, judged, config.rollout.temperature)  # before any update

        groups = group_advantages(judged.rewards)
        experience = self._queue.push(usable_experience(judged, groups, old))

        totals = None
        if experience is not None and len(experience):
            totals = self._train_on(experience, step, rule, revision, clock)
        self.dead_steps = self.dead_steps + 1 if experience is not None and totals is None else 0

        metrics = rollout_metrics(judged, groups, entropy_sum)
        if totals is not None:
            metrics |= update_metrics(totals)
        if config.evaluation.every and step % config.evaluation.every == 0:
            metrics["eval.accuracy"] = self._evaluate(step)
        with clock("record"):
            if totals is not None and totals.stats is not None:
                self._recorder.ratio_hist(step, totals.stats)
            self._recorder.hist(step, "response_length", length_counts(judged.responses), "len1")
            if self.dead_steps:
                self._recorder.event("dead_step", {"in_a_row": self.dead_steps}, step=step)

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

    # ------------------------------------------------------------------------------------------------- the updates
    def _train_on(
        self, experience: Experience, step: int, rule: WeightRule, revision: int, clock: Stopwatch
    ) -> UpdateTotals:
        """All passes over one batch of rollouts."""
        own = self.config.update
        totals = UpdateTotals(
            lag=self._weight_version - experience.weight_version, tokens=sum(map(len, experience.responses))
        )
        sums = torch.zeros(0)
        for update, rows in enumerate(update_batches(len(experience), own.batch, own.passes, self._order)):
            with clock("update"):
                terms, entropy, loss, norm = self._gradient(experience, rows.tolist(), rule)
            with clock("stats"):
                scalars = torch.stack([loss, norm, terms.ratio.max()]).double()
                update_sums = token_sums(terms, entropy) if self.config.record.statistics else torch.zeros(0)
                host = torch.cat([scalars, update_sums[:BUCKET_SIZE]]).tolist()  # the update's one copy to the host
                sums = update_sums if len(sums) == 0 else sums + update_sums
            finite = all(x - x == 0.0 for x in host[:2])
            with clock("update"):
                if finite:
                    self._optimizer.step()
            totals.skipped += not finite
            totals.grad_norms.append(host[1])
            totals.ratio_max = max(totals.ratio_max, host[2])
            if self.config.record.statistics:
                with clock("stats"):
                    stats = unpack(host[3:])
                with clock("record"):
                    self._recorder.buckets(step, update, stats, revision=revision, bounds=rule.bounds)
        if len(sums):
            with clock("stats"):
                totals.stats = unpack(sums.tolist())
        if totals.skipped:
            self._recorder.event(
                "skipped_updates", {"updates": totals.skipped, "reason": "loss or gradient not finite"}, step=step
            )
        self._weight_version += totals.skipped < len(totals.grad_norms)
        self._engine.sync(self.policy.model.named_parameters(), self._weight_version)
        return totals

    def _gradient(
        self, experience: Experience, rows: list[int], rule: WeightRule
    ) -> tuple[TokenTerms, torch.Tensor, torch.Tensor, torch.Tensor]:
        """(terms [N], entropy [N], loss, gradient norm before clipping) of one update; the clipped gradient is left on
        the parameters."""
        prompts = [experience.prompts[i] for i in rows]
        sequences = [[*prompt, *experience.responses[i]] for i, prompt in zip(rows, prompts, strict=True)]
        out = token_logps(self.policy, sequences, list(map(len, prompts)), temperature=self.config.rollout.temperature)
        old = torch.zeros_like(out.entropy).masked_scatter(out.valid, torch.cat([experience.logp_old[i] for i in rows]))
        result = policy_loss(out.logp, old, experience.advantages[rows], out.valid, rule)
        self._optimizer.zero_grad()
        result.loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self.config.update.clip_grad)
        return result.terms, out.entropy[out.valid], result.loss.detach(), norm

    # -------------------------------------------------------------------------------------------------- the others
    def _sample(self, step: int) -> Judged:
        """The responses of this step, judged."""
        own, seed = self.config.rollout, self.config.seed * SEED_STRIDE + step
        problems = self._problems.take(own.prompts)
        spec = SamplingSpec(n=own.group, temperature=own.temperature, max_tokens=own.max_tokens, seed=seed)
        return sample(self.policy, self._engine, self._verifier, problems, spec, overlong=own.overlong)

    def _evaluate(self, step: int) -> tuple[float, float]:
        """(share of held-out problems answered correctly by one sample each, their number)."""
        self._recorder.state("evaluating", step=step)
        own = self.config.rollout
        spec = SamplingSpec(n=1, temperature=own.temperature, max_tokens=own.max_tokens, seed=EVALUATION_SEED)
        share = accuracy(self._engine, self.policy, self._held_out, spec, self._verifier)
        self._recorder.state("running", step=step)
        return share, float(len(self._held_out))

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
            "optimizer": self._optimizer.state_dict(),
            "problems": self._problems.state(),
            "order": self._order.get_state(),
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "waiting": [experience.to_state() for experience in self._queue],
            "dead_steps": self.dead_steps,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        for group in self._optimizer.param_groups:
            group["lr"] = self.config.update.lr  # it may have been changed for the resumed run
        self._problems.restore(state["problems"])
        self._order.set_state(state["order"])
        torch.set_rng_state(state["torch"])
        random.setstate(state["python"])
        waiting = [Experience.from_state(entry) for entry in state["waiting"]]
        self._queue = StaleQueue(self.config.rollout.stale, waiting)
        self.dead_steps = state["dead_steps"]


def usable_experience(judged: Judged, groups: GroupAdvantages, old: list[torch.Tensor]) -> Experience:
    """What can be learnt from: judged responses of groups whose rewards differ."""
    rows = groups.usable.flatten().nonzero()[:, 0].tolist()
    return Experience(
        prompts=[judged.prompts[i] for i in rows],
        responses=[judged.responses[i].token_ids for i in rows],
        logp_old=[old[i] for i in rows],
        advantages=groups.advantages.flatten()[rows],
        weight_version=judged.weight_version,
    )
