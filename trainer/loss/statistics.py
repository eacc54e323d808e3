"""TokenStats from tensors: the seven buckets and the histogram of log r of one gradient update, without a Python loop
over tokens.

    sums = token_sums(loss.terms, entropy)     # [1, SIZE] float64 on the device
    stats = unpack(sums[0].tolist())           # one copy to the host

Rows of updates, micro-batches and ranks just add.
With `slices` there is one row per slice, and the rows of a kind add up to everything. Measured after every mask that
the loss applies. Layout of a row: buckets x COLUMNS, then sign x bins x HIST_COLUMNS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from regimescope.monitor.edges import LR1
from regimescope.monitor.token_stats import BUCKETS, RatioHist, TokenStats
from regimescope.trainer.loss.weights import TokenTerms

COUNTS = ("tokens", "clip_high", "clip_low", "clamped")
SUMS = (
    "ratio_sum",
    "weight_sum",
    "abs_adv_weight_sum",
    "signed_adv_weight_sum",
    "entropy_sum",
    "logp_sum",
    "log_ratio_sum",
    "log_ratio_sq_sum",
)
EFFECT = ("entropy_effect_sum", "entropy_effect_tokens")
COLUMNS = COUNTS + SUMS + EFFECT
HIST_COLUMNS = ("counts", "ratio_sum", "abs_adv_sum", "abs_adv_ratio_sum")
BINS = len(LR1) + 1
BUCKET_SIZE = len(BUCKETS) * len(COLUMNS)
"Length of the bucket part of a row: `unpack` takes this part alone, too."
SIZE = BUCKET_SIZE + 2 * BINS * len(HIST_COLUMNS)
"Length of a whole row."

EQ_TOL = 1e-6
"|log r| at or below this is r = 1: float32 noise between two forwards of the same weights."


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledEffect:
    """The entropy effect on a random part of the tokens."""

    effect: Tensor
    "[N], nats per unit step on the token's logits (arXiv 2505.22617, lemma 1); read where sampled."
    sampled: Tensor
    "[N] bool."


def token_stats(
    terms: TokenTerms, entropy: Tensor | None = None, *, effect: SampledEffect | None = None, eq_tol: float = EQ_TOL
) -> TokenStats:
    """The statistics of one update. `entropy`: [N], nats, of the tokens of `terms`; what is None is not measured."""
    sums = token_sums(terms, entropy, effect=effect, eq_tol=eq_tol)[0].tolist()
    return unpack(sums, entropy=entropy is not None, effect=effect is not None)


def token_sums(
    terms: TokenTerms,
    entropy: Tensor | None = None,
    *,
    effect: SampledEffect | None = None,
    slices: Tensor | None = None,
    slice_count: int = 1,
    eq_tol: float = EQ_TOL,
    histogram: bool = True,
) -> Tensor:
    """All sums and counts of one update, [slice_count, SIZE] float64 on the device of `terms`; [.., BUCKET_SIZE]
    without `histogram`.

    `slices`: [N] number of the slice of every token, below `slice_count`; None = all in slice 0.
    """
    offset = torch.zeros((), dtype=torch.long, device=terms.ratio.device) if slices is None else slices
    bucket = bucket_index(terms.log_ratio, terms.advantage, eq_tol=eq_tol)
    ratio, weight, advantage = terms.ratio.double(), terms.weight.double(), terms.advantage.double()
    log_ratio, magnitude, one = terms.log_ratio.double(), terms.advantage.double().abs(), torch.ones_like(ratio)
    pull = weight * advantage
    nothing = torch.zeros_like(ratio)
    sampled = nothing if effect is None else effect.sampled.double()
    columns = [
        one,
        terms.clip_high.double(),
        terms.clip_low.double(),
        terms.clamped.double(),
        ratio,
        weight,
        weight * magnitude,
        pull,
        nothing if entropy is None else entropy.double(),
        terms.logp.double(),
        log_ratio,
        log_ratio.square(),
        nothing if effect is None else torch.where(effect.sampled, pull * effect.effect.double(), nothing),
        sampled,
    ]
    rows = torch.stack(columns, dim=1)
    sums = _sum_by(bucket + len(BUCKETS) * offset, rows, len(BUCKETS) * slice_count).view(slice_count, -1)
    if not histogram:
        return sums
    place = torch.bucketize(terms.log_ratio, _edges(ratio.device, terms.log_ratio.dtype), right=True)
    place = place + BINS * (bucket >= 2) + 2 * BINS * offset
    bins = 2 * BINS * slice_count
    place = place.where(bucket < 4, bins)  # r = 1 and A = 0 are buckets, not bins: counted behind them, and left there
    rows = torch.stack([one, ratio, magnitude, ratio * magnitude], dim=1)
    return torch.cat([sums, _sum_by(place, rows, bins + 1)[:-1].view(slice_count, -1)], dim=1)


def bucket_index(log_ratio: Tensor, advantage: Tensor, *, eq_tol: float = EQ_TOL) -> Tensor:
    """[N] position in BUCKETS of every token. NaN ratios count as r < 1, so that the bucket's sums show them."""
    negative = advantage < 0
    regime = torch.where(log_ratio > 0, 0, 1) + 2 * negative
    bucket = torch.where(log_ratio.abs() <= eq_tol, 4 + negative.long(), regime)
    return bucket.masked_fill(advantage == 0, BUCKETS.index("zero_adv"))


