"""The importance ratio of every token and the weight that a WeightRule makes of it.

`token_terms(...)` gives, for the tokens that the mask lets through, all that the loss and the statistics need: ratio,
weight, clip flags, advantage. The ratio is that of the token (r) or, with base `s`, that of its whole sequence: the
side of 1, the clips and the histogram are then those of s. Without gradient throughout: no gradient flows through w.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regimescope.monitor.bounds import SignRule, WeightRule
from regimescope.monitor.token_stats import LOG_RATIO_CLAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTerms:
    """One entry per token that the mask let through, N in all, in row order, without gradient."""

    log_ratio: Tensor
    "[N], log of the ratio that the rule reads (r = new/old, or s of the sequence), cut to +-20."
    clamped: Tensor
    "[N] bool, the log-ratio was cut."
    ratio: Tensor
    "[N], exp(log_ratio)."
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
class ValidTokens:
    """The tokens that a mask lets through. Their number is read from the device once; after that nothing waits."""

    at: Tensor
    "[N] their positions in a flattened [batch, token] tensor, ascending."
    row: Tensor
    "[N] the sequence of each."
    batch: int
    "Number of sequences."

    @classmethod
    def of(cls, mask: Tensor) -> ValidTokens:
        """From a boolean mask [batch, token]."""
        at = mask.reshape(-1).nonzero()[:, 0]
        return cls(at=at, row=at // max(1, mask.shape[1]), batch=len(mask))

    def __call__(self, values: Tensor) -> Tensor:
        """[batch, token] -> [N]; [batch] -> [N], each token that of its sequence."""
        return values[self.row] if values.dim() == 1 else values.reshape(-1)[self.at]

    def sequence_sum(self, values: Tensor) -> Tensor:
        """[N] -> [batch], added up in every sequence."""
        return torch.zeros(self.batch, dtype=values.dtype, device=values.device).index_add_(0, self.row, values)


def token_terms(logp: Tensor, logp_old: Tensor, advantage: Tensor, valid: ValidTokens, rule: WeightRule) -> TokenTerms:
    """Terms of the valid tokens; `logp`, `logp_old` and `advantage` are [N]."""
    logp = logp.detach()
    raw = logp - logp_old.detach()
    if "s" in (rule.pos.base, rule.neg.base):
        of_sequence = _sequence_mean(raw, valid)
        by_sequence = [rule.neg.base == "s", rule.pos.base == "s"]
        raw = of_sequence if all(by_sequence) else torch.where((advantage < 0) == by_sequence[0], of_sequence, raw)
    log_ratio = raw.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
    ratio = log_ratio.exp()
    weight, clip_high, clip_low = effective_weight(ratio, advantage, rule)
    return TokenTerms(
        log_ratio=log_ratio,
        clamped=raw.abs() > LOG_RATIO_CLAMP,
        ratio=ratio,
        weight=weight,
        clip_high=clip_high,
        clip_low=clip_low,
        advantage=advantage,
        logp=logp,
    )


def effective_weight(ratio: Tensor, advantage: Tensor, rule: WeightRule) -> tuple[Tensor, Tensor, Tensor]:
    """(w, clip_high, clip_low) per token, all of the shape of `ratio`; the side is the sign of A, and A = 0 takes the
    rule of A > 0."""
    negative = advantage < 0
    pos, neg = _side(ratio, rule.pos), _side(ratio, rule.neg)
    weight, clip_high, clip_low = (torch.where(negative, n, p) for p, n in zip(pos, neg, strict=True))
    return weight, clip_high, clip_low


def _side(ratio: Tensor, rule: SignRule) -> tuple[Tensor, Tensor, Tensor]:
    base = 1.0 / ratio if rule.base == "1/r" else torch.ones_like(ratio) if rule.base == "1" else ratio
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


def _sequence_mean(values: Tensor, valid: ValidTokens) -> Tensor:
    """[N] -> [N]: every token gets the mean over its sequence (GSPO, arXiv 2507.18071 eq. 7)."""
    total, count = valid.sequence_sum(values), valid.sequence_sum(torch.ones_like(values))
    return (total / count.clamp_min(1))[valid.row]
