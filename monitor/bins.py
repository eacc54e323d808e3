"""Where a ratio cuts a histogram over log r: the sums of the tokens below it, exact at an edge of the histogram.

    cut = below(edges, counts, sums..., ratio)        # Cut: tokens, |A|, r|A| below `ratio`; `split` = 0 at an edge

Inside a bin the part below is estimated from the bin's mean ratio; `split` says how many tokens that bin holds, the
most that the estimate can be wrong by. Standard library only.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from regimescope.monitor.histograms import RatioStep

_NEAR = 1e-6
"A log-ratio this close to an edge is at it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Sums of the tokens of one step and sign with r below a ratio."""

    tokens: float
    "An estimate, if `split`."
    abs_adv: float
    "Sum of |A|."
    abs_adv_ratio: float
    "Sum of r|A|; NaN where it was not recorded."
    split: int
    "Tokens of the bin that the ratio falls into; 0 at an edge."
    bin: int
    "That bin, or the first above the edge."


def below(edges: Sequence[float], step: RatioStep, ratio: float) -> Cut:
    """Of the tokens with r < `ratio`."""
    both = step.abs_adv_ratio_sum or (math.nan,) * len(step.counts)
    if ratio <= 0:
        whole, split = 0, False
    elif math.isinf(ratio):
        whole, split = len(step.counts), False
    else:
        place = bisect_left(edges, math.log(ratio) - _NEAR)  # first edge that is not below
        split = place == len(edges) or edges[place] - math.log(ratio) > _NEAR
        whole = place if split else place + 1
    sums = [float(sum(column[:whole])) for column in (step.counts, step.abs_adv_sum, both)]
    if not split or not step.counts[whole]:
        return Cut(tokens=sums[0], abs_adv=sums[1], abs_adv_ratio=sums[2], split=0, bin=whole)
    low = math.exp(edges[whole - 1]) if whole else 0.0
    high = math.exp(edges[whole]) if whole < len(edges) else math.inf
    count, adv = step.counts[whole], step.abs_adv_sum[whole]
    tokens, _ = _parts(low, high, step.ratio_sum[whole] / count, ratio)
    of_adv, of_both = _parts(low, high, both[whole] / adv if adv else math.nan, ratio)
    return Cut(
        tokens=sums[0] + tokens * count,
        abs_adv=sums[1] + of_adv * adv,
        abs_adv_ratio=sums[2] + of_both * both[whole],
        split=count,
        bin=whole,
    )


def _parts(low: float, high: float, mean: float, ratio: float) -> tuple[float, float]:
    """Shares of the tokens of a bin, and of their sum of r, below a ratio in it.

    The distribution function u^k over the bin, with k such that its mean is the bin's; the open bin at the top ends as
    far above its mean as it begins below.
    """
    if math.isinf(high):
        high = 2 * mean - low if mean > low else 2 * low
    u = min(1.0, (ratio - low) / (high - low))
    m = (mean - low) / (high - low)
    m = min(0.999, max(0.001, m)) if math.isfinite(m) else 0.5
    k = m / (1 - m)
    share = u**k
    return share, share * (low + (high - low) * m * u) / (low + (high - low) * m)
