"""The Recorder with real files, processes, signals and limits.

What is acknowledged is there, what is lost is counted, nothing raises.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from regimescope import __version__
from regimescope.monitor import (
    Bounds,
    Limits,
    RatioHist,
    Recorder,
    SignBounds,
    SignRule,
    TokenStats,
    WeightRule,
    writer,
)
from regimescope.monitor.control import Ack
from regimescope.monitor.edges import LENGTH_EDGES, LR1
from regimescope.monitor.errors import RecorderError
from regimescope.monitor.launch import SegmentName

BOUNDS = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
RULE = WeightRule.capped(BOUNDS)


def lines(path: Path) -> list[dict[str, Any]]:
    """All lines of a segment; the file holds whole lines only, and standard JSON."""
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def segments(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "segments").iterdir())


def lost(records: list[dict[str, Any]]) -> tuple[int, int]:
    """Holes in the sequence numbers, and what the `dropped` events tell."""
    numbers = [record["q"] for record in records]
    assert numbers == sorted(set(numbers))
    told = sum(record["data"]["records"] for record in records if record.get("kind") == "dropped")
    return numbers[-1] - numbers[0] + 1 - len(numbers), told


def python(code: str, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, warnings being errors."""
    command = [sys.executable, "-W", "error", "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


def some_stats(*, hist_tokens: tuple[int, int] = (3, 0)) -> TokenStats:
    ints, floats = (1, 2, 3, 4, 5, 6, 7), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, math.nan)
    bins = [0] * (len(LR1) + 1)
    bins[7], bins[8] = hist_tokens
    sums = tuple(n / 3 for n in bins)
    hist = RatioHist(counts=tuple(bins), ratio_sum=sums, abs_adv_sum=sums, abs_adv_ratio_sum=sums)
    return TokenStats(
        tokens=ints,
        clip_high=ints,
        clip_low=ints,
        clamped=ints,
        ratio_sum=floats,
        weight_sum=floats,
        abs_adv_weight_sum=floats,
        signed_adv_weight_sum=floats,
        entropy_sum=floats,
        logp_sum=floats,
        log_ratio_sum=floats,
        log_ratio_sq_sum=floats,
        hist_pos=hist,
        hist_neg=hist,
    )


# -- the format --


def test_header(tmp_path: Path) -> None:
    with Recorder(
        tmp_path / "dispo",
        name="dispo 7B",
        objective="dispo",
        framework="ours 1",
        eq_tol=1e-6,
        rule=RULE,
        limits=Limits(),
        revision=2,
        launch="job8812.0",
        start="resume",
        first_step=40,
        rank=3,
        ranks=8,
        effect=(8, 17),
        can=["set_bounds", "pause"],
        config={"lr": 1e-6, "nested": {"x": (1, math.inf)}},
        edges={"mine": [1, 2.5]},
    ) as recorder:
        path, launch = recorder.path, recorder.launch
    header = lines(path)[0]
    assert launch == "job8812.0"
    assert header.pop("t") == pytest.approx(time.time(), abs=60)
    assert header.pop("run").startswith("dispo-7b-")
    assert header.pop("writer") == f"regimescope {__version__}"
    assert header.pop("edges") == {"lr1": list(LR1), "len1": list(LENGTH_EDGES), "mine": [1, 2.5]}
    cap = {"drop_below": None, "drop_above": None}
    limits = {"w_min": [0.0, 1.0], "w_max": [1.0, 101.0]}
    assert header == {
        "v": 1,
        "k": "header",
        "q": 0,
        "name": "dispo 7B",
        "launch": "job8812.0",
        "start": "resume",
        "role": "trainer",
        "rank": 3,
        "ranks": 8,
        "part": 0,
        "first_step": 40,
        "framework": "ours 1",
        "objective": "dispo",
        "ratio_source": "behaviour",
        "eq_tol": 1e-6,
        "rule": {
            "pos": {"base": "r", "cap_low": 0.8, "cap_high": 11.0, **cap},
            "neg": {"base": "r", "cap_low": 0.0, "cap_high": 101.0, **cap},
        },
        "revision": 2,
        "bounds": {"pos": [0.8, 11.0], "neg": [0.0, 101.0]},
        "limits": {"pos": limits, "neg": limits, "max_factor": 2.0, "min_steps": 10},
        "effect": {"every": 8, "seed": 17},
        "can": ["set_bounds", "pause"],
        "buckets": ["R1", "R2", "R3", "R4", "pos_eq1", "neg_eq1", "zero_adv"],
        "config": {"lr": 1e-6, "nested": {"x": [1, "Infinity"]}},
    }
    name = SegmentName.parse(path.name)
    assert name is not None
    assert (name.rank, name.pid, name.part, str(name)) == (3, os.getpid(), 0, path.name)


