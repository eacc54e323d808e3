"""Bounds, weight rules and limits: the values of the published objectives, the wire, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor.bounds import Bounds, Limits, SignBounds, SignLimits, SignRule, WeightRule
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.wire import encode

DISPO = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
GRPO = WeightRule(pos=SignRule(drop_above=1.2), neg=SignRule(drop_below=0.8))
ASPO = SignRule(base="1/r", cap_high=3.0, drop_above=1.2)
SFT = WeightRule(pos=SignRule(base="1"), neg=SignRule(base="1", cap_low=0.0, cap_high=0.0))


@st.composite
def sides(draw: st.DrawFn) -> SignBounds:
    low = draw(st.floats(0, 50))
    return SignBounds(w_min=low, w_max=draw(st.floats(low, 200) | st.just(math.inf)))


all_bounds = st.builds(Bounds, pos=sides(), neg=sides())
rules = st.sampled_from(
    [SignRule(), GRPO.pos, GRPO.neg, SignRule(cap_low=0.8, cap_high=11.0), ASPO, SignRule(base="s", drop_above=1.1)]
)


def over_the_wire(value: dict[str, Any]) -> dict[str, Any]:
    back: dict[str, Any] = json.loads(encode({"v": 1, "k": "header", **value}))
    return back


def test_eps_views() -> None:
    assert (DISPO.pos.eps_low, DISPO.pos.eps_high, DISPO.neg.eps_low, DISPO.neg.eps_high) == (0.2, 10.0, 1.0, 100.0)


@given(all_bounds)
def test_bounds_round_trip(bounds: Bounds) -> None:
    assert Bounds.from_wire(over_the_wire(bounds.to_wire())) == bounds


@pytest.mark.parametrize(
    "low, high", [(-0.1, 1), (2, 1), (math.nan, 1), (0, math.nan), (math.inf, math.inf), (0, -math.inf)]
)
def test_impossible_bounds(low: float, high: float) -> None:
    with pytest.raises(BoundsError):
        SignBounds(w_min=low, w_max=high)


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        "pos",
        {},
        {"pos": [0, 1]},
        {"pos": [0, 1], "neg": 3},
        {"pos": [0, 1], "neg": [0]},
        {"pos": [0, 1], "neg": [0, 1, 2]},
        {"pos": "12", "neg": [0, 1]},
        {"pos": [0, 1], "neg": ["0", "1"]},
        {"pos": [0, None], "neg": [0, 1]},
        {"pos": [0, 10**400], "neg": [0, 1]},
    ],
)
def test_bounds_that_are_none(wire: Any) -> None:
    with pytest.raises(BoundsError):
        Bounds.from_wire(wire)


def test_some_values_replaced() -> None:
    assert DISPO.with_values({"neg.w_max": 5, "pos.w_min": 0}).to_wire() == {"pos": [0.0, 11.0], "neg": [0.0, 5.0]}
    for key in ("neg.max", "w_max", "zero.w_min", "pos."):
        with pytest.raises(BoundsError, match="no such bound"):
            DISPO.with_values({key: 1})
    with pytest.raises(BoundsError):
        DISPO.with_values({"pos.w_max": 0.5})  # below w_min


def test_active_limits_of_the_published_rules() -> None:
    assert GRPO.bounds.to_wire() == {"pos": [0.0, 1.2], "neg": [0.8, math.inf]}
    assert ASPO.bounds == SignBounds(w_min=0.0, w_max=3.0)  # the cap, not the drop
    assert WeightRule.capped(DISPO).bounds == DISPO


@given(rules, sides())
def test_moved_limits_are_the_limits(rule: SignRule, bounds: SignBounds) -> None:
    assert rule.with_bounds(bounds).bounds == bounds
    assert rule.with_bounds(rule.bounds) == rule


def test_a_drop_stays_a_drop() -> None:
    moved = GRPO.with_bounds(Bounds(pos=SignBounds(w_min=0.0, w_max=1.28), neg=SignBounds(w_min=0.7, w_max=math.inf)))
    assert moved == WeightRule(pos=SignRule(drop_above=1.28), neg=SignRule(drop_below=0.7))


@given(rules, rules)
def test_rules_round_trip(pos: SignRule, neg: SignRule) -> None:
    rule = WeightRule(pos=pos, neg=neg)
    assert WeightRule.from_wire(over_the_wire(rule.to_wire())) == rule


@pytest.mark.parametrize(
    "side", [None, "r", {}, {"base": "2"}, {"base": "r", "cap_low": "x"}, {"base": "r", "cap_low": 2, "cap_high": 1}]
)
def test_rules_that_are_none(side: Any) -> None:
    with pytest.raises(BoundsError):
        WeightRule.from_wire({"pos": side, "neg": {"base": "r"}})


def test_default_limits_take_every_published_row() -> None:
    for bounds in (
        DISPO,
        Bounds.from_wire({"pos": [1, 6], "neg": [1, 6]}),
        Bounds.from_wire({"pos": [0, 1.2], "neg": [0.9, 1.1]}),
    ):
        assert Limits().problems(bounds) == []


def test_problems_name_bound_value_and_limits() -> None:
    bounds = Bounds.from_wire({"pos": [1.5, 11], "neg": [0, "Infinity"]})
    assert Limits().problems(bounds) == [
        "pos.w_min = 1.5 is outside the limits [0, 1]",
        "neg.w_max = inf is outside the limits [1, 101]",
    ]
    assert Limits(pos=None, neg=None).problems(bounds) == []


def test_limits_fitted_to_a_rule() -> None:
    limits = Limits.for_rule(GRPO)
    assert limits.problems(GRPO.bounds) == []
    assert limits.neg == SignLimits(w_max=(1.0, math.inf))
    assert limits.pos == SignLimits()
    assert Limits.for_rule(SFT) == Limits(pos=None, neg=None)


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(pos=None), Limits(neg=SignLimits(w_max=(1.0, math.inf)), max_factor=3, min_steps=0)]
)
def test_limits_round_trip(limits: Limits) -> None:
    assert Limits.from_wire(over_the_wire(limits.to_wire())) == limits


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        {"pos": 1},
        {"pos": {"w_min": [0, 1]}},
        {"pos": {"w_min": [1, 0], "w_max": [1, 2]}},
        {"max_factor": 0},
        {"min_steps": "x"},
        {"min_steps": float("inf")},
        {"max_factor": "NaN"},
    ],
)
def test_limits_that_are_none(wire: Any) -> None:
    with pytest.raises(BoundsError):
        Limits.from_wire(wire)
