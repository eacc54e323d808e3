"""Which regime, and which bound: only what binds or is missing is proposed, and what cannot be decided is said."""

import pytest

from regimescope.detectors import Event, Suite
from regimescope.detectors.advice import attribution
from regimescope.detectors.declared import Declared
from regimescope.detectors.driver import RELAX_NEGATIVE, BucketHistory, drive

BUCKETS = {f"{r}.{c}": v for r in ("R1", "R2", "R3", "R4") for c, v in (("token_frac", 0.2), ("grad_mass", 0.25))}


def driver(rules, rows, onset=5, step=9, signature="", **declared):
    history, facts = BucketHistory(), Declared()
    facts.take(Event(kind="start", step=0, data=declared))
    for i, row in enumerate(rows):
        history.add(i, row)
    return drive(
        history,
        facts,
        rules,
        onset=onset,
        step=step,
        moves=RELAX_NEGATIVE,
        otherwise="look elsewhere",
        signature=signature,
    )


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
    assert driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.3, "R3.clip_high_frac": 0.9}] * 10).regime == "R3"


def test_what_cannot_be_decided_is_unclear_and_names_the_candidates(rules):
    found = driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.5, "R3.clip_high_frac": 0.6}] * 10)
    assert found.regime is None and found.remedy.bound is None
    assert (found.evidence["attribution"], found.evidence["candidates"]) == ("unclear", "R3 or R4")
    assert "R3 or R4" in found.remedy.text


def test_a_bound_that_holds_many_tokens_and_hardly_any_weight_does_not_bind(rules):
    row = BUCKETS | {f"{regime}.weight_mean": 1.0 for regime in ("R1", "R2", "R3", "R4")} | {"R4.clip_low_frac": 1.0}
    assert driver(rules, [row | {"R4.clip_gap": -0.01}] * 10).regime is None  # a quarter of 1 %
    found = driver(rules, [row | {"R4.clip_gap": -0.1}] * 10)
    assert found.regime == "R4" and found.evidence["R4.held_mass"] == pytest.approx(0.025)


def test_a_bound_that_is_missing_clips_nothing_and_shows_in_the_gap_to_dispos_weights(rules):
    """CISPO: no lower bound for A>0. Seeds 0 and 1 stay healthy with [0.8, 101], and fail with [0, 11]."""
    cispo = {"pos.w_min": 0.0, "pos.w_max": 101.0, "neg.w_min": 0.0, "neg.w_max": 101.0}
    rows = [BUCKETS | {"R2.dispo_gap": 0.011, "R1.dispo_gap": -0.06 if i == 8 else 0.0} for i in range(10)]
    found = driver(rules, rows, **cispo)
    assert found.regime == "R2"
    assert (found.remedy.bound, found.remedy.direction, found.remedy.target) == ("pos.w_min", "raise", 0.8)
    assert "1.1 %" in found.remedy.text


def test_a_bound_at_dispos_own_value_that_binds_drives_no_collapse(rules):
    rows = [BUCKETS | {"R2.clip_low_frac": 0.5} | {f"R{i}.dispo_gap": 0.0 for i in (1, 2, 3, 4)}] * 10
    assert driver(rules, rows).regime is None


def test_the_target_stays_within_the_declared_limits(rules):
    rows = [BUCKETS | {"R4.clip_low_frac": 0.9}] * 10
    narrow = {"neg.w_min": 1.0, "neg.w_min.limits": (0.3, 1.0), "neg.w_max.limits": (1.0, 5.0)}
    assert driver(rules, rows, **narrow).remedy.target == 0.3
    assert driver(rules, rows, **{**narrow, "neg.w_min": 0.3}).remedy.bound is None


def test_a_side_whose_bounds_the_trainer_does_not_move_has_none_to_move(rules):
    found = driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.9}] * 10, **{"pos.w_min.limits": (0.0, 1.0)})
    assert found.regime == "R4" and found.remedy.bound is None and found.remedy.text.startswith("No bound to move")


