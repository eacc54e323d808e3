"""TokenStats add over any split; parts that were not measured stay unknown; wrong shapes are refused."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor.token_stats import BUCKETS, RatioHist, TokenStats

COUNTS = ("tokens", "clip_high", "clip_low", "clamped", "entropy_effect_tokens")
SUMS = (
    "ratio_sum",
    "weight_sum",
    "abs_adv_weight_sum",
    "signed_adv_weight_sum",
    "entropy_sum",
    "logp_sum",
    "log_ratio_sum",
    "log_ratio_sq_sum",
    "entropy_effect_sum",
)


def hist(counts: tuple[int, ...]) -> RatioHist:
    sums = tuple(float(n) for n in counts)
    return RatioHist(counts=counts, ratio_sum=sums, abs_adv_sum=sums, abs_adv_ratio_sum=sums)


def stats(counts: list[int], bins: tuple[int, ...] | None = (1, 2, 3)) -> TokenStats:
    """Every column the same; sums are whole numbers, so that addition is exact."""
    column, sums = tuple(counts), tuple(float(n) for n in counts)
    pair = None if bins is None else hist(bins)
    return TokenStats(
        **{name: column for name in COUNTS}, **{name: sums for name in SUMS}, hist_pos=pair, hist_neg=pair
    )


def test_columns_are_those_of_the_wire() -> None:
    assert set(COUNTS + SUMS) == {f.name for f in fields(TokenStats)} - {"hist_pos", "hist_neg"}
    assert set(stats([1] * 7).bucket_columns()) == set(COUNTS + SUMS)
    bare = replace(stats([1] * 7), entropy_effect_sum=None, entropy_effect_tokens=None)
    assert set(bare.bucket_columns()) == set(COUNTS + SUMS) - {"entropy_effect_sum", "entropy_effect_tokens"}


rows = st.lists(st.integers(0, 10**6), min_size=7, max_size=7)


@given(st.lists(rows, min_size=1, max_size=6))
def test_sums_do_not_depend_on_the_order_or_the_split(parts: list[list[int]]) -> None:
    whole = stats([sum(column) for column in zip(*parts, strict=True)], (len(parts), 2 * len(parts), 3 * len(parts)))
    assert reduce(add, map(stats, parts)) == whole
    assert reduce(add, map(stats, reversed(parts))) == whole


def test_a_part_that_one_side_did_not_measure_is_unknown() -> None:
    bare = replace(stats([1] * 7, None), entropy_effect_sum=None, entropy_effect_tokens=None)
    for total in (bare + stats([1] * 7), stats([1] * 7) + bare):
        assert total.entropy_effect_sum is None
        assert total.hist_pos is None
        assert total.tokens == (2,) * 7


def test_wrong_shapes() -> None:
    with pytest.raises(ValueError, match="tokens has 6 elements"):
        replace(stats([1] * 7), tokens=(1,) * 6)
    with pytest.raises(ValueError, match="columns of"):
        replace(hist((1, 2)), counts=(1, 2, 3))
    with pytest.raises(ValueError, match="cannot add"):
        hist((1, 2)) + hist((1, 2, 3))
    assert len(BUCKETS) == 7
