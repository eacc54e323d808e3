"""TokenStats from tensors: the seven buckets and the histogram of log r of one gradient update, without a Python loop
over tokens.

    sums = token_sums(loss.terms, entropy)       # one float64 vector on the device; vectors of updates, micro-batches
    and ranks just add stats = unpack(sums.tolist())                # one copy to the host

Measured after every mask that the loss applies. Layout of the vector: buckets x COLUMNS, then sign x bins x
HIST_COLUMNS.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from regimescope.monitor.edges import LR1
from regimescope.monitor.token_stats import BUCKETS, RatioHist, TokenStats
from regimescope.trainer.objective import TokenTerms

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
COLUMNS = COUNTS + SUMS
HIST_COLUMNS = ("counts", "ratio_sum", "abs_adv_sum", "abs_adv_ratio_sum")
BINS = len(LR1) + 1
BUCKET_SIZE = len(BUCKETS) * len(COLUMNS)
"Length of the bucket part of the vector: `unpack` takes this part alone, too."

EQ_TOL = 1e-6
"|log r| at or below this is r = 1: float32 noise between two forwards of the same weights."


def token_stats(terms: TokenTerms, entropy: Tensor, *, eq_tol: float = EQ_TOL) -> TokenStats:
    """The statistics of one update. `entropy`: [N], nats, of the tokens of `terms`."""
    return unpack(token_sums(terms, entropy, eq_tol=eq_tol).tolist())


def token_sums(terms: TokenTerms, entropy: Tensor, *, eq_tol: float = EQ_TOL, histogram: bool = True) -> Tensor:
    """All sums and counts of one update as one float64 vector on the device of `terms`; [BUCKET_SIZE] without
    `histogram`."""
    bucket = bucket_index(terms.log_ratio, terms.advantage, eq_tol=eq_tol)
    ratio, weight, advantage = terms.ratio.double(), terms.weight.double(), terms.advantage.double()
    log_ratio = terms.log_ratio.double()
    magnitude = advantage.abs()
    rows = torch.stack(
        [
            torch.ones_like(ratio),
            terms.clip_high.double(),
            terms.clip_low.double(),
            terms.clamped.double(),
            ratio,
            weight,
            weight * magnitude,
            weight * advantage,
            entropy.double(),
            terms.logp.double(),
            log_ratio,
            log_ratio.square(),
        ],
        dim=1,
    )
    sums = _sum_by(bucket, rows, len(BUCKETS)).flatten()
    if not histogram:
        return sums
    regime = bucket < 4  # r = 1 and A = 0 are buckets, not bins
    place = torch.bucketize(terms.log_ratio, _edges(ratio.device, terms.log_ratio.dtype), right=True) + BINS * (
        bucket >= 2
    )
    rows = torch.stack([torch.ones_like(ratio), ratio, magnitude, ratio * magnitude], dim=1)
    return torch.cat([sums, _sum_by(place[regime], rows[regime], 2 * BINS).flatten()])


def bucket_index(log_ratio: Tensor, advantage: Tensor, *, eq_tol: float = EQ_TOL) -> Tensor:
    """[N] position in BUCKETS of every token. NaN ratios count as r < 1, so that the bucket's sums show them."""
    negative = advantage < 0
    regime = torch.where(log_ratio > 0, 0, 1) + 2 * negative
    bucket = torch.where(log_ratio.abs() <= eq_tol, 4 + negative.long(), regime)
    return bucket.masked_fill(advantage == 0, BUCKETS.index("zero_adv"))


def unpack(sums: Sequence[float]) -> TokenStats:
    """TokenStats from a vector of `token_sums` on the host; without its histogram part when only the first BUCKET_SIZE
    are given."""
    width = len(COLUMNS)
    column = {name: tuple(sums[j:BUCKET_SIZE:width]) for j, name in enumerate(COLUMNS)}
    count = {name: tuple(int(x) for x in column[name]) for name in COUNTS}
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
        entropy_sum=column["entropy_sum"],
        logp_sum=column["logp_sum"],
        log_ratio_sum=column["log_ratio_sum"],
        log_ratio_sq_sum=column["log_ratio_sq_sum"],
        hist_pos=_unpack_hist(pos) if pos else None,
        hist_neg=_unpack_hist(neg) if neg else None,
    )


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
