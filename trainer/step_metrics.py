"""The numbers of a step under their canonical names (docs/metrics.md), as (mean, weight) where items stand behind a
mean.

Reward, accuracy, length, repetition and the shares of groups are over ALL responses that were generated in this step,
before groups with equal rewards are dropped; ratio, KL and gradient are over what was trained on, which is older when
rollouts are stale. What was not measured is left out, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from regimescope.monitor.edges import LENGTH_EDGES
from regimescope.monitor.token_stats import TokenStats
from regimescope.trainer.advantages import GroupAdvantages
from regimescope.trainer.responses import Metric, Response, response_metrics
from regimescope.trainer.sampling import Judged


@dataclass(slots=True, kw_only=True)
class UpdateTotals:
    """What the gradient updates of one step did. Grows while they run."""

    lag: int
    "Weight versions between generation and the first update."
    tokens: int = 0
    "Tokens trained on, once."
    grad_norms: list[float] = field(default_factory=list)
    "Norm before clipping, one per update."
    ratio_max: float = 0.0
    skipped: int = 0
    "Updates left out because loss or gradient was not finite."
    stats: TokenStats | None = None
    "All updates added up; None = statistics off, or nothing was trained on."


def rollout_metrics(judged: Judged, groups: GroupAdvantages, entropy_sum: float) -> dict[str, Metric]:
    """Metrics of the responses of this step."""
    rewards = judged.rewards
    judged_count = int((~rewards.isnan()).sum())
    token_count = sum(len(response.token_ids) for response in judged.responses)
    group_count = float(rewards.shape[0])
    alike = ~groups.usable.any(1)
    correct, wrong = (
        torch.tensor([response.outcome == outcome for response in judged.responses]).view_as(rewards)
        for outcome in ("correct", "incorrect")
    )
    metrics = response_metrics(judged.responses)
    metrics["entropy_mean"] = (entropy_sum / token_count, float(token_count))
    metrics["tokens"] = float(token_count)
    metrics["zero_variance_frac"] = (_share(alike), group_count)
    metrics["all_correct_frac"] = (_share(correct.any(1) & ~wrong.any(1)), group_count)
    metrics["all_wrong_frac"] = (_share(wrong.any(1) & ~correct.any(1)), group_count)
    if judged_count:
        right, false = int(correct.sum()), int(wrong.sum())
        mean = (right - false) / judged_count  # of +-1: before the overlong penalty
        metrics["reward_mean"] = (mean, float(judged_count))
        metrics["reward_std"] = (math.sqrt(1.0 - mean * mean), float(judged_count))
    return metrics


def update_metrics(totals: UpdateTotals) -> dict[str, Metric]:
    """Metrics of the gradient updates; one version of the weights generated a batch, so all tokens have one lag."""
    metrics: dict[str, Metric] = {
        "lag_mean": (float(totals.lag), float(totals.tokens)),
        "lag_p95": float(totals.lag),
        "lag_max": float(totals.lag),
        "grad_norm": (sum(totals.grad_norms) / len(totals.grad_norms), float(len(totals.grad_norms))),
        "ratio_max": totals.ratio_max,
    }
    if totals.skipped:
        metrics["skipped_updates"] = float(totals.skipped)
    if totals.stats is not None and (valid := sum(totals.stats.tokens)):
        metrics["kl_step"] = (-math.fsum(totals.stats.log_ratio_sum) / valid, float(valid))  # k1, from samples of `old`
    return metrics


def length_counts(responses: Sequence[Response]) -> list[int]:
    """Histogram of response lengths over the edge set `len1`."""
    lengths = [len(response.token_ids) for response in responses]
    places = np.searchsorted(LENGTH_EDGES, lengths, side="right")
    return [int(n) for n in np.bincount(places, minlength=len(LENGTH_EDGES) + 1)]


def _share(flags: Tensor) -> float:
    return flags.to(torch.float64).mean().item()
