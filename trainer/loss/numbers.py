"""Numbers of an update besides the buckets: effective sample size, range of the ratio, KL to the reference, mismatch
factor, tokens that are not finite.

`loss_numbers(...)` packs them into one float64 vector on the device, `joined` adds two of them (micro-batches or
updates), `LossNumbers.of(vector.tolist())` names them on the host. NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from regimescope.trainer.loss.logprobs import logit_gradient_norm
from regimescope.trainer.loss.objective import PolicyLoss

EXTREMES = 2
"Entries at the end of the vector that do not add: the largest ratio and the smallest."


@dataclass(frozen=True, slots=True)
class LossNumbers:
    """Sums over the tokens that were trained on; a token counts once per pass."""

    tokens: float
    ratio_sum: float
    ratio_sq_sum: float
    weighted: float
    "Tokens with an advantage; the two sums of weights are over them."
    weight_sum: float
    weight_sq_sum: float
    logit_norm_sum: float
    "Norm of the gradient of log p with respect to the logits."
    nonfinite: float
    "Tokens whose log-probability or ratio was not finite."
    kl_sum: float
    "KL estimate towards the reference, nats; 0 without one."
    factor_sum: float
    "Factor of the mismatch correction; 0 without one."
    masked: float
    "Tokens that this correction left out."
    ratio_max: float
    ratio_min: float

    @classmethod
    def of(cls, vector: Sequence[float]) -> LossNumbers:
        """From a vector of `loss_numbers` on the host."""
        return cls(*vector)

    @property
    def ess_frac(self) -> float:
        """Effective sample size of r over the tokens: (sum r)^2 / (N sum r^2); NaN without a token."""
        return _ess(self.ratio_sum, self.ratio_sq_sum, self.tokens)

    @property
    def weight_ess_frac(self) -> float:
        """The same of w over the tokens with an advantage; NaN where no weight is left."""
        return _ess(self.weight_sum, self.weight_sq_sum, self.weighted)


SIZE = len(fields(LossNumbers))


def loss_numbers(result: PolicyLoss, sum_p2: Tensor) -> Tensor:
    """[SIZE] in the order of LossNumbers. `sum_p2`: [N], sum of p^2 of the distribution of each token."""
    terms = result.terms
    live = terms.advantage != 0
    ratio, weight = terms.ratio.double(), terms.weight.double() * live
    zero = torch.zeros((), dtype=torch.float64, device=ratio.device)
    factor, masked = (zero, zero) if result.factor_sums is None else result.factor_sums
    summed = [
        zero + ratio.numel(),
        ratio.sum(),
        ratio.square().sum(),
        live.sum(),
        weight.sum(),
        weight.square().sum(),
        logit_gradient_norm(terms.logp, sum_p2).sum(),
        (~(terms.logp.isfinite() & terms.log_ratio.isfinite())).sum(),
        zero if result.kl_sum is None else result.kl_sum,
        factor,
        masked,
    ]
    extremes = [ratio.amax(), ratio.amin()] if ratio.numel() else [zero - torch.inf, zero + torch.inf]
    return torch.stack([*(number.double() for number in summed), *extremes])


def no_numbers() -> Tensor:
    """Those of no token: what `joined` adds nothing by."""
    vector = torch.zeros(SIZE, dtype=torch.float64)
    vector[-2], vector[-1] = -torch.inf, torch.inf
    return vector


def joined(a: Tensor, b: Tensor) -> Tensor:
    """Both together."""
    extremes = [torch.maximum(a[-2], b[-2]), torch.minimum(a[-1], b[-1])]
    return torch.cat([a[:-EXTREMES] + b[:-EXTREMES], torch.stack(extremes)])


def _ess(total: float, squares: float, count: float) -> float:
    return total * total / (count * squares) if count * squares != 0 else float("nan")
