"""Rollouts: which rows are kept, and files that are whole or not there, with real processes, limits and signals."""

from __future__ import annotations

import array
import json
import math
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regimescope.monitor import Recorder, Rollout, RolloutOptions, writer
from regimescope.monitor.errors import RecorderError
from regimescope.monitor.rollouts import choose

EVERY = RolloutOptions(every=1)


def lines(run_dir: Path) -> list[dict[str, Any]]:
    """All lines of the one segment, without its header."""
    (path,) = (run_dir / "segments").iterdir()
    return [json.loads(line) for line in path.read_bytes().splitlines()][1:]


def files(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "rollouts").iterdir())


def of_kind(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in records if kind in (record["k"], record.get("kind"))]


def rows(count: int = 4, *, tokens: int = 3) -> list[Rollout]:
    return [
        Rollout(sample_id=i, length=tokens, reward=float(i), response="a b", token_ids=[7] * tokens)
        for i in range(count)
    ]


def python(code: str, *args: object) -> str:
    """Output of a script in a process of its own, warnings being errors."""
    command = [sys.executable, "-W", "error", "-c", code, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# -- the rule --

rewards = st.one_of(st.none(), st.floats(), st.sampled_from([-1.0, 1.0]))
candidates = st.lists(
    st.builds(
        Rollout,
        sample_id=st.integers(0, 10**6),
        length=st.integers(0, 5),
        reward=rewards,
        repetition=st.one_of(st.none(), st.floats()),
        finish_reason=st.sampled_from([None, "eos", "length", "aborted", "infra"]),
    ),
    max_size=40,
    unique_by=lambda row: row.sample_id,
)


few = [Rollout(sample_id=i, length=1, reward=float(i) if i < 2 else None) for i in range(16)]


@example(few, 16, 0, random.Random(0))  # fewer with a reward than a quarter has places
@given(candidates, st.integers(1, 20), st.integers(0, 50), st.randoms(use_true_random=False))
def test_limit_worst_best_and_order(found: list[Rollout], limit: int, step: int, order: random.Random) -> None:
    chosen = choose(found, limit, step=step, rank=1)
    ids = [row.sample_id for _, row in chosen]
    assert len(ids) == min(limit, len(found))
    assert len(set(ids)) == len(ids)
    finite = [row.reward for row in found if row.reward is not None and not math.isnan(row.reward)]
    of = {pick: [row.reward for why, row in chosen if why == pick] for pick in ("worst", "best", "random")}
    if finite:
        assert of["worst"][0] == min(finite)
        if limit > 1 and len(finite) > 1:
            assert of["best"][0] == max(finite)
    elif found:
        assert of["worst"]
    assert len(of["worst"]) <= max(1, limit // 4) and len(of["best"]) <= max(1, limit // 4)
    shuffled = found[:]
    order.shuffle(shuffled)
    assert [(why, row.sample_id) for why, row in choose(shuffled, limit, step=step, rank=1)] == [
        (why, row.sample_id) for why, row in chosen
    ]
    again = choose([row for _, row in chosen], limit, step=step, rank=1)
    assert {(why, row.sample_id) for why, row in again} == {(why, row.sample_id) for why, row in chosen}


def test_among_equal_rewards_the_most_suspicious_are_the_worst() -> None:
    plain = Rollout(sample_id=0, length=30, reward=-1.0, repetition=0.02, finish_reason="eos")
    short = replace(plain, sample_id=1, length=2)
    cut = replace(plain, sample_id=2, length=96, finish_reason="length")
    loops = replace(plain, sample_id=3, length=40, repetition=0.9)
    broken = replace(plain, sample_id=4, repetition=math.nan)
    hardly = replace(plain, sample_id=5, length=40, repetition=0.08)  # within a tenth: no reason
    right = replace(plain, sample_id=6, reward=1.0)
    unjudged = replace(plain, sample_id=7, reward=None, finish_reason="infra")
    order = []
    remaining = [plain, short, cut, loops, broken, hardly, right, unjudged]
    while remaining:
        (why, row), *_ = choose(remaining, 1)
        assert why == "worst"
        order.append(row)
        remaining.remove(row)
    assert order == [broken, loops, cut, short, plain, hardly, right, unjudged]


def test_the_part_that_chance_decides_is_fair() -> None:
    """Of 20 rows 2 are the worst and 2 the best; of the other 16 each comes in one step of four."""
    found = [Rollout(sample_id=i, length=1, reward=float(i)) for i in range(20)]
    seen: Counter[int] = Counter()
    steps = 4000
    for step in range(steps):
        seen.update(row.sample_id for why, row in choose(found, 8, step=step) if why == "random")
    deviation = math.sqrt(steps * 0.25 * 0.75)
    assert set(seen) == set(range(2, 18))
    assert all(abs(n - steps / 4) < 5 * deviation for n in seen.values())
    others = [
        {row.sample_id for why, row in choose(found, 8, step=3, rank=rank) if why == "random"} for rank in range(8)
    ]
    assert len(set(map(frozenset, others))) > 4


def test_chance_does_not_look_at_the_row() -> None:
    found = [Rollout(sample_id=i, length=1, reward=None if 0 < i < 19 else float(i)) for i in range(20)]
    other = [
        replace(row, length=500, repetition=0.9, finish_reason="length") if 2 < row.sample_id < 17 else row
        for row in found
    ]
    picked = [{row.sample_id for why, row in choose(these, 8, step=5) if why == "random"} for these in (found, other)]
    assert picked[0] == picked[1]


def test_two_rows_of_one_number_are_refused() -> None:
    with pytest.raises(ValueError, match="one sample_id"):
        choose([*rows(2), *rows(1)], 8)


@pytest.mark.parametrize("options", [{"every": 0}, {"limit": 0}, {"max_bytes": 0}, {"every": 2.5}])
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(RecorderError, match=f"rollouts: {next(iter(options))}="):
        RolloutOptions(**options)


# -- the file --


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_and_its_line(tmp_path: Path, sync: bool) -> None:
    full = Rollout(
        sample_id=4, group_id=1, env="math", prompt="1+1=", response="2 \ud800", reward=-1.5, advantage=math.inf,
        correct=False, length=3, finish_reason="eos", repetition=0.25, update=1, revision=2, weight_version=30, lag=1,
        token_ids=np.array([5, 6, 1]), logp_old=np.array([-0.5, -math.inf, math.nan], np.float32),
        logp_new=[-0.5, math.inf, math.nan], entropy=array.array("d", [0.5, 1.5, 2.5]), weight=(0.0, 1, 11.0),
        bucket=np.array([0, 3, 6], np.uint8), tokens=("2", " ", "<eos>"),
    )  # fmt: skip
    bare = Rollout(sample_id=9, length=0)
    with Recorder(tmp_path, rollouts=EVERY, rank=0, can=["pause"], sync=sync) as recorder:
        recorder.scalars(12, {"a": 1.0})
        recorder.rollouts(12, iter([bare, full]), update=3)
        recorder.step(12, {})
    start = recorder.path.name.split("-")[1]
    name = f"rollouts/s00000012-r00000-{start}.parquet"
    records = lines(tmp_path)
    assert [record["k"] for record in records] == ["scalars", "rollouts", "step", "end"]
    assert [record["q"] for record in records] == [1, 2, 3, 4]
    line = records[1]
    assert {key: line[key] for key in ("s", "u", "file", "rows")} == {"s": 12, "u": 3, "file": name, "rows": 2}
    assert json.loads(recorder.path.read_bytes().splitlines()[0])["can"] == ["pause", "rollouts"]

    table = pq.read_table(tmp_path / name)
    first, second = table.to_pylist()
    assert repr(first) == repr({
        "sample_id": 4, "group_id": 1, "env": "math", "prompt": "1+1=", "response": "2 ?", "reward": -1.5,
        "advantage": math.inf, "correct": False, "length": 3, "finish_reason": "eos", "repetition": 0.25, "update": 1,
        "revision": 2, "weight_version": 30, "lag": 1, "pick": "worst", "token_ids": [5, 6, 1],
        "logp_old": [-0.5, -math.inf, math.nan], "logp_new": [-0.5, math.inf, math.nan], "entropy": [0.5, 1.5, 2.5],
        "weight": [0.0, 1.0, 11.0], "bucket": [0, 3, 6], "tokens": ["2", " ", "<eos>"],
    })  # fmt: skip
    known = {"sample_id": 9, "length": 0, "update": 3, "pick": "random"}
    assert second == {**dict.fromkeys(first), **known}
    parquet = pq.ParquetFile(tmp_path / name)
    group = parquet.metadata.row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}
    connection = duckdb.connect()
    types = [row[:2] for row in connection.execute(f"DESCRIBE FROM '{tmp_path / name}'").fetchall()]
    connection.close()
    assert types == [
        ("sample_id", "BIGINT"), ("group_id", "BIGINT"), ("env", "VARCHAR"), ("prompt", "VARCHAR"),
        ("response", "VARCHAR"), ("reward", "DOUBLE"), ("advantage", "DOUBLE"), ("correct", "BOOLEAN"),
        ("length", "INTEGER"), ("finish_reason", "VARCHAR"), ("repetition", "DOUBLE"), ("update", "SMALLINT"),
        ("revision", "BIGINT"), ("weight_version", "BIGINT"), ("lag", "INTEGER"), ("pick", "VARCHAR"),
        ("token_ids", "INTEGER[]"), ("logp_old", "FLOAT[]"), ("logp_new", "FLOAT[]"), ("entropy", "FLOAT[]"),
        ("weight", "FLOAT[]"), ("bucket", "UTINYINT[]"), ("tokens", "VARCHAR[]"),
    ]  # fmt: skip


def test_texts_left_out(tmp_path: Path) -> None:
    row = Rollout(
        sample_id=0, length=2, prompt="secret", response="secret", token_ids=[1, 2], tokens=["se", "cret"],
        logp_old=[-1.0, -2.0],
    )  # fmt: skip
    with Recorder(tmp_path, rollouts=RolloutOptions(every=1, texts=False), sync=True) as recorder:
        recorder.rollouts(0, [row])
    (path,) = (tmp_path / "rollouts").iterdir()
    (kept,) = pq.read_table(path).to_pylist()
    assert (kept["prompt"], kept["response"], kept["token_ids"], kept["logp_old"]) == (None, None, None, [-1.0, -2.0])
    assert kept["tokens"] is None
    assert b"secret" not in path.read_bytes()


def test_texts_of_tokens_are_kept_whatever_they_are(tmp_path: Path) -> None:
    texts = ["a", "\n", "", "<b>", "\x00", "\ud800"]
    with Recorder(tmp_path, rollouts=EVERY, sync=True) as recorder:
        recorder.rollouts(0, [Rollout(sample_id=0, length=6, tokens=texts), Rollout(sample_id=1, length=1)])
        recorder.rollouts(1, [Rollout(sample_id=0, length=2, tokens=["a"])])
    assert recorder.dropped == 1, "one text per token"
    (path,) = (tmp_path / "rollouts").iterdir()
    kept = {row["sample_id"]: row["tokens"] for row in pq.read_table(path).to_pylist()}
    assert kept == {0: [*texts[:-1], "?"], 1: None}


def test_only_the_sampled_steps_and_the_limit(tmp_path: Path) -> None:
    with Recorder(tmp_path, rollouts=RolloutOptions(every=4, limit=3), sync=True) as recorder:
        wanted = [step for step in range(9) if recorder.wants_rollouts(step)]
        for step in range(9):
            recorder.rollouts(step, rows(10))
    assert not recorder.wants_rollouts(0)  # it has ended
    told = of_kind(lines(tmp_path), "rollouts")
    assert wanted == [record["s"] for record in told] == [0, 4, 8]
    kept = pq.read_table(tmp_path / told[0]["file"]).to_pylist()
    assert [row["pick"] for row in kept] == ["worst", "best", "random"]
    assert [row["reward"] for row in kept[:2]] == [0.0, 9.0]


def test_without_the_option_nothing_is_kept(tmp_path: Path) -> None:
    with Recorder(tmp_path, sync=True) as recorder:
        assert not recorder.wants_rollouts(0)
        recorder.rollouts(0, rows())
    assert recorder.dropped == 0
    assert not (tmp_path / "rollouts").exists()
    assert [record["k"] for record in lines(tmp_path)] == ["end"]


# -- the start --


def test_without_pyarrow_the_start_says_what_to_install(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["pyarrow"] = None                  # what an import of a package that is not there finds
from regimescope.monitor import Recorder, RolloutOptions
from regimescope.monitor.errors import RecorderError
try:
    Recorder(sys.argv[1], rollouts=RolloutOptions())
except RecorderError as error:
    print(error)
"""
    assert "pip install 'regimescope[rollouts]'" in python(code, tmp_path)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_mistakes_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(RecorderError, match="want RolloutOptions"):
        Recorder(tmp_path, rollouts=True)  # type: ignore[arg-type]
    (tmp_path / "rollouts").write_text("a file")
    with pytest.raises(RecorderError, match="cannot keep rollouts in"):
        Recorder(tmp_path, rollouts=EVERY)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_what_a_killed_process_of_this_rank_left_half_written_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts"
    folder.mkdir()
    names = ["s00000001-r00001-5.parquet.tmp", "s00000001-r00002-5.parquet.tmp", "s00000001-r00001-5.parquet"]
    for name in names:
        (folder / name).write_bytes(b"PAR1")
    with Recorder(tmp_path, rollouts=EVERY, rank=1, ranks=4, launch="one"):
        assert files(tmp_path) == sorted(names[1:])


# -- after the start: nothing raises, nothing is left behind --

NONSENSE: list[tuple[str, Any]] = [
    ("logp_old has 2 values, where length is 3", [Rollout(sample_id=0, length=3, logp_old=[0.0, 0.0])]),
    ("TypeError", [Rollout(sample_id=0, length=1, token_ids=[1.5])]),
    ("Arrow", [Rollout(sample_id=0, length=1, bucket=[300])]),
    ("Arrow", [Rollout(sample_id=0, length=1, logp_new=["x"])]),  # type: ignore[list-item]
    ("Arrow", [Rollout(sample_id=0, length=2, logp_new=np.zeros((2, 2)))]),  # type: ignore[arg-type]
    ("TypeError", [Rollout(sample_id=0, length=1, weight=7)]),  # type: ignore[arg-type]
    ("TypeError", [Rollout(sample_id=1.5, length=1)]),  # type: ignore[arg-type]
    ("Error", [Rollout(sample_id=0, length=1, reward="good")]),  # type: ignore[arg-type]
    ("Error", [Rollout(sample_id=0, length=1, response=b"bytes")]),  # type: ignore[arg-type]
    ("Arrow", [Rollout(sample_id=0, length=1, update=1 << 20)]),
    ("AttributeError", [{"sample_id": 0, "length": 1}]),
    ("not iterable", 7),
    ("one sample_id", rows(1) * 2),
]


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("reason, nonsense", NONSENSE)
def test_nonsense_is_dropped_and_announced(tmp_path: Path, reason: str, nonsense: Any, sync: bool) -> None:
    with Recorder(tmp_path, rollouts=EVERY, sync=sync) as recorder:
        recorder.rollouts(0, nonsense)
        recorder.step(0, {})
        recorder.rollouts(1, rows())
    (event,) = of_kind(lines(tmp_path), "dropped")
    assert recorder.dropped == event["data"]["records"] == 1
    assert reason in event["data"]["reason"]
    assert [record["s"] for record in of_kind(lines(tmp_path), "rollouts")] == [1]  # and its place is free again
    assert [name[:9] for name in files(tmp_path)] == ["s00000001"]


def test_a_step_that_is_no_number(tmp_path: Path) -> None:
    with Recorder(tmp_path, rollouts=EVERY, sync=True) as recorder:
        assert not recorder.wants_rollouts("x")  # type: ignore[arg-type]
        recorder.rollouts("x", rows())  # type: ignore[arg-type]
    assert recorder.dropped == 1


def test_a_step_has_one_file(tmp_path: Path) -> None:
    with Recorder(tmp_path, rollouts=EVERY, sync=True) as recorder:
        recorder.rollouts(0, rows(2))
        before = (tmp_path / "rollouts" / files(tmp_path)[0]).read_bytes()
        recorder.rollouts(0, rows(4))
    assert recorder.dropped == 1
    assert "in one call" in of_kind(lines(tmp_path), "dropped")[0]["data"]["reason"]
    assert (tmp_path / "rollouts" / files(tmp_path)[0]).read_bytes() == before


def test_rows_of_two_steps_wait_and_no_more(tmp_path: Path) -> None:
    many = [replace(row, token_ids=[7] * 20_000, length=20_000) for row in rows(16)]  # lists: slow to write
    with Recorder(tmp_path, rollouts=EVERY) as recorder:
        for step in range(12):
            recorder.rollouts(step, many)
        recorder.step(0, {})
    kept = [record["s"] for record in of_kind(lines(tmp_path), "rollouts")]
    assert kept[:2] == [0, 1]
    assert 0 < recorder.dropped == 12 - len(kept)
    assert sum(event["data"]["records"] for event in of_kind(lines(tmp_path), "dropped")) == recorder.dropped
    assert len(of_kind(lines(tmp_path), "step")) == 1
    assert len(files(tmp_path)) == len(kept)


def test_no_more_than_max_bytes_and_one_event(tmp_path: Path) -> None:
    with Recorder(tmp_path / "probe", rollouts=EVERY, sync=True) as recorder:
        recorder.rollouts(0, rows())
    (probe,) = (tmp_path / "probe" / "rollouts").iterdir()
    size = probe.stat().st_size
    run_dir = tmp_path / "run"
    options = RolloutOptions(every=1, max_bytes=2 * (3 * size + size // 2))
    with Recorder(run_dir, rollouts=options, sync=True, rank=1, ranks=2, launch="one") as recorder:
        for step in range(6):
            assert recorder.wants_rollouts(step) == (step < 4)
            recorder.rollouts(step, rows())
    records = lines(run_dir)
    (event,) = of_kind(records, "rollouts_full")
    assert event["s"] == 3
    assert event["data"]["bytes"] == sum(path.stat().st_size for path in (run_dir / "rollouts").iterdir())
    assert event["data"]["of_this_rank"] == options.max_bytes // 2
    assert [record["s"] for record in of_kind(records, "rollouts")] == [0, 1, 2]
    assert recorder.dropped == 0
    assert [record["q"] for record in records] == list(range(1, len(records) + 1))  # nothing was lost

    with Recorder(run_dir, rollouts=options, sync=True, rank=1, ranks=2, launch="two") as recorder:
        recorder.rollouts(4, rows())  # what earlier launches kept counts
        assert not recorder.wants_rollouts(5)
    with Recorder(run_dir, rollouts=options, sync=True, rank=0, ranks=2, launch="two") as recorder:
        recorder.rollouts(4, rows())  # another rank has a part of its own
    assert len(files(run_dir)) == 4


def late(come: threading.Event) -> Rollout:
    """A row whose numbers are still on their way from a device."""

    class Tensor:
        def __len__(self) -> int:
            return 1

        def tolist(self) -> list[float]:
            come.wait(60)
            return [0.0]

    return Rollout(sample_id=0, length=1, logp_old=Tensor())  # type: ignore[arg-type]


def test_rows_that_wait_while_it_gets_full_are_no_loss(tmp_path: Path) -> None:
    come = threading.Event()
    with Recorder(tmp_path, rollouts=RolloutOptions(every=1, max_bytes=1)) as recorder:
        recorder.rollouts(0, [late(come)])
        recorder.rollouts(1, rows())
        come.set()
    assert [(record["q"], record["k"], record.get("kind")) for record in lines(tmp_path)] == [
        (1, "event", "rollouts_full"), (2, "end", None),
    ]  # fmt: skip
    assert (recorder.dropped, files(tmp_path)) == (0, [])


def test_the_end_does_not_wait_for_a_device_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    come, others = threading.Event(), threading.enumerate()
    monkeypatch.setattr(writer, "FLUSH_S", 0.1)
    recorder = Recorder(tmp_path, rollouts=EVERY)
    recorder.rollouts(0, [late(come)])
    ending = threading.Thread(target=recorder.end, args=("finished",), daemon=True)
    ending.start()
    ending.join(20)
    waits = ending.is_alive()
    come.set()
    ending.join()
    assert not waits
    for thread in threading.enumerate():
        if (
            thread.name.startswith("regimescope") and thread not in others
        ):  # another test's may live as long as this process
            thread.join(20)
    assert [record["k"] for record in lines(tmp_path)] == ["rollouts", "end"]


FULL = """
import resource, sys, time
from regimescope.monitor import Recorder, Rollout, RolloutOptions
recorder = Recorder(sys.argv[1], sync=sys.argv[2] == "sync", rollouts=RolloutOptions(every=1))
rows = [Rollout(sample_id=i, length=1000, logp_old=[0.37 * i + 0.001 * j * j for j in range(1000)]) for i in range(8)]
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))     # the disk is full
recorder.rollouts(0, rows)
while not recorder.dropped:
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))     # somebody made room
recorder.rollouts(1, rows)
recorder.end("finished")
print(recorder.dropped)
"""


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_full_disk_costs_the_file_and_leaves_nothing_behind(tmp_path: Path, mode: str) -> None:
    assert python(FULL, tmp_path, mode) == "1\n"
    (event,) = of_kind(lines(tmp_path), "dropped")
    assert "cannot write rollouts of step 0: [Errno 27]" in event["data"]["reason"]
    (line,) = of_kind(lines(tmp_path), "rollouts")
    assert line["s"] == 1
    assert [f"rollouts/{name}" for name in files(tmp_path)] == [line["file"]]
    assert pq.read_table(tmp_path / line["file"]).num_rows == 8


LOOP = """
import sys
from regimescope.monitor import Recorder, Rollout, RolloutOptions
recorder = Recorder(sys.argv[1], sync=True, rollouts=RolloutOptions(every=1))
rows = [Rollout(sample_id=i, length=2000, logp_old=[0.5 * i] * 2000) for i in range(16)]
step = 0
while True:
    recorder.rollouts(step, rows)
    print(step, flush=True)
    step += 1
