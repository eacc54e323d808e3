"""What other bounds would have done: equal to a recount over the tokens, through the Recorder and the real store."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regimescope.monitor import query
from regimescope.monitor.bins import below
from regimescope.monitor.bounds import Bounds, SignBounds, SignRule, WeightRule
from regimescope.monitor.edges import LR1
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.histograms import RatioStep, RatioSteps
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.reweigh import held_at
from regimescope.monitor.store import Store
from regimescope.monitor.token_stats import BUCKETS, RatioHist, TokenStats
from regimescope.monitor.what_if import LAST_STEPS, Prediction, Window, predict, replay, sentence

DISPO = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [0.0, 101.0]})
WIDE = Bounds.from_wire({"pos": [0.0, 101.0], "neg": [0.0, 101.0]})
ON_EDGES = (0.0, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.28, 2.0, 3.0, 5.0, 11.0, 101.0, math.inf)
GRPO = WeightRule(pos=SignRule(drop_above=1.2), neg=SignRule(drop_below=0.8))
GATED = WeightRule(
    pos=SignRule(cap_low=0.0, cap_high=11.0, drop_above=2.0), neg=SignRule(cap_low=0.9, cap_high=3.0, drop_below=0.5)
)
ASPO = WeightRule(pos=SignRule(base="1/r", cap_high=3.0, drop_above=1.2), neg=SignRule(cap_high=3.0, drop_below=0.8))
RULES = {"dispo": WeightRule.capped(DISPO), "grpo": GRPO, "gated": GATED}


def weights(rule: SignRule, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(w, held away from the base), written down apart from the code under test."""
    base = 1 / ratio if rule.base == "1/r" else ratio
    w = np.clip(base, rule.cap_low or 0.0, math.inf if rule.cap_high is None else rule.cap_high)
    held = w != base
    out = (ratio > (math.inf if rule.drop_above is None else rule.drop_above)) | (ratio < (rule.drop_below or 0.0))
    return np.where(out, 0.0, w), held | out


def token_stats(ratio: np.ndarray, adv: np.ndarray, rule: WeightRule) -> TokenStats:
    """Buckets and histograms of single tokens, as a loss would make them."""
    w = np.where(adv < 0, weights(rule.neg, ratio)[0], weights(rule.pos, ratio)[0])
    kind = np.where(
        adv == 0, 6, np.where(ratio == 1, np.where(adv < 0, 5, 4), np.where(ratio > 1, 0, 1) + 2 * (adv < 0))
    )
    by = [kind == i for i in range(len(BUCKETS))]
    zero = (0.0,) * len(BUCKETS)
    return TokenStats(
        tokens=tuple(int(m.sum()) for m in by), clip_high=(0,) * 7, clip_low=(0,) * 7, clamped=(0,) * 7,
        ratio_sum=tuple(float(ratio[m].sum()) for m in by), weight_sum=tuple(float(w[m].sum()) for m in by),
        abs_adv_weight_sum=tuple(float((w * abs(adv))[m].sum()) for m in by), signed_adv_weight_sum=zero,
        logp_sum=zero, log_ratio_sum=zero, log_ratio_sq_sum=zero,
        hist_pos=histogram(ratio[(adv > 0) & (ratio != 1)], adv[(adv > 0) & (ratio != 1)]),
        hist_neg=histogram(ratio[(adv < 0) & (ratio != 1)], -adv[(adv < 0) & (ratio != 1)]),
    )  # fmt: skip


def histogram(ratio: np.ndarray, magnitude: np.ndarray) -> RatioHist:
    place = np.searchsorted(LR1, np.log(ratio), side="right")
    columns = (np.ones_like(ratio), ratio, magnitude, ratio * magnitude)
    counts, *sums = (np.bincount(place, weights=c, minlength=len(LR1) + 1) for c in columns)
    total, adv, both = (tuple(map(float, c)) for c in sums)
    return RatioHist(counts=tuple(map(int, counts)), ratio_sum=total, abs_adv_sum=adv, abs_adv_ratio_sum=both)


