"""negative_push: R4 is pushed down further and further."""

import random

import pytest

from regimescope.detectors import Event, Suite

BEHAVIOUR = {"objective": "dispo", "ratio_source": "behaviour", "neg.w_min": 1.0, "neg.w_max": 101.0}


def run(rows, declared=BEHAVIOUR):
    suite = Suite()
    for step, row in enumerate(rows):
        suite.update(step, row, [Event(kind="start", step=0, data=declared)] if step == 0 else ())
    return [found for found in suite.findings() if found.signature == "negative_push"]


def series(when=30, steps=60, **change):
    """Metrics that go from the first to the second value at `when`, with noise; names without their dots."""
    rng = random.Random(5)
    names = {"log_ratio": "R4.log_ratio_mean", "share": "R4.token_frac", "clip": "R4.clip_low_frac"}
    return [
        {
            names.get(name, name): pair[step >= when] * (1 + 0.05 * rng.gauss(0, 1))
            for name, pair in change.items()
        }
        for step in range(steps)
    ]  # fmt: skip


def test_a_deeper_ratio_is_an_info_and_with_the_gradient_norm_a_warning():
    (alone,) = run(series(log_ratio=(-0.12, -0.5)))
    assert alone.severity == "info" and 28 <= alone.step_onset <= 30 < alone.step_detected <= 36
    (both,) = run(series(log_ratio=(-0.12, -0.5), grad_norm=(0.3, 1.5)))
    assert both.severity == "warning"


def test_a_larger_share_counts_as_well():
    (found,) = run(series(share=(0.15, 0.4), log_ratio=(-0.1, -0.1)))
    assert found.severity == "info" and found.evidence["share_effect"] > 0.7


@pytest.mark.parametrize("pair", [(-0.3, -0.5), (-0.05, -0.2), (-0.5, -0.1)], ids=["less than double", "small", "back"])
def test_silent(pair):
    assert run(series(log_ratio=pair)) == []


@pytest.mark.parametrize("source", ["proximal", "infer"])
def test_silent_where_the_ratio_is_to_another_policy(source):
    assert run(series(log_ratio=(-0.12, -0.5)), BEHAVIOUR | {"ratio_source": source}) == []


def test_the_bound_is_named_only_where_it_binds():
    (found,) = run(series(log_ratio=(-0.12, -0.5), share=(0.2, 0.2), clip=(1.0, 1.0)))
    assert (found.driver, found.remedy.bound, found.remedy.direction, found.remedy.target) == (
        "R4", "neg.w_min", "lower", 0,
    )  # fmt: skip
    (found,) = run(series(log_ratio=(-0.12, -0.5), share=(0.2, 0.2), clip=(0.0, 0.0)))
    assert found.driver is None and found.evidence["candidates"] == "R4" and found.remedy.bound is None


def test_healthy_noise_is_silent_and_a_push_is_found(traces, side_traces):
    noise = traces.Noise(phi=0.8, tails="t4")
    assert run(side_traces.with_sides(traces.healthy("learning", 400, 6, noise), "learning", 6, noise)) == []
    (found,) = run(side_traces.side_incident("push", 200, 240, 7))
    assert found.severity == "warning" and 200 <= found.step_detected <= 220


def test_a_recorded_run_shows_it(golden, given_runs):
    """Repetition collapse with R4 off, stale rollouts: there, and later than accuracy is half gone (step 10)."""
    rows = given_runs.read_rows(golden.FOLDER / "r4off_B_st4_s0.csv")
    (found,) = [f for f in given_runs.replay(rows, "dispo") if f.signature == "negative_push"]
    assert found.severity == "info" and found.driver == "R4" and found.remedy.bound == "neg.w_min"
