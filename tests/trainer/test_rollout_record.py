"""Rollouts of real runs: rows that agree with the lines of their step, and a training that does not notice them."""

import json
import math
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from regimescope.cli import main as cli
from regimescope.trainer import loop
from regimescope.trainer.answers.judge_process import JudgeProcess
from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.policy import load_policy, new_tiny_policy

KEYS = {
    "model.path": "warm:B",
    "rollout.prompts": 8,
    "rollout.group": 4,
    "rollout.max_tokens": 48,
    "update.batch": 8,
    "update.lr": 1e-3,
    "evaluation.every": 0,
    "record.rollouts_limit": 1000,
}
Row = dict[str, Any]


def words(steps: int, keys: dict[str, object]) -> list[str]:
    settings = {**KEYS, **keys}.items()
    return ["--steps", str(steps), *(word for k, v in settings for word in ("--set", f"{k}={json.dumps(v)}"))]


def train(run_dir: Path, steps: int = 3, *options: str, **keys: object) -> list[Row]:
    """Lines of a run of a few steps."""
    assert cli(["train", "--run-dir", str(run_dir), *words(steps, keys), *options]) == 0
    return segment(max((run_dir / "segments").glob("r*.jsonl"), key=lambda path: path.name.split("-")[1]))


def segment(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_kind(lines: list[Row], kind: str, **where: object) -> list[Row]:
    return [line for line in lines if line["k"] == kind and all(line.get(key) == value for key, value in where.items())]


def rollouts(run_dir: Path, lines: list[Row]) -> dict[int, list[Row]]:
    """Step -> rows of its file, in which every line names as many as there are."""
    found = {}
    for line in of_kind(lines, "rollouts"):
        rows = pq.read_table(run_dir / line["file"]).to_pylist()
        assert line["rows"] == len(rows)
        found[line["s"]] = sorted(rows, key=lambda row: row["sample_id"])
    return found


def check_against_the_buckets(rows: list[Row], lines: list[Row], step: int) -> None:
    """Every response takes part once in the last pass: per update, its tokens are those of the rows."""
    buckets = [line for line in of_kind(lines, "buckets", s=step) if "sl" not in line]
    last_pass = buckets[len(buckets) // 2 :]
    by_update: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["update"] is not None:
            by_update[row["update"]].append(row)
    assert sorted(by_update) == [line["u"] for line in last_pass if sum(line["tokens"])]
    for line in last_pass:
        of = {name: np.concatenate([row[name] for row in by_update[line["u"]]]) for name in ("bucket", "weight")}
        log_ratio = [np.subtract(row["logp_new"], row["logp_old"]) for row in by_update[line["u"]]]
        place = of["bucket"].astype(int)
        assert np.bincount(place, minlength=7).tolist() == line["tokens"]
        for name, values in (("weight_sum", of["weight"]), ("ratio_sum", np.exp(np.concatenate(log_ratio)))):
            assert np.bincount(place, values, 7) == pytest.approx(line[name], rel=1e-4)


# -- the training does not notice --


@pytest.mark.parametrize("keys", [{}, {"rollout.stale": 1, "update.micro_batch": 3, "record.sync": False}])
def test_loss_and_randomness_are_the_same_with_and_without(tmp_path: Path, keys: dict[str, object]) -> None:
    torch.manual_seed(0)  # both runs are in this process
    on = train(tmp_path / "on", **keys)
    torch.manual_seed(0)
    off = train(tmp_path / "off", **keys, **{"record.rollouts_every": 0})
    assert of_kind(on, "rollouts") and not of_kind(off, "rollouts")
    assert not (tmp_path / "off" / "rollouts").exists() and "rollouts" not in off[0]["can"]

    def numbers(lines: list[Row]) -> list[Row]:
        """Without what a clock says, and without the rollouts."""
        kept = [line for line in lines[1:] if line["k"] != "rollouts"]
        for line in kept:
            del line["t"], line["q"]
            line["m"] = {name: v for name, v in line.get("m", {}).items() if not name.endswith("_seconds")}
        return kept

    assert numbers(on) == numbers(off)
    one, other = (tmp_path / name / "checkpoints" / "step-00000002" for name in ("on", "off"))
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    states = [torch.load(folder / "trainer.pt", weights_only=False) for folder in (one, other)]
    assert states[0]["python"] == states[1]["python"]
    for name in ("torch", "order"):
        assert torch.equal(states[0][name], states[1][name])


# -- what the rows say --


def test_rows_are_the_responses_of_their_step(tmp_path: Path) -> None:
    lines = train(tmp_path)
    assert "rollouts" in lines[0]["can"]
    kept = rollouts(tmp_path, lines)
    assert sorted(kept) == [0, 1, 2]
    policy = load_policy("warm:B")
    for step, rows in kept.items():
        (line,) = of_kind(lines, "step", s=step)
        kinds = [line["k"] for line in lines if line.get("s") == step]
        assert kinds.index("rollouts") < kinds.index("step")
        m = {name: value[0] if isinstance(value, list) else value for name, value in line["m"].items()}
        assert [row["sample_id"] for row in rows] == list(range(32))
        assert sum(row["length"] for row in rows) == m["tokens"]
        assert np.mean([row["reward"] for row in rows]) == pytest.approx(m["reward_mean"])
        assert np.mean([row["correct"] for row in rows]) == m["accuracy"]
        assert np.mean([row["finish_reason"] == "eos" for row in rows]) == m["eos_frac"]
        assert np.mean([row["repetition"] for row in rows]) == pytest.approx(m["rep4_mean"])
        assert sum(sum(row["entropy"]) for row in rows) == pytest.approx(m["entropy_mean"] * m["tokens"], rel=1e-5)
        assert {row["weight_version"] for row in rows} == {step} and {row["revision"] for row in rows} == {0}
        for row in rows:
            assert row["group_id"] == row["sample_id"] // 4
            assert row["response"] == policy.decode(row["token_ids"]) and row["prompt"]
            assert row["length"] == len(row["token_ids"]) == len(row["logp_old"]) == len(row["entropy"])
            assert (row["advantage"] > 0) == (row["correct"] and row["update"] is not None)
            assert (row["lag"] is None) == (row["update"] is None) == (row["logp_new"] is None)
        of_group = [[row for row in rows if row["group_id"] == group] for group in range(8)]
        for members in of_group:  # equal rewards: no gradient, and still a candidate
            differ = len({row["reward"] for row in members}) > 1
            assert all((row["update"] is not None) == differ for row in members)
        check_against_the_buckets(rows, lines, step)
    assert any(row["update"] is None for rows in kept.values() for row in rows)


def test_limit_every_and_texts(tmp_path: Path) -> None:
    options = {"record.rollouts_limit": 4, "record.rollouts_every": 2, "record.rollouts_texts": False}
    kept = rollouts(tmp_path, train(tmp_path, **options))
    assert sorted(kept) == [0, 2]
    for rows in kept.values():
        reward = {row["pick"]: row["reward"] for row in rows}
        assert sorted(row["pick"] for row in rows) == ["best", "random", "random", "worst"]
        assert reward["worst"] < reward["best"]
        assert {(row["prompt"], row["response"], row["token_ids"]) for row in rows} == {(None, None, None)}
        assert all(len(row["logp_old"]) == row["length"] for row in rows)


def test_stale_rollouts_are_recorded_in_the_step_that_trains_on_them(tmp_path: Path) -> None:
    options: dict[str, object] = {"rollout.stale": 2}
    stale = train(tmp_path / "stale", 5, **options)
    fresh = train(tmp_path / "fresh", 1, **{"rollout.stale": 0})
    kept = rollouts(tmp_path / "stale", stale)
    assert sorted(kept) == [2, 3, 4]  # before, nothing is trained on
    first = rollouts(tmp_path / "fresh", fresh)[0]
    assert [row["token_ids"] for row in kept[2]] == [row["token_ids"] for row in first]  # generated at step 0
    for step, rows in kept.items():
        check_against_the_buckets(rows, stale, step)
        (line,) = of_kind(stale, "step", s=step)
        assert {row["lag"] for row in rows if row["update"] is not None} == {line["m"]["lag_mean"][0]}
        assert len(rows) == 32
    assert [min(row["weight_version"] for row in rows) for rows in kept.values()] == [0, 0, 0]

    resumed = train(tmp_path / "stale", 9, "--resume", **options)
    again = rollouts(tmp_path / "stale", resumed)
    assert sorted(again) == [7, 8]  # those that waited in the checkpoint had left their texts behind
    for step, rows in again.items():
        check_against_the_buckets(rows, resumed, step)


def test_a_step_that_nothing_is_learnt_from_is_recorded_too(tmp_path: Path) -> None:
    """An untrained policy is always wrong: no group has differing rewards."""
    model = tmp_path / "model"
    policy = new_tiny_policy(0)
    policy.model.save_pretrained(model)
    policy.tokenizer.save_pretrained(model)
    kept = rollouts(tmp_path / "run", train(tmp_path / "run", 2, **{"model.path": str(model)}))
    assert [len(rows) for rows in kept.values()] == [32, 32]
    for row in (*kept[0], *kept[1]):
        assert (row["update"], row["logp_new"], row["weight"], row["bucket"], row["lag"]) == (None,) * 5
        assert (row["correct"], row["advantage"]) == (False, 0.0)
        assert len(row["logp_old"]) == row["length"] and row["finish_reason"] in ("eos", "length")


def test_a_response_without_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "roots.jsonl"
    data.write_text("\n".join(json.dumps({"prompt": f"{a}+{a}=", "answer": rf"\sqrt{{{a}}}"}) for a in range(2, 8)))
    judge = JudgeProcess(command=(sys.executable, "-c", "raise SystemExit(3)"))
    monkeypatch.setattr(loop, "Verifier", lambda: Verifier(judge=judge))
    lines = train(tmp_path / "run", 1, **{"task.sources": [str(data)]})
    (rows,) = rollouts(tmp_path / "run", lines).values()
    failed = [row for row in rows if row["finish_reason"] == "infra"]
    (step,) = of_kind(lines, "step")
    assert len(failed) == step["m"]["infra_failed_frac"][0] * 32 > 0
    assert {(row["reward"], row["advantage"], row["correct"]) for row in failed} == {(None, None, None)}
    assert {row["env"] for row in rows} == {"roots"}


def test_two_ranks_record_every_response_once(tmp_path: Path) -> None:
    """Under torchrun (gloo): what a rank records agrees with its own buckets."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "regimescope.cli", "train", "--run-dir", str(tmp_path), *words(2, {})]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        errors = process.communicate(timeout=240)[1]
    finally:
        process.terminate()  # it ends its ranks, which a kill would leave behind
        process.wait(60)
    assert process.returncode == 0, errors
    seen: dict[int, list[int]] = defaultdict(list)
    for path in (tmp_path / "segments").glob("r*.jsonl"):
        lines = segment(path)
        kept = rollouts(tmp_path, lines)
        for step, rows in kept.items():
            check_against_the_buckets(rows, lines, step)
            seen[step] += [row["sample_id"] for row in rows]
            known = [row["entropy"] is not None for row in rows]
            assert any(known) and all(row["entropy"] is not None for row in rows if row["update"] is None)
    assert {step: sorted(ids) for step, ids in seen.items()} == {0: list(range(32)), 1: list(range(32))}


def test_nothing_is_dropped(tmp_path: Path) -> None:
    """With the thread, too: rows of two steps may wait, and a step takes longer than their file."""
    lines = train(tmp_path, 3, **{"record.sync": False, "record.rollouts_limit": 16})
    assert [line["s"] for line in of_kind(lines, "rollouts")] == [0, 1, 2]
    assert not [line for line in of_kind(lines, "event") if line["kind"] == "dropped"]
    assert all(math.isfinite(line["rows"]) and line["rows"] == 16 for line in of_kind(lines, "rollouts"))
