"""Rollouts in the index: the rows of a file as they are, exactly once, and a file that cannot be read stops nothing."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.monitor import query, rollout_index
from regimescope.monitor.errors import RolloutError
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.rollout_index import Line, read_rows
from regimescope.monitor.store import Store

NAME = "rollouts/s00000003-r00000-100.parquet"
HEADER = {
    "v": 1, "k": "header", "q": 0, "t": 1.0, "run": "r", "launch": "a", "start": "fresh", "role": "trainer",
    "rank": 0, "ranks": 1, "part": 0, "first_step": 0,
}  # fmt: skip
LINE = Line(run_key=1, launch_no=0, rank=0, step=3, seq=1, file=NAME, rows=2)


@pytest.fixture
def run(root: Path) -> Path:
    """A run folder with a header and nothing else."""
    (root / "run" / "segments").mkdir(parents=True)
    append(root / "run", HEADER)
    return root / "run"


@pytest.fixture
def store(root: Path):
    made = Store.in_memory(root)
    yield made
    made.close()


def append(run: Path, *lines: dict[str, object]) -> None:
    with (run / "segments" / "r00000-100-1-0000.jsonl").open("a") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def rollouts_line(q: int, file: object = NAME, rows: object = 2, step: int = 3) -> dict[str, object]:
    return {"v": 1, "k": "rollouts", "q": q, "t": 2.0, "s": step, "file": file, "rows": rows}


def step_line(q: int, step: int = 3) -> dict[str, object]:
    return {"v": 1, "k": "step", "q": q, "t": 3.0, "s": step, "m": {"accuracy": 0.5}}


def read(store: Store) -> Store:
    Ingester(store).catch_up()
    return store


def rows(store: Store, sql: str) -> list[tuple[object, ...]]:
    with store.cursor() as con:
        return con.execute(sql).fetchall()


def both_tables(store: Store) -> list[list[tuple[object, ...]]]:
    return [rows(store, "FROM rollout ORDER BY ALL"), rows(store, "SELECT * EXCLUDE (ts) FROM event ORDER BY ALL")]


def events(store: Store) -> list[query.EventRow]:
    with store.cursor() as con:
        return query.events(con, 1)


def test_the_plain_columns_of_a_file_become_rows_as_they_are(run: Path, store: Store, rollout_file) -> None:
    reward, repetition = [math.nan, -math.inf, None], [0.25, 0.0, math.inf]
    rollout_file(
        run, NAME, 3, sample_id=[-(1 << 40), 7, 8], reward=reward, repetition=repetition, group_id=[5, None, 5]
    )
    append(run, rollouts_line(1, rows=3), step_line(2))
    read(store)
    with store.cursor() as con:
        found = query.rollouts(con, 1, sort="step")
    assert [r.sample_id for r in found] == [-(1 << 40), 7, 8]
    assert math.isnan(found[0].reward) and [r.reward for r in found[1:]] == [-math.inf, None]
    assert [r.repetition for r in found] == repetition and [r.group_id for r in found] == [5, None, 5]
    last = found[2]
    assert (last.launch_no, last.rank, last.step, last.file, last.row_in_file) == (0, 0, 3, NAME, 2)
    assert (last.env, last.correct, last.length, last.finish_reason, last.pick) == ("math", True, 4, "eos", "random")
    assert (last.update, last.revision, last.weight_version, last.lag, last.advantage) == (0, 1, 40, 2, 0.5)
    assert events(store) == []


def test_columns_that_are_not_known_and_narrower_types_do_no_harm(run: Path, store: Store, rollout_file) -> None:
    table = rollout_file(run, NAME, 2)
    at = table.schema.get_field_index("env")
    table = table.set_column(at, "env", table.column("env").dictionary_encode())
    table = table.set_column(0, "sample_id", table.column("sample_id").cast(pa.int32()))
    table = table.set_column(5, "reward", pa.array([0, 1], pa.int64()))
    table = table.set_column(7, "correct", pa.nulls(2))
    pq.write_table(table.append_column("more", pa.array([[1], [2]])), run / NAME)
    append(run, rollouts_line(1))
    assert rows(read(store), "SELECT sample_id, env, reward, correct FROM rollout ORDER BY ALL") == [
        (0, "math", 0.0, None),
        (1, "math", 1.0, None),
    ]


def test_rows_and_offset_come_together_and_once(run: Path, root: Path, store: Store, rollout_file) -> None:
    ingester = Ingester(store)
    for step in range(3):
        name = f"rollouts/s{step:08d}-r00000-100.parquet"
        rollout_file(run, name, 2)
        append(run, rollouts_line(2 * step + 1, name, step=step), step_line(2 * step + 2, step))
        ingester.tick()
        ingester = Ingester(store)  # another process
        ingester.tick()
    assert rows(store, "SELECT step, row_in_file FROM rollout ORDER BY ALL") == [
        (s, i) for s in range(3) for i in (0, 1)
    ]
    again = Store.in_memory(root)
    assert both_tables(read(again)) == both_tables(store)
    again.close()


TAIL = """
import sys
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store

