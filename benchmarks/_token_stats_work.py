"""One batch of logits, and the ways to work through it that `token_stats` compares."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regimescope.trainer.loss.effect import effect_sample
from regimescope.trainer.loss.logprobs import TokenDistribution, token_distribution
from regimescope.trainer.loss.numbers import loss_numbers
from regimescope.trainer.loss.objective import PolicyLoss, policy_loss
from regimescope.trainer.loss.published import published
from regimescope.trainer.loss.statistics import SampledEffect, token_sums, unpack

RESPONSES = 16
EVERY = 8
"The effect is measured on one token in so many."
OBJECTIVE = published("dispo")


class Work:
    """One batch of logits and the ways to work through it."""

    def __init__(self, vocabulary: int, tokens: int, device: str, dtype: torch.dtype) -> None:
        self.length = max(1, tokens // RESPONSES)
        generator = torch.Generator(device).manual_seed(0)
        shape = (RESPONSES * self.length, vocabulary)
        logits = torch.empty(shape, device=device, dtype=dtype).normal_(0, 3, generator=generator)
        self.logits = logits.requires_grad_()
        self.tokens = torch.randint(vocabulary, shape[:1], device=device, generator=generator)
        with torch.no_grad():
            logp = token_distribution(self.logits, self.tokens, sum_p2=False).logp
        self.old = logp + 0.3 * torch.randn(logp.shape, device=device, generator=generator)
        self.advantages = torch.tensor([1.5, -0.5, 0.0, -1.0], device=device).repeat(RESPONSES // 4)
        self.mask = torch.ones(RESPONSES, self.length, dtype=torch.bool, device=device)
        self.keys = torch.arange(RESPONSES, device=device).repeat_interleave(self.length)
        self.places = torch.arange(self.length, device=device).repeat(RESPONSES)

    def denominator(self) -> None:
        seen = token_distribution(self.logits, self.tokens, sum_p2=False)
        self._loss(seen.logp).loss.backward()  # type: ignore[no-untyped-call]

    def rest(self) -> None:
        seen = token_distribution(self.logits, self.tokens)
        result = self._loss(seen.logp)
        result.loss.backward()  # type: ignore[no-untyped-call]
        self._statistics(result, seen, None)

    def effect(self) -> None:
        sampled = effect_sample(self.keys, self.places, every=EVERY, seed=0, update=0)
        seen = token_distribution(self.logits, self.tokens, sampled=sampled)
        result = self._loss(seen.logp)
        result.loss.backward()  # type: ignore[no-untyped-call]
        self._statistics(result, seen, sampled)

    def plain(self) -> None:
        logps = torch.log_softmax(self.logits.float(), 1)
        with torch.no_grad():
            _ = -(logps.exp() * logps).sum(1)
        self._loss(logps.gather(1, self.tokens[:, None])[:, 0]).loss.backward()  # type: ignore[no-untyped-call]

    def after(self) -> Callable[[], None]:
        """Loss and metrics alone, from log-probabilities that are there."""
        seen = token_distribution(self.logits.detach(), self.tokens)
        sampled = effect_sample(self.keys, self.places, every=EVERY, seed=0, update=0)
        logp = seen.logp.detach().requires_grad_()
        return lambda: self._statistics(self._loss(logp), seen, sampled)

    def _loss(self, logp: Tensor) -> PolicyLoss:
        shape = self.mask.shape
        return policy_loss(logp.view(shape), self.old.view(shape), self.advantages, self.mask, OBJECTIVE)

    def _statistics(self, result: PolicyLoss, seen: TokenDistribution, sampled: Tensor | None) -> None:
        effect = None if sampled is None else SampledEffect(effect=seen.effect, sampled=sampled)
        sums = token_sums(result.terms, seen.entropy.detach(), effect=effect)[0]
        numbers = loss_numbers(result, seen.sum_p2)
        host = torch.cat([sums, numbers]).tolist()
        unpack(host[: len(sums)], effect=sampled is not None)


WAYS: dict[str, Callable[[Work], None]] = {
    "denominator": Work.denominator,
    "+ everything but the effect": Work.rest,
    f"+ entropy effect on 1/{EVERY}": Work.effect,
    "plain torch": Work.plain,
}
DENOMINATOR, REST, EFFECT, PLAIN = WAYS
