"""`regimescope train` as people use it: real processes that are interrupted and killed, and mistakes answered in one
line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from regimescope.cli import main as cli
from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.control import read_control_state
from regimescope.trainer.policy import new_tiny_policy

RELAXED = {"pos": [0.8, 11.0], "neg": [0.0, 101.0]}
KEYS = {
    "model.path": "warm:B",
    "rollout.prompts": 6,
    "rollout.group": 4,
    "rollout.max_tokens": 48,
    "update.batch": 8,
    "evaluation.every": 0,
}
FAST = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}")]
"A run of about 0.1 s a step."
ALWAYS = {
    "accuracy",
    "reward_mean",
    "reward_std",
    "entropy_mean",
    "response_length_mean",
    "response_length_p99",
    "response_length_max",
    "rep4_mean",
    "rep20_mean",
    "short_frac",
    "aborted_frac",
    "sure_run_mean",
    "compression_mean",
    "adv_mean",
    "sign_label_mismatch_frac",
    "mismatch_k1",
    "repetition_frac",
    "tail_loop_frac",
    "eos_frac",
    "truncated_frac",
    "zero_variance_frac",
    "all_correct_frac",
    "all_wrong_frac",
    "infra_failed_frac",
    "lr",
    "updates",
    "tokens",
    "step_seconds",
    "rollout_seconds",
    "update_seconds",
    "stats_seconds",
    "record_seconds",
}
"Metrics of every step line."


@contextmanager
def trainer(*options: str) -> Iterator[subprocess.Popen[str]]:
    """A trainer in a process of its own; killed at the end if it still lives."""
    command = [sys.executable, "-m", "regimescope.cli", "train", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines(run_dir: Path, kind: str = "") -> list[dict[str, Any]]:
    """Complete lines of the trainer's segments, oldest launch first."""
    paths = sorted((run_dir / "segments").glob("r*.jsonl"), key=lambda p: p.name.split("-")[1])
    texts = [text for path in paths for text in path.read_text().splitlines(keepends=True) if text.endswith("\n")]
    return [line for line in map(json.loads, texts) if kind in ("", line["k"])]


def steps(run_dir: Path) -> list[int]:
    return [line["s"] for line in lines(run_dir, "step")]


