"""The Regimes page: under AppTest what each state shows, and in a real browser the slider, the table and the link. Runs
are written by the real Recorder; the curves over the steps are the live grid, which has tests of its own.
"""

import math
import re
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from regimescope.monitor import Bounds, Limits, RatioHist, TokenStats, WeightRule
from regimescope.monitor.bounds import SignRule
from regimescope.monitor.control import ControlFolder
from regimescope.monitor.edges import LR1
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.ui import context, header

MAIN = Path(header.__file__).parent / "main.py"
SLOW_MS = 40_000
TIGHT = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [1.0, 101.0]})
GSPO = WeightRule(pos=SignRule(base="s", drop_above=1.0004), neg=SignRule(base="s", drop_below=0.9997))


def hist(ratio, tokens, scale=1.0):
    place = bisect_right(LR1, math.log(ratio))
    counts = tuple(tokens if i == place else 0 for i in range(len(LR1) + 1))
    sums = tuple(scale * n for n in counts)
    return RatioHist(
        counts=counts, ratio_sum=tuple(ratio * n for n in counts), abs_adv_sum=sums,
        abs_adv_ratio_sum=tuple(ratio * x for x in sums),
    )  # fmt: skip


def stats(histogram=True, scale=1.0, clip_high=0):
    """600 tokens of R1 at r = 1.05, 400 of R4 at r = 0.5 that are all held at weight 1; 100 with r = 1."""
    zero, weight = (0.0,) * 7, (630.0, 0.0, 0.0, 400.0, 100.0, 0.0, 0.0)
    plain = TokenStats(
        tokens=(600, 0, 0, 400, 100, 0, 0), clip_high=(clip_high, 0, 0, 0, 0, 0, 0), clip_low=(0, 0, 0, 400, 0, 0, 0),
        clamped=(0,) * 7, ratio_sum=(630.0, 0.0, 0.0, 200.0, 100.0, 0.0, 0.0), weight_sum=weight,
        abs_adv_weight_sum=weight, signed_adv_weight_sum=zero, logp_sum=zero,
        log_ratio_sum=zero, log_ratio_sq_sum=zero, entropy_effect_sum=(3.0, *zero[:6]),
        entropy_effect_tokens=(60, 0, 0, 40, 10, 0, 0),
    )  # fmt: skip
    return replace(plain, hist_pos=hist(1.05, 600, scale), hist_neg=hist(0.5, 400, scale)) if histogram else plain


def write(recorder, steps, updates=1, lag=0.0, **more):
    for step in steps:
        for update in range(updates):
            recorder.buckets(step, update, stats(**more), revision=0, bounds=TIGHT)
        whole = stats(**more)
        for _ in range(updates - 1):
            whole = whole + stats(**more)
        recorder.ratio_hist(step, whole)
        recorder.step(step, {"lag_max": lag, "accuracy": 0.5})


class Desk:
    """A root with a run, its monitor and the pages over it."""

    def __init__(self, root, record):
        self.root, self._record = root, record
        self.monitor = Monitor(root, store=Store.in_memory(root), actor="ana")

    def run(self, steps=range(22), header=(), **more):
        given = {"rule": WeightRule.capped(TIGHT), "limits": Limits()} | dict(header)
        recorder = self._record(self.root / "run", **given)
        ControlFolder(self.root / "run", launch=recorder.launch, can=())
        write(recorder, steps, **more)
        while self.monitor.tick():
            pass
        return recorder

    def open(self, *, read_only=False, **query):
        given = {"read_token": "t", "actor": "ana", "address": "http://127.0.0.1:1"}
        context.install(context.Context(monitor=self.monitor, read_only=read_only, control_token=None, **given))
        at = AppTest.from_file(str(MAIN), default_timeout=60)
        at.query_params.update(query)
        at.user = {}
        at.run()
        at._page_hash = calc_hash("regimes")
        at.run()
        assert not at.exception and not at.error
        return at


@pytest.fixture
def desk(tmp_path, record):
    made = Desk(tmp_path / "root", record)
    st.cache_data.clear()
    yield made
    made.monitor.store.close()


def said(at):
    return " | ".join(
        str(one.value) for kind in (at.text, at.caption, at.info, at.warning, at.markdown) for one in kind
    )