def unpack(sums: Sequence[float], *, entropy: bool = True, effect: bool = False) -> TokenStats:
    """TokenStats from a row of `token_sums` on the host; without its histogram part when only the first BUCKET_SIZE
    are given. `entropy`, `effect`: whether they were measured."""
    width = len(COLUMNS)
    column = {name: tuple(sums[j:BUCKET_SIZE:width]) for j, name in enumerate(COLUMNS)}
    count = {name: tuple(int(x) for x in column[name]) for name in (*COUNTS, "entropy_effect_tokens")}
    half = BINS * len(HIST_COLUMNS)
    pos, neg = sums[BUCKET_SIZE : BUCKET_SIZE + half], sums[BUCKET_SIZE + half :]
    return TokenStats(
        tokens=count["tokens"],
        clip_high=count["clip_high"],
        clip_low=count["clip_low"],
        clamped=count["clamped"],
        ratio_sum=column["ratio_sum"],
        weight_sum=column["weight_sum"],
        abs_adv_weight_sum=column["abs_adv_weight_sum"],
        signed_adv_weight_sum=column["signed_adv_weight_sum"],
        entropy_sum=column["entropy_sum"] if entropy else None,
        logp_sum=column["logp_sum"],
        log_ratio_sum=column["log_ratio_sum"],
        log_ratio_sq_sum=column["log_ratio_sq_sum"],
        entropy_effect_sum=column["entropy_effect_sum"] if effect else None,
        entropy_effect_tokens=count["entropy_effect_tokens"] if effect else None,
        hist_pos=_unpack_hist(pos) if pos else None,
        hist_neg=_unpack_hist(neg) if neg else None,
    )


def kl_estimates(stats: TokenStats) -> tuple[float, float, float]:
    """(k1, k2, k3) of `old` to the policy, nats per valid token, from the sums alone; NaN without a token.

    J. Schulman, "Approximating KL divergence", 2020: -log r, (log r)^2 / 2, r - 1 - log r over samples of `old`.
    """
    valid = sum(stats.tokens)
    if valid == 0:
        return math.nan, math.nan, math.nan
    log_ratio, square = math.fsum(stats.log_ratio_sum), math.fsum(stats.log_ratio_sq_sum)
    return -log_ratio / valid, square / (2 * valid), (math.fsum(stats.ratio_sum) - log_ratio) / valid - 1


def _unpack_hist(sums: Sequence[float]) -> RatioHist:
    counts, ratio, magnitude, both = (tuple(sums[j :: len(HIST_COLUMNS)]) for j in range(len(HIST_COLUMNS)))
    return RatioHist(
        counts=tuple(int(x) for x in counts), ratio_sum=ratio, abs_adv_sum=magnitude, abs_adv_ratio_sum=both
    )


def _sum_by(index: Tensor, rows: Tensor, size: int) -> Tensor:
    return torch.zeros(size, rows.shape[1], dtype=rows.dtype, device=rows.device).index_add_(0, index, rows)


@cache
def _edges(device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.tensor(LR1, dtype=dtype, device=device)
