"""Events and gaps: start, resume, rollback, bounds_changed, curriculum, a step that goes back."""

import random

import pytest

from regimescope.detectors import Event, Suite


def stream(steps, length=400.0, seed=0, **more):
    rng = random.Random(seed)
    return [{"response_length_mean": length * (1 + 0.03 * rng.gauss(0, 1)), **more} for _ in range(steps)]


def feed(suite, rows, first=0, events=()):
    found = []
    for step, row in enumerate(rows, first):
        found += suite.update(step, row, events if step == first else ())
    return found


def test_start_gives_fresh_state_and_keeps_what_was_found():
    suite = Suite()
    feed(suite, stream(30) + stream(5, 4.0))
    assert [f.state for f in suite.findings()] == ["firing"]
    feed(suite, stream(3), 0, [Event(kind="start", step=0)])
    assert [f.state for f in suite.findings()] == ["resolved"] and suite.warming() == (3, 10)
    feed(suite, stream(30, seed=1) + stream(5, 4.0), 3)
    assert [f.ordinal for f in suite.findings()] == [0, 1]


@pytest.mark.parametrize("kind", ["resume", "rollback", "bounds_changed"])
def test_a_new_level_after_it_is_no_alarm_but_a_later_collapse_is(kind):
    suite = Suite()
    feed(suite, stream(60))
    assert feed(suite, stream(40, 230.0, 1, grad_norm=1.0), 60, [Event(kind=kind, step=60)]) == []
    assert [f.severity for f in feed(suite, stream(6, 5.0, grad_norm=9.0), 100)] == ["critical"]


def test_the_same_level_without_an_event_is_told():
    suite = Suite()
    feed(suite, stream(60))
    assert feed(suite, stream(40, 230.0, 1), 60)[0].severity in ("info", "warning")


def test_in_the_grace_only_critical_speaks():
    suite = Suite()
    feed(suite, stream(60))
    assert feed(suite, stream(4) + stream(6, 230.0), 60, [Event(kind="resume", step=60)]) == []
    other = Suite()
    feed(other, stream(60))
    assert [f.severity for f in feed(other, stream(3, 4.0), 60, [Event(kind="resume", step=60)])] == ["critical"]


def test_guards_have_no_grace():
    suite = Suite()
    feed(suite, [{"infra_failed_frac": 0.0}] * 20)
    failed = {"infra_failed_frac": 0.05, "infra_failed_frac.n": 256.0}
    found = feed(suite, [failed], 20, [Event(kind="resume", step=20)])
    assert [f.rule for f in found] == ["infra_failed"]


def test_a_step_that_goes_back_is_a_resume():
    suite = Suite()
    feed(suite, stream(60))
    assert feed(suite, stream(40, 230.0, 1), 30) == []


def test_an_open_alert_survives_a_change_of_bounds_and_gets_a_verdict():
    suite = Suite()
    feed(suite, stream(40) + stream(5, 4.0))
    changed = feed(suite, stream(3, 4.0), 45, [Event(kind="bounds_changed", step=45, data={"neg.w_min": 0.0})])
    assert [(f.state, f.evidence["bounds_changed_at"]) for f in changed] == [("firing", 45)]
    assert "wait for the verdict" in changed[0].remedy.text and changed[0].remedy.bound is None
    after = feed(suite, stream(60), 48)
    assert [(f.evidence["verdict"], f.state) for f in after] == [
        ("back at baseline", "firing"),
        ("back at baseline", "resolved"),
    ]


def test_no_better_is_said_as_well():
    suite = Suite()
    feed(suite, stream(40) + stream(5, 4.0))
    after = feed(suite, stream(30, 4.0), 45, [Event(kind="bounds_changed", step=45)])
    assert after[-1].evidence["verdict"] == "no better"


def test_new_data_restarts_what_follows_the_data():
    suite = Suite()
    feed(suite, stream(60, accuracy=0.9))
    assert feed(suite, stream(60, 100.0, 1, accuracy=0.2), 60, [Event(kind="curriculum", step=60)]) == []


def test_new_data_leaves_the_other_references():
    suite = Suite()
    feed(suite, [{"rep4_mean": 0.05 + 0.002 * (i % 3)} for i in range(60)])
    found = feed(suite, [{"rep4_mean": 0.4}] * 5, 60, [Event(kind="curriculum", step=60)])
    assert [(f.signature, f.severity) for f in found][-1] == ("repetition_collapse", "critical")


def test_states_change_nothing():
    plain, waiting = Suite(), Suite()
    rows = stream(30) + stream(5, 4.0)
    for step, row in enumerate(rows):
        plain.update(step, row)
        waiting.update(step, row, [Event(kind="state", step=step, data={"state": "paused"})] if step % 3 == 0 else ())
    assert plain.findings() == waiting.findings() != []


def test_a_sparse_metric_counts_its_own_points():
    """Length every fifth step: the same alert, in steps of the log."""
    dense, sparse = Suite(), Suite()
    values = stream(30) + stream(8, 100.0, grad_norm=1.0)
    for i, row in enumerate(values):
        dense.update(i, row)
        for gap in range(5):
            sparse.update(5 * i + gap, row if gap == 0 else {"lr": 1.0})
    (one,), (other,) = dense.findings(), sparse.findings()
    assert (other.severity, other.step_onset, other.step_detected) == (
        one.severity,
        5 * one.step_onset,
        5 * one.step_detected,
    )
    assert (one.evidence.get("logged_every"), other.evidence["logged_every"]) == (None, 5)


def test_a_log_of_every_tenth_step_says_so_and_a_jump_of_steps_does_not():
    tenth, jump = Suite(), Suite()
    for i, row in enumerate(stream(30) + stream(5, 4.0)):
        tenth.update(10 * i, row)
        jump.update(i if i < 31 else i + 500, row)
    assert tenth.findings()[0].evidence["logged_every"] == 10
    assert "logged_every" not in jump.findings()[0].evidence


@pytest.mark.parametrize("kind", ["curriculum", "length_limit", "sampling"])
def test_dead_groups_that_come_with_new_data_are_no_distress(kind):
    """Without the event they would be, for as long as they stay."""
    signs = []
    for events in ([Event(kind=kind, step=60)], []):
        suite = Suite()
        feed(suite, stream(60, zero_variance_frac=0.2))
        feed(suite, stream(30, 400.0, 1, zero_variance_frac=0.8), 60, events)
        signs += [f.evidence["distress"] for f in feed(suite, stream(3, 5.0, zero_variance_frac=0.8), 90)]
    assert signs == ["", "zero_variance_frac"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_non_finite_value_enters_no_reference(bad):
    plain, holed = Suite(), Suite()
    rows = stream(40) + stream(5, 4.0)
    feed(plain, rows)
    step = 0
    for i, row in enumerate(rows):
        if i % 7 == 3:
            holed.update(step, {"response_length_mean": bad})
            step += 1
        holed.update(step, row)
        step += 1
    (one,), (other,) = plain.findings(), holed.findings()
    assert one.evidence["effect"] == pytest.approx(other.evidence["effect"]) and one.severity == other.severity


def test_a_missing_metric_changes_nothing_in_its_rules():
    plain, holed = Suite(), Suite()
    rows = stream(40) + stream(3, 4.0)
    feed(plain, rows)
    for i, row in enumerate(rows):
        holed.update(2 * i, row)
        holed.update(2 * i + 1, {"lr": 1.0})
    assert [f.score for f in plain.findings()] == [f.score for f in holed.findings()]
