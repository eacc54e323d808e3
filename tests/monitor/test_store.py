"""The index file: one owner, thrown away when in doubt, and nothing outside the root within reach of its SQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from regimescope.monitor import query
from regimescope.monitor.endpoint import Endpoint, write_endpoint
from regimescope.monitor.errors import StoreError, StoreOwned
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import SCHEMA_HASH, Store, cache_folder, index_path

HOLD = """
import sys
from regimescope.monitor.store import Store
store = Store.open(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
store.close()
"""


def test_the_second_owner_is_refused_with_the_address_of_the_first(root: Path) -> None:
    write_endpoint(root, Endpoint(host="127.0.0.1", port=8765, pid=4242, started=0.0, token="secret"))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreOwned, match=r"http://127.0.0.1:8765") as refused:
            Store.open(root)
        assert refused.value.address == "http://127.0.0.1:8765"
        assert "secret" not in str(refused.value)
        holder.communicate()
    assert holder.returncode == 0
    Store.open(root).close()


def test_the_index_lies_in_the_cache_under_a_hash_of_the_root(root: Path, tmp_path: Path) -> None:
    path = index_path(root)
    assert path.is_relative_to(tmp_path / "cache") and path.name == "monitor.duckdb"
    assert index_path(root / ".." / root.name) == path != index_path(tmp_path)
    store = Store.open(root)
    assert store.rebuilt and path.exists()
    store.close()


@pytest.mark.parametrize("damage", ["other schema", "garbage", "no meta", "deleted"])
def test_an_index_in_doubt_is_rebuilt_from_the_segments(root: Path, collapsed, damage: str) -> None:
    first = _alerts_and_rows(root)
    path = index_path(root)
    if damage == "other schema":
        with duckdb.connect(str(path)) as con:
            con.execute("UPDATE meta SET schema_hash = 'old'").fetchall()
    elif damage == "no meta":
        with duckdb.connect(str(path)) as con:
            con.execute("DROP TABLE meta").fetchall()
    elif damage == "garbage":
        path.write_bytes(b"no database" * 1000)
    else:
        path.unlink()
    assert _alerts_and_rows(root) == first
    assert first[0]  # there are alerts, with their ids, to be the same


def test_a_database_of_another_program_is_moved_aside_whole_and_said_in_a_line(root: Path, collapsed) -> None:
    path = index_path(root)
    path.parent.mkdir(parents=True)
    con = duckdb.connect(str(path))
    con.execute("CREATE TABLE theirs AS SELECT 42 AS answer").fetchall()
    con.close()
    store = Store.open(root)
    (aside,) = [p for p in path.parent.iterdir() if "foreign" in p.name]
    assert store.rebuilt and store.note is not None and "\n" not in store.note
    assert str(path) in store.note and aside.name in store.note
    store.close()
    with duckdb.connect(str(aside), read_only=True) as con:
        assert con.execute("SELECT answer FROM theirs").fetchall() == [(42,)]
    again = Store.open(root)
    assert not again.rebuilt and again.note is None
    again.close()


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + bytes(4096), b"notes", b"PK\x03\x04" * 100])
def test_a_file_that_no_duckdb_made_is_moved_aside(root: Path, content: bytes) -> None:
    path = index_path(root)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    path.with_name(path.name + ".wal").write_bytes(b"theirs as well")
    store = Store.open(root)
    store.close()
    kept = {p.suffix: p.read_bytes() for p in path.parent.iterdir() if "foreign" in p.name}
    assert sorted(kept.values()) == sorted([content, b"theirs as well"]) and ".wal" in kept
    assert store.note is not None and "moved" not in store.note and "no index of regimescope" in store.note


def test_a_folder_in_the_place_of_the_index_is_moved_aside(root: Path) -> None:
    (index_path(root) / "inside").mkdir(parents=True)
    Store.open(root).close()
    (aside,) = [p for p in index_path(root).parent.iterdir() if "foreign" in p.name]
    assert (aside / "inside").is_dir()


def test_another_version_of_ours_is_rebuilt_and_said_in_a_line(root: Path) -> None:
    path = index_path(root)
    first = Store.open(root)
    first.close()
    assert first.rebuilt and first.note is None  # there was nothing
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE meta SET schema_hash = 'old', app_version = '0.0.7'").fetchall()
    other = Store.open(root)
    other.close()
    assert other.note == "the index was made by regimescope 0.0.7 with other tables: it is rebuilt from the segments"
    with path.open("r+b") as file:  # the storage version, and its checksum, are no longer what DuckDB expects
        file.seek(12)
        file.write(b"\xff" * 8)
    damaged = Store.open(root)
    damaged.close()
    assert damaged.rebuilt and damaged.note is not None and "storage version" in damaged.note
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_damaged_block_is_no_lock_and_ends_in_a_new_index(root: Path, collapsed) -> None:
    """The word lock is part of DuckDB's sentence about it."""
    rows = _alerts_and_rows(root)
    path = index_path(root)
    data = bytearray(path.read_bytes())
    data[12288:] = b"\xff" * (len(data) - 12288)  # all blocks behind the three headers
    path.write_bytes(data)
    store = Store.open(root)
    assert store.rebuilt and store.note is not None and "damaged" in store.note
    store.close()
    assert _alerts_and_rows(root) == rows


def test_a_start_that_got_no_further_than_an_empty_file_is_no_news(root: Path) -> None:
    index_path(root).parent.mkdir(parents=True)
    duckdb.connect(str(index_path(root))).close()
    store = Store.open(root)
    store.close()
    assert store.rebuilt and store.note is None and len(list(index_path(root).parent.iterdir())) == 1


def test_a_reader_that_still_holds_the_old_instance_costs_no_rebuild(root: Path) -> None:
    store = Store.open(root)
    with store.cursor() as con:
        con.execute("SELECT count(*) FROM run").fetchall()
        store.reopen()
        assert not store.rebuilt
        with store.cursor() as other:
            assert other.execute("SELECT count(*) FROM run").fetchall() == [(0,)]
    store.close()


def _alerts_and_rows(root: Path) -> tuple[list[query.AlertRow], list[tuple[object, ...]]]:
    monitor = Monitor(root)
    monitor.catch_up()
    with monitor.store.cursor() as con:
        (run,) = query.list_runs(con)
        rows = con.execute("SELECT * EXCLUDE (ts, run_key) FROM v_metric ORDER BY ALL").fetchall()
        result = query.alerts(con, run.run_key), rows
    monitor.stop()
    return result


def test_an_index_that_fits_is_kept(root: Path) -> None:
    store = Store.open(root)
    first = store.instance
    store.close()
    again = Store.open(root)
    assert not again.rebuilt and again.instance != first
    with again.cursor() as con:
        assert con.execute("SELECT schema_hash FROM meta").fetchall() == [(SCHEMA_HASH,)]
    again.close()


def test_a_place_that_cannot_be_written_is_an_error_with_advice(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = root / "file"
    blocker.write_text("")
    monkeypatch.setenv("REGIMESCOPE_CACHE", str(blocker))
    with pytest.raises(StoreError, match="REGIMESCOPE_CACHE"):
        Store.open(root)


def test_an_index_in_memory_leaves_no_file(root: Path) -> None:
    store = Store.in_memory(root)
    with store.cursor() as con:
        assert con.execute("SELECT count(*) FROM run").fetchall() == [(0,)]
    store.close()
    assert not index_path(root).exists()


def test_a_query_too_large_for_memory_spills_into_the_cache_not_into_the_folder_of_the_caller(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    store = Store.in_memory(root)
    with store.cursor() as con:
        where = con.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
    store.close()
    assert Path(where).is_relative_to(cache_folder()) and set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_sql_reads_and_writes_no_file(root: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (root / "own.csv").write_text("a\n1\n")
    store = Store.in_memory(root) if kind == "memory" else Store.open(root)
    beside = index_path(root).parent / "beside.csv"
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text("a\n1\n")
    with store.cursor() as con:
        for path in (f"{root}/own.csv", f"{tmp_path}/secret.csv", f"{root}/../secret.csv", str(beside)):
            with pytest.raises(duckdb.PermissionException):
                con.execute(f"SELECT * FROM read_csv('{path}')").fetchall()
        with pytest.raises(duckdb.PermissionException):
            con.execute(f"COPY meta TO '{root}/written.csv'").fetchall()
        for name, value in (("enable_external_access", "true"), ("allowed_directories", f"['{root}/']")):
            with pytest.raises(duckdb.Error):
                con.execute(f"SET {name} = {value}").fetchall()
    store.close()
    assert not (root / "written.csv").exists()


def test_an_index_with_all_files_closed_to_it_still_spills(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = duckdb.connect

    def small(path: str, config: dict[str, str | int]) -> duckdb.DuckDBPyConnection:
        return real(path, config={**config, "memory_limit": "60MB"})

    monkeypatch.setattr(duckdb, "connect", small)
    for store in (Store.in_memory(root), Store.open(root)):
        with store.cursor() as con:
            sql = "SELECT count(*) FROM (SELECT r, hash(r) AS x FROM range(4000000) t(r) ORDER BY x OFFSET 1)"
            assert con.execute(sql).fetchall() == [(3_999_999,)]
        store.close()


def test_the_cache_folder_is_private(root: Path) -> None:
    Store.open(root).close()
    assert os.stat(index_path(root).parent).st_mode & 0o077 == 0


def test_the_index_takes_no_more_memory_than_it_may(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for said, limit in ((None, "953.6 MiB"), ("64MiB", "64.0 MiB")):
        if said:
            monkeypatch.setenv("REGIMESCOPE_INDEX_MEMORY", said)
        store = Store.open(root)
        with store.cursor() as con:
            assert con.execute("SELECT current_setting('memory_limit')").fetchall() == [(limit,)]
        store.close()
    monkeypatch.setenv("REGIMESCOPE_INDEX_MEMORY", "lots")
    with pytest.raises(StoreError, match="want a number and a unit"):
        Store.open(root)
