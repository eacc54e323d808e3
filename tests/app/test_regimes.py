"""What the Regimes page computes and draws, as pure functions: matrix, rule in words, bars, bounds of an address."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor import Bounds, RatioHist, SignBounds, TokenStats, WeightRule, query
from regimescope.monitor.bounds import SignRule
from regimescope.monitor.edges import LR1
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.query import Series
from regimescope.monitor.store import Store
from regimescope.monitor.ui import rule_texts
from regimescope.monitor.ui.figures_regimes import bars, heat_figure, ratio_figure, shown
from regimescope.monitor.ui.regime_numbers import BACK, by_lag, clipped, lag_row, read_matrix
from regimescope.monitor.ui.url_bounds import bounds_of, parameters_of

DISPO = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
ASPO = WeightRule(pos=SignRule(base="1/r", cap_high=3.0, drop_above=1.2), neg=SignRule(cap_high=3.0, drop_below=0.8))
GSPO = WeightRule(pos=SignRule(base="s", drop_above=1.0004), neg=SignRule(base="s", drop_below=0.9997))
EMPTY = Series(steps=[], values=[], nonfinite=[], nonfinite_count=0)


def counts(log_ratios):
    found = [0] * (len(LR1) + 1)
    for x in log_ratios:
        found[bisect_right(LR1, x)] += 1
    return tuple(found)


def stats(**more) -> TokenStats:
    tokens = (300, 280, 500, 520, 40, 60, 300)
    sums = tuple(float(t) for t in tokens)
    given = {
        "tokens": tokens, "clip_high": (0,) * 7, "clip_low": (0, 28, 0, 0, 0, 0, 0), "clamped": (0,) * 7,
        "ratio_sum": sums, "weight_sum": sums, "abs_adv_weight_sum": sums, "signed_adv_weight_sum": sums,
        "logp_sum": sums, "log_ratio_sum": tuple(-0.1 * x for x in sums), "log_ratio_sq_sum": sums,
        "entropy_effect_sum": (0.5,) * 7, "entropy_effect_tokens": tuple(t // 10 for t in tokens),
    }  # fmt: skip
    return TokenStats(**given | more)


def side(log_ratios) -> RatioHist:
    n = counts(log_ratios)
    sums = tuple(float(x) for x in n)
    return RatioHist(counts=n, ratio_sum=sums, abs_adv_sum=sums, abs_adv_ratio_sum=sums)


@pytest.fixture
def written(tmp_path: Path, record):
    """A run of 60 steps with two updates each, histograms from step 2 on, and slices of kind lag."""
    recorder = record(tmp_path / "run")
    hist = {"hist_pos": side([0.3, -0.2, 1.0]), "hist_neg": side([-0.5, 0.1])}
    for step in range(60):
        recorder.buckets(step, 0, stats(), revision=0, bounds=DISPO)
        recorder.buckets(step, 1, stats(clip_high=(30, 0, 0, 0, 0, 0, 0)), revision=0, bounds=DISPO)
        lag = "0" if step < 50 else "3-4"
        recorder.buckets(step, 0, stats(), revision=0, bounds=DISPO, slice=("lag", lag))
        if step >= 2:
            recorder.ratio_hist(step, stats(**hist))
        recorder.step(step, {"reward_mean": 0.0})
    store = Store.in_memory(tmp_path)
    Ingester(store).catch_up()
    yield store
    store.close()


def test_the_matrix_is_of_a_step_or_of_one_update_with_what_was_50_steps_before(written):
    with written.cursor() as con:
        whole = read_matrix(con, 1, 59, slice_id=0, update=None)
        second = read_matrix(con, 1, 59, slice_id=0, update=1)
        unknown = read_matrix(con, 1, 59, slice_id=0, update=7)
        young = read_matrix(con, 1, 30, slice_id=0, update=None)
    assert (whole.step, whole.updates, whole.now["R1"].tokens) == (59, (0, 1), 600)
    assert (whole.before["R1"].step, young.before) == (59 - BACK, {})
    assert (clipped(whole.now["R1"]), clipped(second.now["R1"])) == (0.05, 0.1) and second.now["R1"].update == 1
    assert second.before["R1"].update == 1 and unknown.now == whole.now
    assert whole.sampled == pytest.approx(0.1)
    assert whole.now["R1"].entropy_effect == pytest.approx(1.0 * 600 / 60)


def test_buckets_that_stopped_long_ago_are_still_the_newest(written):
    with written.cursor() as con:
        found = read_matrix(con, 1, 500, slice_id=0, update=None)
        nothing = read_matrix(con, 2, 500, slice_id=0, update=None)
    assert found is not None and found.step == 59 and nothing is None


def test_lags_are_added_up_over_their_own_steps(written):
    with written.cursor() as con:
        rows = by_lag(con, 1, 59, query.slices(con, 1))
    assert [(row.lag, row.steps, row.tokens) for row in rows] == [("0", 10, 20_000), ("3-4", 10, 20_000)]
    assert rows[0].clipped["R2"] == pytest.approx(0.1) and rows[0].log_ratio == pytest.approx(-0.1)


def test_a_mean_over_steps_is_weighted_with_tokens_and_survives_an_empty_one(written):
    with written.cursor() as con:
        row = next(r for r in query.buckets(con, 1, steps=(59, 59)) if r.bucket == "R2")
    empty = replace(row, tokens=0, clip_low_frac=None, clip_high_frac=None, log_ratio_mean=None)
    large = replace(row, tokens=3 * row.tokens, clip_low_frac=0.5)
    assert lag_row("1", [row, empty, large]).clipped["R2"] == pytest.approx((0.1 + 3 * 0.5) / 4)
    assert lag_row("1", [empty]).clipped == {"R1": None, "R2": None, "R3": None, "R4": None}


@pytest.mark.parametrize(
    ("rule", "above", "text"),
    [
        (WeightRule.capped(DISPO).pos, True, "w ≤ 11"),
        (WeightRule.capped(DISPO).pos, False, "w ≥ 0.8"),
        (WeightRule.capped(DISPO).neg, False, "no bound"),
        (ASPO.pos, True, "w = 0 above r = 1.2"),
        (ASPO.pos, False, "w ≤ 3"),
        (ASPO.neg, False, "w = 0 below r = 0.8"),
        (GSPO.pos, True, "w = 0 above s = 1.0004"),
        (SignRule(base="1", cap_high=0.0), True, "no bound"),
    ],
)
def test_a_bound_in_words(rule, above, text):
    assert rule_texts.bound_text(rule, above=above) == text


def test_the_clip_of_a_flipped_ratio_is_counted_on_the_other_side():
    plain = [rule_texts.clip_column(WeightRule.capped(DISPO), regime) for regime in ("R1", "R2", "R3", "R4")]
    assert plain == ["clip_high_frac", "clip_low_frac", "clip_high_frac", "clip_low_frac"]
    assert (
        rule_texts.clip_column(ASPO, "R2") == "clip_high_frac"
        and rule_texts.clip_column(ASPO, "R1") == "clip_high_frac"
    )


def test_only_at_lag_0_clipping_at_update_0_is_a_mismatch():
    assert "mismatch" in rule_texts.first_update_note(0.02, 0.0, "behaviour")
    assert "drift" in rule_texts.first_update_note(0.02, 2.0, "behaviour")
    for nothing in (
        (0.0, 0.0, "behaviour"),
        (0.02, None, "behaviour"),
        (0.02, 0.0, "proximal"),
        (None, 0.0, "behaviour"),
    ):
        assert rule_texts.first_update_note(*nothing) == ""


def test_what_limits_the_page_is_said():
    assert rule_texts.notes(WeightRule.capped(DISPO), "proximal") == [rule_texts.INERT]
    assert rule_texts.notes(WeightRule.capped(DISPO), "infer") == [rule_texts.NOISY]
    assert rule_texts.notes(GSPO, "behaviour") == [rule_texts.SEQUENCES] and not rule_texts.notes(ASPO, "behaviour")


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=60), st.floats(0.0, 0.5))
def test_bars_keep_every_token_and_none_reaches_over_1(log_ratios, width):
    drawn = bars(LR1, counts(log_ratios), width=width)
    assert sum(bar.tokens for bar in drawn) == len(log_ratios)
    assert all(a.high == b.low for a, b in pairwise(drawn))
    assert not [bar for bar in drawn if bar.low < 0 < bar.high]
    low, high = shown(LR1, counts(log_ratios))
    assert low < -0.05 and high > 0.05


def histograms(written):
    with written.cursor() as con:
        return query.ratio_histogram(con, 1, sign=1), query.ratio_heatmap(con, 1, sign=1, n=400)


def test_the_histogram_has_both_regimes_and_the_bounds_in_force_and_moved(written):
    rule = WeightRule.capped(DISPO)
    moved = rule.with_bounds(DISPO.with_values({"pos.w_max": 5.0}))
    for theme in ("light", "dark"):
        figure = ratio_figure(histograms(written)[0], now=rule.pos, then=moved.pos, sign=1, theme=theme)
        assert [trace.name for trace in figure.data] == ["R1", "R2"]
        assert [sum(y or 0 for y in trace.y) for trace in figure.data] == [116, 58]
        lines = {shape.x0: shape.line.dash for shape in figure.layout.shapes if shape.type == "line"}
        assert lines == {math.log(0.8): "solid", math.log(5.0): "dash", math.log(11.0): "dot"}
    assert [note.text for note in figure.layout.annotations] == ["r = 0.8", "r = 11 in force", "r = 5"]


def test_a_flipped_weight_is_bounded_where_its_ratio_is(written):
    figure = ratio_figure(histograms(written)[0], now=ASPO.pos, then=None, sign=1, theme="light")
    assert sorted(s.x0 for s in figure.layout.shapes if s.type == "line") == [math.log(1 / 3), math.log(1.2)]


def test_the_heatmap_leaves_steps_without_histogram_empty_and_draws_the_bounds(written):
    _, heat = histograms(written)
    gap = replace(heat, steps=(*heat.steps[:-1], heat.steps[-1] + 3))
    upper = Series(steps=[0, 30], values=[11.0, 5.0], nonfinite=[], nonfinite_count=0)
    figure = heat_figure(gap, lower=EMPTY, upper=upper, sign=1, theme="light")
    drawn, line, _ = figure.data
    assert figure.layout.xaxis.dtick is None and tuple(figure.layout.xaxis.range) == (1.5, 62.5)
    assert len(drawn.x) == 58 + 3 + 1 and len(drawn.y) == len(drawn.z) + 1
    assert [row[-2] for row in drawn.z if row[-1] is not None] == [None] * 3
    assert list(line.y) == [math.log(11.0), math.log(5.0)]


def test_an_address_can_only_ask_for_bounds():
    assert bounds_of({"neg_min": "1", "pos_max": "inf"}, DISPO).to_wire() == {
        "pos": [0.8, math.inf],
        "neg": [1.0, 101.0],
    }
    for bad in (
        {"neg_min": "x"},
        {"pos_min": "nan"},
        {"pos_min": "-1"},
        {"pos_min": "12"},
        {"neg_max": ""},
        {"run": "5"},
    ):
        assert bounds_of(bad, DISPO) == DISPO


@given(st.floats(0, 1), st.floats(1, 1e6) | st.just(math.inf))
def test_an_address_comes_back_as_the_same_bounds(low, high):
    bounds = Bounds.from_wire({"pos": [low, high], "neg": [0.5, 2.0]})
    back = bounds_of(parameters_of(bounds), DISPO)
    assert back.pos.w_min == pytest.approx(low, rel=1e-11, abs=1e-300) and back.pos.w_max == pytest.approx(high)
