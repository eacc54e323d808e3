"""`regimescope train` under torchrun, two gloo processes: its record adds up to that of one rank, commands, signals and
failures are the same for both, and a killed rank ends the job."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from regimescope.cli import main as cli
from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.control import read_control_state
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.launch import list_segments
from regimescope.monitor.store import Store

KEYS: dict[str, object] = {
    "model.path": "warm:B",
    "rollout.prompts": 6,
    "rollout.group": 4,
    "rollout.max_tokens": 48,
    "update.batch": 8,
    "evaluation.every": 0,
}
SUMS = (
    "ratio_sum", "weight_sum", "abs_adv_weight_sum", "signed_adv_weight_sum", "entropy_sum", "entropy_effect_sum",
    "logp_sum", "log_ratio_sum", "log_ratio_sq_sum",
)  # fmt: skip
COUNTS = ("tokens", "clip_high", "clip_low", "clamped", "entropy_effect_tokens")
ALL_OF_IT = {
    "rollout.resample": 2,
    "rollout.stale": 1,
    "rollout.prompts": 5,
    "update.aggregation": "balanced",
    "mismatch.correction": "token_mask",
    "mismatch.floor": 0.5,
}
RELAXED = {"pos": [0.8, 11.0], "neg": [0.0, 101.0]}
START = {"pos": [0.8, 11.0], "neg": [1.0, 101.0]}
"Of the scenario length-collapse."
DRIFT = """
import os, sys
from regimescope.cli import main
from regimescope.trainer import launches

load = launches.load_policy

def other(source):
    policy = load(source)
    if os.environ["RANK"] == "1":
        next(policy.model.parameters()).data[3, 3] += 1e-6
    return policy

launches.load_policy = other
sys.exit(main(sys.argv[1:]))
"""
"A rank that begins with another bit in its weights."


def words(**keys: object) -> list[str]:
    return [word for key, value in {**KEYS, **keys}.items() for word in ("--set", f"{key}={json.dumps(value)}")]


@contextmanager
def torchrun(*options: str, script: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Two ranks of `regimescope train`; whoever still lives at the end is killed."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    what = ["-m", "regimescope.cli"] if script is None else [str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *launch, *what, "train", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # it ends its ranks, which a kill would leave behind
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=60)
        process.kill()
        process.communicate()


def finish(*options: str, script: Path | None = None) -> tuple[int, str, str]:
    with torchrun(*options, script=script) as process:
        output, errors = process.communicate(timeout=240)
    return process.returncode, output, errors


def lines(run_dir: Path, rank: int, kind: str = "") -> list[dict[str, Any]]:
    """Complete lines of one rank's newest launch."""
    paths = [path for name, path in list_segments(run_dir) if name.rank == rank and not name.is_monitor]
    if not paths:
        return []
    texts = [text for text in paths[-1].read_text().splitlines(keepends=True) if text.endswith("\n")]
    return [line for line in map(json.loads, texts) if kind in ("", line["k"])]


def steps(run_dir: Path) -> list[int]:
    """Steps that both ranks are through with."""
    of = [{line["s"] for line in lines(run_dir, rank, "step")} for rank in (0, 1)]
    return sorted(of[0] & of[1])


def pids(run_dir: Path) -> dict[int, int]:
    return {name.rank: name.pid for name, _ in list_segments(run_dir) if not name.is_monitor}


