"""Incident numbers and inhibition."""

from regimescope.detectors import Event, Suite
from regimescope.detectors.incidents import Incidents, inhibited


def test_onsets_within_reach_share_a_number():
    incidents = Incidents(30)
    assert [incidents.number(onset) for onset in (100, 120, 145, 75, 300)] == [0, 0, 0, 0, 1]
    assert [incidents.number(310, apart=True), incidents.number(310)] == [2, 1]


def test_nonfinite_explains_all_but_the_lint():
    firing = {
        "nonfinite": ("nonfinite", "critical"), "length_collapse": ("length_collapse", "critical"),
        "accuracy_floor": ("accuracy_collapse", "critical"), "bounds_r4": ("bounds_lint", "warning"),
    }  # fmt: skip
    assert inhibited(firing) == {"length_collapse": "nonfinite", "accuracy_floor": "nonfinite"}


def test_infrastructure_explains_accuracy_length_and_early_rules_only_when_critical():
    firing = {
        "length_collapse": ("length_collapse", "critical"), "early_accuracy": ("early_accuracy", "info"),
        "nonfinite": ("nonfinite", "critical"),
    }  # fmt: skip
    others = {k: v for k, v in firing.items() if k != "nonfinite"}
    assert inhibited(others | {"infra_failed": ("infra_failed", "critical")}) == dict.fromkeys(others, "infra_failed")
    assert inhibited(others | {"infra_failed": ("infra_failed", "warning")}) == {"early_accuracy": "length_collapse"}


def test_what_is_inhibited_inhibits_nothing_and_a_critical_is_not_hidden_behind_a_warning():
    firing = {
        "length_collapse": ("length_collapse", "critical"), "exploration_decay": ("exploration_decay", "critical"),
        "accuracy_floor": ("accuracy_collapse", "critical"),
    }  # fmt: skip
    assert inhibited(firing) == {"exploration_decay": "length_collapse", "accuracy_floor": "length_collapse"}
    del firing["length_collapse"]
    firing["exploration_decay"] = ("exploration_decay", "warning")
    assert inhibited(firing) == {}


def test_an_inhibited_alert_is_told_again_and_freed_when_its_reason_ends():
    suite, seen = Suite(), []
    for step in range(60):
        row = {"truncated_frac": 1.0, "grad_norm": float("nan") if 10 <= step < 12 else 1.0}
        seen += [(step, f.rule, f.inhibited_by) for f in suite.update(step, row) if f.rule == "truncation_saturated"]
    assert seen == [
        (4, "truncation_saturated", None),
        (10, "truncation_saturated", "nonfinite"),
        (31, "truncation_saturated", None),
    ]


def test_findings_carry_the_slice():
    suite = Suite(slice="math")
    (found,) = suite.update(0, {"mismatch_k1": 0.5}, [Event(kind="start", step=0)])
    assert found.slice == "math"