def test_the_matrix_the_sliders_and_the_published_windows_are_there(desk):
    desk.run(updates=2)
    at = desk.open()
    metrics = {metric.label: metric.value for metric in at.metric}
    assert {"Tokens", "Clipped", "Mean w", "Grad mass", "Δ entropy"} <= set(metrics)
    assert [metric.value for metric in at.metric if metric.label == "Clipped"] == [
        "0 %",
        "no tokens",
        "no tokens",
        "100 %",
    ]
    assert "scaled up from 10 % of the tokens" in said(at) and "w = r · w ≥ 1" in said(at)
    assert [slider.value for slider in at.select_slider] == [0.8, 11.0, 1.0, 101.0]
    assert "Move a bound above" in said(at) and "would change" not in said(at)
    rows = at.dataframe[-1].value
    assert list(rows["window"])[:2] == ["DISPO", "CISPO"] and rows["R4"][0] == "0 % · 22 %"
    assert rows["tokens changed"][0].startswith("16,000") and rows["note"][3] == "beyond the limits"


def test_a_bound_of_the_address_is_replayed_and_can_be_reviewed(desk):
    desk.run()
    at = desk.open(neg_min="0", pos_max="junk")
    assert [slider.value for slider in at.select_slider] == [0.8, 11.0, 0.0, 101.0]
    assert "8,000 of 22,000 tokens would change" in said(at)
    effects = at.dataframe[0].value
    assert list(effects["clipped then"]) == ["0 %", "0 %", "0 %", "0 %"] and effects["clipped now"][3] == "100 %"
    assert any("Review in Control" in str(link.proto) for link in at.get("page_link"))


def test_nothing_is_recommended_where_nothing_would_change(desk):
    desk.run()
    at = desk.open(neg_max="50")
    assert "0 of 22,000 tokens would change" in said(at)
    assert not [link for link in at.get("page_link") if "Review in Control" in str(link.proto)]


def test_a_read_only_server_and_bounds_beyond_the_limits_offer_no_review(desk):
    desk.run()
    for at in (desk.open(read_only=True, neg_min="0"), desk.open(neg_min="0", neg_max="0.5")):
        assert "would change" in said(at)
        assert not [link for link in at.get("page_link") if "Review in Control" in str(link.proto)]
    assert "would reject" in said(at)


def test_moving_a_slider_moves_the_address_and_the_prediction(desk):
    desk.run()
    at = desk.open()
    at.select_slider[2].set_value(0.3).run()
    assert at.query_params["neg_min"] in ("0.3", ["0.3"])
    assert "8,000 of 22,000 tokens would change" in said(at)
    at.button(key="bounds-back").click().run()
    assert at.select_slider[2].value == 1.0 and "Move a bound above" in said(at)


def test_the_table_of_lags_is_of_the_run_whatever_part_is_shown(desk):
    recorder = desk.run(steps=range(0))
    for step in range(40):
        lag = "0" if step < 5 else "2"
        recorder.buckets(step, 0, stats(), revision=0, bounds=TIGHT)
        recorder.buckets(step, 0, stats(), revision=0, bounds=TIGHT, slice=("lag", "5+" if step == 30 else lag))
        recorder.ratio_hist(step, stats(), slice=("lag", lag))
        recorder.step(step, {"accuracy": 0.5})
    while desk.monitor.tick():
        pass
    for part in ("0", "1"):
        at = desk.open(slice=part)
        table = at.dataframe[0].value
        assert list(table["lag"]) == ["2", "5+"] and list(table["steps"]) == ["19", "1"]
    assert "No buckets in the last 20 steps of this part" in said(at) and "2,000 tokens of 5 steps" in said(at)


def test_an_update_can_be_looked_at_alone_and_an_unknown_one_is_all(desk):
    desk.run(updates=3)
    assert "Step 21, update 1" in said(desk.open(update="1"))
    assert "Step 21;" in said(desk.open(update="9"))


def test_a_step_with_fewer_updates_keeps_the_choice_and_says_so(desk):
    recorder = desk.run(updates=3)
    at = desk.open(update="2")
    write(recorder, range(22, 23), updates=2)
    while desk.monitor.tick():
        pass
    at.run()
    assert "Step 22, which has no update 2: all of it" in said(at)
    assert at.session_state["update_picker"] == "2"


