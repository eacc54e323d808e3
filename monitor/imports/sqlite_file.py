"""Runs in a SQLite file: trackio's (`<project>.db`, JSON per step) and mlflow's (`mlflow.db`, a row per number).

`read(path, notes, run=...)` gives the rows of one run. The file is opened for reading only and never written to; a
journal that lies beside it (`-wal`, of a job that still writes) is read with it where that needs no writing.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.json_rows import row_of
from regimescope.monitor.imports.points import Point, rows_of
from regimescope.monitor.imports.rows import LogRow, Notes

MAGIC = b"SQLite format 3\0"
TRACKIO, MLFLOW = "trackio store", "mlflow database"
_BROKEN = (sqlite3.DatabaseError, UnicodeError, OverflowError, TypeError)
"What a damaged file raises: it may give any type in any column."
_LARGEST = 1.7976931348623157e308
"What mlflow stores for infinity."


def read(path: Path, notes: Notes, *, run: str | None) -> Iterator[LogRow]:
    """Rows of the run that is asked for, or of the only one. Raises ImportFailed."""
    con = None
    try:
        con = _opened(path, notes)
        return _until_closed(path, con, _rows(path, con, notes, run))
    except BaseException as error:
        if con is not None:
            con.close()
        if isinstance(error, _BROKEN):
            what = f"{path} begins as a SQLite file and cannot be read ({error}): is it complete?"
            raise ImportFailed(what) from None
        raise


def _rows(path: Path, con: sqlite3.Connection, notes: Notes, run: str | None) -> Iterator[LogRow]:
    columns = {table: _columns(con, table) for table in ("metrics", "runs", "configs")}
    if {"run_name", "step", "metrics"} <= columns["metrics"]:
        notes.format = TRACKIO
        return _trackio(path, con, columns, notes, run)
    if {"run_uuid", "key", "value", "step"} <= columns["metrics"]:
        notes.format = MLFLOW
        return _mlflow(path, con, columns["runs"], notes, run)
    raise ImportFailed(f"{path} is a SQLite file without the tables of trackio or mlflow: no metrics over steps in it")


def _until_closed(path: Path, con: sqlite3.Connection, rows: Iterator[LogRow]) -> Iterator[LogRow]:
    try:
        yield from rows
    except _BROKEN as error:
        raise ImportFailed(f"{path} is damaged ({error}): copy it anew, with the -wal file beside it") from None
    finally:
        con.close()


def _opened(path: Path, notes: Notes) -> sqlite3.Connection:
    """Immutable, so that nothing is made beside it; with a journal in it read-only."""
    address = f"file:{quote(str(path.absolute()))}"
    journal = path.with_name(path.name + "-wal")
    if journal.exists() and journal.stat().st_size:
        con = sqlite3.connect(f"{address}?mode=ro", uri=True)
        try:
            con.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            con.close()
            notes.leave_out("journal beside the file could not be read: its last rows are missing", journal.name)
        else:
            return con
    return sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True)


def _columns(con: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in con.execute(f"PRAGMA table_info({table})")}


def _trackio(
    path: Path, con: sqlite3.Connection, columns: dict[str, set[str]], notes: Notes, run: str | None
) -> Iterator[LogRow]:
    key = "run_id" if "run_id" in columns["metrics"] else "run_name"
    found = con.execute(f"SELECT DISTINCT {key}, run_name FROM metrics ORDER BY 2, 1").fetchall()
    notes.name, chosen = _chosen(path, found, run)
    if key in columns["configs"]:
        text = con.execute(f"SELECT config FROM configs WHERE {key} = ?", (chosen,)).fetchone()
        notes.config = {name: value for name, value in _object(text[0] if text else "").items() if name[:1] != "_"}
    return _trackio_rows(con, key, chosen, notes)


def _trackio_rows(con: sqlite3.Connection, key: str, chosen: object, notes: Notes) -> Iterator[LogRow]:
    rows = con.execute(f"SELECT step, timestamp, metrics FROM metrics WHERE {key} = ? ORDER BY id", (chosen,))
    for step, timestamp, text in rows:
        made = row_of(_object(text))
        if made is None:
            notes.leave_out("rows without a number", f"step {step}")
        else:  # the trainer's own step, where it logs one, goes before trackio's count of calls
            yield LogRow(values=made.values, step=step if made.step is None else made.step, t=_seconds(timestamp))


def _mlflow(path: Path, con: sqlite3.Connection, columns: set[str], notes: Notes, run: str | None) -> Iterator[LogRow]:
    name = "r.name" if "name" in columns else "NULL"
    found = con.execute(
        f"SELECT DISTINCT m.run_uuid, {name} FROM metrics m LEFT JOIN runs r USING (run_uuid) ORDER BY 2, 1"
    ).fetchall()
    notes.name, chosen = _chosen(path, found, run)
    if _columns(con, "params"):
        notes.config = dict(con.execute("SELECT key, value FROM params WHERE run_uuid = ?", (chosen,)).fetchall())
    return rows_of(_mlflow_points(con, chosen), notes)


def _mlflow_points(con: sqlite3.Connection, chosen: object) -> Iterator[Point]:
    rows = con.execute(
        "SELECT key, step, value, is_nan, timestamp FROM metrics WHERE run_uuid = ? ORDER BY timestamp, rowid",
        (chosen,),
    )
    for key, step, value, is_nan, timestamp in rows:
        yield key, step, finite_or_not(math.nan if is_nan else value), timestamp / 1000


def finite_or_not(value: float) -> float:
    """The number that mlflow was given: it stores the largest double for infinity."""
    return math.copysign(math.inf, value) if abs(value) >= _LARGEST else value


def _chosen(path: Path, found: list[tuple[str, str | None]], run: str | None) -> tuple[str | None, str]:
    """Name and id. Raises ImportFailed: several runs and none chosen, no such run, no run."""
    if not found:
        raise ImportFailed(f"{path} holds no run with a metric yet")
    fitting = [(name, key) for key, name in found if run in (None, key, name)]
    named = [name if name and [n for _, n in found].count(name) == 1 else key for key, name in found]
    listed = ", ".join(named[:12]) + (f" and {len(named) - 12} more" if len(named) > 12 else "")
    if not fitting:
        raise ImportFailed(f"{path} has no run {run!r}: choose one with --run, of {listed}")
    if len(fitting) > 1:
        raise ImportFailed(f"{path} holds {len(fitting)} runs: choose one with --run, of {listed}")
    return fitting[0]


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: object) -> float | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
