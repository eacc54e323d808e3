"""The rescue study's arithmetic: which attempts an alert leads to, where a rollback goes, what was lost."""

import pytest

from regimescope.trainer.lab import rescue
from regimescope.trainer.lab.outcomes import Alerted

HEALTHY = [0.5] * 4 + [0.8] * 36


def alert(signature, onset, detected):
    return Alerted(
        signature=signature, severity="warning", step_onset=onset, step_detected=detected, driver=None, inhibited=False
    )


@pytest.fixture
def base(make):
    """A run that has 0.6 up to step 11 and then falls."""
    return make(
        "fails", [0.6] * 12 + [0.1] * 18, condition="repetition-collapse", name="repetition-collapse-s0-fails",
        alerts=[
            alert("early_accuracy", 12, 13), alert("repetition_collapse", 11, 15), alert("early_accuracy", 20, 25)
        ],
    )  # fmt: skip


@pytest.fixture
def found(make, base):
    twin = make("twin", HEALTHY, condition="repetition-collapse", name="repetition-collapse-s0-twin")
    return {o.run.name: o for o in (base, twin)}


def tried(found):
    return rescue.attempts("repetition-collapse", 0, found)


def test_the_first_alert_of_each_kind_leads_to_every_way(found):
    ways = [(a.kind, a.way, a.at) for a in tried(found)]
    assert ways == [
        ("early_accuracy", "+0", 14), ("early_accuracy", "+2", 16), ("early_accuracy", "+5", 19),
        ("early_accuracy", "+10", 24), ("early_accuracy", "rollback", 14),
        ("repetition_collapse", "+0", 16), ("repetition_collapse", "+2", 18), ("repetition_collapse", "+5", 21),
        ("repetition_collapse", "+10", 26), ("repetition_collapse", "rollback", 16),
    ]  # fmt: skip


def test_relaxed_bounds_go_on_from_the_step_before(found):
    assert {a.at - a.checkpoint for a in tried(found) if a.way != "rollback"} == {1}


@pytest.mark.parametrize(("onset", "checkpoint"), [(4, None), (5, 4), (9, 4), (10, 9), (12, 9), (15, 14)])
def test_a_rollback_goes_to_the_newest_checkpoint_before_the_onset(make, found, base, onset, checkpoint):
    other = make("fails", [0.6] * 30, name=base.run.name, alerts=[alert("length_collapse", onset, onset + 3)])
    (back,) = [a for a in tried({**found, base.run.name: other}) if a.way == "rollback"]
    assert back.checkpoint == checkpoint


def test_what_is_lost_counts_the_steps_thrown_away(make, found):
    """A rollback from step 14 to checkpoint 9 that is at once as good as before has lost four steps and one."""
    (back,) = [a for a in tried(found) if a.way == "rollback" and a.kind == "early_accuracy"]
    own = make("from-9", [0.6] * 10 + [0.7] * 30, name="repetition-collapse-s0-from-9")
    result = rescue.result(back, {**found, own.run.name: own})
    assert (result.lost, result.recovered) == (4 + 1, True)
    assert result.share == pytest.approx(0.7 / 0.8)


def test_a_run_that_does_not_come_back_has_no_loss_in_steps(make, found):
    at_once = tried(found)[0]
    own = make("from-13", [0.6] * 12 + [0.1] * 2 + [0.3] * 30, name="repetition-collapse-s0-from-13")
    result = rescue.result(at_once, {**found, own.run.name: own})
    assert (result.lost, result.recovered) == (None, False)


def test_the_page_counts_what_recovers(make, found):
    attempts = tried(found)
    good = make("from-9", [0.6] * 10 + [0.7] * 30, name="repetition-collapse-s0-from-9")
    back = [a for a in attempts if a.way == "rollback"]
    page = rescue.rescue_page([0], attempts, [rescue.result(a, {**found, good.run.name: good}) for a in back], [])
    assert "| repetition-collapse | early_accuracy | 13 | - | - | - | - | 1 of 1; 5 |" in page
