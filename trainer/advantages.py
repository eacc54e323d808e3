"""Group-normalised advantages: how much better a response is than the others to the same prompt.

A_i = (R_i - mean) / (std + eps) with the sample standard deviation (ddof 1) and eps 1e-6, as verl and NeMo RL have it.
A group with equal rewards gives A = 0 everywhere and leaves the batch; nothing is resampled for it. A response without
a verdict (NaN) is left out of its group.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPS = 1e-6
"Keeps the quotient finite; with rewards of +-1 it changes the seventh digit."


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdvantages:
    advantages: Tensor
    "[prompts, group], float32; exactly 0 where not usable."
    usable: Tensor
    "[prompts, group] bool: the response was judged, and the rewards of its group differ."


def overlong_penalty(length: int, *, limit: int, cache: int) -> float:
    """Soft overlong penalty, arXiv 2503.14476 eq. 13: 0 up to `limit` - `cache` tokens, falling to -1 at `limit`.

    Beyond the limit it stays -1.

    >>> overlong_penalty(18_432, limit=20_480, cache=4_096)
    -0.5
    """
    if length <= limit - cache:
        return 0.0
    return max(-1.0, (limit - cache - length) / cache)


def group_advantages(rewards: Tensor, *, eps: float = EPS) -> GroupAdvantages:
    """Advantages of `rewards` [prompts, group] (arXiv 2402.03300 section 4.1.2, with ddof 1); NaN = no verdict.

    >>> group_advantages(torch.tensor([[1.0, -1.0, -1.0, -1.0]]), eps=0.0).advantages.tolist()
    [[1.5, -0.5, -0.5, -0.5]]
    """
    judged = ~rewards.isnan()
    rewards = rewards.double()
    count = judged.sum(1, keepdim=True)
    mean = rewards.nansum(1, keepdim=True) / count.clamp_min(1)
    centred = torch.where(judged, rewards - mean, torch.zeros_like(rewards))
    std = (centred.square().sum(1, keepdim=True) / (count - 1).clamp_min(1)).sqrt()
    low, high = rewards.nan_to_num(torch.inf).amin(1), rewards.nan_to_num(-torch.inf).amax(1)
    differ = low < high  # not std > 0: the mean of equal floats may be off by a rounding
    usable = judged & differ[:, None]
    advantages = torch.where(usable, centred / (std + eps), torch.zeros_like(centred))
    return GroupAdvantages(advantages=advantages.float(), usable=usable)
