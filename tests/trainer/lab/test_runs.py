"""Carrying runs out: real training, interrupted and gone on with."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import types

import pytest

from regimescope.cli import main as cli
from regimescope.trainer.errors import LabError
from regimescope.trainer.lab import runs as lab_runs
from regimescope.trainer.lab.outcomes import outcome
from regimescope.trainer.lab.plan import Branch, LabRun
from regimescope.trainer.lab.runs import RECORD, Runs, code_hash

KEYS = {
    "model.path": '"warm:B"', "rollout.prompts": 6, "rollout.group": 4, "rollout.max_tokens": 48, "update.batch": 8,
    "evaluation.every": 0,
}  # fmt: skip
FAST = tuple(word for key, value in KEYS.items() for word in ("--set", f"{key}={value}"))
"A run of about 0.1 s a step."


@pytest.fixture(autouse=True)
def plain_main(monkeypatch):
    """A spawned process runs __main__ again, and a test of the pages leaves one of theirs there."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


def fast(name="one", steps=2, seed=0, **more):
    options = ("--steps", str(steps), "--seed", str(seed), *FAST)
    return LabRun(name=name, condition="fresh", arm="dispo", seed=seed, options=options, **more)


def carried_out(tmp_path, *runs):
    said = []
    return Runs(tmp_path, said.append).carry_out(runs, 1), said


def accuracies(done):
    return [row["accuracy"] for row in outcome(done).rows]


def test_what_is_done_is_left_and_what_was_cut_off_begins_anew(tmp_path):
    first, second = fast("one"), fast("two", seed=1)
    (done,), _ = carried_out(tmp_path, first)
    before = (done.folder / RECORD).stat().st_mtime_ns
    cut_off = tmp_path / "runs" / "two"
    (cut_off / "segments").mkdir(parents=True)
    (cut_off / "segments" / "r00000-1-1-0000.jsonl").write_text("{}\n")
    both, said = carried_out(tmp_path, first, second)
    assert [one.run.name for one in both] == ["one", "two"]
    assert (done.folder / RECORD).stat().st_mtime_ns == before
    assert "1 of 2 runs are there already" in said
    assert len(accuracies(both[1])) == 2
    record = json.loads((cut_off / RECORD).read_text())
    assert (record["code"], record["seed"], record["arm"]) == (code_hash(), 1, "dispo") and record["seconds"] > 0
    assert not (cut_off / "checkpoints").exists()


def test_runs_of_other_settings_or_other_code_are_not_mixed(tmp_path):
    (done,), _ = carried_out(tmp_path, fast())
    with pytest.raises(LabError, match="other settings or by other code"):
        carried_out(tmp_path, fast(steps=3))
    record = json.loads((done.folder / RECORD).read_text())
    (done.folder / RECORD).write_text(json.dumps({**record, "code": "0" * 12}))
    with pytest.raises(LabError, match=f"trainer {'0' * 12}, this is {code_hash()}"):
        carried_out(tmp_path, fast())


def test_a_training_that_fails_says_why(tmp_path):
    wrong = LabRun(name="wrong", condition="fresh", arm="dispo", seed=0, options=("--set", "update.lr=-1"))
    with pytest.raises(LabError, match=r"update\.lr = -1"):
        carried_out(tmp_path, wrong)


def test_a_folder_in_which_a_trainer_still_works_is_left_alone(tmp_path):
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    with open(folder / "trainer.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LabError, match="still at work"):
            lab_runs.carry_out(fast(), folder)
    assert (folder / "trainer.lock").exists()


def test_one_lab_at_a_time_has_an_output_folder(tmp_path, capsys):
    with lab_runs.held(tmp_path):
        assert cli(["lab", "--out", str(tmp_path)]) == 2
    assert "another lab is at work" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert cli(["lab", "--out", str(tmp_path / "file" / "below")]) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_a_branch_that_changes_nothing_repeats_its_base(tmp_path):
    base = fast("base", steps=5, keep_checkpoints=True)
    branch = LabRun(
        name="branch", condition="fresh", arm="from-1", seed=0, branch=Branch(base="base", checkpoint=1),
        options=("--resume", "--checkpoint", "1", "--steps", "5"),
    )  # fmt: skip
    (one, two), _ = carried_out(tmp_path, base, branch)
    assert accuracies(one) == accuracies(two)
    assert (one.folder / "checkpoints").exists()


def test_the_hash_is_of_the_files_that_training_depends_on(tmp_path, monkeypatch):
    package = tmp_path / "trainer"
    for name in ("loop.py", "lab/report.py", "warm/A/config.json"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("one")
    monkeypatch.setattr(lab_runs, "files", lambda _: package)

    def hashed():
        code_hash.cache_clear()
        return code_hash()

    try:
        before = hashed()
        (package / "lab/report.py").write_text("two")
        assert hashed() == before
        for name in ("loop.py", "warm/A/config.json"):
            (package / name).write_text("two")
            assert hashed() != before
            before = hashed()
    finally:
        code_hash.cache_clear()


def test_the_command_is_interrupted_and_goes_on(tmp_path):
    """Ctrl-C in the first of two runs; the same command then ends with all tables."""
    out = tmp_path / "study"
    options = ["--seeds", "1", "--arms", "r4-off", "--conditions", "stale", "--steps", "3", "--jobs", "1"]
    command = [sys.executable, "-m", "regimescope.cli", "lab", *options, "--out", str(out)]
    with subprocess.Popen(command, start_new_session=True) as first:
        try:
            wait_for(lambda: list(out.glob("runs/stale-dispo-s0/segments/*.jsonl")), first)
            os.killpg(first.pid, signal.SIGINT)
            assert first.wait(60) == 130
        finally:
            first.kill()
    assert not list(out.glob("outcomes.*"))
    assert cli(["lab", *options, "--out", str(out)]) == 0
    page = (out / "outcomes.md").read_text()
    assert "| R4 off | 0 |" in page and "R4 off fails, in whatever way" in page and code_hash() in page
    outcomes = json.loads((out / "outcomes.json").read_text())
    assert [(o["name"], len(o["rows"])) for o in outcomes] == [("stale-dispo-s0", 3), ("stale-r4-off-s0", 3)]
    figures = (out / "figures.html").read_text()
    assert figures.count("Plotly.newPlot(") >= 1 and "cdn.plot.ly" not in figures.split("Plotly.newPlot(")[-1]


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
