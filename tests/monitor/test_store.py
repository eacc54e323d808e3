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


def test_sql_reads_no_file_outside_the_root(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (root / "own.csv").write_text("a\n1\n")
    store = Store.in_memory(root)
    with store.cursor() as con:
        assert con.execute(f"SELECT * FROM read_csv('{root}/own.csv')").fetchall() == [(1,)]
        for path in (f"{tmp_path}/secret.csv", f"{root}/../secret.csv"):
            with pytest.raises(duckdb.PermissionException):
                con.execute(f"SELECT * FROM read_csv('{path}')").fetchall()
        with pytest.raises(duckdb.Error):
            con.execute("SET enable_external_access = true").fetchall()
    store.close()


def test_the_cache_folder_is_private(root: Path) -> None:
    Store.open(root).close()
    assert os.stat(index_path(root).parent).st_mode & 0o077 == 0