@pytest.mark.parametrize("sync", [False, True])
def test_lines_of_every_kind(tmp_path: Path, sync: bool) -> None:
    with Recorder(tmp_path, sync=sync) as recorder:
        recorder.scalars(0, {"grad_norm": 0.41}, update=1)
        recorder.scalars(0, {"accuracy": (0.6, 10)}, slice=("env", "math"))
        recorder.buckets(0, 1, some_stats(), revision=4, bounds=BOUNDS, slice=("lag", "3-4"))
        recorder.ratio_hist(0, some_stats())
        recorder.hist(0, "response_length", [3, 0, 12, 1], "len_demo")
        recorder.event("checkpoint", {"path": "ckpt", "loss": -math.inf}, step=0)
        recorder.step(0, {"reward_mean": (0.42, 16), "kl_ref": math.nan, "lag_max": 0})
        recorder.ack(
            Ack(id="0199a3c4-7d1e-7000-8000-0000000000a1", step=1, status="applied", revision=5, applied=BOUNDS)
        )
    got = lines(recorder.path)[1:]
    assert [record.pop("q") for record in got] == list(range(1, 10))
    assert all(record.pop("v") == 1 and abs(record.pop("t") - time.time()) < 60 for record in got)
    ints, floats = [1, 2, 3, 4, 5, 6, 7], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, "NaN"]
    columns: dict[str, Any] = dict.fromkeys(("tokens", "clip_high", "clip_low", "clamped"), ints)
    sums = (
        "ratio_sum",
        "weight_sum",
        "abs_adv_weight_sum",
        "signed_adv_weight_sum",
        "entropy_sum",
        "logp_sum",
        "log_ratio_sum",
    )
    columns |= dict.fromkeys((*sums, "log_ratio_sq_sum"), floats)
    side = {"i": [7], "n": [3], "r": [1.0], "a": [1.0], "ra": [1.0]}
    assert got == [
        {"k": "scalars", "s": 0, "u": 1, "m": {"grad_norm": 0.41}},
        {"k": "scalars", "s": 0, "sl": {"env": "math"}, "m": {"accuracy": [0.6, 10]}},
        {"k": "buckets", "s": 0, "u": 1, "sl": {"lag": "3-4"}, "rev": 4, "bounds": BOUNDS.to_wire(), **columns},
        {"k": "ratio_hist", "s": 0, "edges": "lr1", "pos": side, "neg": side},
        {"k": "hist", "s": 0, "name": "response_length", "edges": "len_demo", "i": [0, 2, 3], "n": [3, 12, 1]},
        {"k": "event", "s": 0, "kind": "checkpoint", "data": {"path": "ckpt", "loss": "-Infinity"}},
        {"k": "step", "s": 0, "m": {"reward_mean": [0.42, 16], "kl_ref": "NaN", "lag_max": 0}},
        {
            "k": "ack",
            "s": 1,
            "id": "0199a3c4-7d1e-7000-8000-0000000000a1",
            "status": "applied",
            "rev": 5,
            "applied": BOUNDS.to_wire(),
            "msg": "",
        },
        {"k": "end", "reason": "finished"},
    ]


def test_histogram_sums_have_seven_digits(tmp_path: Path) -> None:
    with Recorder(tmp_path, sync=True) as recorder:
        recorder.ratio_hist(0, some_stats(hist_tokens=(1, 2_000_000)))
    assert lines(recorder.path)[1]["pos"]["r"] == [0.3333333, 666666.7]


