"""Guards speak from the first point on."""

import math
import random

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


def failing(failed, rollouts):
    return {"infra_failed_frac": failed / rollouts, "infra_failed_frac.n": float(rollouts)}


def found_at(rows):
    return [(f.severity, f.step_onset, f.step_detected) for f in run(rows).values()]


def test_infra_failed_levels():
    assert found_at([failing(13, 256)]) == [("warning", 0, 0)]
    assert found_at([failing(52, 256)]) == [("critical", 0, 0)]
    assert run([failing(5, 256)]) == run([failing(6, 256)]) == {}  # 2 %, and what chance gives now and then


@pytest.mark.parametrize("rollouts", [24, 32, 64, 128, 256, 512, 4096])
def test_a_fifth_of_the_rollouts_failing_is_found_at_once(rollouts):
    assert found_at([failing(1, rollouts), failing(rollouts // 5 + 1, rollouts)])[0][0] == "critical"


@pytest.mark.parametrize(("rollouts", "points"), [(512, 1), (256, 1), (128, 2), (96, 3), (32, 7)])
def test_one_in_twenty_failing_is_found_within_some_150_rollouts(rollouts, points):
    """13 of 256 at once, a smaller batch as soon as it has added up."""
    failed = [round(0.0508 * rollouts * (i + 1)) - round(0.0508 * rollouts * i) for i in range(10)]
    ((severity, onset, detected),) = found_at([failing(0, rollouts)] * 20 + [failing(n, rollouts) for n in failed])
    assert severity == "warning" and 20 <= onset <= 21 and detected - 19 <= points


@pytest.mark.parametrize("rollouts", [16, 32, 64, 128, 256, 512])
def test_random_failures_of_one_in_150_are_no_warning(rollouts):
    """At most 0.05 per 1,000 steps; a limit of 2 % of a batch gave some 7 with batches of 256."""
    rng = random.Random(rollouts)
    rows = [failing(sum(rng.random() < 0.0067 for _ in range(rollouts)), rollouts) for _ in range(5_000)]
    assert max(row["infra_failed_frac"] for row in rows) > 0.02 or rollouts > 256
    assert run(rows) == {}


def test_without_the_number_of_rollouts_two_points_are_needed():
    assert run([{"infra_failed_frac": 0.05}, *[{"infra_failed_frac": 0.0}] * 3] * 5) == {}
    assert found_at([{"infra_failed_frac": 0.05}] * 3) == [("warning", 0, 1)]
    assert found_at([{"infra_failed_frac": 0.3}]) == [("critical", 0, 0)]


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