def wait_for(true: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 240  # a busy machine takes a minute to import torch
    while not true():
        if process.poll() is not None:
            pytest.fail(f"the job ended: {process.communicate()}")
        assert time.monotonic() < end
        time.sleep(0.05)


def rows(root: Path, sql: str, keys: int) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
    """Of each run below the root: what the query gives, its first columns as the key."""
    store = Store.in_memory(root)
    try:
        Ingester(store).catch_up()
        with store.cursor() as con:
            runs = con.execute("SELECT path, run_key FROM run").fetchall()
            return {
                path: {row[:keys]: row[keys:] for row in con.execute(sql, {"run": key}).fetchall()}
                for path, key in runs
            }
    finally:
        store.close()


@pytest.mark.parametrize("preset,keys", [("dispo", {}), ("grpo", ALL_OF_IT)])
def test_two_ranks_record_what_one_rank_does(tmp_path: Path, preset: str, keys: dict[str, object]) -> None:
    """With micro-batches of a rank's share one rank computes the same, up to float32 noise of other batch shapes."""
    tasks = {"task.sources": ["A", "B"], "evaluation.every": 2, "evaluation.prompts": 11}
    options = ["--preset", preset, "--steps", "4", "--seed", "5", *words(**tasks, **keys)]
    code, _, errors = finish("--run-dir", str(tmp_path / "two"), *options)
    assert code == 0, errors
    assert cli(["train", "--run-dir", str(tmp_path / "one"), *options, "--set", "update.micro_batch=4"]) == 0
    near: dict[str, Any] = {"rel": 1e-3, "abs": 1e-4}
    of_run = "run_key = $run"

    for what, columns, table in (
        ("kind, value, step, update, bucket", (*COUNTS, *SUMS), "v_bucket"),
        ("kind, value, step, sign, bin", ("tokens", "ratio_sum", "abs_adv_sum", "abs_adv_ratio_sum"), "v_ratio_bin"),
    ):
        sql = f"SELECT {what}, {', '.join(columns)} FROM {table} JOIN slice USING (run_key, slice_id) WHERE {of_run}"
        found = rows(tmp_path, f"{sql} AND tokens > 0", 5)
        assert found["one"].keys() == found["two"].keys()
        exact = len(set(columns) & set(COUNTS))
        for key, one in found["one"].items():
            two = found["two"][key]
            assert two[:exact] == one[:exact], (table, key)
            assert two[exact:] == pytest.approx(one[exact:], **near), (table, key)

    sql = f"""SELECT kind, value, step, bin, sum(n)
              FROM (SELECT *, unnest(range(len(counts))) AS bin, unnest(counts) AS n
              FROM hist WHERE {of_run}) JOIN slice USING (run_key, slice_id) WHERE n > 0 GROUP BY ALL"""
    found = rows(tmp_path, sql, 4)
    assert found["one"] == found["two"] and len(found["one"]) > 8

    sql = f"""SELECT kind, slice.value, step, name, m.value, weight
              FROM v_metric_step m JOIN slice USING (run_key, slice_id)
              WHERE {of_run} AND name NOT LIKE '%seconds'"""
    found = rows(tmp_path, sql, 4)
    assert found["one"].keys() == found["two"].keys()
    assert {name for *_, name in found["one"]} > {"accuracy", "reward_std", "ess_frac", "eval.accuracy", "kl_step"}
    logged = [line["m"] for line in lines(tmp_path / "one", 0, "step")]
    for key, (value, weight) in found["one"].items():
        kind, _, step, name = key
        assert found["two"][key][0] == pytest.approx(value, **near), key
        if kind == "all" and isinstance(logged[step][name], list):
            assert found["two"][key][1] == weight, key  # the items behind a mean

    sql = f"SELECT step, ranks_seen, complete FROM v_step WHERE {of_run}"
    assert rows(tmp_path, sql, 1)["two"] == {(step,): (2, True) for step in range(4)}
    sql = f"SELECT step, sample_id, count(*), count(DISTINCT rank) FROM v_rollout WHERE {of_run} GROUP BY ALL"
    kept = rows(tmp_path, sql, 2)["two"]
    assert len(kept) > 16 and set(kept.values()) == {(1, 1)}  # a response is one rank's
    weights = [load_file(tmp_path / run / "checkpoints/step-00000003/model.safetensors") for run in ("one", "two")]
    for name, one in weights[0].items():
        assert (one - weights[1][name]).abs().max() < 1e-4, name
    header = lines(tmp_path / "two", 1, "header")[0]
    assert (header["rank"], header["ranks"]) == (1, 2)
    assert header["launch"] == lines(tmp_path / "two", 0, "header")[0]["launch"]

    for run in ("one", "two"):  # a checkpoint of two ranks goes on in one
        assert cli(["train", "--run-dir", str(tmp_path / run), "--resume", "--steps", "5"]) == 0
    one, two = (lines(tmp_path / run, 0, "step")[-1] for run in ("one", "two"))
    assert one["s"] == two["s"] == 4
    for name in ("accuracy", "response_length_mean", "reward_mean"):
        assert one["m"][name] == two["m"][name]


def test_commands_are_applied_and_refused_by_both_at_one_boundary(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    state = run_dir / "control_state.json"
    options = ["--scenario", "length-collapse", "--steps", "500", "--pace", "0.2", *words()]
    with torchrun("--run-dir", str(run_dir), *options) as process, MonitorSegment(run_dir) as segment:
        wait_for(lambda: len(steps(run_dir)) >= 2, process)

        def ask(kind: str, args: dict[str, Any] | None = None, expect: int | None = None) -> None:
            launch = lines(run_dir, 0, "header")[0]["launch"]
            command = issue(
                run_dir, segment, kind=kind, args=args or {}, launch=launch, expect=expect, by="ana", why="test"
            )
            wait_for(
                lambda: all(command.id in {ack["id"] for ack in lines(run_dir, r, "ack")} for r in (0, 1)), process
            )

        assert cli(["bounds", str(run_dir), "--neg-min", "0", "--why", "test"]) == 0  # waits for both
        ask("set_bounds", RELAXED, expect=0)
        kept = state.read_bytes()
        state.unlink()
        state.mkdir()  # the disk fails rank 0
        ask("set_bounds", RELAXED)
        state.rmdir()
        state.write_bytes(kept)
        (run_dir / "control" / "0199a3c4-7d1e-7000-8000-0000000000a1.json").write_text("{")
        ask("pause")
        wait_for(lambda: all(lines(run_dir, r)[-1].get("data") == {"state": "paused"} for r in (0, 1)), process)
        ask("checkpoint")
        ask("resume")
        acks, buckets = ([_untimed(lines(run_dir, rank, kind)) for rank in (0, 1)] for kind in ("ack", "buckets"))
        ask("rollback", {"checkpoint": 1, "bounds": START}, expect=1)
        wait_for(lambda: len(steps(run_dir)) >= 2, process)
        ask("stop")
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert acks[0] == acks[1]
    applied, rejected = ([ack for ack in acks[0] if ack["status"] == word] for word in ("applied", "rejected"))
    assert len(applied) == 4 and len(rejected) == 3
    bounds = applied[0]
    assert (bounds["rev"], bounds["applied"]) == (1, RELAXED)
    assert ["revision 1 is in force" in rejected[0]["msg"], "control_state.json" in rejected[1]["msg"]] == [True, True]
    for rank in (0, 1):
        assert all(line["rev"] == (line["s"] >= bounds["s"]) for line in buckets[rank])
        header, back = lines(run_dir, rank, "header")[0], lines(run_dir, rank, "ack")[0]
        assert [header[key] for key in ("start", "first_step", "revision", "bounds")] == ["rollback", 2, 2, START]
        assert [back[key] for key in ("status", "s", "rev", "applied")] == ["applied", 2, 2, START]
        assert steps(run_dir)[0] == 2 and all(line["rev"] == 2 for line in lines(run_dir, rank, "buckets"))
        assert [lines(run_dir, rank)[-1][key] for key in ("k", "reason")] == ["end", "stopped"]
    in_force = read_control_state(run_dir)
    assert in_force is not None and (in_force.revision, in_force.step) == (2, 2)
    sql = """SELECT command_id, kind, status, ranks, applied_ranks, applied_step, revision FROM v_command
             WHERE run_key = $run ORDER BY command_id"""
    (found,) = rows(tmp_path, sql, 1).values()
    first, *others = found.values()
    assert first == ("set_bounds", "applied", 2, 2, bounds["s"], 1)
    assert [row[:4] for row in others] == [
        *[("set_bounds", "rejected", 2, 0)] * 2,
        *[(kind, "applied", 2, 2) for kind in ("pause", "checkpoint", "resume", "rollback", "stop")],
    ]
    assert rows(tmp_path, "SELECT launch_no, end_reason, superseded_from FROM launch WHERE run_key = $run", 1)[
        "run"
    ] == {(0,): ("rollback", 2), (1,): ("stopped", None)}


def _untimed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key not in ("q", "t")} for record in records]


