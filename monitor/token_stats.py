"""TokenStats: what one gradient update did, as sums and counts over the seven buckets.

It adds over micro-batches, updates and ranks. The trainer computes it from tensors
(`regimescope.trainer.loss.statistics`), the Recorder writes it, the store keeps it. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

BUCKETS = ("R1", "R2", "R3", "R4", "pos_eq1", "neg_eq1", "zero_adv")
"""Order of every seven-element array. R1: A>0, r>1. R2: A>0, r<1. R3: A<0, r>1. R4: A<0, r<1. pos_eq1 and neg_eq1:
|log r| <= eq_tol. zero_adv: A = 0."""

LOG_RATIO_CLAMP = 20.0
"Log-ratios are cut to +-20 before exp; the number of cut tokens is `clamped`."


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioHist:
    """Histogram over log r of one sign of the advantage, tokens with r = 1 left out. k edges make k + 1 bins.

    Raises ValueError when the four arrays differ in length.
    """

    counts: tuple[int, ...]
    "Tokens per bin; bin i is [edge i-1, edge i), the outer two are open."
    ratio_sum: tuple[float, ...]
    "Sum of r."
    abs_adv_sum: tuple[float, ...]
    "Sum of |A|."
    abs_adv_ratio_sum: tuple[float, ...]
    "Sum of r|A|: makes a predicted gradient mass exact at edges."

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, f.name)) for f in fields(self)}
        if len(lengths) != 1:
            raise ValueError(f"a histogram with columns of {sorted(lengths)} bins: want one length")

    def __add__(self, other: RatioHist) -> RatioHist:
        """Bin by bin. Raises ValueError when the numbers of bins differ."""
        return RatioHist(**{f.name: _add(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStats:
    """Sums and counts of one update.

    Every bucket array has seven elements, in the order of BUCKETS; padding is in none. Raises ValueError for an array
    of another length.
    """

    tokens: tuple[int, ...]
    "Valid tokens; the seven add up to all of them."
    clip_high: tuple[int, ...]
    "Tokens whose weight differs from the rule's base because of the upper side."
    clip_low: tuple[int, ...]
    "The same for the lower side."
    clamped: tuple[int, ...]
    "Tokens whose |log r| was cut to 20."
    ratio_sum: tuple[float, ...]
    "Sum of r."
    weight_sum: tuple[float, ...]
    "Sum of w; a dropped token counts 0."
    abs_adv_weight_sum: tuple[float, ...]
    "Sum of w|A|: gradient mass before normalisation."
    signed_adv_weight_sum: tuple[float, ...]
    "Sum of wA."
    logp_sum: tuple[float, ...]
    "Sum of logp_new, nats."
    log_ratio_sum: tuple[float, ...]
    "Sum of log r."
    log_ratio_sq_sum: tuple[float, ...]
    "Sum of (log r)^2."
    entropy_sum: tuple[float, ...] | None = None
    "Sum of the policy's entropy, nats; None = not measured, for it needs the logits."
    entropy_effect_sum: tuple[float, ...] | None = None
    """Sum of wA times the first-order entropy change (arXiv 2505.22617, lemma 1) over the sampled tokens;
    None = not measured."""
    entropy_effect_tokens: tuple[int, ...] | None = None
    "Tokens sampled for the entropy effect."
    hist_pos: RatioHist | None = None
    "Log-ratio histogram of A > 0 over the edge set `lr1`; None = not measured."
    hist_neg: RatioHist | None = None
    "The same of A < 0."

    def __post_init__(self) -> None:
        for name, column in self.bucket_columns().items():
            if len(column) != len(BUCKETS):
                raise ValueError(f"{name} has {len(column)} elements, want one for each of {', '.join(BUCKETS)}")

    def __add__(self, other: TokenStats) -> TokenStats:
        """The sum, counts exactly. A part that one side did not measure is None in it, for a partial sum would lie."""
        return TokenStats(**{f.name: _add_field(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    def bucket_columns(self) -> dict[str, tuple[int | float, ...]]:
        """The arrays of the `buckets` line, by column name; columns that were not measured are left out."""
        columns = {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("hist_")}
        return {name: column for name, column in columns.items() if column is not None}


def _add(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(a) != len(b):
        raise ValueError(f"cannot add statistics of {len(a)} and {len(b)} elements: different buckets or edges")
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _add_field(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    return a + b if isinstance(a, RatioHist) else _add(a, b)
