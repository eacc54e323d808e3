"""How the losses of tokens become one number: the weight of one token of each sequence in the scalar.

    weight = token_weights(lengths, advantages, "token_mean")    # [B]; loss = sum over tokens of weight[i] * loss[i, t]

Every aggregation in use is a constant per sequence, known from the lengths of the WHOLE update. So the loss and its
gradient come out the same however the update is split: take the weights once, then hand each micro-batch, or each rank,
its rows of them.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from regimescope.trainer.errors import ConfigError

Aggregation = Literal["token_mean", "sequence_mean", "constant_length", "token_sum", "balanced"]
"""token_mean: 1/N (DAPO, arXiv 2503.14476 eq. 8). sequence_mean: 1/(S n_i), the mean of token means (GRPO, 2402.03300
eq. 3). constant_length: 1/(S L) (Dr.GRPO, 2503.20783). token_sum: 1. balanced: (S_sign/S_nonzero)/N_sign per group of
one prompt, mean over the groups that have an advantage (2605.04077). N tokens, S sequences with a token, n_i tokens of
sequence i."""


def token_weights(
    lengths: Tensor,
    advantages: Tensor,
    aggregation: Aggregation,
    *,
    constant_length: int | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """[B] float64 weights of one token of each sequence; 0 where a sequence has no token.

    `lengths` [B] valid tokens, `advantages` [B] (its sign matters to `balanced` alone), `groups` [B] number of the
    prompt (`balanced` alone). Raises ConfigError for what is missing or makes no sense.
    """
    n = lengths.double()
    filled = (n > 0).double()
    if aggregation == "token_sum":
        return filled
    if aggregation == "token_mean":
        return filled / n.sum().clamp_min(1)
    sequences = filled.sum().clamp_min(1)
    if aggregation == "sequence_mean":
        return filled / (sequences * n.clamp_min(1))
    if aggregation == "constant_length":
        if constant_length is None or constant_length < 1:
            raise ConfigError(f"aggregation constant_length needs constant_length >= 1, got {constant_length}")
        return filled / (sequences * constant_length)
    if aggregation == "balanced":
        if groups is None or groups.shape != lengths.shape:
            raise ConfigError("aggregation balanced needs groups: the number of the prompt of each sequence, [batch]")
        return _balanced(n, advantages, groups)
    raise ConfigError(f"aggregation {aggregation!r}: want one of {', '.join(get_args(Aggregation))}")


def _balanced(n: Tensor, advantages: Tensor, groups: Tensor) -> Tensor:
    """arXiv 2605.04077: within a group each sign is weighted by its sequences, its tokens share that weight alike."""
    group: Tensor = torch.unique(groups, return_inverse=True)[1]
    cell = 2 * group + (advantages < 0)
    taking_part = ((advantages != 0) & (n > 0)).double()
    cells = torch.zeros(2, 2 * int(group.max()) + 2 if len(group) else 2, dtype=n.dtype, device=n.device)
    cells.index_add_(1, cell, torch.stack([taking_part, taking_part * n]))
    sequences, tokens = cells
    of_group = sequences.view(-1, 2).sum(1)
    live_groups = (of_group > 0).sum().clamp_min(1)
    share = sequences[cell] / of_group[group].clamp_min(1)
    weights: Tensor = taking_part * share / (tokens[cell].clamp_min(1) * live_groups)
    return weights