ingester = Ingester(Store.open(sys.argv[1]))
print("reading", flush=True)
while True:
    ingester.tick()
"""


def test_no_kill_of_the_monitor_loses_or_repeats_a_row(run: Path, root: Path, rollout_file) -> None:
    rollout_file(run, NAME, 2)
    step = 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", TAIL, str(root)], stdout=subprocess.PIPE) as tail:
            assert tail.stdout is not None and tail.stdout.readline() == b"reading\n"
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                append(run, rollouts_line(2 * step + 1, step=step), rollouts_line(2 * step + 2, "late", step=step))
                step += 1
                time.sleep(0.002)
            tail.kill()
    store, again = Store.open(root), Store.in_memory(root)
    assert both_tables(read(store)) == both_tables(read(again))
    assert rows(store, "SELECT step, row_in_file FROM rollout ORDER BY ALL") == [
        (s, i) for s in range(step) for i in (0, 1)
    ]
    assert rows(store, "SELECT step FROM event ORDER BY step") == [(s,) for s in range(step)]
    store.close()
    again.close()


def test_odd_texts_are_kept(run: Path, store: Store, rollout_file) -> None:
    odd = ["", "a\0b", "ü\u202e\x1b[31m", "'; DROP TABLE rollout; --"]
    rollout_file(run, NAME, 4, env=odd, finish_reason=odd)
    append(run, rollouts_line(1, rows=4))
    assert rows(read(store), "SELECT env, finish_reason FROM rollout ORDER BY row_in_file") == [(x, x) for x in odd]


def wrong_rows(run: Path, make: Callable) -> str:
    make(run, NAME, 3)
    return "has 3 rows: its line says 2"


def missing(run: Path, make: Callable) -> str:
    return "is not there"


def torn(run: Path, make: Callable) -> str:
    make(run, NAME, 2)
    os.truncate(run / NAME, 700)
    return "no Parquet file that can be read"


def empty(run: Path, make: Callable) -> str:
    make(run, NAME, 2)
    os.truncate(run / NAME, 0)
    return "no Parquet file that can be read"


def no_column(run: Path, make: Callable) -> str:
    pq.write_table(make(run, NAME, 2).drop_columns(["length"]), run / NAME)
    return "has no column 'length'"


def two_columns(run: Path, make: Callable) -> str:
    table = make(run, NAME, 2)
    pq.write_table(table.append_column("env", table.column("env")), run / NAME)
    return "has no column 'env', or two"


def another_type(run: Path, make: Callable) -> str:
    table = make(run, NAME, 2)
    pq.write_table(table.set_column(0, "sample_id", pa.array(["1", "2"])), run / NAME)
    return "'sample_id' as string: want int64"


def too_large(run: Path, make: Callable) -> str:
    table = make(run, NAME, 2)
    at = table.schema.get_field_index("length")
    pq.write_table(table.set_column(at, "length", pa.array([1, 1 << 40])), run / NAME)
    return "values in 'length' that are no int32"


def no_id(run: Path, make: Callable) -> str:
    make(run, NAME, 2, sample_id=[1, None])
    return "rows without 'sample_id'"


def a_link(run: Path, make: Callable) -> str:
    make(run.parent, "elsewhere.parquet", 2)
    (run / "rollouts").mkdir()
    (run / NAME).symlink_to(run.parent / "elsewhere.parquet")
    return "a link, or lies behind one"


def behind_a_link(run: Path, make: Callable) -> str:
    make(run.parent / "other", NAME, 2)
    (run / "rollouts").symlink_to(run.parent / "other" / "rollouts")
    return "a link, or lies behind one"


def a_folder(run: Path, make: Callable) -> str:
    (run / NAME).mkdir(parents=True)
    return "no plain file"


def a_pipe(run: Path, make: Callable) -> str:
    (run / "rollouts").mkdir()
    os.mkfifo(run / NAME)
    return "no plain file"


def unreadable(run: Path, make: Callable) -> str:
    (run / "rollouts").write_text("a file in place of the folder")
    return "cannot be opened: Not a directory"


KINDS = (
    wrong_rows, missing, torn, empty, no_column, two_columns, another_type, too_large, no_id, a_link, behind_a_link,
    a_folder, a_pipe, unreadable,
)  # fmt: skip


@pytest.mark.parametrize("damage", KINDS, ids=lambda f: f.__name__)
def test_a_file_that_cannot_be_read_is_an_event_and_stops_nothing(
    damage: Callable, run: Path, root: Path, store: Store, rollout_file
) -> None:
    reason = damage(run, rollout_file)
    append(run, rollouts_line(1), step_line(2))
    read(store)
    (event,) = events(store)
    assert (event.kind, event.step, event.data["file"], event.data["rows"]) == ("rollouts_unreadable", 3, NAME, 2)
    assert reason in str(event.data["reason"]) and str(root) not in str(event.data["reason"])
    assert rows(store, "SELECT count(*) FROM rollout") == [(0,)]
    assert rows(store, "SELECT step FROM step_done") == [(3,)]
    assert rows(store, "SELECT bad_lines, lost FROM segment") == [(0, 0)]


@pytest.mark.parametrize(
    "name", ["../elsewhere.parquet", "rollouts/../../elsewhere.parquet", "{root}/elsewhere.parquet", "."]
)
def test_no_name_leads_out_of_the_run_folder(name: str, run: Path, root: Path, store: Store, rollout_file) -> None:
    rollout_file(root, "elsewhere.parquet", 2)
    (run / "rollouts").mkdir()
    append(run, rollouts_line(1, name.format(root=root)))
    read(store)
    assert [e.kind for e in events(store)] == ["rollouts_unreadable"]
    assert "no path inside the run folder" in str(events(store)[0].data["reason"])
    assert rows(store, "SELECT count(*) FROM rollout") == [(0,)]


@pytest.mark.parametrize(
    "change", [{"file": 7}, {"file": ""}, {"file": "x" * 2000}, {"rows": -1}, {"rows": 1 << 40}, {"s": -1}]
)
def test_a_line_that_makes_no_sense_is_a_bad_line(change: dict[str, object], run: Path, store: Store) -> None:
    append(run, {**rollouts_line(1), **change}, step_line(2))
    read(store)
    assert rows(store, "SELECT sum(bad_lines) FROM segment") == [(1,)]
    assert [e.kind for e in events(store)] == ["bad_line"] and rows(store, "SELECT count(*) FROM step_done") == [(1,)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_comes_late_takes_the_event_back(
    restart: bool, run: Path, root: Path, store: Store, rollout_file, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(rollout_index.time, "monotonic", lambda: clock[0])
    ingester = Ingester(store)
    append(run, rollouts_line(1), step_line(2), rollouts_line(3, "rollouts/lost.parquet"))
    ingester.tick()
    assert [e.kind for e in events(store)] == ["rollouts_unreadable"] * 2
    for _ in range(40):  # seen missing again and again: looked at ever more rarely
        clock[0] += 1.0
        ingester.tick()
    assert ingester._waiting.due() == []
    rollout_file(run, NAME, 2)
    clock[0] += 60.0
    if restart:
        ingester = Ingester(store)
    assert ingester.tick() == ingester.said == {1}
    assert rows(store, "SELECT file, row_in_file FROM rollout ORDER BY ALL") == [(NAME, 0), (NAME, 1)]
    assert [e.data["file"] for e in events(store)] == ["rollouts/lost.parquet"]
    clock[0] += 1e6
    ingester.tick()
    again = Store.in_memory(root)
    assert both_tables(read(again)) == both_tables(store)  # what watched and what was rebuilt agree
    again.close()


def test_a_trainers_own_event_of_that_name_is_left_alone(run: Path, store: Store) -> None:
    line = {"v": 1, "k": "event", "q": 1, "s": 0, "kind": "rollouts_unreadable", "data": {"x": 1}}
    append(run, line)
    ingester = Ingester(store)
    ingester.catch_up()
    ingester.tick()
    Ingester(store).tick()
    assert [e.data for e in events(store)] == [{"x": 1}]


def test_a_run_that_goes_takes_its_waiting_files_with_it(run: Path, store: Store) -> None:
    append(run, rollouts_line(1))
    ingester = Ingester(store)
    ingester.tick()
    (run / "segments" / "r00000-100-1-0000.jsonl").unlink()
    for _ in range(3):
        ingester.tick()
    assert rows(store, "SELECT count(*) FROM event") == [(0,)]


def test_many_files_are_read_over_several_ticks_and_all_of_them(run: Path, store: Store, rollout_file) -> None:
    count = 2 * rollout_index.FILES_A_TICK + 5
    rollout_file(run, NAME, 1)
    for i in range(count):
        append(run, rollouts_line(2 * i + 1, rows=1, step=i), step_line(2 * i + 2, i))
    ingester = Ingester(store)
    ingester.tick()
    first = rows(store, "SELECT count(*) FROM rollout")
    assert first == [(rollout_index.FILES_A_TICK,)]
    ingester.catch_up()
    assert rows(store, "SELECT step FROM rollout ORDER BY step") == [(i,) for i in range(count)]
    assert rows(store, "SELECT step FROM step_done ORDER BY step") == [(i,) for i in range(count)]
    assert rows(store, "SELECT lost, bad_lines FROM segment") == [(0, 0)]


def test_whoever_does_not_need_rollouts_does_not_read_them(run: Path, store: Store, rollout_file) -> None:
    append(run, rollouts_line(1), step_line(2))
    Ingester(store, rollouts=False).catch_up()
    assert events(store) == [] and rows(store, "SELECT count(*) FROM rollout") == [(0,)]
    assert rows(store, "SELECT count(*) FROM step_done") == [(1,)]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_file_gives_all_its_rows_or_an_error(tmp_path_factory, rollout_table, data) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "rollouts").mkdir()
    pq.write_table(rollout_table(2), folder / NAME, compression="zstd", write_page_checksum=True)
    content = bytearray((folder / NAME).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    (folder / NAME).write_bytes(content)
    try:
        found = read_rows(folder, LINE)
    except RolloutError as error:
        assert len(str(error)) < 700
    else:
        assert len(found) == 2 and all(len(row) == 20 for row in found)
