"""The rescue plan of a critical alert: every state of it, and what `check` and `report` say of real runs and logs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from regimescope.cli import main
from regimescope.detectors.advice import HOLDS
from regimescope.monitor import Recorder
from regimescope.monitor.bounds import Bounds, SignBounds, SignRule, WeightRule
from regimescope.monitor.framework_windows import frameworks
from regimescope.monitor.query import AlertRow, BoundsInForce, EventRow, RunRow
from regimescope.monitor.rescue import plan, told
from regimescope.monitor.rescue.lines import as_json
from regimescope.monitor.rescue.plan import Situation, needs_plan, onset_of
from regimescope.monitor.rescue.ways import way_of
from regimescope.monitor.wire import plain

TIGHT = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=1.0, w_max=101.0))
R4_OFF = {"bound": "neg.w_min", "target": 0.0, "text": "Lower w_min of A<0 to 0."}


def alert(**changes):
    values = {
        "alert_id": "a1", "incident_id": "i1", "signature": "length_collapse", "rule": "length_collapse",
        "severity": "critical", "state": "firing", "driver": "R4", "step_onset": 30, "step_detected": 33,
        "step_last": 36, "evidence": {"attribution": "measured"}, "remedy": R4_OFF, "inhibited_by": None,
        "title": "Length collapse", "text": "", "direction": None, "score": 2.0, "launch_no": 0, "ordinal": 0,
        "superseded": False,
    }  # fmt: skip
    return AlertRow(**{**values, **changes})


def run(**changes):
    values = {
        "run_key": 1, "path": "a", "run_id": "a", "name": None, "status": "running", "state": None,
        "state_since": None, "started_at": None, "last_row_at": None, "last_step": 36, "launch_no": 0,
        "launch_id": "l", "objective": None, "framework": "regimescope 0.1.0", "ratio_source": None, "ranks": 1,
        "capabilities": ("set_bounds", "rollback"), "limits": None, "weight_rule": WeightRule.capped(TIGHT),
        "config": {}, "end_reason": None,
    }  # fmt: skip
    return RunRow(**{**values, **changes})


def saved(*steps, path=None, deleted=()):
    data = ({"path": path} if path else {}) | ({"deleted": list(deleted)} if deleted else {})
    return [EventRow(kind="checkpoint", step=step, t=None, data=data) for step in steps]


def situation(**changes):
    values = {
        "alert": alert(), "onset": 30, "run": run(), "folder": Path("/runs/my run"),
        "bounds": BoundsInForce(bounds=TIGHT, revision=0, since_step=0), "told": saved(10, 20, 35),
        "kept": saved(10, 20, 35), "last_step": 36, "alive": True, "held": False, "accuracy": True,
        "hours": lambda step: 0.5 * (36 - step),
    }  # fmt: skip
    return Situation(**{**values, **changes})


def words(**changes):
    found = plan(situation(**changes))
    return found, dict(told(found))


def test_a_living_trainer_of_ours_goes_back_by_one_command_before_the_onset_under_the_moved_bound():
    found, said = words()
    assert (found.state, found.checkpoint, found.lost_steps, found.good_steps) == ("ready", 20, 16, 9)
    assert found.live_command == ("regimescope rollback '/runs/my run' --to 20 --neg-min 0 --why length_collapse")
    assert found.commands == (
        "regimescope stop '/runs/my run'",
        "regimescope train --run-dir '/runs/my run' --resume --checkpoint 20 --set 'bounds.neg=[0,101]'",
    )
    assert said["Resume with"] == "A>0 [0.8, 11], A<0 [0, 101]: w_min of A<0 moves from 1 to 0."
    assert said["Lost"] == "16 steps done again, 9 of them from before the onset: 8.0 h of training."


def test_the_command_takes_every_option_that_it_names(capsys, tmp_path):
    assert main(["rollback", str(tmp_path), "--to", "20", "--neg-min", "0", "--why", "length_collapse"]) == 2
    assert "unrecognized" not in capsys.readouterr().err


def test_a_dead_trainer_gets_the_command_to_copy_and_no_hope_of_a_bound():
    found, said = words(alive=False, run=run(status="ended"))
    assert found.live_command == "" and len(found.commands) == 1 and "--checkpoint 20" in found.commands[0]
    assert said["Relaxing now"].startswith("No: the run does not go on")
    assert "How" not in said


def test_a_trainer_that_cannot_roll_back_is_stopped_and_resumed():
    found, _ = words(run=run(capabilities=("set_bounds",)))
    assert found.live_command == "" and found.commands[0].startswith("regimescope stop")


@pytest.mark.parametrize(
    ("changes", "state", "step", "sentence"),
    [
        ({"told": [], "kept": []}, "none", None, 'recorder.event("checkpoint", {"path": PATH}, step=STEP)'),
        ({"kept": saved(35)}, "deleted", 20, "that of step 20, the last one before the onset at step 30, was deleted"),
        ({"gone": [10, 20]}, "deleted", 20, "was deleted since"),
        ({"told": saved(30, 35), "kept": saved(30, 35)}, "after", 30, "the earliest that is kept is that of step 30"),
    ],
)
def test_without_a_good_checkpoint_it_says_why_and_what_is_lost(changes, state, step, sentence):
    found, said = words(**changes)
    assert (found.state, found.checkpoint, found.commands, found.live_command) == (state, step, (), "")
    assert sentence in said["Go back to"] and "Going back" not in said
    assert said["Lost"] == "Without a checkpoint all 37 steps up to step 36: 18.5 h of training."


def test_one_that_was_deleted_by_hand_leaves_the_one_before_it():
    assert plan(situation(gone=[20])).checkpoint == 10


def test_once_accuracy_is_gone_the_checkpoint_is_the_one_that_the_detectors_name():
    closed = alert(evidence={"attribution": "measured", "window": "closed"}, remedy={**R4_OFF, "checkpoint": 10})
    found, said = words(alert=closed)
    assert found.checkpoint == 10 and found.relax == "closed"
    assert "1 of 9" in said["Relaxing now"] and "0.1 M-parameter policy" in said["Going back"]
    _, alone = words(alert=closed, told=[], kept=[])
    assert "0.1 M-parameter policy" in alone["Relaxing now"]
    inside = alert(evidence={"attribution": "measured", "window": "closed"}, remedy={**R4_OFF, "checkpoint": None})
    assert plan(situation(alert=inside)).state == "after", "what lies before the onset was bad already"


@pytest.mark.parametrize(
    ("last", "relax", "word"), [(38, "early", "Perhaps: 8 steps"), (39, "late", "Doubtful"), (46, "lost", "Hardly")]
)
def test_whether_relaxing_can_still_work_goes_by_the_steps_since_the_onset(last, relax, word):
    found, said = words(last_step=last)
    assert found.relax == relax and said["Relaxing now"].startswith(word) and "Lab:" in said["Relaxing now"]


def test_bounds_that_are_in_force_already_are_not_asked_for_again():
    relaxed = TIGHT.with_values({"neg.w_min": 0.0})
    _, said = words(bounds=BoundsInForce(bounds=relaxed, revision=1, since_step=34))
    assert said["Resume with"].endswith("which are in force already.")
    assert "changed at step 34 already" in said["Relaxing now"]


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        ({"attribution": "no buckets"}, "the log has no buckets"),
        ({"attribution": "unclear", "candidates": "R3, R4"}, "does not decide between R3, R4"),
        ({"attribution": "ratios proximal"}, "proximal"),
        ({"attribution": "no regime stands out"}, "no regime stands out"),
        ({}, "see the remedy"),
    ],
)
def test_without_a_driver_no_bound_is_proposed_and_it_says_why(evidence, reason):
    blind = alert(driver=None, evidence=evidence, remedy={"bound": None, "text": "Look."})
    found, said = words(alert=blind, run=run(framework="verl", status="imported", capabilities=()))
    assert found.bounds is None and reason in said["Resume with"] and "No bound is proposed" in said["Resume with"]
    assert said["Relaxing now"] == "No: there is no bound to relax."
    assert found.commands == ("trainer.resume_mode=resume_path trainer.resume_from_path=PATH/global_step_20",)
    assert "Without a change of bounds it was not tried." in said["Going back"]


def test_while_something_is_broken_no_bound_is_moved():
    for signature in HOLDS:
        _, said = words(alert=alert(signature=signature, driver=None, remedy={"text": "Repair it."}))
        assert "Repair it first" in said["Resume with"]
    closed = {"attribution": "measured", "window": "closed"}
    found, said = words(held=True, alert=alert(remedy={"text": "Touch no bound"}, evidence=closed))
    assert "repair that first" in said["Resume with"] and said["Relaxing now"].startswith("Not now")
    assert found.checkpoint == 20, "the detectors name none while they hold"


def test_another_framework_gets_its_settings_and_its_way_to_resume():
    path = "ckpt/p/global_step_20"
    found, said = words(
        run=run(framework="verl 0.9.1", capabilities=()), told=saved(20, path=path), kept=saved(20, path=path)
    )
    assert found.commands == (
        "actor_rollout_ref.actor.policy_loss.loss_mode=cispo",
        "actor_rollout_ref.actor.clip_ratio_high=100",
        "actor_rollout_ref.actor.clip_ratio_low=1",
        f"trainer.resume_mode=resume_path trainer.resume_from_path={path}",
    )
    assert "lower bound of A>0 (R2): 0 instead of 0.8" in said["How"] and "Written as verl 0.9.1 has it." in said["How"]
    assert "takes no commands" in said["Relaxing now"]
    assert path in said["Go back to"]
    found, _ = words(run=run(framework="trl", capabilities=()), told=saved(20, path='o"/checkpoint-20'), kept=saved(20))
    assert found.commands[0] == 'GRPOConfig(loss_type="cispo")'
    assert found.commands[-1] == 'trainer.train(resume_from_checkpoint="o\\"/checkpoint-20")'


def test_a_run_that_drops_tokens_is_told_that_the_settings_hold_them():
    drop = WeightRule(pos=SignRule(drop_above=1.2), neg=SignRule(drop_below=0.8))
    _, said = words(run=run(framework="verl", capabilities=(), weight_rule=drop))
    assert "so far this run drops such tokens" in said["How"]


@pytest.mark.parametrize("framework", list(frameworks()))
def test_every_framework_of_the_table_says_how_it_resumes(framework):
    way = way_of(framework, TIGHT, 50, None)
    assert way is not None and way.settings and "{" not in way.resume.replace("{}", "")
    assert "/x" in way_of(framework, None, 50, "/x/step_50").resume
    assert way_of(framework, TIGHT, None, None).resume == ""


@pytest.mark.parametrize(
    ("framework", "whose"), [(None, "The framework of this run is not known"), ("NeoRL", "The framework NeoRL is not")]
)
def test_of_an_unknown_framework_the_window_is_told_in_words_and_which_ones_lint_knows(framework, whose):
    found, said = words(run=run(framework=framework, capabilities=()))
    assert found.commands == () and said["How"].startswith(whose)
    assert "regimescope lint --framework NAME" in said["How"] and "nemo-rl" in said["How"]
    assert said["Resume with"].startswith("A>0 [0.8, 11], A<0 [0, 101]")


def test_unknown_bounds_name_the_one_that_moves():
    found, said = words(bounds=None, run=run(framework="verl", capabilities=()))
    assert said["Resume with"].startswith("w_min of A<0 at 0; the other bounds are not known here")
    assert found.commands == ("trainer.resume_mode=resume_path trainer.resume_from_path=PATH/global_step_20",)


def test_hours_that_nobody_logged_are_not_made_up():
    assert "hours unknown: step_seconds is not logged" in words(hours=lambda step: None)[1]["Lost"]
    _, said = words(accuracy=False)
    assert "not known, since it is not logged" in said["Relaxing now"]


def test_only_open_critical_alerts_get_a_plan_and_it_goes_by_the_incidents_earliest_onset():
    assert needs_plan(alert())
    for changes in ({"severity": "warning"}, {"state": "resolved"}, {"superseded": True}, {"signature": "bounds_lint"}):
        assert not needs_plan(alert(**changes))
    others = [
        alert(
            alert_id="b", signature="early_accuracy", severity="warning", step_onset=25, inhibited_by="length_collapse"
        ),
        alert(alert_id="c", signature="exploration_decay", step_onset=4, inhibited_by="length_collapse"),
        alert(alert_id="d", signature="early_r4", severity="warning", step_onset=0),
        alert(alert_id="e", step_onset=1, incident_id="another"),
    ]
    assert onset_of(alert(), [alert(), *others]) == 25


def test_a_plan_is_json_without_infinities():
    open_above = replace(TIGHT, neg=SignBounds(w_min=1.0, w_max=float("inf")))
    found = plan(situation(bounds=BoundsInForce(bounds=open_above, revision=0, since_step=0)))
    assert "no upper bound" in dict(told(found))["Resume with"]
    json.loads(json.dumps(plain(as_json(found)), allow_nan=False))


def dying_run(folder, framework):
    """A run of 60 steps in somebody's loop, whose responses shrink to nothing from step 30 on, saved every 10 steps."""
    with Recorder(folder, framework=framework, rule=WeightRule.capped(TIGHT)) as recorder:
        for step in range(60):
            gone = step >= 30
            values = {
                "accuracy": (0.02 if gone else 0.6 + 0.01 * (step % 3), 256),
                "response_length_mean": (max(2.0, 200.0 * 0.6 ** (step - 29)) if gone else 200.0 + step % 5, 256),
                "entropy_mean": 0.4 + 0.01 * (step % 4),
                "grad_norm": 1.0 + 0.1 * (step % 3),
                "step_seconds": 120.0,
            }
            recorder.step(step, values)
            if step % 10 == 9:
                recorder.event("checkpoint", {"path": f"out/checkpoint-{step}"}, step=step)
    return folder


