"""Scalars put in order while the monitor is idle: the same rows, each once, whatever is killed; a live run goes on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from regimescope.monitor import compaction, query
from regimescope.monitor.compaction import Compactor, Piece, pieces
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store

NAMES = [f"m{i:02}" for i in range(5)]


@pytest.fixture
def store(root: Path):
    made = Store.in_memory(root)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few hundred rows."""
    monkeypatch.setattr(compaction, "LEAST_ROWS", 100)
    monkeypatch.setattr(compaction, "SMALLEST_ROWS", 200)


def record(trainer, steps: range, **options: object) -> None:
    with trainer.open(**options) as recorder:
        for step in steps:
            recorder.scalars(step, {"m00": 0.5 * step}, slice=("env", "math"))
            recorder.step(step, {name: step + 0.1 * i for i, name in enumerate(NAMES)})
        recorder.end("finished")


def stored(store: Store) -> Counter[str]:
    """The rows as a bag; numbers that the index gives in order of arrival are replaced by what they name."""
    with store.cursor() as con:
        rows = con.execute(
            """SELECT path, name, s.* EXCLUDE (run_key, metric_id) REPLACE (epoch_us(s.ts) AS ts)
               FROM scalar s JOIN (SELECT metric_id, name FROM metric) USING (metric_id)
               JOIN (SELECT run_key, path FROM run) USING (run_key)"""
        ).fetchall()
    return Counter(map(repr, rows))


def order(store: Store) -> list[tuple[int, int, int]]:
    """(slice, metric, step) as the rows lie."""
    with store.cursor() as con:
        return con.execute("SELECT slice_id, metric_id, step FROM scalar ORDER BY rowid").fetchall()


def compact(store: Store, runs: list[int], rows: int = 250) -> int:
    compactor = Compactor(store)
    compactor._rows = rows
    worked = 0
    while compactor.work(runs):
        worked += 1
    return worked


def test_the_rows_of_a_piece_lie_by_slice_metric_and_step_and_are_the_same(trainer, store: Store) -> None:
    record(trainer, range(100))
    Ingester(store).catch_up()
    before, names = stored(store), order(store)
    assert names != sorted(names)
    assert compact(store, [1], rows=10_000) > 0
    assert stored(store) == before and order(store) == sorted(names)
    with store.cursor() as con:
        assert con.execute("SELECT * FROM compaction").fetchall() == [(1, 0, 0, 100)]


def test_a_run_is_cut_into_pieces_of_steps_that_are_each_in_order(trainer, store: Store) -> None:
    record(trainer, range(100))
    Ingester(store).catch_up()
    before = stored(store)
    with store.cursor() as con:
        cut = pieces(con, 1, rows=250)
    assert cut[0] == Piece(run_key=1, launch_no=0, first=0, end=cut[0].end) and cut[-1].end == 100
    assert len(cut) == 3 and all(a.end == b.first for a, b in pairwise(cut))
    compact(store, [1])
    assert stored(store) == before
    lying = order(store)
    for piece in cut:
        inside = [row for row in lying if piece.first <= row[2] < piece.end]
        assert inside == sorted(inside)


def test_a_run_is_sorted_once_and_what_a_resume_adds_when_it_is_enough(trainer, root: Path) -> None:
    path = root.parent / "index.duckdb"
    record(trainer, range(100))
    with_index(root, path, lambda store: compact(store, [1]))
    assert with_index(root, path, lambda store: compact(store, [1])) == 1  # another process looks, and does nothing
    record(trainer, range(60, 65), launch="b", start="resume", first_step=60)
    assert with_index(root, path, lambda store: compact(store, [1])) == 1  # too little
    record(trainer, range(65, 90), launch="c", start="resume", first_step=65)
    assert with_index(root, path, lambda store: compact(store, [1])) > 2

    def done(store: Store) -> list[tuple[int, ...]]:
        with store.cursor() as con:
            return con.execute(
                "SELECT launch_no, min(first_step), max(end_step) FROM compaction GROUP BY 1 ORDER BY 1"
            ).fetchall()

    assert with_index(root, path, done) == [(0, 0, 100), (1, 60, 65), (2, 65, 90)]
    fresh = Store.in_memory(root)
    Ingester(fresh).catch_up()
    assert with_index(root, path, stored) == stored(fresh)
    fresh.close()


def with_index(root: Path, path: Path, act: Callable[[Store], object]) -> object:
    """The index in a file, opened and read as by another process."""
    store = Store.open(root, path=path)
    try:
        Ingester(store).catch_up()
        return act(store)
    finally:
        store.close()


def test_envelopes_and_newest_values_are_the_same_afterwards(trainer, store: Store) -> None:
    record(trainer, range(400))
    Ingester(store).catch_up()

    def read() -> object:
        with store.cursor() as con:
            return (
                query.envelopes(con, 1, 0, NAMES, None, None, 60),
                query.envelope(con, 1, 1, "m00", 20, 300, 60),
                query.latest(con, 1, NAMES),
                query.news(con, 1, 0, NAMES, 390),
            )

    before = read()
    compact(store, [1])
    assert read() == before


