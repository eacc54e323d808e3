"""The policy loss of every supported objective, as one pure function.

    out = policy_loss(logp_new, logp_old, advantages, mask, published("dispo"))
    out.loss.backward()
    stats = out.stats(entropy)                                  # TokenStats, one copy to the host

Each objective is a WeightRule per sign of the advantage, an aggregation and, where it has them, a KL penalty and a
correction for engine mismatch. The derivative of the loss with respect to logp_new of a token is always -c f w A, with
w its weight, c that of the aggregation and f that of the mismatch correction (1 without). Nothing here reads the
statistics, so the loss is the same with and without recording. `published` knows the objectives by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regimescope.monitor.bounds import SignRule, WeightRule
from regimescope.monitor.token_stats import TokenStats
from regimescope.trainer.errors import ConfigError, ShapeError
from regimescope.trainer.loss.aggregation import Aggregation, token_weights
from regimescope.trainer.loss.kl import KlEstimator, kl_estimate
from regimescope.trainer.loss.mismatch import MismatchCorrection, mismatch_factor
from regimescope.trainer.loss.statistics import EQ_TOL, token_stats
from regimescope.trainer.loss.weights import TokenTerms, ValidTokens, token_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class KlPenalty:
    """A penalty on leaving a reference policy."""

    coef: float
    "Of the penalty in the loss, > 0."
    estimator: KlEstimator = "k3"
    "k1, k2 or k3 of logp_ref - logp_new."


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is minimised."""

    rule: WeightRule
    "How the weight is made of the ratio, per sign of the advantage."
    aggregation: Aggregation = "token_mean"
    "How the tokens' losses become one number."
    constant_length: int | None = None
    "L of the aggregation constant_length."
    unit_advantage: bool = False
    "Only the sign of the advantage counts (online SFT without the advantage as factor)."
    kl: KlPenalty | None = None
    "None = no reference policy."
    mismatch: MismatchCorrection | None = None
    "None = engine mismatch is not corrected."


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """The loss and what it was made of; tensors on the device, so that nothing waits for it."""

    loss: Tensor
    """Scalar with gradient. Its value is that of PPO's surrogate where the rule only drops (GRPO, DAPO, GSPO), else
    that of -w A logp, which means nothing."""
    valid: ValidTokens
    "The N tokens of the mask: `valid(entropy)` picks them from [batch, token] without waiting for the device."
    terms: TokenTerms
    "Per such token."
    kl_sum: Tensor | None
    "Sum of the KL estimate over the N tokens, nats; None without a reference."
    factor_sums: Tensor | None
    "[2]: sum of the mismatch factor over the N tokens, number of tokens where it is 0; None without a correction."

    def stats(self, entropy: Tensor | None = None, *, eq_tol: float = EQ_TOL) -> TokenStats:
        """The statistics of these tokens, copied to the host. `entropy`: [N], nats, or None where it is not known."""
        return token_stats(self.terms, entropy, eq_tol=eq_tol)


