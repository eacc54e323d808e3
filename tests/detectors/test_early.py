"""The fast path: a failure from step 0, with and without a second sign."""

import pytest

from regimescope.detectors import Event, Suite, load_rules
from regimescope.detectors.declared import Declared
from regimescope.detectors.early import EarlyPush
from regimescope.detectors.point import Point

R4_OFF = {"objective": "dispo", "ratio_source": "behaviour", "neg.w_min": 1.0, "neg.w_max": 101.0}
DISPO = {**R4_OFF, "neg.w_min": 0.0}


def run(rows, declared=DISPO):
    suite = Suite()
    for step, row in enumerate(rows):
        suite.update(step, row, [Event(kind="start", step=0, data=declared)] if step == 0 else ())
    return {f.rule: f for f in suite.findings()}


def accuracies(*values, n=256.0):
    return [{"accuracy": value, "accuracy.n": n} for value in values]


def test_early_accuracy_alone_is_an_info():
    found = run(accuracies(0.6, 0.5, 0.3, 0.2))["early_accuracy"]
    assert (found.severity, found.step_onset, found.step_detected) == ("info", 2, 3)
    assert found.evidence["accuracy_first_best"] == 0.6


def test_a_single_low_point_and_small_batches_are_silent():
    assert "early_accuracy" not in run(accuracies(0.6, 0.2, 0.6, 0.2, 0.6))
    assert "early_accuracy" not in run(accuracies(0.6, 0.3, 0.3, 0.3, n=16.0))
    assert "early_accuracy" not in run([{"accuracy": x} for x in (0.6, 0.2, 0.2)])


def test_with_the_lint_it_is_a_warning_with_the_bound_that_binds():
    buckets = {"R4.clip_low_frac": 1.0, "R4.token_frac": 0.2, "R4.ratio_mean": 0.95}
    found = run([row | buckets for row in accuracies(0.6, 0.2, 0.1, 0.1)], R4_OFF)["early_accuracy"]
    assert (found.severity, found.driver, found.remedy.bound, found.remedy.direction) == (
        "warning",
        "R4",
        "neg.w_min",
        "lower",
    )
    assert found.remedy.target == 0


def test_two_early_rules_are_a_warning():
    wrong = (0, 0.5, 0.6, 0.7, 0.7)
    rows = [row | {"all_wrong_frac": w} for row, w in zip(accuracies(0.6, 0.2, 0.1, 0.1, 0.1), wrong, strict=True)]
    found = run(rows)
    assert found["early_accuracy"].severity == "warning" and found["early_all_wrong"].severity == "warning"


def test_all_wrong_compares_with_its_first_value():
    assert "early_all_wrong" not in run([{"all_wrong_frac": 0.6}] * 5)
    assert run([{"all_wrong_frac": x} for x in (0.2, 0.5, 0.5)])["early_all_wrong"].step_detected == 2


@pytest.mark.parametrize(("source", "found"), [("behaviour", True), ("proximal", False), ("infer", False)])
def test_early_r4_only_where_the_ratio_means_something(source, found):
    rows = [{"R4.ratio_mean": 0.85, "R4.clip_low_frac": 1.0}]
    assert ("early_r4" in run(rows, {**R4_OFF, "ratio_source": source})) is found


def held(*shares, **more):
    """Rows whose bounds hold so much of the gradient mass on R4, at ratios that say nothing yet."""
    return [{"R4.ratio_mean": 0.96, "R4.clip_low_frac": 1.0, "R4.dispo_gap": -share} | more for share in shares]


def test_weights_that_dispo_would_let_go_speak_before_the_mean_ratio():
    found = run(held(0.0, 0.01, 0.02, 0.03, 0.04), R4_OFF)["early_r4"]
    assert (found.severity, found.step_onset, found.step_detected) == ("warning", 2, 3)
    assert found.evidence["early_gap"] == 0.04 and found.score == pytest.approx(0.04 / 0.015)
    assert found.text.startswith("The bounds of A<0 hold gradient mass")
    assert run(held(0.03, 0.03), {**DISPO, "neg.w_min": 0.3})["early_r4"].severity == "info"  # no warning of the lint


