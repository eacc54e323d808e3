"""zero_signal: dead groups from the first point on; a warning only where they are mostly all wrong."""

import pytest

from regimescope.detectors import Suite
from regimescope.detectors.incidents import inhibited

NAME = "zero_signal"


def run(data):
    suite = Suite()
    for step, row in enumerate(data):
        suite.update(step, row)
    return {finding.rule: finding for finding in suite.findings()}


@pytest.mark.parametrize(
    ("row", "severity", "kind"),
    [
        ({"all_wrong_frac": 0.85}, "warning", "mostly all wrong"),
        ({"all_wrong_frac": 0.1}, "info", "mostly all correct"),
        ({"all_correct_frac": 0.1}, "warning", "mostly all wrong"),
        ({"all_correct_frac": 0.8}, "info", "mostly all correct"),
        ({"accuracy": 0.07}, "warning", "mostly all wrong"),
        ({"accuracy": 0.95}, "info", "mostly all correct"),
        ({}, "warning", "unknown"),
    ],
)
def test_any_of_three_columns_tells_wrong_from_correct(row, severity, kind):
    found = run([row | {"zero_variance_frac": 0.9}] * 12)[NAME]
    assert (found.severity, found.evidence["kind"], found.step_onset, found.step_detected) == (severity, kind, 0, 9)
    assert found.remedy.bound is None and found.driver is None and "Not a bound" in found.remedy.text


def test_unknown_after_a_signal_may_be_mastery():
    rows = [{"zero_variance_frac": 0.3}] * 20 + [{"zero_variance_frac": 0.95}] * 20
    assert run(rows)[NAME].severity == "info"


def test_ten_in_a_row():
    dead, alive = {"zero_variance_frac": 1.0, "all_wrong_frac": 1.0}, {"zero_variance_frac": 0.8, "all_wrong_frac": 0.8}
    assert NAME not in run(([dead] * 9 + [alive]) * 5)
    assert run([alive] * 5 + [dead] * 10)[NAME].step_onset == 5
    gap = [dead] * 5 + [{}] * 3 + [dead | {"infra_failed_frac": 0.5}] * 3 + [dead] * 5
    assert run(gap)[NAME].step_detected == 15  # points without the metric, or without a verdict on it, do not count


def test_it_ends_when_the_signal_is_back():
    dead = {"zero_variance_frac": 1.0, "all_wrong_frac": 1.0}
    found = run([dead] * 15 + [{"zero_variance_frac": 0.4, "all_wrong_frac": 0.1}] * 25)[NAME]
    assert (found.state, found.step_last) == ("resolved", 14)


def test_what_takes_it_in():
    firing = {NAME: (NAME, "warning")}
    for signature, least in (
        ("repetition_collapse", "warning"), ("length_collapse", "warning"), ("entropy_collapse", "warning"),
        ("exploration_decay", "critical"), ("accuracy_collapse", "critical"), ("infra_failed", "critical"),
    ):  # fmt: skip
        assert inhibited(firing | {signature: (signature, least)}) == {NAME: signature}
    assert inhibited(firing | {"exploration_decay": ("exploration_decay", "warning")}) == {}


@pytest.mark.parametrize("drop", [(), ("accuracy", "accuracy.n", "all_wrong_frac")], ids=["all", "unknown"])
def test_mastery_is_no_warning(traces, drop):
    for seed in range(3):
        rows = traces.healthy("mastery", 600, 900 + seed)
        found = run([{name: value for name, value in row.items() if name not in drop} for row in rows])
        assert found[NAME].severity == "info"


@pytest.mark.parametrize("onset", [0, 20, 200])
def test_generated_ones_are_found(traces, onset):
    for seed in range(4):
        found = run(traces.incident("zero", onset, onset + 50, seed))[NAME]
        assert found.severity == "warning" and onset + 9 <= found.step_detected <= onset + 25
