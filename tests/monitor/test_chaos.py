"""Real processes, killed with -9 or left without disk: nothing acknowledged is lost, every row is there once.

The tests of a full disk mount a small tmpfs, which only root may do: they are skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from regimescope.monitor.errors import StoreError
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store

PATIENCE_S = 30.0
"Longest wait for something that must happen; it takes well under a second on an idle machine."


@contextmanager
def process(code: str, *args: object, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A script in a process of its own with unbuffered pipes, gone at the end of the block."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **options,
    )  # fmt: skip
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()


def pipes(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert child.stdin is not None and child.stdout is not None
    return child.stdin, child.stdout


def wait_for(what: Callable[[], object], said: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {said}"
        time.sleep(0.02)


def watched(root: Path, store: Store) -> Monitor:
    """A monitor of this process that has read everything."""
    monitor = Monitor(root, store=store)
    monitor.catch_up()
    return monitor


def indexed(root: Path) -> Store:
    """An index in memory, made from the segments alone."""
    store = Store.in_memory(root)
    Ingester(store).catch_up()
    return store


def query(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.cursor() as con:
        return con.execute(sql).fetchall()


def contents(store: Store) -> dict[str, Counter[str]]:
    """Every table as a bag of rows; numbers that the index gives in order of arrival are replaced by what they name."""
    names = query(store, "SELECT table_name FROM duckdb_tables() WHERE table_name <> 'meta' ORDER BY 1")
    return {name: Counter(map(repr, query(store, _select(store, name)))) for (name,) in names}


def _select(store: Store, table: str) -> str:
    columns = []
    for name, kind in query(store, f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}'"):
        if name in ("metric_id", "edges_id"):
            named = "metric" if name == "metric_id" else "hist_edges"
            columns.append(f"(SELECT n.name FROM {named} n WHERE n.{name} = {table}.{name})")
        else:
            columns.append(f"epoch_us({name})" if kind == "TIMESTAMP WITH TIME ZONE" else name)
    return f"SELECT {', '.join(columns)} FROM {table}"


def differing(one: Store, other: Store) -> dict[str, tuple[int, int, list[str]]]:
    """Tables that are not the same row by row: rows here, rows there, some that only one of them has."""
    a, b = contents(one), contents(other)
    assert a.keys() == b.keys() and len(a) > 10
    return {t: (a[t].total(), b[t].total(), list((a[t] - b[t]) + (b[t] - a[t]))[:4]) for t in a if a[t] != b[t]}


# -- kill -9 of the trainer --

LOAD = "while True: pass"
SYNC_WRITER = """
import sys
from regimescope.monitor import Recorder
run_dir, launch, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
start = "resume" if launch else "fresh"
recorder = Recorder(run_dir, launch=f"launch-{launch}", start=start, first_step=first, sync=True)
print("ready", flush=True)
step = first
while True:
    recorder.step(step, {"value": 1e6 * launch + step, "other": 0.1 * step})
    print(step, flush=True)
    step += 1
"""


def test_twenty_kills_of_a_sync_writer_lose_no_acknowledged_step(root: Path) -> None:
    chance = random.Random(20)
    acknowledged: set[tuple[str, int]] = set()
    first = 0
    with process(LOAD), process(LOAD):
        for launch in range(20):
            with process(SYNC_WRITER, root / "run", launch, first) as writer:
                if launch % 5:  # every fifth may die before its first line
                    assert pipes(writer)[1].readline() == b"ready\n"
                with pytest.raises(subprocess.TimeoutExpired):  # reads the pipe meanwhile, so that it never fills up
                    writer.communicate(timeout=0.02 + 0.15 * chance.random())
                writer.kill()
                # What was cut off is a number that was not fully told: no acknowledgement.
                told = [int(line) for line in writer.communicate()[0].split(b"\n")[:-1] if line != b"ready"]
                assert writer.returncode == -9
            acknowledged |= {(f"launch-{launch}", step) for step in told}
            first = told[-1] + 1 if told else first
    assert len(acknowledged) > 500 and len({launch for launch, _ in acknowledged}) >= 15
    assert acknowledged - in_segments(root / "run") == set()
    store = indexed(root)
    value = (
        "SELECT launch_id, step, value FROM scalar JOIN launch USING (run_key, launch_no) JOIN metric USING (metric_id)"
    )
    found = query(store, f"{value} WHERE metric.name = 'value'")
    assert acknowledged - {(launch, step) for launch, step, _ in found} == set()
    assert all(value == 1e6 * int(launch.removeprefix("launch-")) + step for launch, step, value in found)
    # What readers see has each step once, whatever launch repeated it.
    seen = [step for (step,) in query(store, "SELECT step FROM v_metric WHERE name = 'value' ORDER BY step")]
    assert seen == list(range(first)) or seen == list(range(first + 1))
    assert query(store, "SELECT sum(lost), sum(bad_lines) FROM segment") == [(0, 0)]
    store.close()


def in_segments(run_dir: Path) -> set[tuple[str, int]]:
    """(launch, step) of every whole line; only the last line of a file may be torn."""
    steps = set()
    for path in (run_dir / "segments").iterdir():
        header, *lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] or [{}]
        steps |= {(header["launch"], line["s"]) for line in lines}
    return steps


# -- kill -9 of the monitor --

RANK_WRITER = """
import sys, threading, time
from regimescope.monitor import Bounds, Recorder, SignBounds, WeightRule
from regimescope.monitor.token_stats import TokenStats
run_dir, rank = sys.argv[1], int(sys.argv[2])
bounds = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
ints, floats = (300, 280, 500, 400, 40, 60, 120), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
stats = TokenStats(
    tokens=ints, clip_high=(6, 0, 0, 0, 0, 0, 0), clip_low=(0,) * 7, clamped=(0,) * 7, ratio_sum=floats,
    weight_sum=floats, abs_adv_weight_sum=floats, signed_adv_weight_sum=floats, entropy_sum=floats, logp_sum=floats,
    log_ratio_sum=floats, log_ratio_sq_sum=floats,
)
stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
step = 0
with Recorder(run_dir, launch="a", rank=rank, ranks=4, rule=WeightRule.capped(bounds)) as recorder:
    while not stopped.is_set():
        recorder.buckets(step, 0, stats, revision=0, bounds=bounds)
        recorder.scalars(step, {"accuracy": (0.5, 8)}, slice=("env", "math"))
        recorder.hist(step, "response_length", [3, rank, 12, step % 7], "len1")
        if step % 50 == 0:
            recorder.event("checkpoint", {"path": f"c{step}"}, step=step)
        length = 35.0 if step < 100 else 3.0     # a collapse: alerts are rows as well
        values = {"response_length_mean": (length, 8), "accuracy": (0.5, 8)}
        recorder.step(step, values | {f"m{i}": float(step + i) for i in range(8)})
        step += 1
        time.sleep(0.01)
