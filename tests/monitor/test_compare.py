"""Two runs on one axis: where they go apart, and what of their settings differs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.detectors import load_rules
from regimescope.monitor.compare import Curve, common, differing, diverged, flat, place
from regimescope.monitor.departures import departure, watched_metrics

RULES = load_rules()
WATCHED = {w.name: w for w in watched_metrics(RULES)}
LENGTH = WATCHED["response_length_mean"]
WAVE = np.array([0.02 * ((7 * i) % 5 - 2) for i in range(60)])


def curve(values, x=None):
    values = np.asarray(values, dtype=float)
    return Curve(x=np.arange(len(values), dtype=float) if x is None else np.asarray(x, dtype=float), values=values)


def steady(level=400.0, n=60):
    return level * np.exp(WAVE[:n])


def falling(onset=30, n=60, low=60.0):
    values = steady(n=n)
    values[onset:] = low * np.exp(WAVE[onset:n])
    return values


def test_runs_go_apart_where_one_of_them_falls():
    found = diverged(curve(falling(30)), curve(steady()), LENGTH)
    assert found is not None and (found.x, found.name) == (30.0, "response_length_mean")
    assert found.a < 100 < found.b


def test_which_run_is_the_first_changes_the_sides_and_not_the_step():
    one, other = (
        diverged(curve(falling()), curve(steady()), LENGTH),
        diverged(curve(steady()), curve(falling()), LENGTH),
    )
    assert (one.x, one.a, one.b) == (other.x, other.b, other.a)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1) | st.just(float("nan")), max_size=60), st.sampled_from(sorted(WATCHED)))
def test_a_run_never_goes_apart_from_itself(values, name):
    assert diverged(curve(values), curve(values), WATCHED[name]) is None


@settings(max_examples=30, deadline=None)
@given(st.floats(0.2, 5.0))
def test_a_constant_factor_is_no_going_apart(factor):
    assert diverged(curve(steady()), curve(factor * steady()), LENGTH) is None


def test_a_difference_that_passes_is_none():
    values = steady()
    values[30:33] = 60
    assert diverged(curve(values), curve(steady()), LENGTH) is None


def test_runs_that_come_together_do_not_go_apart():
    values = 4 * steady()
    values[20:] = steady()[20:]
    assert diverged(curve(values), curve(steady()), LENGTH) is None
    assert diverged(curve(steady()), curve(values), LENGTH) is None


def test_too_few_common_points_say_nothing():
    assert diverged(curve(falling(2, n=7)), curve(steady(n=7)), LENGTH) is None


def test_values_that_are_not_finite_are_passed_over():
    values = falling(30)
    values[[3, 31]] = [np.nan, np.inf]
    x, _, _ = common(curve(values), curve(steady()))
    assert len(x) == 58 and diverged(curve(values), curve(steady()), LENGTH).x == 30


def test_steps_from_an_onset_and_tokens():
    steps = np.array([2, 3, 4])
    assert place(steps, "step").tolist() == [2, 3, 4]
    assert place(steps, "onset", onset=3).tolist() == [-1, 0, 1]
    tokens = curve([10, np.nan, 30], x=[2, 3, 4])
    assert place([1, 2, 3, 4, 9], "tokens", tokens=tokens).tolist() == [0, 10, 10, 40, 40]


def test_on_axes_without_common_points_the_second_is_read_at_the_last_point_before():
    x, a, b = common(curve([1, 2, 3, 4], x=[0, 10, 20, 30]), curve([5, 6, 7], x=[1, 11, 21]))
    assert (x.tolist(), a.tolist(), b.tolist()) == ([10, 20], [2, 3], [5, 6])


def test_settings_are_named_by_their_path_and_those_that_differ_are_listed():
    a = flat({"update": {"lr": 0.1, "passes": 2}, "seed": 1, "empty": {}})
    assert a == {"update.lr": "0.1", "update.passes": "2", "seed": "1", "empty": "{}"}
    assert differing(a, {"update.lr": "0.2", "update.passes": "2", "seed": "1", "empty": "{}", "new": "x"}) == [
        ("new", None, "x"),
        ("update.lr", "0.1", "0.2"),
    ]


def test_a_metric_leaves_its_reference_where_it_falls():
    found = departure(list(range(60)), falling(30).tolist(), LENGTH, RULES)
    assert found is not None and not found.rises
    assert (found.step, found.before) == (29, pytest.approx(400, rel=0.05))
    assert 30 < found.seen < 40 and found.after < 100


def test_a_steady_metric_leaves_nothing_and_one_below_the_rule_neither():
    assert departure(list(range(60)), steady().tolist(), LENGTH, RULES) is None
    assert departure(list(range(60)), falling(30, low=300).tolist(), LENGTH, RULES) is None  # ln 4/3 < ln 1.5


def test_a_change_of_bounds_begins_a_new_reference():
    values = falling(30).tolist()
    assert departure(list(range(60)), values, LENGTH, RULES, reseats=[30]) is None
    assert departure(list(range(60)), values, LENGTH, RULES, reseats=[10]).step == 29


def test_every_number_of_a_departure_comes_from_the_rules_in_force():
    names = {rule.metric for rule in RULES} | {"grad_norm", "kl_step", "kl_ref", "truncated_frac"}
    plain = [w for w in WATCHED if "." not in w]
    assert set(plain) <= names and {f"R{i}.grad_mass" for i in (1, 2, 3, 4)} < set(WATCHED)
    assert (LENGTH.down, LENGTH.up) == (0.405, 0.5878)
