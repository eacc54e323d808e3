"""Which regime, and which bound: only what binds is proposed."""

import pytest

from regimescope.detectors import Event, Suite
from regimescope.detectors.declared import Declared
from regimescope.detectors.driver import RELAX_NEGATIVE, BucketHistory, drive

BUCKETS = {f"{r}.{c}": v for r in ("R1", "R2", "R3", "R4") for c, v in (("token_frac", 0.2), ("grad_mass", 0.25))}


def driver(rules, rows, onset=5, step=9, **declared):
    history, facts = BucketHistory(), Declared()
    facts.take(Event(kind="start", step=0, data=declared))
    for i, row in enumerate(rows):
        history.add(i, row)
    return drive(history, facts, rules, onset=onset, step=step, moves=RELAX_NEGATIVE, otherwise="look elsewhere")


@pytest.mark.parametrize(
    ("column", "regime", "bound", "direction", "target"),
    [("R4.clip_low_frac", "R4", "neg.w_min", "lower", 0.0), ("R3.clip_high_frac", "R3", "neg.w_max", "raise", 101.0)],
)
def test_the_regime_whose_bound_binds(rules, column, regime, bound, direction, target):
    found = driver(rules, [BUCKETS | {column: 0.4}] * 10)
    assert (found.regime, found.remedy.bound, found.remedy.direction, found.remedy.target) == (
        regime,
        bound,
        direction,
        target,
    )
    assert "40 %" in found.remedy.text and found.evidence[column] == pytest.approx(0.4)


def test_the_side_that_holds_up_more_wins(rules):
    assert driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.9, "R3.clip_high_frac": 0.3}] * 10).regime == "R4"
    assert driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.2, "R3.clip_high_frac": 0.3}] * 10).regime == "R3"


def test_a_bound_that_hardly_binds_is_not_proposed(rules):
    found = driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.1, "R3.clip_high_frac": 0.05}] * 10)
    assert found.regime is None and found.remedy.bound is None and found.remedy.text == "look elsewhere"


def test_proximal_ratios_are_no_evidence(rules):
    assert driver(rules, [BUCKETS | {"R4.clip_low_frac": 1.0}] * 10, ratio_source="proximal").regime is None


def test_a_sign_that_is_switched_off_drives_nothing(rules):
    """Weight 0 on every token of A<0 is not a bound that binds; the run trains on correct responses alone."""
    rows = [
        BUCKETS | {"R3.clip_high_frac": 1.0, "R4.clip_high_frac": 1.0, "R3.log_ratio_mean": 0.1 * i} for i in range(10)
    ]
    off = {"neg.base": "1", "neg.w_min": 0.0, "neg.w_max": 0.0}
    assert driver(rules, rows, **off).regime is None
    assert driver(rules, rows).regime == "R3"


def test_a_constant_weight_has_no_bound_that_binds(rules):
    rows = [BUCKETS | {"R4.clip_low_frac": 1.0}] * 10
    assert driver(rules, rows, **{"neg.base": "1", "neg.w_max": 2.0}).regime is None


def test_a_regime_without_tokens_drives_nothing(rules):
    assert driver(rules, [BUCKETS | {"R4.clip_low_frac": 1.0, "R4.token_frac": 0.005}] * 10).regime is None


def test_without_buckets_it_says_so(rules):
    found = driver(rules, [{"accuracy": 0.5}] * 10)
    assert found.regime is None and found.remedy.text == "no regime evidence: log buckets"


def test_a_bound_at_its_target_is_not_proposed(rules):
    found = driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.9}] * 10, **{"neg.w_min": 0.0})
    assert found.regime == "R4" and found.remedy.bound is None


def test_mass_and_ratio_name_a_driver_without_a_bound(rules):
    rows = [
        BUCKETS | {"R4.grad_mass": 0.2 if i < 5 else 0.5, "R4.log_ratio_mean": -0.1 if i < 5 else -0.6}
        for i in range(10)
    ]
    found = driver(rules, rows)
    assert found.regime == "R4" and found.evidence["driver_signs"] == "mass moved, log r doubled"


def test_only_points_from_just_before_the_onset_on_count(rules):
    rows = [BUCKETS | {"R3.clip_high_frac": 0.9}] * 50 + [BUCKETS | {"R4.clip_low_frac": 0.9}] * 20
    assert driver(rules, rows, onset=60, step=69).regime == "R4"


def test_clipping_under_the_old_bounds_is_no_evidence_after_a_change():
    suite = Suite()
    declared = {"objective": "dispo", "neg.w_min": 1.0, "neg.w_max": 101.0}
    for step in range(40):
        events = [Event(kind="start", step=0, data=declared)] if step == 0 else []
        if step == 18:
            events = [Event(kind="bounds_changed", step=18, data={**declared, "neg.w_min": 0.5})]
        row = {"response_length_mean": 400.0 if step < 20 else 4.0} | BUCKETS
        row["R4.clip_low_frac"] = 1.0 if step < 18 else 0.0
        suite.update(step, row, events)
    collapse = next(f for f in suite.findings() if f.signature == "length_collapse")
    assert collapse.driver is None and collapse.remedy.bound is None
