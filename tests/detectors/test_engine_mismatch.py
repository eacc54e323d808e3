"""engine_mismatch: a shift of each estimator, beside its level, in one alert."""

import random

import pytest

from regimescope.detectors import Event, Suite, load_rules

CASES = [("mismatch_k1", 0.001, 0.02), ("mismatch_logp_abs", 0.01, 0.08), ("mismatch_k3", 0.0002, 0.003)]


def series(name, before, after, when=30, steps=60):
    rng = random.Random(3)
    return [{name: (after if step >= when else before) * (1 + 0.1 * rng.gauss(0, 1))} for step in range(steps)]


def run(rows, events=None, suite=None):
    suite = suite or Suite()
    for step, row in enumerate(rows):
        suite.update(step, row, (events or {}).get(step, ()))
    return suite.findings()


@pytest.mark.parametrize(("name", "before", "after"), CASES)
def test_a_shift_far_below_the_level_warns(rules, name, before, after):
    (found,) = run(series(name, before, after))
    assert (found.rule, found.signature, found.severity) == (name, "engine_mismatch", "warning")
    assert found.text == rules[f"{name}_shift"].text and after < rules[name].levels["warning"].value
    assert 28 <= found.step_onset <= 30 < found.step_detected <= 35
    assert found.driver is None and found.remedy.bound is None and found.remedy.text.startswith("Not a bound")


@pytest.mark.parametrize(("name", "before", "after"), CASES)
def test_less_than_fourfold_and_what_is_too_small_are_silent(rules, name, before, after):
    assert run(series(name, before, 3 * before)) == []
    assert run(series(name, after * 1e-6, 0.7 * rules[f"{name}_shift"].levels["warning"].value)) == []


def test_the_sign_of_k1_does_not_matter():
    (found,) = run(series("mismatch_k1", 0.001, -0.03))
    assert found.rule == "mismatch_k1" and found.evidence["mismatch_k1"] < 0


def test_one_alert_rises_from_shift_to_level():
    rows = series("mismatch_k1", 0.001, 0.03, steps=40) + series("mismatch_k1", 2.0, 2.0, steps=5)
    (found,) = run(rows)
    assert found.severity == "critical" and found.step_detected <= 35


def test_either_part_may_be_switched_off(tmp_path):
    def without(name):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'[[rule]]\nname = "{name}"\nenabled = false\n')
        return Suite(load_rules(path))

    shift, level = series("mismatch_k1", 0.001, 0.03), [{"mismatch_k1": 0.5}] * 3
    assert run(shift, suite=without("mismatch_k1_shift")) == [] and run(level, suite=without("mismatch_k1")) == []
    assert len(run(shift, suite=without("mismatch_k1"))) == len(run(level, suite=without("mismatch_k1_shift"))) == 1


@pytest.mark.parametrize(
    ("syncs", "named"), [([10, 20, 30], True), ([20], False), (range(60), False)], ids=["on it", "far", "every step"]
)
def test_a_weight_sync_is_named_where_it_tells_something(syncs, named):
    events = {step: [Event(kind="sync", step=step)] for step in syncs}
    (found,) = run(series("mismatch_k1", 0.001, 0.03), events)
    assert ("weight sync of step 30" in found.remedy.text) is named
    assert found.evidence.get("weight_sync") == (30 if named else None)


def test_after_a_resume_the_shift_waits_and_the_level_does_not():
    rows = series("mismatch_k1", 0.001, 0.03, when=33, steps=40)
    resumed = {30: [Event(kind="resume", step=30)]}
    assert run(rows, resumed) == []
    (found,) = run([*rows[:33], {"mismatch_k1": 0.5}], resumed)
    assert found.step_detected == 33


@pytest.mark.parametrize("family", ["plain", "learning", "resume step"])
def test_healthy_noise_is_silent_and_a_jump_is_found(traces, side_traces, family):
    noise = traces.Noise(phi=0.8, tails="t4")
    rows = side_traces.with_sides(traces.healthy(family, 400, 5, noise), family, 5, noise)
    assert [found for found in run(rows) if found.signature == "engine_mismatch"] == []
    found = [f for f in run(side_traces.side_incident("mismatch", 20, 60, 4)) if f.signature == "engine_mismatch"]
    assert {f.rule for f in found} == set(side_traces.MISMATCH) and max(f.step_detected for f in found) <= 24
