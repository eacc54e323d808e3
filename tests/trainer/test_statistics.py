"""TokenStats from tensors: golden values, seven exclusive buckets, exact sums over any split, replay of histograms."""

import json
import math
from dataclasses import fields
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from regimescope.monitor.bounds import Bounds, SignBounds, WeightRule
from regimescope.monitor.edges import LR1
from regimescope.monitor.token_stats import BUCKETS, TokenStats
from regimescope.trainer.objective import TokenTerms, policy_loss
from regimescope.trainer.statistics import BUCKET_SIZE, SUMS, token_stats, token_sums, unpack

GOLDEN = json.loads(Path(__file__).with_name("objectives_golden.json").read_text())


def capped(pos: tuple[float, float], neg: tuple[float, float]) -> WeightRule:
    return WeightRule.capped(
        Bounds(pos=SignBounds(w_min=pos[0], w_max=pos[1]), neg=SignBounds(w_min=neg[0], w_max=neg[1]))
    )


def terms_of(log_ratio: Tensor, advantage: Tensor, rule: WeightRule) -> TokenTerms:
    """The terms of tokens in one row, each with its own advantage."""
    old = torch.full_like(log_ratio, -1.0)
    mask = torch.ones(1, log_ratio.numel(), dtype=torch.bool)
    return policy_loss((old + log_ratio)[None], old[None], advantage[None], mask, rule).terms


def golden_tokens() -> tuple[Tensor, Tensor]:
    data = GOLDEN["fixture"]
    ratios = torch.tensor([r for row in data["ratios"] for r in row], dtype=torch.float64)
    per_token = [a for a, row in zip(data["advantages"], data["ratios"], strict=True) for _ in row]
    return ratios.log(), torch.tensor(per_token, dtype=torch.float64)


@pytest.mark.parametrize("name", ["dispo", "dispo_r3_off", "dispo_r4_off"])
def test_buckets_are_the_golden_ones(name: str) -> None:
    bounds = GOLDEN["objectives"][name]["bounds"]
    log_ratio, advantage = golden_tokens()
    terms = terms_of(log_ratio, advantage, capped(tuple(bounds["pos"]), tuple(bounds["neg"])))
    stats = token_stats(terms, torch.arange(12.0), eq_tol=1e-12)
    expected = GOLDEN["diagnostics"][name]
    assert sum(stats.tokens) == expected["tokens"]
    mass = sum(stats.abs_adv_weight_sum)
    for i, bucket in enumerate(BUCKETS):
        for column, value in expected["buckets"][bucket].items():
            got = stats.abs_adv_weight_sum[i] / mass if column == "grad_mass" else getattr(stats, column)[i]
            assert got == pytest.approx(value, abs=1e-9), (bucket, column)
    assert sum(stats.entropy_sum) == 66 and sum(stats.logp_sum) == pytest.approx(terms.logp.sum().item())
    assert -sum(stats.log_ratio_sum) / 12 == pytest.approx(expected["kl_k1"], abs=1e-9)


def test_tolerance_catches_float_noise_and_nothing_else() -> None:
    log_ratio = torch.tensor([0.9e-6, -0.9e-6, 1.1e-6, -1.1e-6, 0.0], dtype=torch.float64)
    stats = token_stats(terms_of(log_ratio, torch.ones(5, dtype=torch.float64), capped((0, 9), (0, 9))), torch.zeros(5))
    assert dict(zip(BUCKETS, stats.tokens, strict=True)) == {
        "R1": 1, "R2": 1, "R3": 0, "R4": 0, "pos_eq1": 3, "neg_eq1": 0, "zero_adv": 0,
    }  # fmt: skip


def test_clamped_and_non_finite_tokens_show() -> None:
    log_ratio = torch.tensor([30.0, -30.0, math.nan])
    stats = token_stats(terms_of(log_ratio, torch.tensor([1.0, -1.0, -1.0]), capped((0, 9), (0, 9))), torch.zeros(3))
    assert stats.clamped == (1, 0, 0, 1, 0, 0, 0)
    assert stats.log_ratio_sum[0] == 20 and math.isnan(stats.ratio_sum[BUCKETS.index("R4")])
    assert sum(stats.tokens) == 3


def test_without_a_token_everything_is_zero() -> None:
    stats = token_stats(terms_of(torch.zeros(0), torch.zeros(0), capped((0, 9), (0, 9))), torch.zeros(0))
    assert stats.tokens == (0,) * 7 and stats.hist_pos is not None and sum(stats.hist_pos.counts) == 0