"""


def test_kill_9_leaves_no_line_without_a_whole_file(tmp_path: Path) -> None:
    for attempt in range(3):
        process = subprocess.Popen([sys.executable, "-c", LOOP, tmp_path], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(10 + 7 * attempt):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        told = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        segment = max((tmp_path / "segments").iterdir(), key=lambda path: path.name.split("-")[1])
        named = [json.loads(line) for line in segment.read_bytes().splitlines()[1:]]
        assert len(named) > int(told[-1] if told else 0)
        assert all(pq.read_table(tmp_path / line["file"]).num_rows == 16 for line in named)
    with Recorder(tmp_path, rollouts=EVERY):
        assert all(name.endswith(".parquet") for name in files(tmp_path))


FORK = """
import os, sys
from regimescope.monitor import Recorder, Rollout, RolloutOptions
recorder = Recorder(sys.argv[1], sync=sys.argv[2] == "sync", rollouts=RolloutOptions(every=1))
recorder.rollouts(0, [Rollout(sample_id=0, length=1)])
child = os.fork()
if child == 0:
    assert not recorder.wants_rollouts(2)
recorder.rollouts(2 if child == 0 else 1, [Rollout(sample_id=0, length=1)])
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_forked_child_keeps_none_and_a_process_that_just_ends_writes_what_waits(tmp_path: Path, mode: str) -> None:
    python(FORK, tmp_path, mode)
    assert [record["s"] for record in of_kind(lines(tmp_path), "rollouts")] == [0, 1]
    assert [name[:9] for name in files(tmp_path)] == ["s00000000", "s00000001"]


SIGNALS = """
import itertools, signal, sys
from regimescope.monitor import Recorder, Rollout, RolloutOptions
recorder = Recorder(sys.argv[1], sync=sys.argv[2] == "sync", rollouts=RolloutOptions(every=1))
rows, seen, numbers = [Rollout(sample_id=0, length=1)], 0, itertools.count()
def handler(number, frame):
    global seen
    seen += 1
    if seen == 100:
        signal.setitimer(signal.ITIMER_REAL, 0)    # or the write that was interrupted would never be done
    recorder.rollouts(next(numbers), rows)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
calls = 0
while seen < 100 or calls < 100:
    recorder.rollouts(next(numbers), rows)
    calls += 1
recorder.end("finished")
print(calls + seen, recorder.dropped)
"""


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_signal_handler_may_record_rollouts_inside_a_call(tmp_path: Path, mode: str) -> None:
    calls, dropped = map(int, python(SIGNALS, tmp_path, mode).split())
    records = lines(tmp_path)
    assert len(of_kind(records, "rollouts")) == len(files(tmp_path)) == calls - dropped
    assert sum(event["data"]["records"] for event in of_kind(records, "dropped")) == dropped