@pytest.fixture(scope="module")
def dying(tmp_path_factory):
    """One of TRL."""
    return dying_run(tmp_path_factory.mktemp("root") / "dying", "trl")


def test_check_and_report_tell_the_plan_of_a_run(dying, tmp_path, capsys):
    assert main(["check", str(dying)]) == 1
    text = capsys.readouterr().out
    assert "  rescue plan\n    go back to: That of step 19, the last one before the onset at step 29:" in text
    assert "    lost: 40 steps done again, 9 of them from before the onset: 80 min of training." in text
    assert '    trainer.train(resume_from_checkpoint="out/checkpoint-19")\n' in text
    main(["check", str(dying), "--json"])
    alerts = json.loads(capsys.readouterr().out)["alerts"]
    plans = {a["signature"]: a["rescue"] for a in alerts}
    assert plans["length_collapse"]["checkpoint"] == 19 and plans["length_collapse"]["lost_hours"] == pytest.approx(
        4 / 3
    )
    assert all((a["rescue"] is not None) == (a["severity"] == "critical" and a["state"] == "firing") for a in alerts)
    for ending in ("html", "md", "json"):
        assert main(["report", str(dying), "-o", str(tmp_path / f"r.{ending}")]) == 0
    page, notes = (tmp_path / "r.html").read_text(), (tmp_path / "r.md").read_text()
    assert (
        "<h4>Rescue plan</h4>" in page and "trainer.train(resume_from_checkpoint=&quot;out/checkpoint-19&quot;)" in page
    )
    assert "### Rescue plan" in notes and 'trainer.train(resume_from_checkpoint="out/checkpoint-19")' in notes


