"""`regimescope check`: exit codes, JSON for machines, text for people, and what a wrong RUN is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from regimescope.monitor import check, query
from regimescope.monitor.errors import RunError


def healthy(trainer, steps: int = 30) -> None:
    with trainer.open() as recorder:
        for step in range(steps):
            trainer.step(recorder, step, length=35.0 + (step % 3), accuracy=0.5 + 0.01 * (step % 4))
        recorder.end("finished")


def test_a_collapsed_run_exits_1_and_says_so_in_json(collapsed, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(root / "run"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {
        "run", "status", "steps", "last_step", "warming", "verdict", "alerts", "lint", "blind", "lost", "bad_lines",
        "troubles", "log",
    }  # fmt: skip
    assert report["troubles"] == [] and report["log"] is None
    assert (report["run"], report["steps"], report["status"], report["verdict"]) == ("run", 40, "ended", "critical")
    first = report["alerts"][0]
    assert {"signature", "severity", "step_onset", "step_detected", "driver", "remedy", "state"} <= set(first)
    assert first["severity"] == "critical"
    assert "bounds_lint" not in {a["signature"] for a in report["alerts"]}
    assert all(set(b) == {"rule", "status", "reason", "help"} for b in report["blind"])


def test_the_text_begins_with_the_verdict_and_has_a_block_per_alert(collapsed, root: Path, capsys) -> None:
    assert check.main(["run", "--root", str(root)]) == 1
    text = capsys.readouterr().out
    assert text.startswith("CRITICAL: run (ended, 40 steps, last 39)\n\n[critical] ")
    assert text.count("\n[") >= 2 and "remedy: " in text
    assert text.index("not seen in this log:") > text.rindex("\n[")


def test_a_healthy_run_exits_0(trainer, root: Path, capsys) -> None:
    healthy(trainer)
    assert check.main(["run", "--root", str(root), "--fail-on", "warning"]) == 0
    assert capsys.readouterr().out.startswith("OK: run (ended, 30 steps, last 29)")


def test_a_short_run_says_how_far_the_warm_up_is(trainer, root: Path, capsys) -> None:
    healthy(trainer, 4)
    assert check.main(["run", "--root", str(root)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("OK: run (ended, 4 steps, last 3), warming up 4/10: only the guards speak so far\n")
    assert "warming up: length_collapse 4/10," in text and "length_collapse (warming)" not in text
    check.main(["run", "--root", str(root), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["warming"] == [4, 10]
    assert {"rule": "length_collapse", "status": "warming", "reason": "warming up 4/10", "help": ""} in report["blind"]


def test_each_alert_names_its_runbook(collapsed, root: Path, capsys) -> None:
    check.main(["run", "--root", str(root)])
    text = capsys.readouterr().out
    assert "runbook: docs/signatures/length_collapse.md" in text
    assert text.count("runbook: ") == text.count("\n[")


def snoozed(watch, signature: str, **mark: object) -> None:
    monitor = watch(actor="ana")
    monitor.tick()
    with monitor.store.cursor() as con:
        alert = next(a for a in query.alerts(con, 1) if a.signature == signature)
    monitor.requests.mark(1, alert_id=alert.alert_id, by=None, text="data were wrong", **mark)
    monitor.stop()


def test_a_false_alarm_and_an_explained_alert_do_not_count_and_a_snooze_never_hides_a_critical(
    collapsed, watch, root: Path, capsys
) -> None:
    snoozed(watch, "length_collapse", kind="snooze", until_step=500)
    assert check.main(["run", "--root", str(root)]) == 1
    capsys.readouterr()
    snoozed(watch, "length_collapse", kind="false_alarm")
    assert check.main(["run", "--root", str(root), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    counts = {a["signature"]: (a["severity"], a["counts"]) for a in report["alerts"]}
    assert counts["length_collapse"] == ("critical", False) and counts["accuracy_collapse"] == ("critical", False)
    check.main(["run", "--root", str(root)])
    assert "called a false alarm by ana: data were wrong" in capsys.readouterr().out


def test_a_snoozed_warning_does_not_count_until_its_step(trainer, watch, root: Path, capsys) -> None:
    with trainer.open() as recorder:
        for step in range(30):
            recorder.scalars(step, {"truncated_frac": (0.97, 256.0)})
            trainer.step(recorder, step, length=35.0 + (step % 3))
    assert check.main(["run", "--root", str(root), "--fail-on", "warning"]) == 1
    snoozed(watch, "truncation_saturated", kind="snooze", until_step=40)
    assert check.main(["run", "--root", str(root), "--fail-on", "warning"]) == 0
    assert "snoozed until step 40 by ana: data were wrong" in capsys.readouterr().out
    with trainer.open(launch="b", start="resume", first_step=30) as recorder:
        for step in range(30, 45):
            recorder.scalars(step, {"truncated_frac": (0.97, 256.0)})
            trainer.step(recorder, step, length=35.0 + (step % 3))
    assert check.main(["run", "--root", str(root), "--fail-on", "warning"]) == 1


def test_a_run_without_a_finished_step_exits_0(trainer, root: Path, capsys) -> None:
    trainer.open().close()
    assert check.main([str(root / "run")]) == 0
    assert "(running, 0 steps)" in capsys.readouterr().out


def test_losses_and_bad_lines_are_told(trainer, root: Path, capsys) -> None:
    healthy(trainer)
    (path,) = (root / "run" / "segments").iterdir()
    path.write_text(path.read_text().replace('"k":"step"', '"k":"step" broken', 1))
    check.main([str(root / "run")])
    assert "0 records are missing from the segments, 1 lines could not be read." in capsys.readouterr().out


def test_a_collapse_that_a_resume_undid_does_not_fail(collapsed, root: Path, capsys) -> None:
    with collapsed.open(launch="b", start="resume", first_step=15) as recorder:
        for step in range(15, 40):
            collapsed.step(recorder, step, length=35.0 + (step % 3), accuracy=0.5)
    assert check.main([str(root / "run"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {a["signature"] for a in report["alerts"] if a["superseded"] and a["severity"] == "critical"} >= {
        "length_collapse"
    }


def test_the_folder_itself_below_its_root_or_alone(
    trainer, root: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    healthy(trainer, 3)
    for argv in ([str(root / "run")], ["run", "--root", str(root)]):
        assert check.main([*argv, "--json"]) == 0
    monkeypatch.setenv("REGIMESCOPE_ROOT", str(root))
    assert check.main(["run", "--json"]) == 0
    monkeypatch.chdir(root / "run")
    assert check.main([".", "--json"]) == 0
    capsys.readouterr()


def test_a_wrong_run_is_told_what_is_wrong(collapsed, root: Path) -> None:
    with pytest.raises(RunError, match="no run folder"):
        check.main([str(root / "missing")])
    with pytest.raises(RunError, match=r"is a root with runs below it: name one of run$"):
        check.main([str(root)])
    (root / "empty").mkdir()
    with pytest.raises(RunError, match="holds no segments"):
        check.main([str(root / "empty")])
    segment = next((root / "run" / "segments").iterdir())
    text = segment.read_text()
    segment.write_text(text.replace('"v":1', '"v":99'))
    with pytest.raises(RunError, match="wire version 99"):
        check.main([str(root / "run")])
    segment.write_text("something else\n")
    with pytest.raises(RunError, match="none of their lines is a header"):
        check.main([str(root / "run")])


def test_nothing_is_written_into_the_run(collapsed, root: Path, capsys) -> None:
    before = sorted(p.relative_to(root) for p in root.rglob("*"))
    check.main([str(root / "run")])
    assert sorted(p.relative_to(root) for p in root.rglob("*")) == before


def held_up(trainer, steps: int, *, ended: bool = True, deleted: list[int] | None = None) -> None:
    """R4 off on our own trainer, with checkpoints at 9 and 17; length and accuracy are lost from step 20 on."""
    off = replace(trainer.bounds, neg=replace(trainer.bounds.neg, w_min=1.0))
    trainer.bounds = off
    held = trainer.stats(r4_clipped=400)
    held = replace(held, ratio_sum=(*held.ratio_sum[:3], 0.7 * held.ratio_sum[3], *held.ratio_sum[4:]))
    recorder = trainer.open(framework="regimescope 0.1.0")
    for step in range(steps):
        recorder.buckets(step, 0, held, revision=0, bounds=off)
        shown = trainer.collapsing(step)
        recorder.step(step, {"accuracy": (shown["accuracy"], 256.0), "response_length_mean": (shown["length"], 256.0)})
        if step in (9, 17):
            recorder.event("checkpoint", {"path": f"checkpoints/step-{step:08d}"}, step=step)
    if deleted:
        recorder.event("checkpoint", {"path": "checkpoints/step-00000030", "deleted": deleted}, step=30)
        recorder.step(steps, {"accuracy": (0.0, 256.0), "response_length_mean": (1.0, 256.0)})
    if ended:
        recorder.end("finished")
    recorder.close()


def alert_of(root: Path, capsys, signature: str = "length_collapse") -> dict:
    check.main([str(root / "run"), "--json"])
    return next(a for a in json.loads(capsys.readouterr().out)["alerts"] if a["signature"] == signature)


def test_cause_beside_what_the_paper_expects_and_the_way_back_as_a_command(trainer, root: Path, capsys) -> None:
    held_up(trainer, 30)
    found = alert_of(root, capsys)
    assert found["cause"].startswith("Paper expects R4; measured here: R4 (clipped low 100 %")
    assert found["remedy"].get("checkpoint") == 17
    command = f"regimescope train --run-dir {root / 'run'} --resume --checkpoint 17 --set 'bounds.neg=[0,101]'"
    assert found["commands"] == [command]
    check.main([str(root / "run")])
    text = capsys.readouterr().out
    assert f"\n    {command}\n" in text and "cause: Paper expects R4" in text


def test_a_living_trainer_is_stopped_before_it_goes_back(trainer, root: Path, capsys) -> None:
    held_up(trainer, 30, ended=False)
    first, second = alert_of(root, capsys)["commands"]
    assert first == f"regimescope stop {root / 'run'}" and "--checkpoint 17" in second


def test_while_there_is_time_the_command_moves_the_bound_in_the_living_run(trainer, root: Path, capsys) -> None:
    held_up(trainer, 26, ended=False)
    found = alert_of(root, capsys)
    assert found["remedy"].get("checkpoint") is None
    assert found["commands"] == [f"regimescope bounds {root / 'run'} --neg-min 0 --why length_collapse"]


@pytest.mark.parametrize(("deleted", "checkpoint"), [([17], 9), ([9, 17], None)])
def test_a_checkpoint_that_the_trainer_deleted_is_not_offered(trainer, root: Path, capsys, deleted, checkpoint) -> None:
    held_up(trainer, 31, deleted=deleted)
    found = alert_of(root, capsys)
    assert found["remedy"].get("checkpoint") == checkpoint
    assert ("--checkpoint 9" in "".join(found["commands"])) == (checkpoint == 9)


def test_a_checkpoint_that_is_no_longer_on_disk_is_told(trainer, root: Path, capsys) -> None:
    held_up(trainer, 30)
    (root / "run" / "checkpoints").mkdir()
    found = alert_of(root, capsys)
    assert found["commands"] == [] and "deleted since" in found["obstacle"]


def test_a_log_without_buckets_says_that_no_regime_can_be_named_and_what_to_log(trainer, root: Path, capsys) -> None:
    with trainer.open(framework="trl 1.16.0", rule=None, limits=None, can=()) as recorder:
        for step in range(26):
            shown = trainer.collapsing(step)
            values = {"accuracy": (shown["accuracy"], 256.0), "response_length_mean": (shown["length"], 256.0)}
            recorder.step(step, values)
    found = alert_of(root, capsys)
    assert (found["driver"], found["evidence"]["attribution"]) == (None, "no buckets")
    assert found["cause"] == "Paper expects R4; measured here: nothing, the log has no buckets."
    assert "Recorder.buckets" in found["remedy"]["text"] and "TRL" in found["remedy"]["text"]
