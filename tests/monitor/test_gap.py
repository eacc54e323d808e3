"""The gap between the weights in force and DISPO's: equal to a recount over the tokens, and in the detectors' input."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor.bounds import Bounds, SignBounds
from regimescope.monitor.edges import LR1
from regimescope.monitor.gap import DISPO, bins_below, side_gaps
from regimescope.monitor.timeline import read_launches, read_span, steps_after
from regimescope.monitor.token_stats import RatioHist

CISPO = SignBounds(w_min=0.0, w_max=101.0)
PUBLISHED = [CISPO, DISPO.pos, SignBounds(w_min=1.0, w_max=101.0), SignBounds(w_min=0.0, w_max=math.inf)]


def histogram(tokens: list[tuple[float, float]]) -> RatioHist:
    """Of (log r, |A|)."""
    bins = len(LR1) + 1
    columns = [[0.0] * bins for _ in range(4)]
    for log_r, adv in tokens:
        i, r = bisect_right(LR1, log_r), math.exp(log_r)
        for column, value in zip(columns, (1, r, adv, r * adv), strict=True):
            column[i] += value
    counts, *sums = columns
    ratio, adv_sum, both = (tuple(column) for column in sums)
    return RatioHist(
        counts=tuple(map(int, counts)), ratio_sum=ratio, abs_adv_sum=adv_sum, abs_adv_ratio_sum=both
    )  # fmt: skip


def mass(tokens: list[tuple[float, float]], side: SignBounds, *, above: bool) -> float:
    """w|A| of the tokens with r beyond 1 on one side, token by token."""
    part = [(math.exp(log_r), adv) for log_r, adv in tokens if (log_r > 0) == above]
    return sum(min(max(r, side.w_min), side.w_max) * adv for r, adv in part)


@given(
    tokens=st.lists(st.tuples(st.floats(-6, 6), st.floats(0.1, 3)), max_size=40),
    now=st.sampled_from(PUBLISHED),
    other=st.sampled_from(PUBLISHED),
)
def test_the_gap_is_that_of_a_recount_over_the_tokens(tokens, now, other):
    hist = histogram(tokens)
    sums = []
    for name in ("w_min", "w_max"):
        for side in (now, other):
            cut = bins_below(LR1, getattr(side, name))
            part = slice(cut) if name == "w_min" else slice(cut, None)
            sums += [sum(hist.abs_adv_sum[part]), sum(hist.abs_adv_ratio_sum[part])]
    gaps = side_gaps(sums, now, other)
    direct = [mass(tokens, other, above=above) - mass(tokens, now, above=above) for above in (False, True)]
    assert gaps == pytest.approx(direct, abs=1e-6)


@pytest.mark.parametrize(("kind", "expected"), [("cispo", 0.3), ("dispo", 0.0)])
def test_the_detectors_are_given_it_per_regime(trainer, watch, kind, expected):
    """CISPO has no lower bound for A>0: a token with |A| = 1 at r = 1/2 lacks .3 of weight."""
    trainer.bounds = Bounds(pos=CISPO, neg=CISPO) if kind == "cispo" else DISPO
    hist = histogram([(math.log(0.5), 1.0), (0.1, 1.0)])
    with trainer.open() as recorder:
        trainer.step(recorder, 0)
        recorder.ratio_hist(0, replace(trainer.stats(), hist_pos=hist, hist_neg=histogram([(-0.3, 1.0)])))
        trainer.step(recorder, 1)
    monitor = watch()
    monitor.catch_up()
    with monitor.store.cursor() as con:
        (launch,) = read_launches(con, 1)
        points = read_span(con, 1, launch, steps_after(con, 1, launch, -1))
    total = sum(trainer.stats().abs_adv_weight_sum)
    gaps = {f"R{i}.dispo_gap": points[0].metrics[f"R{i}.dispo_gap"] * total for i in (1, 2, 3, 4)}
    assert gaps == pytest.approx({"R1.dispo_gap": 0, "R2.dispo_gap": expected, "R3.dispo_gap": 0, "R4.dispo_gap": 0})
    assert "R2.dispo_gap" not in points[1].metrics  # no histogram, no gap
