"""The entropy effect of tokens, and which tokens it is measured on.

    sampled = effect_sample(keys, positions, every=8, seed=0, update=update)    # [N] bool, about every eighth
    seen = token_distribution(logits, tokens, sampled=sampled)                  # seen.effect, from the same pass
    effect = entropy_effect(logits, tokens)                                     # alone, of all tokens

The effect of token a is c_a = -[p_a (log p_a + H) - sum_j p_j^2 (log p_j + H)], the first-order change of the entropy H
when the logits move by one unit of d logp_a / d logits = e_a - p (arXiv 2505.22617, Lemma 1). The logits are those that
the distribution is made of, after the temperature. The sum of w A c over a regime is its pull on the entropy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regimescope.trainer.errors import ConfigError
from regimescope.trainer.loss.logprobs import token_distribution

GOLDEN = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): step, and (shift, factor)s."


@torch.no_grad()
def entropy_effect(
    logits: Tensor,
    tokens: Tensor,
    rows: Tensor | None = None,
    *,
    temperature: float = 1.0,
    never_ids: Sequence[int] = (),
) -> Tensor:
    """Effect [N] in nats of every token of `tokens` [N]; arguments as `token_distribution`, no gradient."""
    every = torch.ones_like(tokens, dtype=torch.bool)
    seen = token_distribution(
        logits, tokens, rows=rows, temperature=temperature, never_ids=never_ids, sum_p2=False, sampled=every
    )
    return seen.effect


def effect_sample(keys: Tensor, positions: Tensor, *, every: int, seed: int, update: int) -> Tensor:
    """A random 1/`every` of the tokens, as bool in the shape of `keys`; `every` 1 = all of them.

    `keys` (int64): which response the token is of; `positions` (int64): where it stands in it; any shapes that
    broadcast. `update` counts over the whole run. The choice hangs on these numbers alone: it stays the same however a
    batch is ordered, split into micro-batches or spread over ranks. Raises ConfigError for `every` below 1.
    """
    if every < 1:
        raise ConfigError(f"every: {every} is below 1; the effect is measured on one token in `every`")
    state = torch.zeros((), dtype=torch.int64, device=keys.device)
    for part in (seed, update, keys, positions):
        state = _mix((state ^ (_int64(part) if isinstance(part, int) else part)) + _int64(GOLDEN))
    return _shift(state, 1) % every == 0


def _mix(state: Tensor) -> Tensor:
    """The finalizer of SplitMix64: a bijection of 64 bits. int64 products wrap around, as it needs them to."""
    for shift, factor in MIX:
        state = (state ^ _shift(state, shift)) * _int64(factor)
    return state ^ _shift(state, 31)


def _shift(state: Tensor, bits: int) -> Tensor:
    """To the right, zeros moving in: torch has only the shift that keeps the sign."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def _int64(number: int) -> int:
    """The signed 64-bit number with the same bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
