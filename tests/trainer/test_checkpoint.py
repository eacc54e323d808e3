"""Checkpoints: complete or absent, pruned, and exact: a resumed run equals one that was never interrupted."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regimescope.cli import main as cli
from regimescope.monitor.bounds import Bounds
from regimescope.trainer.checkpoint import CheckpointFolder, CheckpointMeta, read_checkpoint
from regimescope.trainer.errors import CheckpointError
from regimescope.trainer.policy import load_policy, new_tiny_policy

BOUNDS = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [0.0, "Infinity"]})
KEYS = {
    "model.path": "warm:B",
    "rollout.prompts": 6,
    "rollout.group": 4,
    "rollout.max_tokens": 48,
    "update.batch": 4,
    "evaluation.every": 2,
    "evaluation.prompts": 8,
}
SMALL = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}")]
"A run of about 0.15 s a step."


def meta(step: int) -> CheckpointMeta:
    return CheckpointMeta(step=step, revision=step, bounds=BOUNDS, weight_version=step)


def lines(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    paths = sorted((run_dir / "segments").glob("r*.jsonl"), key=lambda p: p.name.split("-")[1])
    texts = [text for path in paths for text in path.read_text().splitlines()]
    return [line for text in texts if (line := json.loads(text))["k"] == kind]


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line["m"].items() if not name.endswith("_seconds")}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_saved_and_read_back(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=8).save(
        new_tiny_policy(0), meta(3), {"order": torch.arange(3), "python": (3, (1, 2), None)}
    )
    assert folder == tmp_path / "checkpoints" / "step-00000003"
    read = read_checkpoint(folder)
    assert read.meta == meta(3)
    assert read.state["order"].tolist() == [0, 1, 2] and read.state["python"] == (3, (1, 2), None)
    assert load_policy(folder).parameter_count == new_tiny_policy(0).parameter_count


def test_the_newest_and_those_asked_for_are_kept(tmp_path: Path) -> None:
    folder, policy = CheckpointFolder(tmp_path, keep=2), new_tiny_policy(0)
    for step in range(4):
        folder.save(policy, meta(step), {}, asked_for=step == 0)
    assert sorted(p.name[-1] for p in folder.path.iterdir()) == ["0", "2", "3"]
    assert folder.deleted == [1]
    folder.save(policy, meta(2), {}, asked_for=True)  # asked for afterwards: marked, not written again
    folder.save(policy, meta(4), {})
    folder.save(policy, meta(5), {})
    assert sorted(p.name[-1] for p in folder.path.iterdir()) == ["0", "2", "4", "5"]
    assert folder.deleted == [3]


def test_an_incomplete_one_does_not_count(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    assert folder.latest() is None
    folder.save(new_tiny_policy(0), meta(1), {})
    (folder.path / "step-00000002.partial").mkdir()
    latest = folder.latest()
    assert latest is not None and latest.name == "step-00000001"
    folder.save(new_tiny_policy(0), meta(2), {})  # takes the place of what was left behind
    assert sorted(p.name for p in folder.path.iterdir()) == ["step-00000001", "step-00000002"]


def test_a_broken_one_is_named(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2).save(new_tiny_policy(0), meta(1), {})
    (folder / "trainer.pt").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="step-00000001 cannot be read"):
        read_checkpoint(folder)
    (folder / "checkpoint.json").write_text('{"format": 99}')
    with pytest.raises(CheckpointError, match="format 99"):
        read_checkpoint(folder)


@pytest.mark.parametrize("stale", [0, 2])
def test_three_steps_and_three_resumed_equal_six(tmp_path: Path, stale: int) -> None:
    options = [*SMALL, "--seed", "1", "--set", f"rollout.stale={stale}"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert cli(["train", "--run-dir", str(whole), "--steps", "6", *options]) == 0
    assert cli(["train", "--run-dir", str(parts), "--steps", "3", *options]) == 0
    assert cli(["train", "--run-dir", str(parts), "--steps", "6", "--resume"]) == 0
    one, two = lines(whole, "step"), lines(parts, "step")
    assert [line["s"] for line in one] == [line["s"] for line in two] == [0, 1, 2, 3, 4, 5]
    assert list(map(without_times, one)) == list(map(without_times, two))
    numbers = [
        [{k: v for k, v in line.items() if k not in ("q", "t")} for line in lines(run, "buckets")]
        for run in (whole, parts)
    ]
    assert numbers[0] == numbers[1] and numbers[0]
    last = [weights(run / "checkpoints" / "step-00000005") for run in (whole, parts)]
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])
    headers = lines(parts, "header")
    assert [(header["start"], header["first_step"]) for header in headers] == [("fresh", 0), ("resume", 3)]
    assert headers[0]["launch"] != headers[1]["launch"]


def test_measuring_does_not_change_the_training(tmp_path: Path) -> None:
    folders = []
    for statistics in ("true", "false"):
        run = tmp_path / statistics
        assert (
            cli(["train", "--run-dir", str(run), "--steps", "2", *SMALL, "--set", f"record.statistics={statistics}"])
            == 0
        )
        folders.append(run)
    measured, plain = (weights(run / "checkpoints" / "step-00000001") for run in folders)
    assert all(torch.equal(measured[name], plain[name]) for name in measured)
    assert lines(folders[0], "buckets") and not lines(folders[1], "buckets")
