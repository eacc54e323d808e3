"""The numbers of a step under their canonical names (docs/metrics.md), as (mean, weight) where items stand behind a
mean.

Reward, accuracy, length, repetition and the shares of groups are over ALL responses that were generated in this step,
before any of them is left out; ratio, KL and gradient are over what was trained on, which is older when rollouts are
stale. What was not measured is left out, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regimescope.monitor.edges import LENGTH_EDGES
from regimescope.trainer.advantages import GroupAdvantages
from regimescope.trainer.loss.statistics import kl_estimates
from regimescope.trainer.responses import Metric, Response, response_metrics
from regimescope.trainer.sampling import Judged
from regimescope.trainer.update import UpdateTotals


def rollout_metrics(
    judged: Judged, groups: GroupAdvantages, entropy: Tensor, *, short_tokens: int = 5, sure_run: int = 3000
) -> dict[str, Metric]:
    """Metrics of the responses of this step. `entropy`: [n], summed over the tokens of each response, nats."""
    rewards = judged.rewards
    judged_count = int((~rewards.isnan()).sum())
    token_count = sum(len(response.token_ids) for response in judged.responses)
    group_count = float(rewards.shape[0])
    correct, wrong = (
        torch.tensor([response.outcome == outcome for response in judged.responses]).view_as(rewards)
        for outcome in ("correct", "incorrect")
    )
    metrics = response_metrics(judged.responses, short_tokens=short_tokens, sure_run=sure_run)
    metrics["entropy_mean"] = (entropy.sum().item() / token_count, float(token_count))
    metrics["tokens"] = float(token_count)
    metrics["zero_variance_frac"] = (_share(_alike(rewards)), group_count)
    metrics["all_correct_frac"] = (_share(correct.any(1) & ~wrong.any(1)), group_count)
    metrics["all_wrong_frac"] = (_share(wrong.any(1) & ~correct.any(1)), group_count)
    if judged_count:
        right, false = int(correct.sum()), int(wrong.sum())
        mean = (right - false) / judged_count  # of +-1: before the overlong penalty
        metrics["reward_mean"] = (mean, float(judged_count))
        metrics["reward_std"] = (math.sqrt(1.0 - mean * mean), float(judged_count))
        metrics |= _advantage_metrics(groups.advantages[~rewards.isnan()], correct[~rewards.isnan()])
    return metrics


def _advantage_metrics(advantages: Tensor, correct: Tensor) -> dict[str, Metric]:
    """Of the judged responses. A penalty can give a correct response A < 0, or a wrong one A > 0."""
    mismatch = torch.where(correct, advantages < 0, advantages > 0)
    count = float(len(advantages))
    return {
        "adv_mean": (advantages.mean().item(), count),
        "adv_min": advantages.min().item(),
        "adv_max": advantages.max().item(),
        "sign_label_mismatch_frac": (_share(mismatch), count),
    }


def update_metrics(totals: UpdateTotals) -> dict[str, Metric]:
    """Metrics of the gradient updates; one version of the weights generated a batch, so all tokens have one lag."""
    numbers = totals.numbers
    tokens = numbers.tokens
    metrics: dict[str, Metric] = {
        "lag_mean": (float(totals.lag), float(totals.tokens)),
        "lag_p95": float(totals.lag),
        "lag_max": float(totals.lag),
        "grad_norm": (sum(totals.grad_norms) / len(totals.grad_norms), float(len(totals.grad_norms))),
        "ratio_mean": (numbers.ratio_sum / tokens, tokens),
        "ratio_max": numbers.ratio_max,
        "ratio_min": numbers.ratio_min,
        "ess_frac": (numbers.ess_frac, tokens),
        "logit_norm_mean": (numbers.logit_norm_sum / tokens, tokens),
    }
    if numbers.weighted:
        metrics["weight_ess_frac"] = (numbers.weight_ess_frac, numbers.weighted)
    if numbers.nonfinite:
        metrics["nonfinite_tokens"] = numbers.nonfinite
    if totals.skipped:
        metrics["skipped_updates"] = float(totals.skipped)
    if totals.stats is not None:
        k1, _, k3 = kl_estimates(totals.stats)
        metrics |= {"kl_step": (k1, tokens), "kl_step_k3": (k3, tokens)}
    return metrics


def penalty_metrics(totals: UpdateTotals, *, kl: bool, mismatch: bool) -> dict[str, Metric]:
    """KL to the reference and the mismatch correction, where the objective has them."""
    numbers, metrics = totals.numbers, dict[str, Metric]()
    if kl:
        metrics["kl_ref"] = (numbers.kl_sum / numbers.tokens, numbers.tokens)
    if mismatch:
        metrics["mismatch_factor_mean"] = (numbers.factor_sum / numbers.tokens, numbers.tokens)
        metrics["mismatch_masked_frac"] = (numbers.masked / numbers.tokens, numbers.tokens)
    return metrics


def length_counts(responses: Sequence[Response]) -> list[int]:
    """Histogram of response lengths over the edge set `len1`."""
    lengths = [len(response.token_ids) for response in responses]
    places = np.searchsorted(LENGTH_EDGES, lengths, side="right")
    return [int(n) for n in np.bincount(places, minlength=len(LENGTH_EDGES) + 1)]


def _alike(rewards: Tensor) -> Tensor:
    """[groups] bool: no two judged rewards differ."""
    return ~(rewards.nan_to_num(torch.inf).amin(1) < rewards.nan_to_num(-torch.inf).amax(1))


def _share(flags: Tensor) -> float:
    return flags.to(torch.float64).mean().item()