def test_divergence_with_no_bound_to_blame_names_learning_rate_passes_and_lag(rules):
    rows = [BUCKETS | {"grad_norm": 1.0 if i < 5 else 4.0, "kl_step": 0.01 if i < 5 else 0.1} for i in range(10)]
    found = driver(rules, rows)
    assert found.remedy.bound is None and "KL rose 10.0 x and the gradient norm 4.0 x" in found.remedy.text
    assert "learning rate" in found.remedy.text and "passes" in found.remedy.text and "lag" in found.remedy.text
    clipped = driver(rules, [row | {"R4.clip_low_frac": 1.0} for row in rows])
    assert clipped.remedy.bound == "neg.w_min"


@pytest.mark.parametrize(
    ("signature", "paper"),
    [("repetition_collapse", "R3"), ("length_collapse", "R4"), ("exploration_decay", "R1 or R2")],
)
def test_what_the_paper_expects_stands_beside_what_was_measured(rules, signature, paper):
    found = driver(rules, [BUCKETS | {"R4.clip_low_frac": 1.0}] * 10, signature=signature)
    assert found.evidence["paper_expects"] == paper
    line = attribution(found.regime, found.evidence, rules.texts)
    assert line.startswith(f"Paper expects {paper}; measured here: R4 (clipped low 100 %")
    assert ("differ" in line) == (paper != "R4")


def test_a_bound_that_hardly_binds_is_not_proposed(rules):
    found = driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.1, "R3.clip_high_frac": 0.05}] * 10)
    assert found.regime is None and found.remedy.bound is None and found.remedy.text == "look elsewhere"


def test_proximal_ratios_are_no_evidence(rules):
    found = driver(rules, [BUCKETS | {"R4.clip_low_frac": 1.0}] * 10, ratio_source="proximal")
    assert found.regime is None and found.remedy.bound is None and "proximal" in found.remedy.text


def test_a_sign_that_is_switched_off_drives_nothing(rules):
    """Weight 0 on every token of A<0 is not a bound that binds; the run trains on correct responses alone."""
    rows = [BUCKETS | {"R3.clip_high_frac": 1.0, "R3.log_ratio_mean": 0.1 * i} for i in range(10)]
    off = {"neg.base": "1", "neg.w_min": 0.0, "neg.w_max": 0.0}
    assert driver(rules, rows, **off).regime is None
    assert driver(rules, rows).regime == "R3"


def test_a_constant_weight_has_no_bound_that_binds(rules):
    rows = [BUCKETS | {"R4.clip_low_frac": 1.0}] * 10
    assert driver(rules, rows, **{"neg.base": "1", "neg.w_max": 2.0}).regime is None


def test_a_regime_without_tokens_drives_nothing(rules):
    assert driver(rules, [BUCKETS | {"R4.clip_low_frac": 1.0, "R4.token_frac": 0.005}] * 10).regime is None


@pytest.mark.parametrize(
    ("framework", "said"),
    [
        ("trl 1.16", "TRL"),
        ("verl 0.9.1", "verl"),
        ("OpenRLHF 0.11", "OpenRLHF"),
        ("regimescope 0.1.0", "statistics"),
        ("", "docs/embedding.md"),
    ],
)
def test_without_buckets_it_says_what_to_log_in_which_framework(rules, framework, said):
    found = driver(rules, [{"accuracy": 0.5}] * 10, signature="length_collapse", framework=framework)
    assert found.regime is None and found.remedy.bound is None and found.evidence["attribution"] == "no buckets"
    assert "this log has no buckets" in found.remedy.text and said in found.remedy.text
    assert "w_min 0" in found.remedy.text  # what the paper would look at
    assert "the log has no buckets" in attribution(None, found.evidence, rules.texts)


def test_a_bound_at_its_target_is_not_proposed(rules):
    found = driver(rules, [BUCKETS | {"R4.clip_low_frac": 0.9}] * 10, **{"neg.w_min": 0.0})
    assert found.regime == "R4" and found.remedy.bound is None


def test_mass_and_ratio_name_a_driver_without_a_bound(rules):
    rows = [
        BUCKETS | {"R4.grad_mass": 0.2 if i < 5 else 0.5, "R4.log_ratio_mean": -0.1 if i < 5 else -0.6}
        for i in range(10)
    ]
    found = driver(rules, rows)
    assert found.regime == "R4" and found.evidence["driver_signs"] == "pulls more, log r doubled"


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
