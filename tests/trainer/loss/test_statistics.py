"""TokenStats from tensors: golden values, seven exclusive buckets, exact sums over any split, replay of histograms."""

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regimescope.monitor.bounds import Bounds, SignBounds, WeightRule
from regimescope.monitor.edges import LR1
from regimescope.monitor.token_stats import BUCKETS, TokenStats
from regimescope.trainer.loss.objective import Objective, policy_loss
from regimescope.trainer.loss.published import published, published_names
from regimescope.trainer.loss.statistics import (
    BUCKET_SIZE,
    SUMS,
    SampledEffect,
    kl_estimates,
    token_stats,
    token_sums,
    unpack,
)
from regimescope.trainer.loss.weights import TokenTerms

GOLDEN = json.loads((Path(__file__).parents[1] / "objectives_golden.json").read_text())


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
    assert kl_estimates(stats) == pytest.approx([expected[f"kl_{name}"] for name in ("k1", "k2", "k3")], abs=1e-9)


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
    whole, part = token_sums(terms, torch.zeros(12))[0], token_sums(terms, torch.zeros(12), histogram=False)[0]
    assert part.tolist() == whole[:BUCKET_SIZE].tolist()
    assert unpack(part.tolist()).hist_pos is None


def test_histogram_counts_are_those_of_numpy() -> None:
    log_ratio, advantage = golden_tokens()
    terms = terms_of(log_ratio, advantage, capped((0.8, 11), (0, 101)))
    stats, log_ratio = token_stats(terms, eq_tol=1e-12), terms.log_ratio  # as rounded: golden ratios lie on edges
    edges = np.array([-np.inf, *LR1, np.inf])
    for hist, side in ((stats.hist_pos, advantage > 0), (stats.hist_neg, advantage < 0)):
        chosen = log_ratio[side & (log_ratio.abs() > 1e-12)].numpy()
        magnitude = advantage[side & (log_ratio.abs() > 1e-12)].abs().numpy()
        assert hist is not None
        assert hist.counts == tuple(np.histogram(chosen, edges)[0])
        ratio = np.exp(chosen)
        for column, weights in (
            ("ratio_sum", ratio),
            ("abs_adv_sum", magnitude),
            ("abs_adv_ratio_sum", ratio * magnitude),
        ):
            assert getattr(hist, column) == pytest.approx(np.histogram(chosen, edges, weights=weights)[0])


def test_what_was_not_measured_is_none_not_zero() -> None:
    stats = token_stats(terms_of(*golden_tokens(), capped((0.8, 11), (0, 101))))
    assert stats.entropy_sum is None and stats.entropy_effect_sum is None and stats.entropy_effect_tokens is None
    assert "entropy_sum" not in stats.bucket_columns()


def test_entropy_effect_is_summed_over_the_sampled_tokens_alone() -> None:
    """Weights of DISPO on the golden tokens: R1 r = 2, A = 1.5, w = 2; R2 r = .5, w = .8; the rest is not sampled."""
    log_ratio, advantage = golden_tokens()
    terms = terms_of(log_ratio, advantage, capped((0.8, 11), (0, 101)))
    effect = torch.full((12,), math.nan, dtype=torch.float64)  # what is not sampled is never read
    effect[0], effect[1] = 0.25, -0.5
    sampled = torch.zeros(12, dtype=torch.bool)
    sampled[:2] = True
    stats = token_stats(terms, effect=SampledEffect(effect=effect, sampled=sampled), eq_tol=1e-12)
    assert stats.entropy_effect_tokens == (1, 1, 0, 0, 0, 0, 0)
    assert stats.entropy_effect_sum == pytest.approx((2 * 1.5 * 0.25, 0.8 * 1.5 * -0.5, 0, 0, 0, 0, 0))


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


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for a device: sizes and numbers that are read from it, boolean indexing."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put_") else ()
        boolean = any(i is not None and i.dtype == torch.bool for i in indices)
        if boolean or name in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2"):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["dispo", "gspo", "aspo", "grpo"])