print(step, recorder.dropped, flush=True)
"""
MONITOR = """
import sys, time
from pathlib import Path
from regimescope.monitor import service
from regimescope.monitor.store import Store
service.BACK_OFF_S = 0.2
monitor = service.Monitor(Path(sys.argv[1]), tick_s=0.02, store=Store.open(sys.argv[1], path=Path(sys.argv[2])))
print("rebuilt" if monitor.store.rebuilt else "continued", flush=True)
monitor.start()
said = None
while True:
    if monitor.degraded != said:
        said = monitor.degraded
        print("works" if said is None else f"degraded: {said}", flush=True)
    time.sleep(0.01)
"""


def test_ten_kills_of_the_monitor_while_four_ranks_write_leave_every_row_once(root: Path, tmp_path: Path) -> None:
    chance = random.Random(10)
    index = tmp_path / "index" / "monitor.duckdb"
    starts, steps = [], {}
    with (
        process(LOAD),
        process(RANK_WRITER, root / "run", 0) as r0,
        process(RANK_WRITER, root / "run", 1) as r1,
        process(RANK_WRITER, root / "run", 2) as r2,
        process(RANK_WRITER, root / "run", 3) as r3,
    ):
        for _ in range(10):
            with process(MONITOR, root, index) as monitor:
                starts.append(pipes(monitor)[1].readline())
                time.sleep(0.6 * chance.random())
                monitor.kill()
                assert monitor.wait() == -9
        for rank, writer in enumerate((r0, r1, r2, r3)):
            told, _ = writer.communicate(timeout=PATIENCE_S)
            steps[rank], dropped = map(int, told.split())
            assert (writer.returncode, dropped) == (0, 0) and steps[rank] > 100
    assert starts == [b"rebuilt\n"] + [b"continued\n"] * 9
    last = watched(root, Store.open(root, path=index))
    assert not last.store.rebuilt
    per_rank = "count(*), count(DISTINCT ({})) FROM {} GROUP BY rank ORDER BY rank"
    for table, key, each in (
        ("scalar", "step, slice_id, metric_id", 11),
        ("bucket_step", "step, bucket", 7),
        ("hist", "step", 1),
        ("step_done", "step", 1),
    ):
        assert query(last.store, f"SELECT rank, {per_rank.format(key, table)}") == [
            (rank, each * n, each * n) for rank, n in steps.items()
        ]
    assert query(last.store, "SELECT count(*) > 0 FROM alert") == [(True,)]
    again = watched(root, Store.in_memory(root))
    assert differing(last.store, again.store) == {}
    last.stop()
    again.stop()


# -- no space --


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs of the given size; one a test."""
    folder = tmp_path / "small"
    folder.mkdir()

    def mount(size: str) -> Path:
        try:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", b"").decode().strip() or str(error)
            pytest.skip(f"a tmpfs cannot be mounted here (root may): {why}")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: Path, size: int | None = None) -> None:
    """A file of that many bytes, else of all that there is."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        while size is None or os.fstat(descriptor).st_size < size:
            os.write(descriptor, b"x" * 4096)
    except OSError:
        assert size is None
    finally:
        os.close(descriptor)


STUBBORN_WRITER = """
import sys, time
from regimescope.monitor import Recorder
recorder = Recorder(sys.argv[1], launch="a", sync=sys.argv[2] == "sync")
step = 0
while recorder.dropped < 500:
    recorder.step(step, {f"m{i}": step + 0.5 for i in range(10)})
    step += 1
    if sys.argv[2] == "thread" and step % 50 == 0:
        time.sleep(0.005)