def test_what_was_not_measured_makes_no_line(tmp_path: Path) -> None:
    from_nothing = TokenStats(**{**{name: (0,) * 7 for name in some_stats().bucket_columns()}})
    with Recorder(tmp_path, sync=True) as recorder:
        recorder.ratio_hist(0, from_nothing)
        recorder.buckets(0, 0, from_nothing, revision=0, bounds=BOUNDS)
    kinds = lines(recorder.path)
    assert [record["k"] for record in kinds] == ["header", "buckets", "end"]
    assert "entropy_effect_sum" not in kinds[1]


def test_the_step_of_a_slice_ends_nothing(tmp_path: Path) -> None:
    with Recorder(tmp_path, sync=True) as recorder:
        recorder.step(3, {"accuracy": (0.6, 10)}, slice=("env", "math"))
        recorder.step(3, {"accuracy": (0.5, 20)})
    assert [(record["k"], record.get("sl")) for record in lines(recorder.path)[1:]] == [
        ("scalars", {"env": "math"}), ("step", None), ("end", None),
    ]  # fmt: skip


def test_records_are_as_they_were_when_they_were_handed_over(tmp_path: Path) -> None:
    metrics, data = {"a": 1.0}, {"list": [1]}
    with Recorder(tmp_path) as recorder:
        for step in range(200):
            metrics["a"], data["list"][0] = step, step
            recorder.step(step, metrics)
            recorder.event("curriculum", data)
    records = lines(recorder.path)
    assert [record["m"]["a"] for record in records if record["k"] == "step"] == list(range(200))
    assert [record["data"]["list"] for record in records if record["k"] == "event"] == [[step] for step in range(200)]


def test_run_id_is_kept_by_a_later_launch_and_shared_by_ranks(tmp_path: Path) -> None:
    ids = []
    for rank, launch in ((0, "one"), (1, "one"), (0, "two")):
        with Recorder(tmp_path / "My run!", rank=rank, ranks=2, launch=launch) as recorder:
            pass
        ids.append(lines(recorder.path)[0]["run"])
    assert len(set(ids)) == 1
    assert ids[0].startswith("my-run-")
    with Recorder(tmp_path / "other" / "My run!", launch="three") as recorder:
        assert lines(recorder.path)[0]["run"] != ids[0]


# -- the start --

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"rank": 1}, "0 <= rank < ranks"),
    ({"start": "again"}, "want one of fresh, resume, rollback"),
    ({"ratio_source": "ref"}, "want one of behaviour, proximal, infer"),
    ({"eq_tol": math.nan}, "eq_tol"),
    ({"first_step": -1}, "first_step"),
    ({"effect": (0, 1)}, "every >= 1"),
    ({"queue_size": 0}, "queue_size=0"),
    ({"limits": Limits(), "rule": RULE}, "declares none"),
    ({"can": ["set_bounds"], "rule": RULE}, "go together"),
    ({"can": ["set_bounds"], "limits": Limits()}, "weight rule"),
    (
        {
            "can": ["set_bounds"],
            "limits": Limits(),
            "rule": WeightRule(pos=SignRule(base="1"), neg=SignRule(cap_high=5.0)),
        },
        "base 1",
    ),
    (
        {"can": ["set_bounds"], "limits": Limits(), "rule": WeightRule(pos=SignRule(cap_high=0.2), neg=SignRule())},
        r"pos.w_max = 0.2 is outside the limits \[1, 101\]; neg.w_max = inf is outside",
    ),
    ({"edges": {"x": [1, 1]}}, "ascending"),
    ({"edges": {"lr1": [0.0, 1.0]}}, "published"),
    ({"config": {"x": object()}}, "header cannot be written"),
]


@pytest.mark.parametrize("options, message", MISTAKES)
def test_a_mistake_is_told_at_the_start(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecorderError, match=message) as caught:
        Recorder(tmp_path / "run", **options)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecorderError, match="cannot record in"):
        Recorder(tmp_path / "file" / "run")


# -- the launch of several ranks --