def batch(seed: int, n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Ratios with a heavy tail, a tenth of them exactly 1, and advantages of both signs, some 0."""
    rng = np.random.default_rng(seed)
    ratio = np.exp(0.8 * rng.standard_t(4, n).clip(-5, 5))
    ratio[rng.random(n) < 0.1] = 1.0
    return ratio, rng.choice([-1.3, -0.4, 0.0, 0.7, 1.9], n)


def record(trainer, rule: WeightRule, batches: Sequence[tuple[np.ndarray, np.ndarray]], root: Path) -> Store:
    """Steps of one batch each, two updates a step, read into an index."""
    with trainer.open(rule=rule, limits=None, can=()) as recorder:
        for step, (ratio, adv) in enumerate(batches):
            halves = [token_stats(ratio[i::2], adv[i::2], rule) for i in (0, 1)]
            for update, half in enumerate(halves):
                recorder.buckets(step, update, half, revision=0, bounds=rule.bounds)
            recorder.ratio_hist(step, halves[0] + halves[1])
            recorder.step(step, {"reward_mean": 0.0})
    store = Store.in_memory(root)
    Ingester(store).catch_up()
    return store


def ask(store: Store, now: Bounds, then: Bounds, **more: int) -> Prediction:
    with store.cursor() as con:
        run = query.list_runs(con)[0]
        return predict(con, run, now=now, then=then, **more)


def recount(batches, rule: WeightRule, now: Bounds, then: Bounds):
    """(per regime: tokens, clipped now, then, mass share now, then, changed; changed with r = 1; low, high), token by
    token."""
    ratio, adv = (np.concatenate(x) for x in zip(*batches, strict=True))
    step = np.concatenate([np.full(len(r), i) for i, (r, _) in enumerate(batches)])
    both = []
    for bounds in (now, then):
        moved = rule.with_bounds(bounds)
        pos, neg = weights(moved.pos, ratio), weights(moved.neg, ratio)
        both.append([np.where(adv < 0, n, p) for p, n in zip(pos, neg, strict=True)])
    (w_now, held_now), (w_then, held_then) = both
    whole = [(w * abs(adv)).sum() for w in (w_now, w_then)]
    rows = {}
    for i, name in enumerate(BUCKETS[:4]):
        mine = ((adv < 0) == (i >= 2)) & (adv != 0) & ((ratio > 1) if i % 2 == 0 else (ratio < 1))
        single = [held_then[mine & (step == s)].mean() for s in range(len(batches))]
        rows[name] = (
            mine.sum(), held_now[mine].mean(), held_then[mine].mean(), (w_now * abs(adv))[mine].sum() / whole[0],
            (w_then * abs(adv))[mine].sum() / whole[1], (w_now != w_then)[mine].sum(), min(single), max(single),
        )  # fmt: skip
    return rows, int((w_now != w_then)[adv != 0].sum())


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "then",
    [{"neg.w_min": 1.0}, {"pos.w_max": 1.28, "neg.w_max": 2.0}, {"pos.w_min": 0.9, "neg.w_min": 0.2}],
)  # fmt: skip
def test_at_edges_it_is_a_recount_over_the_tokens(trainer, root, name, then):
    rule, batches = RULES[name], [batch(seed) for seed in range(3)]
    now, wanted = rule.bounds, rule.bounds.with_values(then)
    store = record(trainer, rule, batches, root)
    found = ask(store, now, wanted)
    rows, changed = recount(batches, rule, now, wanted)
    store.close()
    assert (found.obstacle, found.exact, found.steps, found.first, found.last) == ("", True, 3, 0, 2)
    assert found.changed == changed and found.tokens == sum(len(r) for r, _ in batches)
    for effect in found.effects:
        count, *shares, moved, low, high = rows[effect.regime]
        assert (effect.tokens, effect.changed, effect.clipped_error) == (count, moved, 0)
        got = [effect.clipped_now, effect.clipped_then, effect.grad_mass_now, effect.grad_mass_then]
        assert got == pytest.approx(shares, abs=1e-7)  # sums have seven digits on the wire
        assert (effect.low, effect.high) == pytest.approx((low, high), abs=1e-9) and low <= effect.median <= high


@pytest.mark.parametrize("name", RULES)
def test_between_edges_the_recount_lies_within_its_error_and_near_its_estimate(trainer, root, name):
    rule, batches = RULES[name], [batch(seed, 20_000) for seed in range(3)]
    now = rule.bounds
    wanted = now.with_values({"pos.w_max": 1.87, "neg.w_min": 0.643, "neg.w_max": 2.22})
    store = record(trainer, rule, batches, root)
    found = ask(store, now, wanted)
    rows, changed = recount(batches, rule, now, wanted)
    store.close()
    assert not found.exact and found.changed == pytest.approx(changed, rel=0.02)
    assert any(effect.clipped_error for effect in found.effects)
    for effect in found.effects:
        _, _, then, _, mass, *_ = rows[effect.regime]
        assert abs(effect.clipped_then - then) <= effect.clipped_error + 1e-12
        assert effect.clipped_then == pytest.approx(then, abs=0.004)  # a quarter of what the bin could be wrong by
        assert effect.grad_mass_then == pytest.approx(mass, abs=0.001)


def test_a_flipped_ratio_has_shares_but_no_mass(trainer, root):
    batches, then = [batch(1)], {"pos.w_max": 2.0, "neg.w_max": 2.0}
    store = record(trainer, ASPO, batches, root)
    found = ask(store, ASPO.bounds, ASPO.bounds.with_values(then))
    rows, changed = recount(batches, ASPO, ASPO.bounds, ASPO.bounds.with_values(then))
    store.close()
    assert found.changed == changed and found.exact
    for effect in found.effects:
        _, now, would, *_ = rows[effect.regime]
        assert (effect.clipped_now, effect.clipped_then) == pytest.approx((now, would))
        assert effect.grad_mass_now is effect.grad_mass_then is None
    assert "mass" not in sentence(found)


def test_a_cap_below_one_moves_the_tokens_at_one_as_well(trainer, root):
    """TRL's default: every weight is .2. Where it was in force, the |A| of r = 1 is found again."""
    narrow = Bounds.from_wire({"pos": [0.0, 0.2], "neg": [0.0, 0.2]})
    batches = [batch(2)]
    for rule_bounds, then in ((WIDE, narrow), (narrow, WIDE)):
        rule = WeightRule.capped(rule_bounds)
        store = record(trainer, rule, batches, root)
        found = ask(store, rule_bounds, then)
        rows, changed = recount(batches, rule, rule_bounds, then)
        store.close()
        assert found.changed == changed > sum(effect.changed for effect in found.effects)
        masses = [effect.grad_mass_then for effect in found.effects]
        assert masses == pytest.approx([rows[effect.regime][4] for effect in found.effects])
        for file in (root / "run" / "segments").iterdir():
            file.unlink()


def test_only_the_last_steps_count_and_their_number_is_said(trainer, root):
    batches = [batch(seed, 400) for seed in range(25)]
    store = record(trainer, RULES["dispo"], batches, root)
    then = DISPO.with_values({"neg.w_min": 1.0})
    found, two = ask(store, DISPO, then), ask(store, DISPO, then, steps=2)
    earlier = ask(store, DISPO, then, steps=2, until=9)
    store.close()
    assert (found.steps, found.first, found.last, found.tokens) == (LAST_STEPS, 5, 24, 20 * 400)
    assert (two.steps, two.first, two.last) == (2, 23, 24)
    assert (earlier.steps, earlier.first, earlier.last) == (2, 8, 9)
    assert earlier.changed == recount(batches[8:10], RULES["dispo"], DISPO, then)[1]
    assert two.changed == recount(batches[23:], RULES["dispo"], DISPO, then)[1]


def test_the_sentence_says_how_many_and_names_the_sides_that_move(trainer, root):
    store = record(trainer, RULES["dispo"], [batch(seed) for seed in range(3)], root)
    nothing = ask(store, DISPO, DISPO.with_values({"neg.w_max": math.inf}))
    some = ask(store, DISPO, DISPO.with_values({"neg.w_min": 0.5}))
    store.close()
    assert (sentence(nothing), nothing.changed) == ("0 of 12,000 tokens would change", 0)
    first, line = sentence(some).splitlines()
    assert first == f"{some.changed:,} of 12,000 tokens would change"
    assert line.startswith("R4: clipped 0 % → ") and "gradient mass" in line


@pytest.mark.parametrize(
    ("header", "obstacle"),
    [
        ({"rule": None}, "does not say"),
        ({"rule": WeightRule(pos=SignRule(base="s"), neg=SignRule(base="s"))}, "whole sequences"),
        ({"rule": WeightRule(pos=SignRule(base="1"), neg=SignRule(base="1"))}, "constant"),
        ({"ratio_source": "proximal"}, "proximal"),
        ({}, "No histogram"),
    ],
)
def test_what_cannot_be_said_is_named(trainer, root, header, obstacle):
    with trainer.open(**header, limits=None, can=()) as recorder:
        trainer.step(recorder, 0)
    store = Store.in_memory(root)
    Ingester(store).catch_up()
    found = ask(store, DISPO, WIDE)
    store.close()
    assert obstacle in found.obstacle and obstacle in sentence(found) and found.effects == ()


def test_a_sum_that_is_not_finite_leaves_the_shares_and_takes_the_mass(trainer, root):
    ratio, adv = batch(3)
    bad = token_stats(ratio, adv, RULES["dispo"])
    filled = bad.hist_neg.counts.index(max(bad.hist_neg.counts))
    sums = tuple(math.nan if i == filled else x for i, x in enumerate(bad.hist_neg.abs_adv_sum))
    with trainer.open() as recorder:
        recorder.ratio_hist(0, replace(bad, hist_neg=replace(bad.hist_neg, abs_adv_sum=sums)))
        recorder.step(0, {})
    store = Store.in_memory(root)
    Ingester(store).catch_up()
    found = ask(store, DISPO, DISPO.with_values({"neg.w_min": 1.0}))
    store.close()
    assert found.effects[3].clipped_then == 1 and found.effects[3].grad_mass_then is None
    assert found.tokens == sum(bad.tokens[:4])  # no buckets: those of the histograms


# -- invariants, on histograms in memory --

TOKENS = st.lists(
    st.tuples(st.floats(-8, 8).filter(lambda x: abs(x) > 1e-5), st.sampled_from([-2.0, -0.5, 0.5, 1.0])), max_size=40
)
BOUND = st.sampled_from(ON_EDGES) | st.floats(0.0, 200.0)


def window(steps: Sequence[Sequence[tuple[float, float]]]) -> Window:
    rows = []
    for number, tokens in enumerate(steps):
        for sign in (-1, 1):
            mine = [(math.exp(x), abs(a)) for x, a in tokens if a * sign > 0]
            columns = [[0.0] * (len(LR1) + 1) for _ in range(4)]
            for ratio, adv in mine:
                place = bisect_right(LR1, math.log(ratio))
                for column, value in zip(columns, (1, ratio, adv, ratio * adv), strict=True):
                    column[place] += value
            counts, total, adv_sum, both = (tuple(c) for c in columns)
            rows.append(RatioStep(
                step=number, sign=sign, counts=tuple(map(int, counts)), ratio_sum=total, abs_adv_sum=adv_sum,
                abs_adv_ratio_sum=both,
            ))  # fmt: skip
    return Window(histograms=RatioSteps(edges_name="lr1", edges=LR1, steps=tuple(rows), left_out=0), sums=[])


@st.composite
def bounds(draw) -> Bounds:
    sides = [sorted([draw(BOUND.filter(math.isfinite)), draw(BOUND)]) for _ in range(2)]
    return Bounds.from_wire({"pos": sides[0], "neg": sides[1]})


@given(
    steps=st.lists(TOKENS, min_size=1, max_size=3), now=bounds(), then=bounds(), rule=st.sampled_from([*RULES.values()])
)
def test_shares_are_shares_and_the_same_bounds_change_nothing(steps, now, then, rule):
    try:
        rule.with_bounds(now), rule.with_bounds(then)
    except BoundsError:
        return
    there = window(steps)
    found, same = replay(there, rule, now=now, then=then), replay(there, rule, now=then, then=then)
    assert same.changed == 0 and sentence(same).startswith("0 of")
    assert found.tokens == sum(effect.tokens for effect in found.effects) == sum(map(len, steps))
    for effect, unmoved in zip(found.effects, same.effects, strict=True):
        assert 0 <= effect.low <= effect.median <= effect.high <= 1
        assert effect.low - 1e-9 <= effect.clipped_then <= effect.high + 1e-9 and 0 <= effect.clipped_error <= 1
        assert effect.changed <= effect.tokens and unmoved.clipped_now == unmoved.clipped_then == effect.clipped_then
        assert effect.grad_mass_then is None or -1e-9 <= effect.grad_mass_then <= 1 + 1e-9
    masses = [effect.grad_mass_then for effect in found.effects]
    assert None in masses or sum(masses) == pytest.approx(1)


@given(tokens=TOKENS, low=st.floats(1.0, 300.0), more=st.floats(0.0, 100.0))
def test_a_looser_bound_never_clips_more(tokens, low, more):
    there = window([tokens])
    tight, loose = (
        replay(there, RULES["dispo"], now=WIDE, then=Bounds(pos=side, neg=side))
        for side in (SignBounds(w_min=1 / low, w_max=low), SignBounds(w_min=1 / (low + more), w_max=low + more))
    )
    for one, other in zip(tight.effects, loose.effects, strict=True):
        assert other.clipped_then <= one.clipped_then + 1e-9


@given(tokens=TOKENS, place=st.integers(0, len(LR1) - 1))
def test_a_cut_at_an_edge_is_the_plain_sum(tokens, place):
    for one in window([tokens]).histograms.steps:
        cut = below(LR1, one, math.exp(LR1[place]))
        mine = [(math.exp(x), abs(a)) for x, a in tokens if a * one.sign > 0 and x < LR1[place]]
        assert (cut.split, cut.tokens) == (0, len(mine))
        assert cut.abs_adv == pytest.approx(sum(a for _, a in mine))
        assert cut.abs_adv_ratio == pytest.approx(sum(r * a for r, a in mine))


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(ratio=st.floats(1e-3, 300), rule=st.sampled_from([*RULES.values(), ASPO]), positive=st.booleans())
def test_what_holds_a_token_is_what_the_loss_says(ratio, rule, positive):
    side = rule.pos if positive else rule.neg
    (w,), (held,) = weights(side, np.array([ratio]))
    found = held_at(side, ratio)
    assert (found is not None) == held and (found is None or found == pytest.approx(w))
