"""Guards speak from the first point on."""

import math

import pytest

from regimescope.detectors import Suite


def run(rows):
    suite = Suite()
    for step, row in enumerate(rows):
        suite.update(step, row)
    return {(f.rule, f.severity): f for f in suite.findings()}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["loss", "grad_norm", "entropy_mean", "R3.grad_mass"])
def test_nonfinite(name, value):
    found = run([{name: 1.0, "lr": 1.0}, {name: value, "lr": 1.0}])["nonfinite", "critical"]
    assert (found.step_onset, found.step_detected) == (1, 1) and found.evidence == {name: str(value)}


@pytest.mark.parametrize(
    "row",
    [
        {"reward_mean": math.nan},
        {"pos.w_max": math.inf},
        {"R1.w_max": math.inf},
        {"R1.ratio_mean": math.nan, "R1.token_frac": 0.0},
        {"grad_norm": 1e308, "loss": 1e308},  # their sum overflows, they do not
    ],
)
def test_finite_enough(row):
    assert run([row] * 3) == {}


def test_an_infinite_bound_hides_no_other_metric(traces):
    rows = traces.incident("length", 60, 100, 3)
    plain = run(rows)
    assert plain
    assert run([row | {"neg.w_max": math.inf, "R2.w_max": math.inf} for row in rows]) == plain


def test_length_floor_from_the_second_point():
    found = run([{"response_length_mean": x} for x in (35.0, 4.0, 4.0)])["length_collapse", "critical"]
    assert (found.step_onset, found.step_detected) == (1, 2)
    assert found.evidence["length_floor"] == 5 and found.text.startswith("Responses are next to nothing")


def test_length_floor_scales_with_long_answers_and_is_not_armed_by_short_ones():
    assert ("length_collapse", "critical") in run([{"response_length_mean": x} for x in (4000.0, 190.0, 190.0)])
    assert run([{"response_length_mean": x} for x in (12.0, 3.0, 3.0, 3.0)]) == {}


def test_length_floor_is_higher_where_accuracy_is_dead():
    lengths = [40.0] * 6 + [9.0] * 8
    alive = run([{"response_length_mean": x, "accuracy": 0.5} for x in lengths[:9]])
    dead = run([{"response_length_mean": x, "accuracy": 0.5 if i < 3 else 0.01} for i, x in enumerate(lengths)])
    assert ("length_collapse", "critical") not in alive
    assert dead["length_collapse", "critical"].evidence["length_floor"] == 5


def test_repetition_level():
    found = run([{"rep4_mean": x} for x in (0.1, 0.6, 0.7, 0.8)])["repetition_collapse", "critical"]
    assert (found.step_onset, found.step_detected) == (1, 3)


def test_repetition_level_only_warns_where_it_was_so_from_the_start():
    assert list(run([{"rep4_mean": 0.6}] * 30)) == [("repetition_collapse", "warning")]


def test_accuracy_floor_from_the_start():
    found = run([{"accuracy": x} for x in [0.6, 0.3, 0.06, 0.04] + [0.03] * 8])["accuracy_floor", "critical"]
    assert found.signature == "accuracy_collapse" and found.step_detected <= 10


def test_accuracy_floor_needs_an_accuracy_to_lose():
    assert run([{"accuracy": x} for x in [0.08] * 5 + [0.0] * 20]) == {}


def test_truncation_saturated():
    found = run([{"truncated_frac": x} for x in [0.1] + [0.95] * 5])["truncation_saturated", "warning"]
    assert (found.step_onset, found.step_detected) == (1, 5)


@pytest.mark.parametrize(
    ("name", "warning", "critical"),
    [("mismatch_k1", -0.2, -1.5), ("mismatch_logp_abs", 0.3, 1.5), ("mismatch_k3", 0.06, 1.5)],
)
def test_mismatch_level_per_estimator(name, warning, critical):
    assert list(run([{name: warning}])) == [(name, "warning")]
    found = run([{name: 0.001}, {name: critical}])[name, "critical"]
    assert found.signature == "engine_mismatch" and found.driver is None and found.remedy.bound is None
    assert run([{name: 0.001}] * 5) == {}


def test_infra_failed_levels():
    assert list(run([{"infra_failed_frac": 0.05}])) == [("infra_failed", "warning")]
    assert list(run([{"infra_failed_frac": 0.3}])) == [("infra_failed", "critical")]
    assert run([{"infra_failed_frac": 0.02}]) == {}


def test_points_without_a_verdict_on_the_policy_enter_nothing():
    """Rollouts that failed for infrastructure look like empty, wrong answers."""
    good = {"response_length_mean": 400.0, "accuracy": 0.6, "accuracy.n": 256.0, "infra_failed_frac": 0.0}
    bad = {
        "response_length_mean": 1.0,
        "accuracy": 0.0,
        "accuracy.n": 256.0,
        "truncated_frac": 1.0,
        "infra_failed_frac": 0.9,
    }
    assert list(run([good] * 15 + [bad] * 12 + [good] * 30)) == [("infra_failed", "critical")]
