"""Incident numbers and inhibition."""

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.detectors import Event, Suite
from regimescope.detectors.incidents import Incidents, inhibited


def test_onsets_within_reach_share_a_number():
    incidents = Incidents(30)
    assert [incidents.number(onset) for onset in (100, 120, 145, 75, 300)] == [0, 0, 0, 0, 1]
    assert [incidents.number(310, apart=True), incidents.number(310)] == [2, 1]


def test_a_slow_rule_joins_the_incident_it_belongs_to_although_a_later_one_is_open():
    incidents = Incidents(30)
    assert [incidents.number(onset) for onset in (100, 150, 105, 160, 128)] == [0, 1, 0, 1, 1]


def test_incidents_keep_a_bounded_number_of_ranges():
    incidents = Incidents(30)
    assert [incidents.number(100 * i) for i in range(50)] == list(range(50))
    assert incidents.number(0) == 50  # forgotten, so it is a new one


ACCURACY, DEAD = {"accuracy_collapse"}, {"zero_signal", "no_signal"}
EARLY_RULES = {"early_accuracy", "early_all_wrong", "early_r4"}
SIGNATURES = {
    "nonfinite", "infra_failed", "repetition_collapse", "length_collapse", "exploration_decay", "entropy_collapse",
    "accuracy_collapse", "length_runaway", "heldout_gap", "negative_push", "engine_mismatch", "zero_signal",
    "truncation_saturated", "clip_saturation", "reward_stall", "weight_imbalance", "no_signal", "bounds_lint",
} | EARLY_RULES  # fmt: skip
TAKES = {
    ("nonfinite", "critical"): SIGNATURES - {"nonfinite", "bounds_lint"},
    ("infra_failed", "critical"): {"length_collapse", "length_runaway", "exploration_decay"}
    | ACCURACY | DEAD | EARLY_RULES,
    ("repetition_collapse", "warning"): {"exploration_decay"} | ACCURACY | DEAD | EARLY_RULES,
    ("repetition_collapse", "critical"): {"entropy_collapse", "length_runaway", "exploration_decay"}
    | ACCURACY | DEAD | EARLY_RULES,
    ("length_collapse", "warning"): {"exploration_decay"} | ACCURACY | DEAD | EARLY_RULES,
    ("length_collapse", "critical"): {"entropy_collapse", "exploration_decay"} | ACCURACY | DEAD | EARLY_RULES,
    ("entropy_collapse", "warning"): {"exploration_decay"} | ACCURACY | DEAD | EARLY_RULES,
    ("exploration_decay", "warning"): ACCURACY | EARLY_RULES,
    ("exploration_decay", "critical"): ACCURACY | EARLY_RULES | DEAD,
    ("accuracy_collapse", "critical"): DEAD,
    ("engine_mismatch", "critical"): ACCURACY | DEAD | EARLY_RULES,
    ("zero_signal", "warning"): {"no_signal"},
}  # fmt: skip
"Who takes in whom, where both are at that severity and decay goes with falling entropy."
SEVERITY = st.sampled_from(("info", "warning", "critical"))
FIRING = st.dictionaries(st.sampled_from(sorted(SIGNATURES)), SEVERITY, min_size=3, max_size=8)
DOWN = {"exploration_decay": "down"}


@pytest.mark.parametrize("severity", ["info", "warning", "critical"])
def test_who_explains_whom_is_this_table(severity):
    """Each pair alone. A severity above the one of the table takes in at least as much."""
    for reason in SIGNATURES:
        expected = TAKES.get((reason, severity))
        if expected is None:
            expected = TAKES.get((reason, "warning"), set()) if severity == "critical" else set()
        pairs = {
            other: inhibited({reason: (reason, severity), other: (other, severity)}, DOWN)
            for other in SIGNATURES - {reason}
        }
        assert {other for other, by in pairs.items() if other in by} == expected, reason


def test_what_is_explained_explains_nothing_among_any_three():
    for names in combinations(sorted(SIGNATURES), 3):
        for severities in product(("info", "warning", "critical"), repeat=3):
            firing = {name: (name, severity) for name, severity in zip(names, severities, strict=True)}
            for directions in (DOWN, {}):
                by = inhibited(firing, directions)
                assert not set(by) & set(by.values()), firing


@settings(max_examples=300)
@given(FIRING, st.randoms(use_true_random=False))
def test_inhibition_holds_for_any_alerts_at_once(severities, random):
    firing = {name: (name, severity) for name, severity in severities.items()}
    by = inhibited(firing, DOWN)
    assert "bounds_lint" not in by and "bounds_lint" not in by.values()
    assert not set(by) & set(by.values()), "what is explained explains nothing"
    assert set(by) <= set(firing) and set(by.values()) <= set(firing) and all(a != b for a, b in by.items())
    if severities.get("nonfinite") == "critical":
        assert set(by) == set(firing) - {"nonfinite", "bounds_lint"}
    left = [name for name in firing if name not in by and name != "bounds_lint"]
    assert left or not set(firing) - {"bounds_lint"}, "somebody is always left to speak"
    listed = list(firing.items())
    random.shuffle(listed)
    assert set(inhibited(dict(listed), DOWN)) == set(by)


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