print(step, flush=True)
sys.stdin.readline()
for late in range(step, step + 100):
    recorder.step(late, {"m0": late + 0.5})
recorder.end("finished")
print(recorder.dropped, flush=True)
"""


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_full_disk_costs_the_recorder_counted_records_until_there_is_space(
    mode: str, root: Path, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("1m")
    fill(disk / "ballast", 512 << 10)
    with process(STUBBORN_WRITER, disk / "run", mode) as writer:
        ask, answers = pipes(writer)
        full_at = int(answers.readline())
        (path,) = (disk / "run" / "segments").iterdir()
        early = path.read_bytes().count(b'"dropped"')  # a short event may fit in where a step did not
        (disk / "ballast").unlink()
        wait_for(lambda: path.read_bytes().count(b'"dropped"') > early, "the event of a trainer that records nothing")
        ask.write(b"go on\n")
        dropped = int(answers.readline())
        assert writer.wait(PATIENCE_S) == 0
    data = path.read_bytes()
    assert data.endswith(b"\n") and b"\0" not in data
    records = [json.loads(line) for line in data.splitlines()]
    steps = [record["s"] for record in records if record["k"] == "step"]
    assert dropped >= 500 and len(steps) + dropped == full_at + 100
    assert steps == sorted(set(steps)) and steps[-100:] == list(range(full_at, full_at + 100))
    told = [record["data"] for record in records if record.get("kind") == "dropped"]
    assert sum(each["records"] for each in told) == dropped
    assert all("No space left" in each["reason"] for each in told)
    assert records[-1]["k"] == "end"
    store = indexed(disk)
    assert query(store, "SELECT lost, bad_lines FROM segment") == [(dropped, 0)]
    assert query(store, "SELECT count(*) FROM step_done") == [(len(steps),)]
    store.close()


@pytest.mark.parametrize("lost", [False, True])
def test_a_full_disk_under_the_index_degrades_it_until_there_is_space(
    lost: bool, trainer, root: Path, small_disk: Callable[[str], Path]
) -> None:
    """lost: somebody deletes the index to make room, and other files take it: there is not enough for a new one."""
    disk = small_disk("8m")
    index = disk / "index" / "monitor.duckdb"
    with trainer.open() as recorder, process(MONITOR, root, index, stderr=subprocess.STDOUT) as monitor:
        heard: list[str] = []
        listener = threading.Thread(target=lambda: heard.extend(map(bytes.decode, pipes(monitor)[1])))
        listener.start()
        wait_for(lambda: heard[:1] == ["rebuilt\n"], "the start")
        for step in range(100):
            trainer.step(recorder, step)
        fill(disk / "ballast")
        for step in range(100, 500):
            trainer.step(recorder, step)
        wait_for(lambda: any(line.startswith("degraded: ") for line in heard), "word of the full disk")
        if lost:
            for path in index.parent.iterdir():
                path.unlink()
            wait_for(lambda: fill_but(disk, 32 << 10) and "cannot create the index" in "".join(heard[-2:]), "a retry")
        tries = len(heard)
        wait_for(lambda: len(heard) >= tries + 3, "more tries on the full disk")
        assert "No space left" in heard[-1] or "cannot create" in heard[-1]
        assert "works\n" not in heard
        (disk / "ballast").unlink()
        (disk / "more ballast").unlink(missing_ok=True)
        wait_for(lambda: heard[-1] == "works\n", "the end of the trouble")
        for step in range(500, 520):
            trainer.step(recorder, step)
        recorder.end("finished")
        time.sleep(0.5)
        assert monitor.poll() is None
        monitor.kill()
        listener.join()
    last = watched(root, Store.open(root, path=index))
    assert not last.store.rebuilt
    assert query(last.store, "SELECT count(*), count(DISTINCT step) FROM step_done") == [(520, 520)]
    again = watched(root, Store.in_memory(root))
    assert differing(last.store, again.store) == {}
    last.stop()
    again.stop()


def fill_but(disk: Path, room: int) -> bool:
    """Other files take what space there is, all but that much."""
    fill(disk / "more ballast")
    os.truncate(disk / "more ballast", max(0, (disk / "more ballast").stat().st_size - room))
    return True


def test_no_space_for_a_new_index_is_told_in_a_line(root: Path, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("1m")
    for room in (0, 32 << 10):  # not even for the file; not for the tables
        fill_but(disk, room)
        with pytest.raises(StoreError, match=r"cannot (open|create) the index .*; set REGIMESCOPE_CACHE") as caught:
            Store.open(root, path=disk / "monitor.duckdb")
        assert "\n" not in str(caught.value) and "No space left" in str(caught.value)
        (disk / "more ballast").unlink()
    Store.open(root, path=disk / "monitor.duckdb").close()
