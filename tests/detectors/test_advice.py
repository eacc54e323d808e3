"""When a bound is left alone, and when only a rollback helps."""

import pytest

from regimescope.detectors import Event, Slices, Suite
from regimescope.detectors.driver import in_words

R4_OFF = {"objective": "dispo", "ratio_source": "behaviour", "pos.w_min": 0.8, "pos.w_max": 11.0, "neg.w_min": 1.0,
          "neg.w_max": 101.0}  # fmt: skip
BUCKETS = {f"{r}.{c}": v for r in ("R1", "R2", "R3", "R4") for c, v in (("token_frac", 0.2), ("grad_mass", 0.25))}


def healthy(**metrics):
    return {"accuracy": 0.6, "response_length_mean": 400.0, "zero_variance_frac": 0.1, **BUCKETS,
            "R4.clip_low_frac": 1.0, **metrics}  # fmt: skip


def run(rows, events=None, every=0):
    """The suite after these rows; `every`: steps between checkpoints."""
    suite = Suite()
    for step, row in enumerate(rows):
        told = [Event(kind="start", step=0, data=R4_OFF)] if step == 0 else []
        if every and step and step % every == 0:
            told.append(Event(kind="checkpoint", step=step - 1))
        suite.update(step, row, told + [e for e in events or [] if e.step == step])
    return suite


def collapse(suite):
    return next(f for f in suite.findings() if f.signature == "length_collapse")


def collapsing(after=20, **metrics):
    """Length goes at step 30; accuracy is kept or goes with it."""
    return [healthy() for _ in range(30)] + [healthy(response_length_mean=4.0, **metrics) for _ in range(after)]


def test_while_the_engine_disagrees_no_bound_is_touched_and_afterwards_it_is():
    rows = collapsing(after=50)
    for step, row in enumerate(rows):
        row["mismatch_k1"] = 0.5 if 33 <= step < 40 else 0.001
    assert collapse(run(rows[:33])).remedy.bound == "neg.w_min"
    held = collapse(run(rows[:36]))
    assert held.remedy.bound is None and held.remedy.text.startswith("Touch no bound while the engine mismatch is open")
    assert held.driver == "R4"
    assert collapse(run(rows)).remedy.bound == "neg.w_min"


def test_the_hold_is_told_when_it_begins_and_the_lint_is_held_too():
    suite = run(collapsing()[:36])
    changed = suite.update(36, healthy(response_length_mean=4.0, mismatch_k1=0.5))
    assert {f.signature for f in changed} >= {"engine_mismatch", "length_collapse", "bounds_lint"}
    assert all(f.remedy.bound is None for f in suite.findings())


def test_while_rollouts_fail_no_bound_is_touched():
    rows = collapsing()
    for row in rows[36:]:
        row["infra_failed_frac"] = 0.1
    assert "repair sandbox" in collapse(run(rows)).remedy.text


def test_once_accuracy_is_gone_it_names_the_newest_checkpoint_before_the_onset():
    found = collapse(run(collapsing(accuracy=0.01), every=10))
    assert (found.step_onset, found.remedy.checkpoint) == (29, 19)  # 29 itself may have learnt from what went wrong
    assert "Roll back to the checkpoint of step 19 (10 steps before the onset)" in found.remedy.text
    assert (found.remedy.bound, found.remedy.target) == ("neg.w_min", 0.0)
    assert found.remedy.text.endswith("resume with w_min of A<0 = 0.")


def test_while_accuracy_holds_there_is_no_word_of_a_rollback():
    found = collapse(run(collapsing(accuracy=0.4), every=10))
    assert found.remedy.checkpoint is None and found.remedy.text.startswith("Lower w_min of A<0 to 0")


def test_the_window_is_open_until_the_third_point_without_a_policy():
    rows = collapsing(accuracy=0.01)
    closed = [step for step in range(31, 40) if "Too late" in collapse(run(rows[: step + 1], every=10)).remedy.text]
    # the mean of three accuracies passes a quarter of .6 at step 32, so the third point is 34
    assert closed == list(range(34, 40))


def test_groups_without_a_signal_close_the_window_when_they_are_wrong_and_not_when_they_are_right():
    dead = {"accuracy": 0.3, "zero_variance_frac": 1.0}
    assert collapse(run(collapsing(**dead, all_wrong_frac=0.9), every=10)).remedy.checkpoint is not None
    assert collapse(run(collapsing(**dead, all_wrong_frac=0.1), every=10)).remedy.checkpoint is None


def test_a_task_that_is_lost_alone_sends_no_run_back():
    suite = Suite()
    slices = Slices(suite)
    rows = [healthy(**{"accuracy.n": 64.0}) for _ in range(30)] + [
        healthy(response_length_mean=4.0, accuracy=0.01, **{"accuracy.n": 64.0}) for _ in range(30)
    ]
    for step, row in enumerate(rows):
        events = [Event(kind="start", step=0, data=R4_OFF)] if step == 0 else []
        suite.update(step, healthy(), events)
        slices.update(step, {"proofs": row}, events)
    lost = next(f for f in slices.findings() if f.signature == "length_collapse")
    assert lost.slice == "proofs" and "Too late" not in lost.remedy.text


def test_a_run_that_comes_back_has_time_again():
    rows = collapsing(accuracy=0.01) + [healthy(response_length_mean=4.0, accuracy=0.5)] * 5
    assert collapse(run(rows, every=10)).remedy.checkpoint is None


def test_a_deleted_checkpoint_is_not_named():
    newer = Event(kind="checkpoint", step=45, data={"deleted": [9, 19, 29]})
    found = collapse(run(collapsing(accuracy=0.01), events=[newer], every=10))
    assert found.remedy.checkpoint is None and "no checkpoint from before the onset is known" in found.remedy.text
    assert found.remedy.text.endswith("Start again with w_min of A<0 = 0.")


def test_after_a_change_of_bounds_the_verdict_is_waited_for_before_a_rollback_is_named():
    moved = Event(kind="bounds_changed", step=40, data={**R4_OFF, "neg.w_min": 0.0})
    rows = collapsing(after=40, accuracy=0.01)
    assert "wait for the verdict" in collapse(run(rows[:45], events=[moved], every=10)).remedy.text
    late = collapse(run(rows, events=[moved], every=10))
    assert late.evidence["verdict"] == "no better"
    assert late.remedy.text.endswith("resume under the bounds in force.") and late.remedy.checkpoint is not None


def test_a_rollback_forgets_the_checkpoints_of_the_stretch_it_left():
    back = Event(kind="rollback", step=25, data=R4_OFF)
    suite = run(collapsing(accuracy=0.01), every=10)
    suite.update(25, healthy(), [back])
    assert not suite._advice.closed and max(suite._advice._checkpoints) == 19


@pytest.mark.parametrize(("bound", "words"), [("neg.w_min", "w_min of A<0"), ("pos.w_max", "w_max of A>0")])
def test_bounds_in_words(bound, words):
    assert in_words(bound) == words