JOB = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
LAUNCHES: list[tuple[dict[str, str], str]] = [
    ({"SLURM_JOB_ID": "8812"}, "slurm-8812.batch.0"),
    ({"SLURM_JOB_ID": "8812", "SLURM_STEP_ID": "3", "SLURM_RESTART_COUNT": "2"}, "slurm-8812.3.2"),
    ({"TORCHELASTIC_RUN_ID": "run7", "TORCHELASTIC_RESTART_COUNT": "1"}, "torchrun-run7.1"),
    (
        {"SLURM_JOB_ID": "8812", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"},
        "slurm-8812.batch.0/torchrun-none.1",
    ),
]


@pytest.fixture
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in JOB:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_job")
@pytest.mark.parametrize("job, launch", LAUNCHES)
def test_ranks_take_the_launch_from_the_job(
    tmp_path: Path, job: dict[str, str], launch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    headers = []
    for rank in range(2):
        with Recorder(tmp_path, rank=rank, ranks=2) as recorder:
            headers.append(lines(recorder.path)[0])
    assert [header["launch"] for header in headers] == [launch, launch]
    assert headers[0]["run"] == headers[1]["run"]
    with Recorder(tmp_path / "other", rank=0, ranks=2, launch="given") as recorder:
        assert recorder.launch == "given"
    with Recorder(tmp_path / "alone") as recorder, Recorder(tmp_path / "alone") as second:
        assert len({launch, recorder.launch, second.launch}) == 3  # a rank alone always has a new one


@pytest.mark.usefixtures("no_job")
def test_a_second_start_within_a_job_is_no_part_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "8812")
    with Recorder(tmp_path, rank=1, ranks=2):
        pass
    with pytest.raises(RecorderError, match=r"launch 'slurm-8812\.batch\.0' of rank 1 already: two starts"):
        Recorder(tmp_path, rank=1, ranks=2)
    assert len(segments(tmp_path)) == 1
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")  # Slurm put the job back into its queue
    with Recorder(tmp_path, rank=1, ranks=2) as recorder:
        assert recorder.launch == "slurm-8812.batch.1"


@pytest.mark.usefixtures("no_job")
@pytest.mark.parametrize("run_id", ["", "none"])
def test_ranks_without_a_job_need_a_launch(tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", run_id)  # none: what torchrun says when it was given no id
    with pytest.raises(RecorderError, match="needs launch="):
        Recorder(tmp_path, ranks=2)
    assert not list(tmp_path.rglob("*.jsonl"))


# -- after the start: nothing raises --


@pytest.mark.parametrize("sync", [False, True])
def test_nonsense_is_counted_and_announced(tmp_path: Path, sync: bool) -> None:
    class Broken:
        def __float__(self) -> float:
            raise RuntimeError("device lost")

    bad: Any = object()
    with Recorder(tmp_path, sync=sync) as recorder:
        recorder.step("x", {})  # type: ignore[arg-type]
        recorder.scalars(0, bad)
        recorder.scalars(0, {"a": bad})
        recorder.scalars(0, {"a": Broken()})  # type: ignore[dict-item]
        recorder.buckets(0, 0, bad, revision=0, bounds=bad)
        recorder.ratio_hist(0, bad)
        recorder.hist(0, "x", bad, "y")
        recorder.event("x", {"a": bad})
        recorder.ack(bad)
        recorder.step(1, {"a": 1.0})
    records = lines(recorder.path)
    assert recorder.dropped == 9
    assert lost(records) == (9, 9)
    assert records[-1] == {"v": 1, "k": "end", "q": records[-1]["q"], "t": records[-1]["t"], "reason": "finished"}
    assert any(record["k"] == "step" and record["s"] == 1 for record in records)


def test_after_the_end_calls_do_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.end("stopped")
    recorder.step(0, {})
    recorder.end("error")
    recorder.close()
    assert [record["k"] for record in lines(recorder.path)] == ["header", "end"]
    held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert str(recorder.path.resolve()) not in held


@pytest.mark.parametrize("error, reason", [(ValueError, "error"), (KeyboardInterrupt, "stopped")])
def test_an_exception_ends_the_launch(tmp_path: Path, error: type[BaseException], reason: str) -> None:
    with pytest.raises(error), Recorder(tmp_path) as recorder:
        raise error
    assert lines(recorder.path)[-1]["reason"] == reason


def test_a_full_queue_drops_counts_and_announces(tmp_path: Path) -> None:
    with Recorder(tmp_path, queue_size=3) as recorder:
        for step in range(20_000):
            recorder.step(step, {"a": 0.5})
            if step % 100 == 0:
                recorder.ack(Ack(id="0199a3c4-7d1e-7000-8000-0000000000a1", step=step, status="received", revision=0))
    records = lines(recorder.path)
    steps = [record["s"] for record in records if record["k"] == "step"]
    assert 0 < recorder.dropped < 20_000
    assert len(steps) + recorder.dropped == 20_000
    assert lost(records) == (recorder.dropped, recorder.dropped)
    assert steps == sorted(steps)
    assert records[-1]["k"] == "end"  # somebody waits for it, and for an ack: they are never dropped
    assert [record["s"] for record in records if record["k"] == "ack"] == list(range(0, 20_000, 100))
    assert {record["data"]["reason"] for record in records if record.get("kind") == "dropped"} == {"queue full"}


def test_the_thread_is_a_named_daemon_and_ends(tmp_path: Path) -> None:
    others = threading.enumerate()
    with Recorder(tmp_path, rank=0):
        (thread,) = [t for t in threading.enumerate() if t.name.startswith("regimescope") and t not in others]
        assert (thread.name, thread.daemon) == ("regimescope-recorder-0", True)
    assert not thread.is_alive()


@pytest.mark.parametrize("sync", [False, True])
def test_a_state_that_is_not_running_is_repeated(tmp_path: Path, sync: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BEAT_S", 0.1)
    monkeypatch.setattr(writer, "_IDLE_S", 0.02)
    with Recorder(tmp_path, sync=sync) as recorder:
        recorder.state("paused", step=7)
        time.sleep(0.7)
        recorder.state("running", step=7)
        time.sleep(0.3)
    states = [
        (record["s"], record["data"]["state"]) for record in lines(recorder.path) if record.get("kind") == "state"
    ]
    assert states.count((7, "running")) == 1
    assert states[-1] == (7, "running")
    assert 3 <= states.count((7, "paused")) <= 8


@pytest.mark.parametrize("sync", [False, True])
def test_threads_share_a_recorder(tmp_path: Path, sync: bool) -> None:
    with Recorder(tmp_path, sync=sync) as recorder:

        def work(thread: int) -> None:
            for step in range(400):
                recorder.scalars(step, {"a": float(thread)})

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = lines(recorder.path)
    assert [record["q"] for record in records] == list(range(1 + 1600 + 1))
    for n in range(4):
        assert [r["s"] for r in records if r["k"] == "scalars" and r["m"]["a"] == n] == list(range(400))


def test_a_new_part_at_64_mib(tmp_path: Path) -> None:
    text = "x" * (1 << 20)
    with Recorder(tmp_path, launch="one") as recorder:
        for step in range(70):
            recorder.event("sampling", {"text": text}, step=step)
    first, second = (lines(path) for path in segments(tmp_path))
    assert [part[0]["part"] for part in (first, second)] == [0, 1]
    assert second[0]["launch"] == "one"
    assert second[0]["q"] == first[-1]["q"]
    assert [record["q"] for record in first + second[1:]] == list(range(72))
    assert recorder.path == segments(tmp_path)[1]
    assert segments(tmp_path)[0].stat().st_size <= 64 << 20


# -- other processes --

LOOP = """
import sys
from regimescope.monitor import Recorder
recorder = Recorder(sys.argv[1], sync=sys.argv[2] == "sync")
step = 0
while True:
    recorder.step(step, {f"metric_{i}": 0.125 * i for i in range(40)})
    print(step, flush=True)
    step += 1
"""


def test_kill_9_of_a_sync_writer_loses_no_acknowledged_step(tmp_path: Path) -> None:
    for attempt in range(4):
        run_dir = tmp_path / str(attempt)
        process = subprocess.Popen([sys.executable, "-c", LOOP, run_dir, "sync"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(150 + 37 * attempt):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        told = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        steps = [record["s"] for record in lines(segments(run_dir)[0])[1:]]
        assert steps == list(range(len(steps)))
        assert len(steps) > int(told[-1] if told and told[-1] else 0)


def test_a_process_that_just_ends_writes_its_queue_and_no_end(tmp_path: Path) -> None:
    code = """
import sys
from regimescope.monitor import Recorder
recorder = Recorder(sys.argv[1])
for step in range(5000):
    recorder.step(step, {"a": 1.0})
"""
    assert python(code, tmp_path).stderr == ""
    records = lines(segments(tmp_path)[0])
    assert [record["s"] for record in records[1:]] == list(range(5000))


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    code = """
import os, sys
from regimescope.monitor import Recorder
recorder = Recorder(sys.argv[1], sync=sys.argv[2] == "sync", queue_size=8)
recorder.step(0, {})
child = os.fork()
recorder.step(1, {"child": float(child == 0)})
if child == 0:
    for step in range(20):
        recorder.step(step, {})
    assert recorder.dropped == 0        # it takes nothing, so it loses nothing
    held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [path for path in held if path.endswith(".jsonl")]
recorder.end("finished")
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    for mode in ("sync", "thread"):
        run_dir = tmp_path / mode
        done = subprocess.run(
            [sys.executable, "-c", code, run_dir, mode], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        (path,) = segments(run_dir)
        assert [record["k"] for record in lines(path)] == ["header", "step", "step", "end"]
        assert lines(path)[2]["m"] == {"child": 0.0}


FULL = """
import os, resource, sys
from regimescope.monitor import Recorder
recorder = Recorder(sys.argv[1], sync=sys.argv[2] == "sync")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))     # the disk is full
for step in range(2000):
    recorder.step(step, {f"m{i}": 1.5 for i in range(10)})
    if sys.argv[2] == "thread" and step % 50 == 0:
        import time; time.sleep(0.005)
while not recorder.dropped:
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))       # somebody made room
for step in range(2000, 2100):
    recorder.step(step, {})
recorder.end("finished")
print(recorder.dropped)
"""


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_full_disk_costs_records_and_no_more(tmp_path: Path, mode: str) -> None:
    done = python(FULL, tmp_path, mode)
    assert (done.returncode, done.stderr) == (0, "")
    records = lines(segments(tmp_path)[0])
    dropped = int(done.stdout)
    assert 1000 < dropped < 2000
    assert lost(records) == (dropped, dropped)
    assert [record["s"] for record in records if record["k"] == "step"][-100:] == list(range(2000, 2100))
    assert records[-1]["reason"] == "finished"
    assert any("cannot write" in record["data"]["reason"] for record in records if record.get("kind") == "dropped")


SIGNALS = """
import signal, sys
from regimescope.monitor import Recorder
recorder = Recorder(sys.argv[1], sync=sys.argv[2] == "sync")
seen = 0
def handler(number, frame):
    global seen
    seen += 1
    recorder.event("sync", {"n": seen})
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for step in range(20_000):
    recorder.step(step, {"a": 1.0})
    if seen > 100 and step > 3000:
        break
signal.setitimer(signal.ITIMER_REAL, 0)
recorder.end("finished")
print(step, seen)
"""


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_signal_handler_may_record_inside_a_call(tmp_path: Path, mode: str) -> None:
    done = python(SIGNALS, tmp_path, mode)
    assert (done.returncode, done.stderr) == (0, "")
    last, seen = map(int, done.stdout.split())
    records = lines(segments(tmp_path)[0])
    holes, told = lost(records)
    assert holes == told
    kept = sum(record["k"] == "step" or record.get("kind") == "sync" for record in records)
    assert kept + told == last + 1 + seen


HEAVY = ("torch", "duckdb", "pandas", "streamlit", "pyarrow", "numpy", "plotly", "transformers")


def test_the_recorder_needs_the_standard_library_alone(tmp_path: Path) -> None:
    code = f"""
import sys
import regimescope.monitor
from regimescope.monitor import Recorder
from regimescope.monitor import Rollout, RolloutOptions
with Recorder(sys.argv[1]) as recorder:
    if recorder.wants_rollouts(0):
        recorder.rollouts(0, [Rollout(sample_id=0, length=1)])
    recorder.step(0, {{"reward_mean": (0.5, 8)}})
import regimescope.monitor.steer
print(sorted(set({HEAVY}) & set(sys.modules)))
with Recorder(sys.argv[1], rollouts=RolloutOptions()):
    print(sorted(set({HEAVY}) & set(sys.modules) - {{"numpy", "pandas"}}))  # pyarrow takes those where they are
"""
    done = python(code, tmp_path)
    assert (done.stdout.splitlines(), done.stderr) == (["[]", "['pyarrow']"], "")
