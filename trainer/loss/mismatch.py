"""Engine mismatch: how far the rollout engine's log-probabilities lie from the trainer's of the same weights, and the
correction of the loss for it.

rho = exp(old - infer), kept out of the importance ratio r. `mismatch_factor` is truncated or masked importance sampling
(TIS, MIS): a factor of the loss of its own, logged apart from the weight w, never part of a regime.
`mismatch_metrics` says how large the mismatch is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from regimescope.monitor.token_stats import LOG_RATIO_CLAMP
from regimescope.trainer.errors import ConfigError
from regimescope.trainer.loss.weights import ValidTokens

MismatchMode = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchCorrection:
    """Truncated (TIS: min(rho, cap)) or masked (MIS, IcePop: rho inside [floor, cap], else 0) importance sampling.

    Raises ConfigError for limits that leave nothing.
    """

    mode: MismatchMode
    "Per token, or for whole sequences with the product of rho over their tokens."
    cap: float = 2.0
    "Upper end; verl takes 2, TRL 3 for sequences."
    floor: float = 0.0
    "Lower end of the masks; truncation does not read it."

    def __post_init__(self) -> None:
        if self.mode not in get_args(MismatchMode):
            raise ConfigError(f"mismatch correction {self.mode!r}: want one of {', '.join(get_args(MismatchMode))}")
        if not (self.cap > 0 and 0 <= self.floor < self.cap):
            raise ConfigError(f"mismatch correction [{self.floor:g}, {self.cap:g}]: want 0 <= floor < cap")


def mismatch_factor(log_rho: Tensor, valid: ValidTokens, correction: MismatchCorrection) -> Tensor:
    """[N] factors of the loss of the valid tokens, from log rho = old - infer of each.

    A rho that is no number counts as 1: an engine that reports nothing must not silence a token. Feng Yao et al. 2025
    (TIS); arXiv 2510.18855 (IcePop).
    """
    log_rho = log_rho.nan_to_num(0.0)
    if correction.mode.startswith("sequence"):
        log_rho = valid.sequence_sum(log_rho)[valid.row]
    rho = log_rho.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()
    if correction.mode.endswith("truncate"):
        return rho.clamp(max=correction.cap)
    return rho.masked_fill((rho > correction.cap) | (rho < correction.floor), 0.0)


def mismatch_metrics(logp_old: Tensor, logp_infer: Tensor) -> dict[str, float | tuple[float, float]]:
    """Canonical `mismatch_*` numbers of one batch of sampled tokens, both [N]; nothing for no token."""
    count = logp_old.numel()
    if count == 0:
        return {}
    log_rho = (logp_old - logp_infer).double()
    rho = log_rho.exp()
    numbers = torch.stack(
        [
            -log_rho.mean(),
            (rho - 1 - log_rho).mean(),
            log_rho.abs().mean(),
            rho.mean(),
            rho.sum().square() / (count * rho.square().sum()),
            rho.min(),
            rho.max(),
        ]
    ).tolist()
    names = ("mismatch_k1", "mismatch_k3", "mismatch_logp_abs", "mismatch_ratio_mean", "mismatch_ess")
    means = {name: (value, float(count)) for name, value in zip(names, numbers[:5], strict=True)}
    return {**means, "mismatch_ratio_min": numbers[5], "mismatch_ratio_max": numbers[6]}