@pytest.mark.parametrize(
    "rows",
    [held(0.02, 0.01, 0.02, 0.01), held(*[0.011] * 30), held(*[-0.03] * 5), held(*[0.0] * 40, 0.03, 0.03)],
    ids=["one point", "as in a run that stayed healthy", "weights are missing", "after forty points"],
)
def test_what_is_held_up_is_little_or_brief_or_late(rows):
    assert "early_r4" not in run(rows, R4_OFF)


def test_a_gap_means_nothing_for_other_ratios_and_can_be_switched_off(tmp_path):
    assert "early_r4" not in run(held(*[0.05] * 5), {**R4_OFF, "ratio_source": "proximal"})
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nname = "early_gap"\nenabled = false\n', encoding="utf-8")
    suite = Suite(load_rules(path))
    for step, row in enumerate(held(*[0.05] * 5)):
        suite.update(step, row, [Event(kind="start", step=0, data=R4_OFF)] if step == 0 else ())
    assert not any(f.rule == "early_r4" for f in suite.findings())


def test_early_r4_is_over_after_ten_points():
    calm, falling = {"R4.ratio_mean": 0.99, "R4.clip_low_frac": 1.0}, {"R4.ratio_mean": 0.8, "R4.clip_low_frac": 1.0}
    assert "early_r4" not in run([calm] * 10 + [falling])
    assert "early_r4" in run([calm] * 9 + [falling])


def test_the_fast_path_ends_after_forty_points():
    assert "early_accuracy" not in run(accuracies(*[0.6] * 40, 0.1, 0.1, 0.1))


def test_points_before_the_first_update_do_not_count():
    """A filling buffer: its first accuracies are no reference, and no alarm either."""
    idle = [row | {"updates": 0.0} for row in accuracies(0.9, 0.9, 0.9)]
    assert "early_accuracy" not in run(idle + [row | {"updates": 16.0} for row in accuracies(0.5, 0.5, 0.5)])


def test_a_change_of_data_ends_it():
    suite = Suite()
    for step, row in enumerate(accuracies(0.6, 0.6, 0.2, 0.2, 0.2)):
        suite.update(step, row, [Event(kind="curriculum", step=2)] if step == 2 else ())
    assert suite.findings() == []


def test_early_push_adds_to_the_evidence_and_is_no_alert():
    push = {"grad_norm": [1.0, 1.0, 1.0, 4.0, 5.0], "kl_step": [0.01, 0.01, 0.01, 0.02, 0.02]}
    moved = [{name: values[step] for name, values in push.items()} for step in range(5)]
    assert "early_push" not in run(moved)
    rows = [row | more for row, more in zip(accuracies(0.6, 0.6, 0.6, 0.2, 0.1), moved, strict=True)]
    found = run(rows)
    assert list(found) == ["early_accuracy"] and found["early_accuracy"].severity == "info"
    assert found["early_accuracy"].evidence["grad_norm_over_first"] == 5
    assert "kl_step_over_first" not in found["early_accuracy"].evidence


def test_early_push_compares_with_the_first_updates_and_ends():
    idle = [{"updates": 0.0, "grad_norm": 0.1, **row} for row in accuracies(0.6, 0.6, 0.6)]
    trained = [{"updates": 8.0, "grad_norm": 1.0, **row} for row in accuracies(0.6, 0.6, 0.6, 0.1, 0.1)]
    assert "grad_norm_over_first" not in run(idle + trained)["early_accuracy"].evidence


def test_early_push_is_over_after_forty_points(rules):
    push, point = EarlyPush(rules["early_push"]), Point(Declared())
    told = []
    for step in range(60):
        point.begin(step, {"kl_step": 0.01 if step < 30 else 0.09})
        if push.update(point):
            told.append(step)
    assert told == list(range(31, 40))
