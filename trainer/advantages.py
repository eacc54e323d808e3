"""Group-normalised advantages: how much better a response is than the others to the same prompt.

A_i = (R_i - mean) / (std + eps); by default the sample standard deviation (ddof 1) and eps 1e-6, as verl has it; TRL
takes 1e-4, Dr.GRPO no standard deviation. A response without a verdict (NaN) is left out of its group. A group with
equal rewards has A = 0, and so has a group with one verdict, unless `singleton` is "raw".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdvantages:
    advantages: Tensor
    "[prompts, group], float32; exactly 0 where the rewards of the group are equal."
    usable: Tensor
    "[prompts, group] bool: the response takes part in the updates."


def overlong_penalty(length: int, *, limit: int, cache: int) -> float:
    """Soft overlong penalty, arXiv 2503.14476 eq. 13: 0 up to `limit` - `cache` tokens, falling to -1 at `limit`.

    Beyond the limit it stays -1.

    >>> overlong_penalty(18_432, limit=20_480, cache=4_096)
    -0.5
    """
    if length <= limit - cache:
        return 0.0
    return max(-1.0, (limit - cache - length) / cache)


def group_advantages(
    rewards: Tensor,
    *,
    std: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Literal["drop", "raw"] = "drop",
    equal_groups: Literal["drop", "keep"] = "drop",
) -> GroupAdvantages:
    """Advantages of `rewards` [prompts, group] (arXiv 2402.03300 section 4.1.2); NaN = no verdict.

    `std` false: R - mean (2503.20783). `singleton` "raw": the one verdict of a group has mean 0 and std 1, as verl has
    it. `equal_groups` "keep": such tokens stay in the batch with A = 0 and count in the token mean.

    >>> group_advantages(torch.tensor([[1.0, -1.0, -1.0, -1.0]]), eps=0.0).advantages.tolist()
    [[1.5, -0.5, -0.5, -0.5]]
    """
    judged = ~rewards.isnan()
    rewards = rewards.double()
    count = judged.sum(1, keepdim=True)
    alone = (count == 1) & (singleton == "raw")
    mean = torch.where(alone, 0.0, rewards.nansum(1, keepdim=True) / count.clamp_min(1))
    centred = torch.where(judged, rewards - mean, torch.zeros_like(rewards))
    spread = (centred.square().sum(1, keepdim=True) / (count - ddof).clamp_min(1)).sqrt()
    low, high = rewards.nan_to_num(torch.inf).amin(1), rewards.nan_to_num(-torch.inf).amax(1)
    differ = (low < high) | alone[:, 0]  # not std > 0: the mean of equal floats may be off by a rounding
    scale = torch.where(alone, 1.0, spread) + eps if std else torch.ones_like(spread)
    learnable = judged & differ[:, None]
    advantages = torch.where(learnable, centred / scale, torch.zeros_like(centred))
    usable = judged & (count > 1) | learnable if equal_groups == "keep" else learnable
    return GroupAdvantages(advantages=advantages.float(), usable=usable)
