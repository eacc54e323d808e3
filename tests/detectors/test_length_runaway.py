"""length_runaway: growth alone is an info; with truncation it warns, unless reward rises as well."""

import pytest

from regimescope.detectors import Event, Suite
from regimescope.detectors.incidents import inhibited

NAME = "length_runaway"


def ramp(start, span, before, after):
    return lambda step: before + (after - before) * min(1.0, max(0.0, (step - start) / span))


def rows(steps=100, **paths):
    """Paths in the step, with 2 % of noise that alternates."""
    return [{name: path(step) * (1 + 0.02 * (-1) ** step) for name, path in paths.items()} for step in range(steps)]


def run(data, declared=None, events=None):
    suite = Suite()
    events = {0: [Event(kind="start", step=0, data=declared or {})]} | (events or {})
    for step, row in enumerate(data):
        suite.update(step, row, events.get(step, ()))
    return {finding.rule: finding for finding in suite.findings()}


GROWS = {"response_length_mean": ramp(50, 20, 300, 900)}
CUT = {"truncated_frac": ramp(55, 20, 0.02, 0.4)}


@pytest.mark.parametrize(
    ("other", "severity"),
    [
        ({}, "info"),
        (CUT, "warning"),
        ({"truncated_frac": ramp(55, 20, 0.02, 0.08)}, "info"),  # up by a logit, but rare
        ({"truncated_frac": lambda step: 0.3}, "info"),  # always cut: not more than before
        (CUT | {"reward_mean": ramp(50, 20, 0.2, 0.8)}, "info"),
    ],
    ids=["alone", "cut", "rarely cut", "always cut", "rewarded"],
)
def test_growth_is_a_failure_only_with_truncation_and_without_reward(other, severity):
    found = run(rows(**GROWS, **other))[NAME]
    assert (found.severity, found.direction) == (severity, "up") and 45 <= found.step_onset <= 55


def test_mild_growth_is_nothing():
    assert NAME not in run(rows(response_length_mean=ramp(50, 20, 300, 450), **CUT))


def test_only_a_warning_looks_for_a_bound():
    buckets = {"R3.clip_high_frac": lambda step: 0.3, "R3.token_frac": lambda step: 0.3}
    grows = run(rows(**GROWS, **buckets), {"neg.w_max": 1.0})[NAME]
    assert grows.remedy.bound is None and "look at repetition first" in grows.remedy.text
    cut = run(rows(**GROWS, **CUT, **buckets), {"neg.w_max": 1.0})[NAME]
    assert (cut.driver, cut.remedy.bound, cut.remedy.direction, cut.remedy.target) == ("R3", "neg.w_max", "raise", 101)
    free = run(rows(**GROWS, **CUT, **buckets), {"neg.w_max": 101.0})[NAME]
    assert free.driver == "R3" and free.remedy.bound is None


def test_a_new_length_limit_is_a_new_reference():
    data = rows(response_length_mean=ramp(50, 1, 300, 900), truncated_frac=ramp(50, 1, 0.02, 0.3))
    assert run(data)[NAME].severity == "warning"
    assert NAME not in run(data, events={51: [Event(kind="length_limit", step=51)]})


def test_a_recovery_after_a_change_of_bounds_is_no_runaway():
    """The reference is found again amid the collapse; what was before it stays the reference once it is back."""
    data = rows(200, response_length_mean=lambda step: 20 if 50 <= step < 60 else 400)
    event = Event(kind="bounds_changed", step=55, data={"neg.w_min": 0.0})
    assert NAME not in run(data, events={55: [event]})


def test_what_takes_it_in():
    firing = {NAME: (NAME, "warning")}
    for signature in ("repetition_collapse", "infra_failed"):
        assert inhibited(firing | {signature: (signature, "critical")}) == {NAME: signature}
        assert inhibited(firing | {signature: (signature, "warning")}) == {}


@pytest.mark.parametrize("family", ["length growth", "curriculum", "mastery"])
def test_no_warning_in_healthy_runs(traces, family):
    for seed in range(3):
        suite = Suite()
        for step, row in enumerate(traces.healthy(family, 600, 700 + seed)):
            suite.update(step, row)
        assert [f for f in suite.findings() if f.rule == NAME and f.severity != "info"] == []


@pytest.mark.parametrize("onset", [3, 20, 200])
def test_generated_runaways_are_warned_about(traces, onset):
    for seed in range(4):
        found = run(traces.incident("runaway", onset, onset + 60, seed))[NAME]
        assert found.severity == "warning" and onset <= found.step_detected <= onset + 30