def test_the_host_waits_once_for_the_number_of_tokens_and_once_for_the_sums(name: str) -> None:
    known = published(name)
    generator = torch.Generator().manual_seed(0)
    new, old = torch.randn(4, 9, generator=generator), torch.randn(4, 9, generator=generator)
    mask, weight = torch.rand(4, 9, generator=generator) < 0.6, torch.full((4,), 0.1)
    with Waits() as waits:
        objective = Objective(rule=known.rule, aggregation=known.aggregation)
        out = policy_loss(new, old, torch.tensor([1.0, -1.0, 0.0, 2.0]), mask, objective, token_weight=weight)
        sums = token_sums(out.terms, -out.terms.logp, slices=torch.zeros_like(out.terms.logp, dtype=torch.long))
    assert waits.seen == ["nonzero"]
    assert sum(unpack(sums[0].tolist()).tokens) == int(mask.sum())


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


@given(tokens, st.lists(st.integers(0, 2), min_size=40, max_size=40), st.sampled_from(published_names()))
def test_slices_are_a_breakdown_of_the_whole(pairs: list[tuple[float, float]], numbers: list[int], name: str) -> None:
    """Each slice is what its tokens alone give, and the slices add up to everything."""
    log_ratio, advantage = tensors(pairs)
    rule = published(name).rule
    if "s" in (rule.pos.base, rule.neg.base):
        rule = published("dispo").rule  # the ratio of a sequence is not that of a part of it
    terms, of = terms_of(log_ratio, advantage, rule), torch.tensor(numbers[: len(pairs)], dtype=torch.long)
    sums = token_sums(terms, torch.ones(len(pairs)), slices=of, slice_count=3)
    whole = token_sums(terms, torch.ones(len(pairs)))
    assert torch.allclose(sums.sum(0), whole[0], rtol=1e-12, atol=1e-9)
    for number in range(3):
        chosen = of == number
        alone = terms_of(log_ratio[chosen], advantage[chosen], rule)
        assert torch.allclose(sums[number], token_sums(alone, torch.ones(int(chosen.sum())))[0], rtol=1e-12, atol=1e-9)


@given(tokens.filter(bool), edge_bounds, st.sampled_from([1.0, -1.0]))
def test_a_histogram_replays_bounds_at_its_edges(
    pairs: list[tuple[float, float]], other: tuple[float, float], sign: float
) -> None:
    """Clips and gradient mass of one sign under bounds that were not in force, from the bins alone, equal a recount."""
    log_ratio, advantage = tensors(pairs)
    low, high = other
    near = [abs(x - math.log(b)) for x in log_ratio.tolist() for b in other if b > 0]
    if min(near, default=1.0) < 1e-9:  # a token exactly on an edge is counted above it, by definition
        return
    measured = token_stats(terms_of(log_ratio, advantage, capped((0.0, 101.0), (0.0, 101.0))))
    recount = token_stats(terms_of(log_ratio, advantage, capped(other, other)))
    hist = measured.hist_pos if sign > 0 else measured.hist_neg
    assert hist is not None
    below = 0 if low == 0 else 1 + next(i for i, edge in enumerate(LR1) if abs(edge - math.log(low)) < 1e-9)
    above = 1 + next(i for i, edge in enumerate(LR1) if abs(edge - math.log(high)) < 1e-9)
    regimes = [BUCKETS.index(name) for name in (("R1", "R2") if sign > 0 else ("R3", "R4"))]
    assert sum(hist.counts[:below]) == sum(recount.clip_low[i] for i in regimes)
    assert sum(hist.counts[above:]) == sum(recount.clip_high[i] for i in regimes)
    replayed = (
        low * sum(hist.abs_adv_sum[:below])
        + sum(hist.abs_adv_ratio_sum[below:above])
        + high * sum(hist.abs_adv_sum[above:])
    )
    assert replayed == pytest.approx(sum(recount.abs_adv_weight_sum[i] for i in regimes), rel=1e-9)


@given(tokens, st.floats(0.1, 10))
def test_scaling_the_advantage_scales_masses_not_shares(pairs: list[tuple[float, float]], factor: float) -> None:
    log_ratio, advantage = tensors(pairs)
    rule = published("dispo").rule
    one, other = (token_stats(terms_of(log_ratio, a, rule)) for a in (advantage, advantage * factor))
    assert one.tokens == other.tokens and one.clip_high == other.clip_high and one.weight_sum == other.weight_sum
    assert [x * factor for x in one.abs_adv_weight_sum] == pytest.approx(other.abs_adv_weight_sum)
