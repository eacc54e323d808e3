"""The gradient updates of one step: passes over a batch of rollouts, each update in micro-batches, measured as it goes.

`Updater.train(...)` reads from top to bottom: forward, `policy_loss`, backward, sums on the device, ONE copy to the
host, optimiser, record. A non-finite loss or gradient is recorded and its update left out. With several tasks the
sums are kept per slice of kind `env`, and the whole is their sum; with stale rollouts there is a slice of kind `lag`.
Everything is recorded per update, slices once a step: with 64 tasks their lines would outgrow all others.

With several ranks all know the whole update; each computes and records its rows of it, and gradients are added. Rows
are shared out by ceil(update.batch / ranks), so that the sums are those of one rank with this micro-batch, bit for bit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import torch
from torch import Tensor

from regimescope.monitor.record import Recorder, Slice
from regimescope.monitor.token_stats import TokenStats
from regimescope.trainer.buffer import Experience, update_batches
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.loss.aggregation import token_weights
from regimescope.trainer.loss.effect import effect_sample
from regimescope.trainer.loss.numbers import LossNumbers, joined, loss_numbers, no_numbers
from regimescope.trainer.loss.objective import Objective, PolicyLoss, policy_loss
from regimescope.trainer.loss.statistics import BUCKET_SIZE, SIZE, SampledEffect, token_sums, unpack
from regimescope.trainer.policy import Policy, TokenLogps, token_logps
from regimescope.trainer.ranks import Ranks
from regimescope.trainer.rollout_record import Tap
from regimescope.trainer.stopwatch import Stopwatch

UPDATES_PER_STEP = 1 << 20
"More than any step has: numbers the updates of a run for the sample of the entropy effect."


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTotals:
    """What the gradient updates of one step did; of this rank's share, where nothing else is said."""

    lag: int
    "Weight versions between generation and the first update."
    tokens: int
    "Tokens trained on, once; the shares of the ranks add up."
    grad_norms: tuple[float, ...]
    "Norm before clipping, one per update."
    numbers: LossNumbers
    "Of all updates."
    whole: LossNumbers
    "The same of all ranks."
    skipped: int = 0
    "Updates left out because loss or gradient was not finite."
    stats: TokenStats | None = None
    "All updates added up; None = statistics off."
    slices: Mapping[Slice, TokenStats] = field(default_factory=dict)
    "The same of every slice."