def test_check_of_a_foreign_log_goes_back_to_the_checkpoint_that_it_tells(tmp_path, capsys):
    lines = []
    for step in range(60):
        gone = step >= 30
        length = max(2.0, 200.0 * 0.6 ** (step - 29)) if gone else 200 + step % 5
        lines += [f"local_global_step_folder: ckpt/x/global_step_{step}"] if step % 10 == 5 else []
        lines.append(
            f"step:{step} - critic/score/mean:{0.02 if gone else 0.6 + 0.01 * (step % 3)} - "
            f"response_length/mean:{length} - actor/entropy:{0.4 + 0.01 * (step % 4)} - timing_s/step:60.0"
        )
    log = tmp_path / "train.log"
    log.write_text("\n".join([*lines, "done"]))
    assert main(["check", str(log), "--map", "critic/score/mean=accuracy"]) == 1
    text = capsys.readouterr().out
    assert "ckpt/x/global_step_25" in text and "No bound is proposed: the log has no buckets" in text
    assert "    trainer.resume_mode=resume_path trainer.resume_from_path=ckpt/x/global_step_25\n" in text


def test_a_checkpoint_whose_folder_is_gone_is_not_proposed_and_no_command_stands_twice(tmp_path, capsys):
    run_dir = dying_run(tmp_path / "ours", "regimescope 0.1.0")
    (run_dir / "checkpoints" / "step-00000009").mkdir(parents=True)
    main(["check", str(run_dir)])
    text = capsys.readouterr().out
    assert "go back to: That of step 9," in text and text.count("--resume --checkpoint 9") == 1
    (run_dir / "checkpoints" / "step-00000019").mkdir()
    main(["report", str(run_dir), "-o", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text()
    assert page.count("--resume --checkpoint 19") == 1