def wait_for(true: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 240  # a busy machine takes a minute to import torch
    while not true():
        if process.poll() is not None:
            pytest.fail(f"the trainer ended: {process.communicate()}")
        assert time.monotonic() < end
        time.sleep(0.05)


def command(run_dir: Path, kind: str, args: dict[str, Any] | None = None) -> str:
    launch = lines(run_dir, "header")[-1]["launch"]
    with MonitorSegment(run_dir) as segment:
        return issue(run_dir, segment, kind=kind, args=args or {}, launch=launch, expect=None, by="ana", why="test").id


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_cleanly(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run_dir = tmp_path / "run"
    with trainer("--run-dir", str(run_dir), "--steps", "500", "--pace", "0.5", *FAST) as process:
        wait_for(lambda: len(steps(run_dir)) >= 2, process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert "Traceback" not in errors and "--resume" in output
    assert lines(run_dir)[-1]["k"] == "end" and lines(run_dir)[-1]["reason"] == "stopped"
    assert (run_dir / "checkpoints" / f"step-{steps(run_dir)[-1]:08d}" / "checkpoint.json").exists()


def test_killed_and_resumed_under_the_acked_bounds(tmp_path: Path) -> None:
    """kill -9 after an ack: the resumed launch has the acked bounds and revision, and no finished step is missing."""
    run_dir = tmp_path / "run"
    with trainer(
        "--scenario", "length-collapse", "--run-dir", str(run_dir), "--pace", "0.3", "--steps", "500", *FAST
    ) as process:
        wait_for(lambda: len(steps(run_dir)) >= 2, process)
        command(run_dir, "set_bounds", RELAXED)
        wait_for(lambda: lines(run_dir, "ack"), process)
        applied = lines(run_dir, "ack")[0]
        assert (applied["status"], applied["rev"], applied["applied"]) == ("applied", 1, RELAXED)
        wait_for(lambda: steps(run_dir)[-1] > applied["s"], process)
        process.kill()
        process.wait()
    before = steps(run_dir)
    assert all(line["rev"] == (1 if line["s"] >= applied["s"] else 0) for line in lines(run_dir, "buckets"))
    assert lines(run_dir)[-1]["k"] != "end"

    assert cli(["train", "--run-dir", str(run_dir), "--resume", "--steps", str(before[-1] + 3), "--pace", "0"]) == 0
    header = lines(run_dir, "header")[-1]
    assert (header["start"], header["revision"], header["bounds"]) == ("resume", 1, RELAXED)
    assert header["first_step"] in (before[-1], before[-1] + 1)  # a step is redone at most, never skipped
    assert sorted(set(steps(run_dir))) == list(range(before[-1] + 3))
    assert lines(run_dir)[-1]["reason"] == "finished"


def test_pause_checkpoint_and_stop_by_command(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with trainer("--run-dir", str(run_dir), "--steps", "500", "--pace", "0.2", *FAST) as process:
        wait_for(lambda: steps(run_dir), process)
        command(run_dir, "pause")
        wait_for(lambda: lines(run_dir, "ack"), process)
        held = len(steps(run_dir))
        time.sleep(1.2)
        assert len(steps(run_dir)) == held
        for kind in ("checkpoint", "resume"):
            command(run_dir, kind)
        wait_for(lambda: len(steps(run_dir)) > held, process)
        command(run_dir, "stop")
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert [ack["status"] for ack in lines(run_dir, "ack")] == ["applied"] * 4
    assert [p.parent.name for p in (run_dir / "checkpoints").glob("*/keep")] == [f"step-{held - 1:08d}"]
    assert "stopped after step" in output


def test_bounds_on_the_command_line_override_as_a_new_revision(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    assert cli(["train", "--run-dir", str(run_dir), "--steps", "1", *FAST]) == 0
    assert cli(["train", "--run-dir", str(run_dir), "--steps", "2", "--resume", "--set", "bounds.neg=[0.5, 9]"]) == 0
    header = lines(run_dir, "header")[-1]
    assert (header["revision"], header["bounds"]["neg"]) == (1, [0.5, 9.0])
    state = read_control_state(run_dir)
    assert state is not None and (state.revision, state.step, state.bounds.neg.w_min) == (1, 1, 0.5)


def test_a_run_goes_back_to_an_older_checkpoint_under_other_bounds(tmp_path: Path) -> None:
    run_dir, straight = tmp_path / "run", tmp_path / "straight"
    assert cli(["train", "--run-dir", str(run_dir), "--steps", "4", *FAST]) == 0
    command = ["train", "--run-dir", str(run_dir), "--resume", "--checkpoint", "1"]
    assert cli([*command, "--set", "bounds.neg=[0.5, 9]"]) == 0
    header = lines(run_dir, "header")[-1]
    assert (header["first_step"], header["start"], header["bounds"]["neg"]) == (2, "resume", [0.5, 9.0])
    kept = sorted(path.relative_to(run_dir / "checkpoints") for path in (run_dir / "checkpoints").glob("**/step-*"))
    assert list(map(str, kept)) == [
        *(f"step-{step:08d}" for step in range(4)), "superseded-1/step-00000002", "superseded-1/step-00000003"
    ]  # fmt: skip
    assert cli(["train", "--run-dir", str(straight), "--steps", "2", *FAST]) == 0
    assert cli([*command[:2], str(straight), "--resume", "--steps", "4", "--set", "bounds.neg=[0.5, 9]"]) == 0
    again, once = ([line["m"]["accuracy"] for line in lines(path, "step")][-2:] for path in (run_dir, straight))
    assert again == once


def test_a_checkpoint_that_is_not_there_is_named_and_nothing_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    assert cli(["train", "--run-dir", str(run_dir), "--steps", "2", *FAST]) == 0
    capsys.readouterr()
    resume = ["train", "--run-dir", str(run_dir), "--resume", "--steps", "3", "--checkpoint"]
    assert cli([*resume, "7"]) == 2
    assert "no checkpoint of step 7; it has 0, 1" in capsys.readouterr().err
    assert cli([*resume, "0", "--set", "bounds.neg=[0, 500]"]) == 2
    assert "limits" in capsys.readouterr().err
    assert not list((run_dir / "checkpoints").glob("superseded-*")) and read_control_state(run_dir) is None
    assert cli(["train", "--run-dir", str(tmp_path / "new"), "--checkpoint", "0"]) == 2
    assert "--resume" in capsys.readouterr().err


def test_the_same_command_line_with_resume_goes_on(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    command = ["train", "--scenario", "healthy", "--seed", "3", "--run-dir", str(run_dir), *FAST]
    assert cli([*command, "--steps", "1"]) == 0
    assert cli([*command, "--steps", "2", "--resume"]) == 0
    assert steps(run_dir) == [0, 1] and lines(run_dir, "header")[-1]["revision"] == 0


def test_what_a_step_leaves_behind(tmp_path: Path) -> None:
    """Lines of a step in order, the canonical metrics, bucket sums equal to the tokens trained on."""
    run_dir = tmp_path / "run"
    keys = ("evaluation.every=2", "evaluation.prompts=8", "rollout.stale=1")
    options = ["--steps", "3", *(word for key in keys for word in ("--set", key))]
    assert cli(["train", "--run-dir", str(run_dir), *FAST, *options]) == 0
    first, second, third = lines(run_dir, "step")
    for line in (first, second, third):
        assert set(line["m"]) >= ALWAYS
        assert line["m"]["accuracy"][1] == 24
    absent = {"kl_step", "grad_norm", "ratio_max", "lag_mean"}  # nothing was trained on yet: not there, and not 0
    assert absent.isdisjoint(first["m"])
    assert {"kl_step", "grad_norm", "ratio_max"} <= set(third["m"])
    assert third["m"]["lag_mean"][0] == third["m"]["lag_max"] == 1
    assert "eval.accuracy" in first["m"] and "eval.accuracy" not in second["m"]
    trained = [line for line in lines(run_dir, "buckets") if line["s"] == 2 and "sl" not in line]
    assert [line["u"] for line in trained] == list(range(int(third["m"]["updates"])))
    assert sum(sum(line["tokens"]) for line in trained) == 2 * third["m"]["lag_mean"][1]  # two passes
    kinds = [line["k"] for line in lines(run_dir) if line.get("s") == 2]
    assert kinds.index("step") > kinds.index("ratio_hist") > kinds.index("buckets")


def test_a_step_without_usable_group_is_recorded_and_ends_the_run_only_when_told(tmp_path: Path) -> None:
    """An untrained policy is always wrong: no group has differing rewards."""
    model = tmp_path / "model"
    policy = new_tiny_policy(0)
    policy.model.save_pretrained(model)
    policy.tokenizer.save_pretrained(model)
    options = [*FAST, "--set", f"model.path={model}", "--steps", "5"]
    assert cli(["train", "--run-dir", str(tmp_path / "on"), *options]) == 0
    assert len(steps(tmp_path / "on")) == 5
    assert not lines(tmp_path / "on", "buckets")
    dead = [line for line in lines(tmp_path / "on", "event") if line["kind"] == "dead_step"]
    assert [line["data"]["in_a_row"] for line in dead] == [1, 2, 3, 4, 5]
    assert lines(tmp_path / "on", "step")[0]["m"]["updates"] == 0
    assert cli(["train", "--run-dir", str(tmp_path / "off"), *options, "--set", "update.max_dead_steps=2"]) == 0
    assert len(steps(tmp_path / "off")) == 2 and lines(tmp_path / "off", "end")[0]["reason"] == "stopped"


def test_a_gradient_that_is_not_finite_is_recorded_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights stay as they are when every gradient is NaN, and the run goes on with the numbers as they were."""
    run_dir = tmp_path / "run"
    monkeypatch.setattr(
        "torch.nn.utils.clip_grad_norm_", lambda parameters, limit: next(iter(parameters)).new_tensor(float("nan"))
    )
    assert cli(["train", "--run-dir", str(run_dir), "--steps", "2", *FAST]) == 0
    for line in lines(run_dir, "step"):
        assert line["m"]["grad_norm"][0] == "NaN" and line["m"]["updates"] == 0 and line["m"]["skipped_updates"] > 0
    one, two = ((run_dir / "checkpoints" / f"step-0000000{i}" / "model.safetensors").read_bytes() for i in (0, 1))
    assert one == two


def mistake(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What is said about a mistake: exit 2, one line, no traceback."""
    assert cli(["train", *options]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and errors[0].startswith("regimescope: ")
    return errors[0]


def test_mistakes_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = str(tmp_path / "run")
    broken = tmp_path / "broken.toml"
    broken.write_text("[update]\nlearning = 1\n")
    no_tokenizer = tmp_path / "model"
    new_tiny_policy(0).model.save_pretrained(no_tokenizer)
    assert "no such file" in mistake(capsys, str(tmp_path / "nowhere.toml"))
    assert "update.learning" in mistake(capsys, str(broken), "--run-dir", run_dir)
    assert "did you mean 'length-collapse'" in mistake(capsys, "--scenario", "length-colapse")
    assert "without tokenizer" in mistake(capsys, "--run-dir", run_dir, "--set", f"model.path={no_tokenizer}")
    assert "no model folder" in mistake(capsys, "--run-dir", run_dir, "--set", "model.path=nowhere")
    assert "neg.w_max = 500" in mistake(capsys, "--run-dir", run_dir, "--set", "bounds.neg=[0, 500]")
    assert "w_min must be" in mistake(capsys, "--run-dir", run_dir, "--set", "bounds.neg=[2, 1]")
    assert "needs --run-dir" in mistake(capsys, "--resume")
    assert "holds no run" in mistake(capsys, "--resume", "--run-dir", str(tmp_path / "nowhere"))
    assert "task 'C'" in mistake(capsys, "--run-dir", run_dir, "--set", "task.sources=['C']")
    file = tmp_path / "file"
    file.write_text("")
    assert "cannot write into" in mistake(capsys, "--run-dir", str(file / "run"))
    assert not list(tmp_path.glob("*/segments"))  # nothing that looks like a run was left behind


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = str(tmp_path / "run")
    assert cli(["train", "--run-dir", run_dir, "--steps", "1", *FAST]) == 0
    capsys.readouterr()
    assert "already holds a run" in mistake(capsys, "--run-dir", run_dir)
    assert "is through with its 1 steps" in mistake(capsys, "--run-dir", run_dir, "--resume")
    assert "bounds.neg, " in mistake(
        capsys, "--run-dir", run_dir, "--resume", "--scenario", "length-collapse", "--steps", "2"
    )
    assert "--set: unknown key" in mistake(capsys, "--run-dir", run_dir, "--resume", "--set", "lr=1")


def test_two_trainers_do_not_share_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    with trainer("--run-dir", str(run_dir), "--steps", "500", "--pace", "1", *FAST) as process:
        wait_for(lambda: steps(run_dir), process)
        assert "another trainer is running" in mistake(capsys, "--run-dir", str(run_dir), "--resume")