def test_the_bucket_part_alone_has_no_histogram() -> None:
    log_ratio, advantage = golden_tokens()
    terms = terms_of(log_ratio, advantage, capped((0.8, 11), (0, 101)))
    whole, part = token_sums(terms, torch.zeros(12)), token_sums(terms, torch.zeros(12), histogram=False)
    assert part.tolist() == whole[:BUCKET_SIZE].tolist()
    assert unpack(part.tolist()).hist_pos is None


tokens = st.lists(
    st.tuples(
        st.one_of(st.floats(-25, 25), st.sampled_from([0.0, 1e-7, -1e-7, *LR1[::9]])),
        st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.5]),
    ),
    max_size=40,
)
edge_bounds = st.sampled_from([(0.8, 11.0), (0.0, 101.0), (1.0, 1.2), (0.5, 5.0), (1.0, 1.0)])


def tensors(pairs: list[tuple[float, float]]) -> tuple[Tensor, Tensor]:
    return tuple(torch.tensor([pair[i] for pair in pairs], dtype=torch.float64) for i in (0, 1))  # type: ignore[return-value]


@given(tokens, edge_bounds, edge_bounds)
def test_the_seven_buckets_are_the_mask(
    pairs: list[tuple[float, float]], pos: tuple[float, float], neg: tuple[float, float]
) -> None:
    log_ratio, advantage = tensors(pairs)
    stats = token_stats(terms_of(log_ratio, advantage, capped(pos, neg)), torch.zeros(len(pairs)))
    assert sum(stats.tokens) == len(pairs)
    assert stats.tokens[BUCKETS.index("zero_adv")] == int((advantage == 0).sum())
    assert stats.hist_pos is not None and stats.hist_neg is not None
    assert sum(stats.hist_pos.counts) == sum(stats.tokens[:2])
    assert sum(stats.hist_neg.counts) == sum(stats.tokens[2:4])
    assert all(h + low <= n for h, low, n in zip(stats.clip_high, stats.clip_low, stats.tokens, strict=True))


@given(tokens, st.integers(0, 40))
def test_sums_add_over_any_split(pairs: list[tuple[float, float]], cut: int) -> None:
    log_ratio, advantage = tensors(pairs)
    rule = capped((0.8, 11.0), (1.0, 101.0))

    def measured(part: slice) -> TokenStats:
        terms = terms_of(log_ratio[part], advantage[part], rule)
        return token_stats(terms, torch.ones(terms.weight.numel()))

    whole, parts = measured(slice(None)), measured(slice(None, cut)) + measured(slice(cut, None))
    for f in fields(TokenStats):
        one, two = getattr(whole, f.name), getattr(parts, f.name)
        if f.name in SUMS:
            assert one == pytest.approx(two, rel=1e-12, abs=1e-9)
        elif f.name.startswith("hist_"):
            assert one.counts == two.counts and one.abs_adv_ratio_sum == pytest.approx(two.abs_adv_ratio_sum, rel=1e-12)
        else:
            assert one == two


@given(tokens.filter(bool), edge_bounds)
def test_a_histogram_replays_bounds_at_its_edges(pairs: list[tuple[float, float]], other: tuple[float, float]) -> None:
    """Clips and gradient mass of A < 0 under bounds that were not in force, from the bins alone, equal a recount."""
    log_ratio, advantage = tensors(pairs)
    low, high = other
    near = [abs(x - math.log(b)) for x in log_ratio.tolist() for b in other if b > 0]
    if min(near, default=1.0) < 1e-9:  # a token exactly on an edge is counted above it, by definition
        return
    hist = token_stats(
        terms_of(log_ratio, advantage, capped((0.0, 101.0), (0.0, 101.0))), torch.zeros(len(pairs))
    ).hist_neg
    recount = token_stats(terms_of(log_ratio, advantage, capped((0.0, 101.0), other)), torch.zeros(len(pairs)))
    assert hist is not None
    below = 0 if low == 0 else 1 + next(i for i, edge in enumerate(LR1) if abs(edge - math.log(low)) < 1e-9)
    above = 1 + next(i for i, edge in enumerate(LR1) if abs(edge - math.log(high)) < 1e-9)
    regimes = [BUCKETS.index("R3"), BUCKETS.index("R4")]
    assert sum(hist.counts[:below]) == sum(recount.clip_low[i] for i in regimes)
    assert sum(hist.counts[above:]) == sum(recount.clip_high[i] for i in regimes)
    replayed = (
        low * sum(hist.abs_adv_sum[:below])
        + sum(hist.abs_adv_ratio_sum[below:above])
        + high * sum(hist.abs_adv_sum[above:])
    )
    assert replayed == pytest.approx(sum(recount.abs_adv_weight_sum[i] for i in regimes), rel=1e-9)