class Updater:
    """Holds the optimiser and the order of the batches; changes the policy in place."""

    def __init__(
        self, config: TrainConfig, policy: Policy, recorder: Recorder, envs: Sequence[str], ranks: Ranks | None = None
    ) -> None:
        """`envs`: values of the slice `env`; fewer than two make no slices. `ranks`: None = this process alone."""
        self._config = config
        self._policy = policy
        self._recorder = recorder
        self._ranks = ranks or Ranks()
        self._envs = list(envs)
        self._sliced = len(envs) > 1
        self.order = torch.Generator().manual_seed(config.seed)
        self.parameters = [p for p in policy.model.parameters() if p.requires_grad]
        betas = (config.update.beta1, config.update.beta2)
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.update.lr, betas=betas, fused=True)

    def train(
        self,
        experience: Experience,
        step: int,
        objective: Objective,
        *,
        revision: int,
        lag: int,
        clock: Stopwatch,
        tap: Tap | None = None,
    ) -> UpdateTotals:
        """All passes over one batch of rollouts. `lag`: weight versions since it was generated. `tap`: sees what each
        update says of the tokens."""
        own, bounds, norms, skipped = self._config.update, objective.rule.bounds, [], 0
        numbers = sums = torch.zeros(0)
        for update, rows in enumerate(update_batches(len(experience), own.batch, own.passes, self.order)):
            if tap is not None:
                tap.update(update, rows.tolist())
            head, now, measured = self._gradient(experience, rows.tolist(), objective, step, update, clock, tap)
            with clock("stats"):
                whole = measured.sum(0)[:BUCKET_SIZE]
                loss, norm, *host = torch.cat([head, whole]).tolist()  # the one copy to the host
                numbers = joined(numbers, now) if update else now
                sums = sums + measured if update else measured
            norms.append(norm)
            if math.isfinite(loss) and math.isfinite(norm):
                with clock("update"):
                    self.optimizer.step()
            else:
                skipped += 1
            if len(measured):
                with clock("record"):
                    self._recorder.buckets(step, update, self._unpacked(host), revision=revision, bounds=bounds)
        with clock("stats"):
            stats, slices = self._of_step(sums.tolist(), lag) if len(sums) else (None, {})
        with clock("record"):
            for name, part in slices.items():
                self._recorder.buckets(step, 0, part, revision=revision, bounds=bounds, slice=name)
        if skipped and self._ranks.rank == 0:
            self._recorder.event(
                "skipped_updates", {"updates": skipped, "reason": "loss or gradient not finite"}, step=step
            )
        return UpdateTotals(
            lag=lag,
            tokens=sum(len(experience.responses[i]) for i in self._ranks.share(len(experience))),
            grad_norms=tuple(norms),
            numbers=LossNumbers.of(numbers.tolist()),
            whole=LossNumbers.of(reduce(joined, self._ranks.gather(numbers)).tolist()),
            skipped=skipped,
            stats=stats,
            slices=slices,
        )

    # -------------------------------------------------------------------------------------------------- one update
    def _gradient(
        self,
        experience: Experience,
        rows: list[int],
        objective: Objective,
        step: int,
        update: int,
        clock: Stopwatch,
        tap: Tap | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """([loss, gradient norm before clipping], LossNumbers, sums [slices, SIZE]); the clipped gradient is left on
        the parameters. Loss and gradient are those of all ranks, numbers and sums those of this one."""
        with clock("update"):
            self.optimizer.zero_grad()
            weights = self._token_weights(experience, rows, objective)
        own = self._ranks.share(len(rows), size=-(-self._config.update.batch // self._ranks.size))
        size = self._config.update.micro_batch or max(1, len(own))
        loss = torch.zeros(())
        numbers, sums = no_numbers(), self._no_sums()
        for first in range(own.start, own.stop, size):
            last = min(first + size, own.stop)
            part = rows[first:last]
            with clock("update"):
                out, sampled = self._forward(experience, part, step * UPDATES_PER_STEP + update)
                result = self._loss(experience, part, out, objective, weights[first:last])
                result.loss.backward()  # type: ignore[no-untyped-call]
                loss = loss + result.loss.detach()
            if tap is not None:
                with clock("record"):
                    tap.see(part, result.terms)
            with clock("stats"):
                now = loss_numbers(result, result.valid(out.sum_p2))
                measured = self._measure(experience, part, result, out, sampled)
                numbers = joined(numbers, now) if first > own.start else now
                sums = sums + measured if first > own.start else measured
        with clock("update"):
            loss = self._ranks.sum_gradients(self.parameters, loss)
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self._config.update.clip_grad)
        return torch.stack([loss, norm]).double(), numbers, sums

    def _token_weights(self, experience: Experience, rows: list[int], objective: Objective) -> Tensor:
        lengths = torch.tensor([len(experience.responses[i]) for i in rows])
        return token_weights(
            lengths,
            experience.advantages[rows],
            objective.aggregation,
            constant_length=objective.constant_length,
            groups=experience.groups[rows],
        )

    def _forward(self, experience: Experience, rows: list[int], number: int) -> tuple[TokenLogps, Tensor | None]:
        """(log-probabilities of the responses, which tokens have their entropy effect measured)."""
        record, temperature = self._config.record, self._config.rollout.temperature
        starts = [len(experience.prompts[i]) for i in rows]
        sequences = [[*experience.prompts[i], *experience.responses[i]] for i in rows]
        sampled = None
        if record.statistics and record.effect_every:
            place = torch.arange(1, max(map(len, sequences)))[None] - torch.tensor(starts)[:, None]
            keys = experience.keys[rows][:, None]
            sampled = effect_sample(keys, place, every=record.effect_every, seed=record.effect_seed, update=number)
        out = token_logps(self._policy, sequences, starts, temperature=temperature, sampled=sampled)
        return out, sampled

    def _loss(
        self, experience: Experience, rows: list[int], out: TokenLogps, objective: Objective, weights: Tensor
    ) -> PolicyLoss:
        def laid_out(values: Sequence[Tensor]) -> Tensor:
            return torch.zeros_like(out.entropy).masked_scatter(out.valid, torch.cat([values[i] for i in rows]))

        return policy_loss(
            out.logp,
            laid_out(experience.logp_old),
            experience.advantages[rows],
            out.valid,
            objective,
            token_weight=weights,
            logp_ref=None if experience.logp_ref is None else laid_out(experience.logp_ref),
            logp_infer=None if objective.mismatch is None else laid_out(experience.logp_infer),
        )

    # -------------------------------------------------------------------------------------------------- statistics
    def _measure(
        self, experience: Experience, rows: list[int], result: PolicyLoss, out: TokenLogps, sampled: Tensor | None
    ) -> Tensor:
        """[slices, SIZE], or empty with statistics off."""
        if not self._config.record.statistics:
            return self._no_sums()
        of = None
        if self._sliced:
            env = torch.tensor([self._envs.index(experience.envs[i]) for i in rows])
            of = result.valid(env.to(out.logp.device))
        effect = None
        if sampled is not None:
            effect = SampledEffect(effect=result.valid(out.effect), sampled=result.valid(sampled))
        entropy = result.valid(out.entropy)
        return token_sums(result.terms, entropy, effect=effect, slices=of, slice_count=max(1, len(self._envs)))

    def _no_sums(self) -> Tensor:
        slices = max(1, len(self._envs)) if self._config.record.statistics else 0
        return torch.zeros(slices, SIZE, dtype=torch.float64)

    def _unpacked(self, sums: list[float]) -> TokenStats:
        return unpack(sums, effect=self._config.record.effect_every > 0)

    def _of_step(self, sums: list[list[float]], lag: int) -> tuple[TokenStats, dict[Slice, TokenStats]]:
        """(everything, every slice that has a token)."""
        parts = [self._unpacked(row) for row in sums]
        whole = reduce(operator.add, parts)
        slices: dict[Slice, TokenStats] = {}
        if self._sliced:
            named = zip(self._envs, parts, strict=True)
            slices = {("env", env): part for env, part in named if sum(part.tokens)}
        if self._config.rollout.stale:
            slices["lag", lag_slice(lag)] = whole  # one version generated the whole batch
        return whole, slices


def lag_slice(lag: int) -> str:
    """Value of the slice `lag`.

    >>> [lag_slice(lag) for lag in (0, 2, 3, 4, 5, 40)]
    ['0', '2', '3-4', '3-4', '5+', '5+']
    """
    return "5+" if lag > 4 else "3-4" if lag > 2 else str(lag)