def test_a_piece_that_fails_changes_nothing(trainer, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record(trainer, range(100))
    Ingester(store).catch_up()
    before = order(store)
    with store.cursor() as con:
        con.execute("DROP TABLE compaction").fetchall()  # the last statement of the transaction
        with pytest.raises(duckdb.Error):
            compaction._sort(con, Piece(run_key=1, launch_no=0, first=0, end=100))
    assert order(store) == before


def test_a_slow_piece_makes_the_next_ones_smaller(trainer, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record(trainer, range(300))
    Ingester(store).catch_up()
    before = stored(store)
    monkeypatch.setattr(compaction, "PAUSE_S", 0.0)
    compact(store, [1], rows=800)
    assert stored(store) == before
    with store.cursor() as con:
        found = con.execute("SELECT end_step - first_step FROM compaction ORDER BY first_step").fetchall()
    assert [n for (n,) in found] == [133, 66, 33, 33, 33, 2]  # 800, 400, 200 rows of 6 a step


def test_without_room_on_the_disk_nothing_is_rewritten(trainer, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(trainer, range(100))
    monkeypatch.setattr(compaction, "MIN_FREE_BYTES", 1 << 62)
    assert with_index(root, root.parent / "index.duckdb", lambda store: compact(store, [1])) == 0


def test_only_finished_runs_are_sorted_and_a_live_one_beside_them_goes_on(
    trainer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regimescope.monitor.ingest.SETTLED_S", 0.0)
    monkeypatch.setattr("regimescope.monitor.service.COMPACT_EVERY_S", 0.01)
    monkeypatch.setattr(compaction, "PIECE_ROWS", 200)
    record(trainer, range(200))
    live = type(trainer)(root / "live")
    monitor = Monitor(root, tick_s=0.01)
    with live.open() as recorder:
        monitor.start()
        deadline = time.monotonic() + 30
        step = 0
        while not done(monitor, "run", 200) and time.monotonic() < deadline:
            live.step(recorder, step)
            step += 1
            time.sleep(0.005)
        while monitor.head(key(monitor, "live")).last < step - 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert done(monitor, "run", 200) and not done(monitor, "live", 0)
        assert monitor.head(key(monitor, "live")).last == step - 1 and monitor.degraded is None
    found = stored(monitor.store)
    monitor.stop()
    fresh = Store.in_memory(root)
    Ingester(fresh).catch_up()
    assert found == stored(fresh)
    fresh.close()


def key(monitor: Monitor, path: str) -> int:
    with monitor.store.cursor() as con:
        return query.run_key_of(con, path) or -1


def done(monitor: Monitor, path: str, end: int) -> bool:
    with monitor.store.cursor() as con:
        rows = con.execute(
            "SELECT max(end_step) FROM compaction JOIN run USING (run_key) WHERE path = ?", [path]
        ).fetchall()
    return rows[0][0] is not None and rows[0][0] >= end


def test_a_run_that_is_taken_out_of_the_index_leaves_no_note(trainer, root: Path) -> None:
    store = Store.in_memory(root)
    ingester = Ingester(store)
    record(trainer, range(100))
    ingester.catch_up()
    compact(store, [1])
    for path in (root / "run" / "segments").iterdir():
        path.unlink()
    (root / "run" / "segments").rmdir()
    ingester._walk_again = 0.0
    ingester.tick()
    with store.cursor() as con:
        assert con.execute("SELECT count(*) FROM compaction").fetchall() == [(0,)]
    store.close()


SORTER = """
import sys
from itertools import pairwise
from pathlib import Path
from regimescope.monitor import compaction
from regimescope.monitor.compaction import Compactor
from regimescope.monitor.store import Store
compaction.LEAST_ROWS = 100
store = Store.open(sys.argv[1], path=Path(sys.argv[2]))
print("kept" if not store.rebuilt else "rebuilt", flush=True)
with store.cursor() as con:
    con.execute("DELETE FROM compaction").fetchall()      # sort it all again: there is always a piece under way
compactor = Compactor(store)
compactor._rows = 4000
while True:
    compactor.work([1])
    compactor.changed([] if compactor._pieces else [1])
    with store.cursor() as con:
        if not compactor._pieces:
            con.execute("DELETE FROM compaction").fetchall()
"""


def test_kills_in_the_middle_of_a_compaction_leave_every_row_once(trainer, root: Path, tmp_path: Path) -> None:
    path = tmp_path / "index" / "monitor.duckdb"
    with trainer.open(sync=False) as recorder:
        for step in range(4000):
            recorder.step(step, {name: step + 0.1 * i for i, name in enumerate(NAMES)})
        recorder.end("finished")
    before = with_index(root, path, stored)
    chance = random.Random(7)
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", SORTER, str(root), str(path)], stdout=subprocess.PIPE, env=dict(os.environ)
        ) as sorter:
            assert sorter.stdout is not None and sorter.stdout.readline() == b"kept\n"
            time.sleep(0.02 + 0.25 * chance.random())
            sorter.kill()
            assert sorter.wait() == -9
        store = Store.open(root, path=path)
        assert not store.rebuilt and stored(store) == before
        store.close()