def test_a_killed_rank_ends_the_job_and_a_signal_to_one_ends_both(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    options = ["--run-dir", str(run_dir), "--steps", "500", "--pace", "0.2"]
    with torchrun(*options, *words()) as process:
        wait_for(lambda: len(steps(run_dir)) >= 2, process)
        of = pids(run_dir)
        os.kill(of[1], signal.SIGKILL)
        process.communicate(timeout=90)
    assert process.returncode != 0
    with pytest.raises(ProcessLookupError):
        os.kill(of[0], 0)
    assert [lines(run_dir, 0)[-1][key] for key in ("k", "reason")] == ["end", "error"]
    assert lines(run_dir, 1)[-1]["k"] != "end"
    assert rows(tmp_path, "SELECT launch_no, end_reason FROM launch WHERE run_key = $run", 1)["run"] == {
        (0,): ("error",)
    }
    before = steps(run_dir)

    with torchrun(*options, "--resume") as process:
        wait_for(lambda: pids(run_dir)[1] != of[1] and len(steps(run_dir)) >= 2, process)
        os.kill(pids(run_dir)[1], signal.SIGTERM)
        process.communicate(timeout=120)
    assert lines(run_dir, 0, "header")[0]["start"] == "resume"
    assert steps(run_dir)[0] in (before[-1], before[-1] + 1)
    assert [lines(run_dir, rank)[-1]["reason"] for rank in (0, 1)] == ["stopped", "stopped"]
    assert lines(run_dir, 0, "step")[-1]["s"] == lines(run_dir, 1, "step")[-1]["s"]


def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / "r00000-1-1-0000.jsonl").touch()
    code, output, errors = finish("--run-dir", str(tmp_path), *words())
    assert code != 0 and output == ""
    assert errors.count("regimescope: ") == errors.count("already holds a run") == 1


def test_a_checkpoint_that_fails_ends_both_ranks_alike(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "checkpoints").touch()  # a file where a folder should be
    code, _, errors = finish("--run-dir", str(run_dir), *words())
    assert code != 0 and errors.count("regimescope: cannot write") == 1
    for rank in (0, 1):
        assert [line["s"] for line in lines(run_dir, rank, "step")] == [0]
        assert lines(run_dir, rank)[-1]["reason"] == "error"


def test_weights_that_drift_apart_end_the_run(tmp_path: Path) -> None:
    script = tmp_path / "drift.py"
    script.write_text(DRIFT)
    run_dir = tmp_path / "run"
    code, _, errors = finish("--run-dir", str(run_dir), *words(), script=script)
    assert code != 0 and errors.count("regimescope: the ranks have different weights after step 0") == 1
    for rank in (0, 1):
        assert [event["kind"] for event in lines(run_dir, rank, "event")] == ["ranks_differ"]
        assert lines(run_dir, rank)[-1]["reason"] == "error"
    assert not list(run_dir.glob("checkpoints/*"))
