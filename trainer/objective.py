"""The policy loss: -sg(w) A logp as a token mean, where w is made from the importance ratio by a WeightRule (CISPO,
DISPO, and rules that drop).

`policy_loss` returns the loss and, for every token that it used, the terms that it was made of; `statistics.token_sums`
turns those into TokenStats. Nothing is measured here, so the loss is the same with and without recording. Not here:
sequence ratios (base `s`) and other aggregations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regimescope.monitor.bounds import SignRule, WeightRule
from regimescope.monitor.token_stats import LOG_RATIO_CLAMP
from regimescope.trainer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTerms:
    """What the loss was made of: one entry per token that the mask let through, N in all, without gradient."""

    log_ratio: Tensor
    "[N], log r = logp_new - logp_old, cut to +-20."
    clamped: Tensor
    "[N] bool, the token's log-ratio was cut."
    ratio: Tensor
    "[N], r = exp(log_ratio)."
    weight: Tensor
    "[N], w; 0 for a dropped token."
    clip_high: Tensor
    "[N] bool, w differs from the rule's base because of the upper side (cap or drop)."
    clip_low: Tensor
    "[N] bool, the same for the lower side."
    advantage: Tensor
    "[N]"
    logp: Tensor
    "[N], logp_new, nats."


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    loss: Tensor
    "Scalar with gradient. Its value means nothing; its gradient with respect to logp_new is -wA/N."
    terms: TokenTerms


def policy_loss(logp_new: Tensor, logp_old: Tensor, advantages: Tensor, mask: Tensor, rule: WeightRule) -> PolicyLoss:
    """Weighted policy-gradient loss over the tokens of `mask`, minimised: mean of -sg(w) A logp_new.

    J of arXiv 2506.13585 eq. 4 (CISPO) and of arXiv 2602.00983 (DISPO: a pair of bounds per sign); with `drop_*` its
    gradient is that of PPO's clipped objective (GRPO, DAPO). Shapes: `logp_new`, `logp_old` and the boolean `mask`
    [batch, token]; `advantages` [batch] or [batch, token]; `logp_old` is that of the weights that generated the tokens.
    Raises ConfigError for base `s`.
    """
    if advantages.dim() < logp_new.dim():
        advantages = advantages.unsqueeze(-1)
    logp = logp_new[mask]
    advantage = advantages.expand_as(mask)[mask].to(logp.dtype)
    raw_log_ratio = logp.detach() - logp_old[mask]
    log_ratio = raw_log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
    ratio = log_ratio.exp()
    weight, clip_high, clip_low = effective_weight(ratio, advantage, rule)
    loss = -(weight * advantage * logp).sum() / max(1, logp.numel())
    terms = TokenTerms(
        log_ratio=log_ratio,
        clamped=raw_log_ratio.abs() > LOG_RATIO_CLAMP,
        ratio=ratio,
        weight=weight,
        clip_high=clip_high,
        clip_low=clip_low,
        advantage=advantage,
        logp=logp.detach(),
    )
    return PolicyLoss(loss=loss, terms=terms)


def effective_weight(ratio: Tensor, advantage: Tensor, rule: WeightRule) -> tuple[Tensor, Tensor, Tensor]:
    """(w, clip_high, clip_low) per token, all of the shape of `ratio`; the side is the sign of A, and A = 0 takes the
    rule of A > 0."""
    negative = advantage < 0
    pos, neg = _side(ratio, rule.pos), _side(ratio, rule.neg)
    weight, clip_high, clip_low = (torch.where(negative, n, p) for p, n in zip(pos, neg, strict=True))
    return weight, clip_high, clip_low


def _side(ratio: Tensor, rule: SignRule) -> tuple[Tensor, Tensor, Tensor]:
    if rule.base == "s":
        raise ConfigError(
            "weight rule with base 's' (ratio of the whole sequence): this trainer has token ratios; use r, 1/r or 1"
        )
    base = {"r": lambda: ratio, "1/r": lambda: 1.0 / ratio, "1": lambda: torch.ones_like(ratio)}[rule.base]()
    weight = base
    clip_high = clip_low = torch.zeros_like(ratio, dtype=torch.bool)
    if rule.cap_high is not None:
        weight, clip_high = weight.clamp(max=rule.cap_high), base > rule.cap_high
    if rule.cap_low is not None:
        weight, clip_low = weight.clamp(min=rule.cap_low), base < rule.cap_low
    if rule.drop_above is not None:
        dropped = ratio > rule.drop_above
        weight, clip_high = weight.masked_fill(dropped, 0.0), clip_high | dropped
    if rule.drop_below is not None:
        dropped = ratio < rule.drop_below
        weight, clip_low = weight.masked_fill(dropped, 0.0), clip_low | dropped
    return weight, clip_high, clip_low