def policy_loss(
    logp_new: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    objective: Objective | WeightRule,
    *,
    token_weight: Tensor | None = None,
    groups: Tensor | None = None,
    logp_ref: Tensor | None = None,
    logp_infer: Tensor | None = None,
) -> PolicyLoss:
    """Loss of the tokens of `mask`, minimised. A bare WeightRule stands for its token mean.

    Shapes: `logp_new` (with gradient), `logp_old`, `logp_ref`, `logp_infer` and the boolean `mask` [batch, token];
    `advantages` [batch] or [batch, token]; `logp_old` is that of the weights that generated the tokens. `token_weight`
    [batch]: rows of `token_weights` over the whole update, for a micro-batch or a rank; None = this batch is the
    update. `groups` [batch]: prompts, for the balanced aggregation. A mask with no token gives 0, with a gradient of 0.
    Non-finite log-probabilities give a non-finite loss, and sums that show it. Raises ShapeError for shapes that
    disagree, ConfigError for an input that the objective needs and does not get.

    Sources: arXiv 2402.03300 eq. 3 (GRPO), 2503.14476 eq. 8 (DAPO), 2503.20783 (Dr.GRPO), 2507.18071 eq. 5-7 (GSPO),
    2506.13585 eq. 3-7 (REINFORCE with importance weights, CISPO), 2602.00983 (DISPO), 2510.06062 eq. 3 (ASPO).
    """
    if isinstance(objective, WeightRule):
        objective = Objective(rule=objective)
    _check_shapes(logp_new, logp_old, advantages, mask, token_weight=token_weight, ref=logp_ref, infer=logp_infer)
    if objective.unit_advantage:
        advantages = advantages.sign()
    if token_weight is None:
        token_weight = _own_weights(advantages, mask, objective, groups)
    valid = ValidTokens.of(mask)
    logp, old = valid(logp_new), valid(logp_old).detach()
    terms = token_terms(logp, old, valid(advantages).to(logp.dtype), valid, objective.rule)
    losses = _losses(logp, terms, objective.rule)
    factor_sums = None
    if objective.mismatch is not None:
        infer = valid(_given(logp_infer, "logp_infer", "mismatch"))
        factor = mismatch_factor(old - infer.detach(), valid, objective.mismatch)
        losses = losses * factor
        factor_sums = torch.stack([factor.sum(), (factor == 0).sum().to(factor.dtype)])
    kl_sum = None
    if objective.kl is not None:
        ref = valid(_given(logp_ref, "logp_ref", "kl")).detach()
        kl = kl_estimate(ref - logp, objective.kl.estimator)
        losses = losses + objective.kl.coef * kl
        kl_sum = kl.detach().sum()
    scale = valid(token_weight.to(logp))
    return PolicyLoss(valid=valid, loss=(scale * losses).sum(), terms=terms, kl_sum=kl_sum, factor_sums=factor_sums)


def _losses(logp: Tensor, terms: TokenTerms, rule: WeightRule) -> Tensor:
    """[N]: -sg(w) A logp; its value is replaced by that of the surrogate where the rule is PPO's clip."""
    weighted = terms.weight * terms.advantage
    score = -weighted * logp
    if not (_only_drops(rule.pos) and _only_drops(rule.neg)):
        return score
    pos, neg = (_held(terms.ratio, side) for side in (rule.pos, rule.neg))
    surrogate = -torch.where(terms.advantage < 0, neg, pos) * terms.advantage
    return surrogate - weighted * (logp - logp.detach())


def _only_drops(rule: SignRule) -> bool:
    """PPO's clip: beyond a limit the objective is flat, so a token is dropped there and keeps a constant value."""
    drops = rule.drop_below is not None or rule.drop_above is not None
    return rule.base in ("r", "s") and drops and rule.cap_low is None and rule.cap_high is None


def _held(ratio: Tensor, rule: SignRule) -> Tensor:
    if rule.drop_below is not None:
        ratio = ratio.clamp(min=rule.drop_below)
    return ratio if rule.drop_above is None else ratio.clamp(max=rule.drop_above)


def _own_weights(advantages: Tensor, mask: Tensor, objective: Objective, groups: Tensor | None) -> Tensor:
    if objective.aggregation == "balanced" and advantages.dim() != 1:
        raise ShapeError("advantages: the balanced aggregation needs one per sequence, [batch]")
    own = advantages if advantages.dim() == 1 else advantages.new_zeros(len(mask))  # only `balanced` reads it
    return token_weights(
        mask.sum(1), own, objective.aggregation, constant_length=objective.constant_length, groups=groups
    )


def _given(value: Tensor | None, name: str, part: str) -> Tensor:
    if value is None:
        raise ConfigError(f"policy_loss: the objective has {part}, so it needs {name}, [batch, token]")
    return value


def _check_shapes(
    logp_new: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    token_weight: Tensor | None,
    ref: Tensor | None,
    infer: Tensor | None,
) -> None:
    shape = tuple(logp_new.shape)
    if len(shape) != 2:
        raise ShapeError(f"logp_new has shape {shape}, want [batch, token]")
    if mask.dtype != torch.bool:
        raise ShapeError(f"mask has type {mask.dtype}, want torch.bool: mask.bool()")
    alike = {"logp_old": logp_old, "mask": mask, "logp_ref": ref, "logp_infer": infer}
    if advantages.dim() != 1:
        alike["advantages"] = advantages
    for name, tensor in alike.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ShapeError(f"{name} has shape {tuple(tensor.shape)}, want that of logp_new, {shape}")
    for name, tensor in (("advantages", advantages), ("token_weight", token_weight)):
        if tensor is not None and tensor.dim() == 1 and len(tensor) != shape[0]:
            raise ShapeError(f"{name} has {len(tensor)} rows, want {shape[0]} as logp_new, {shape}")