@pytest.mark.parametrize(("lag", "word"), [(0.0, "engine mismatch"), (3.0, "drift since generation")])
def test_clipping_at_update_0_is_a_mismatch_at_lag_0_only(desk, lag, word):
    desk.run(lag=lag, clip_high=6)
    assert word in said(desk.open())


def test_without_histograms_the_panel_is_off_and_names_what_to_log(desk):
    desk.run(histogram=False)
    at = desk.open()
    assert "Recorder.ratio_hist" in said(at) and not at.select_slider and len(at.metric) > 8


def test_without_buckets_and_without_a_step_the_page_says_so(desk):
    recorder = desk.run(steps=range(0))
    assert "No step yet" in said(desk.open())
    recorder.step(0, {"accuracy": 0.5})
    while desk.monitor.tick():
        pass
    assert "Recorder.buckets" in said(desk.open()) and "Recorder.ratio_hist" in said(desk.open())


def test_proximal_ratios_are_inert_and_sequences_are_no_tokens(desk):
    desk.run(header={"ratio_source": "proximal"})
    at = desk.open()
    assert "Clip signals inert" in said(at) and not at.select_slider and "would change" not in said(at)


def test_a_gspo_run_shows_sequences_and_no_prediction(desk):
    desk.run(header={"rule": GSPO, "limits": None, "can": ()})
    at = desk.open(neg_min="0.5")
    assert "shares of sequences" in said(at) and "A > 0, s > 1" in said(at)
    assert not at.select_slider and "whole sequences" in said(at)


def test_one_step_and_sums_that_are_no_numbers_are_drawn(desk):
    desk.run(steps=range(1), scale=math.nan)
    at = desk.open(neg_min="0")
    assert "400 of 1,100 tokens would change" in said(at)
    assert list(at.dataframe[0].value["gradient mass then"]) == ["\N{EN DASH}"] * 4


def dashed_bound(side, ratio):
    """Page function: the only dashed line of this histogram stands at this ratio."""
    lines = f"document.querySelector('.st-key-ratio-{side} .js-plotly-plot')?._fullLayout.shapes"
    return f"() => {lines}.filter(s => s.line.dash === 'dash').map(s => Math.exp(s.x0).toFixed(2)).join() === '{ratio}'"


def test_in_the_browser_a_slider_moves_the_bound_the_what_if_and_the_link(tmp_path, record, serve, page):
    root = tmp_path / "root"
    recorder = record(root / "run", rule=WeightRule.capped(TIGHT), limits=Limits())
    ControlFolder(root / "run", launch=recorder.launch, can=())
    write(recorder, range(22), updates=2)
    server = serve(root)
    page.set_default_timeout(SLOW_MS)
    page.goto(server.address + "/regimes?run=run&neg_min=0.3")
    expect(page.get_by_text("16,000 of 44,000 tokens would change")).to_be_visible(timeout=SLOW_MS)
    expect(page.locator(".st-key-ratio-neg .js-plotly-plot")).to_be_visible(timeout=SLOW_MS)
    page.wait_for_function(dashed_bound("neg", "0.30"))
    page.get_by_role("slider", name=re.compile("w_max of A>0")).press("Home")  # its lowest stop, 1
    expect(page.get_by_text("40,000 of 44,000 tokens would change")).to_be_visible(timeout=SLOW_MS)
    page.wait_for_function(dashed_bound("pos", "1.00"))
    page.wait_for_function("() => /neg_min=0.3(&|$)/.test(location.search) && /pos_max=1(&|$)/.test(location.search)")
    link = page.get_by_role("link", name=re.compile("Review in Control"))
    expect(link).to_have_attribute("href", re.compile("control.*pos_max=1&neg_min=0.3&"), timeout=SLOW_MS)
    expect(page.get_by_test_id("stDataFrame").nth(1)).to_be_visible(timeout=SLOW_MS)
    write(recorder, range(22, 24), updates=2)  # charts stay, and say that the run went on
    expect(page.get_by_text("the run is 2 steps further")).to_be_visible(timeout=SLOW_MS)
    expect(page.get_by_text("40,000 of 44,000 tokens would change")).to_be_visible(timeout=SLOW_MS)
    page.get_by_role("button", name=re.compile("Bring up to date")).click()
    expect(page.get_by_text("Charts and what-if as of step 23.")).to_be_visible(timeout=SLOW_MS)
