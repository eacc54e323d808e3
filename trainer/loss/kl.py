"""Estimators of the KL divergence from a log-ratio, per token: k1, k2, k3 (J. Schulman, "Approximating KL divergence",
2020).

With log_ratio = log p - log q over samples of q: k1 = -log_ratio, k2 = log_ratio^2 / 2, k3 = exp(log_ratio) - 1 -
log_ratio, all estimates of KL(q || p). For the penalty towards a reference the samples are the policy's, so log_ratio =
logp_ref - logp_new (GRPO, arXiv 2402.03300 eq. 4).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from regimescope.monitor.token_stats import LOG_RATIO_CLAMP
from regimescope.trainer.errors import ConfigError

KlEstimator = Literal["k1", "k2", "k3"]


def kl_estimate(log_ratio: Tensor, estimator: KlEstimator) -> Tensor:
    """Nats per token, of the shape of `log_ratio`, with its gradient. k3 cuts the log-ratio to +-20 before exp.

    As a penalty, k2 has the gradient of the divergence; that of k1 is only noise around zero on fresh samples
    (E grad log p = 0); k3 is GRPO's.

    >>> import torch
    >>> kl_estimate(torch.tensor([0.0, 0.5]), "k2").tolist()
    [0.0, 0.125]
    """
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    if estimator == "k3":
        log_ratio = log_ratio.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
        return log_ratio.expm1() - log_ratio
    raise ConfigError(f"KL estimator {estimator!r}: want k1, k2 or k3")
