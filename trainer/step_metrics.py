"""The numbers of a step under their canonical names (docs/metrics.md), as (mean, weight) where items stand behind a
mean.

Reward, accuracy, length, repetition and the shares of groups are over ALL responses that were generated in this step,
before any of them is left out; ratio, KL and gradient are over what was trained on, which is older when rollouts are
stale. What was not measured is left out, never 0.

With several ranks each logs the numbers of its share, which combine as docs/metrics.md says (`agg`); what does not
combine, OF_THE_WHOLE, is logged by rank 0 alone, for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from regimescope.monitor.edges import LENGTH_EDGES
from regimescope.trainer.advantages import GroupAdvantages
from regimescope.trainer.loss.statistics import kl_estimates
from regimescope.trainer.responses import PERCENTILES, Metric, Response, length_percentiles, response_metrics
from regimescope.trainer.sampling import Judged
from regimescope.trainer.update import UpdateTotals

OF_THE_WHOLE = frozenset(
    {
        *(f"response_length_p{percent}" for percent in PERCENTILES),
        *("reward_std", "ess_frac", "weight_ess_frac", "mismatch_ess"),  # not the mean of those of the shares
        *("grad_norm", "lr", "lag_p95", "lag_max", "updates", "skipped_updates"),  # the same on every rank
    }
)
"Metrics that rank 0 alone logs."


def rollout_metrics(
    judged: Judged, groups: GroupAdvantages, entropy: Tensor, *, short_tokens: int = 5, sure_run: int = 3000
) -> dict[str, Metric]:
    """Metrics of the responses of this step, none for no response. `entropy`: [n], summed over the tokens of each
    response, nats."""
    if not judged.responses:
        return {}
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
        metrics["reward_std"] = (_reward_std(mean), float(judged_count))
        metrics |= _advantage_metrics(groups.advantages[~rewards.isnan()], correct[~rewards.isnan()])
    return metrics


def whole_rollout_metrics(judged: Judged) -> dict[str, Metric]:
    """Those of OF_THE_WHOLE that `rollout_metrics` has, over the responses of all ranks; none for no response."""
    if not judged.responses:
        return {}
    metrics = length_percentiles(np.array([len(response.token_ids) for response in judged.responses], np.int64))
    right, wrong = (sum(r.outcome == outcome for r in judged.responses) for outcome in ("correct", "incorrect"))
    if right + wrong:
        metrics["reward_std"] = (_reward_std((right - wrong) / (right + wrong)), float(right + wrong))
    return metrics


def of_rank(metrics: Mapping[str, Metric], rank: int) -> dict[str, Metric]:
    """What this rank logs of them."""
    return {name: value for name, value in metrics.items() if rank == 0 or name not in OF_THE_WHOLE}


def combined(shares: Sequence[Mapping[str, Metric]]) -> dict[str, Metric]:
    """The means of all ranks, for people; other numbers as the first rank that has them."""
    names = dict.fromkeys(name for share in shares for name in share)
    return {name: _combined([share[name] for share in shares if name in share]) for name in names}


def _combined(values: Sequence[Metric]) -> Metric:
    means = [value for value in values if isinstance(value, tuple)]
    weight = sum(w for _, w in means)
    return (sum(mean * w for mean, w in means) / weight, weight) if len(values) > 1 and weight else values[0]


def _reward_std(mean: float) -> float:
    """Of rewards +1 and -1."""
    return math.sqrt(1.0 - mean * mean)


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
    """Metrics of the gradient updates; one version of the weights generated a batch, so all tokens have one lag.

    A rank without a token has those of the whole alone.
    """
    numbers, whole = totals.numbers, totals.whole
    tokens = numbers.tokens
    metrics: dict[str, Metric] = {"lag_mean": (float(totals.lag), float(totals.tokens))} if totals.tokens else {}
    metrics |= {
        "lag_p95": float(totals.lag),
        "lag_max": float(totals.lag),
        "grad_norm": (sum(totals.grad_norms) / len(totals.grad_norms), float(len(totals.grad_norms))),
    }
    if tokens:
        metrics["ratio_mean"] = (numbers.ratio_sum / tokens, tokens)
        metrics |= {"ratio_max": numbers.ratio_max, "ratio_min": numbers.ratio_min}
    metrics["ess_frac"] = (whole.ess_frac, whole.tokens)
    if tokens:
        metrics["logit_norm_mean"] = (numbers.logit_norm_sum / tokens, tokens)
    if whole.weighted:
        metrics["weight_ess_frac"] = (whole.weight_ess_frac, whole.weighted)
    if numbers.nonfinite:
        metrics["nonfinite_tokens"] = numbers.nonfinite
    if totals.skipped:
        metrics["skipped_updates"] = float(totals.skipped)
    if totals.stats is not None and tokens:
        k1, _, k3 = kl_estimates(totals.stats)
        metrics |= {"kl_step": (k1, tokens), "kl_step_k3": (k3, tokens)}
    return metrics


def penalty_metrics(totals: UpdateTotals, *, kl: bool, mismatch: bool) -> dict[str, Metric]:
    """KL to the reference and the mismatch correction, where the objective has them."""
    numbers, metrics = totals.numbers, dict[str, Metric]()
    if not numbers.tokens:  # a rank without a share
        return metrics
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
