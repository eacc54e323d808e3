"""The index: one DuckDB file for all runs below a root. Opening it read-write is the election of the one monitor
process.

The segments are the truth, so every doubt about the file (another schema hash, a storage version that DuckDB refuses)
ends in the same way: it is deleted, and the ingester fills a new one; `note` says so in a line. A file that is not ours
is moved aside, never deleted. `Store.open(root)` owns the file or raises StoreOwned; `Store.in_memory(root)` is private
to a command that only reads. Queries run on a cursor of their own and are read to the end (`fetchall`), for an open
result blocks the connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import duckdb

from regimescope import __version__
from regimescope.monitor.endpoint import read_endpoint
from regimescope.monitor.errors import StoreError, StoreOwned
from regimescope.monitor.places import cache_folder as cache_folder
from regimescope.monitor.places import index_path as index_path
from regimescope.monitor.wire import WIRE_VERSION

SCHEMA = (Path(__file__).parent / "schema.sql").read_text(encoding="utf-8")
SCHEMA_HASH = hashlib.sha256(f"{SCHEMA}\0wire {WIRE_VERSION}".encode()).hexdigest()[:16]
"Of the schema, and of the wire version: a segment that was refused is read after an upgrade."

_UNUSABLE = (
    duckdb.FatalException,
    duckdb.ConnectionException,
    duckdb.IOException,
    duckdb.InternalException,
    duckdb.TransactionException,
    duckdb.OutOfMemoryException,
)

_THREADS = 2
MEMORY = "1GB"
"""What DuckDB may take at most for its cache and its queries; REGIMESCOPE_INDEX_MEMORY replaces it. A query that needs
more spills to disk. DuckDB's own default is 80 % of a machine that is the trainer's."""
_ELSEWHERE = "set REGIMESCOPE_CACHE to a folder you can write"


class Store:
    """An open index of one root. Thread-safe: every caller takes a cursor of its own."""

    root: Path
    path: Path | None
    "The database file; None in memory."
    instance: str
    "Random per opening: part of the epoch that tells a browser to load everything again."
    rebuilt: bool
    "The file was new or was thrown away: everything comes from the segments."
    note: str | None
    "One line for a person when a file was there that is not used; None = there was none, or it is used."

    def __init__(self, root: Path, path: Path | None) -> None:
        """Use `open` or `in_memory`."""
        self.root, self.path = root, path
        self.instance = uuid.uuid4().hex[:12]
        self._connection, self.rebuilt, self.note = _connect(root, path)

    @classmethod
    def open(cls, root: str | os.PathLike[str], *, path: Path | None = None) -> Store:
        """Own the index of this root. Raises StoreOwned when another process does, StoreError when the place cannot be
        written.
        """
        folder = Path(root).resolve()
        return cls(folder, path or index_path(folder))

    @classmethod
    def in_memory(cls, root: str | os.PathLike[str]) -> Store:
        """A private, empty index."""
        return cls(Path(root).resolve(), None)

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of one's own on the same data, closed at the end of the block."""
        cursor = self._connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def reopen(self, *, discard: bool = False) -> None:
        """Close and open again: after a full disk DuckDB refuses everything until then; what was committed is intact.
        `discard`: it is not, make a new one. Raises as `open` does.
        """
        self.close()
        if discard and self.path is not None:
            for old in (self.path, _wal(self.path)):
                old.unlink(missing_ok=True)
        self.instance = uuid.uuid4().hex[:12]
        self._connection, self.rebuilt, self.note = _connect(self.root, self.path)

    def close(self) -> None:
        """Give the index up. Cursors that are still open become unusable."""
        with contextlib.suppress(duckdb.Error):
            self._connection.close()


def _connect(root: Path, path: Path | None) -> tuple[duckdb.DuckDBPyConnection, bool, str | None]:
    if path is None:
        spill = str(cache_folder() / "spill")  # else DuckDB makes a `.tmp` in whatever folder it was called from
        connection = duckdb.connect(":memory:", config={"threads": _THREADS, "temp_directory": spill})  # rows included
        return _prepared(connection, root, None), True, None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"cannot create {path.parent} for the index: {error.strerror}; {_ELSEWHERE}") from None
    known = path.exists()
    found = _open_file(root, path)
    try:
        doubt = "unreadable" if found is None else doubts(found)
    except duckdb.Error as error:
        if found is not None:
            found.close()
        if not is_damaged(error):
            raise StoreError(f"cannot read the index {path}: {str(error).splitlines()[0]}; {_ELSEWHERE}") from None
        found, doubt = None, "unreadable"
    if found is not None and doubt is None:
        return _locked_down(found), False, None
    if found is not None:
        found.close()
    note = _put_away(path, doubt) if known and doubt != "empty" else None
    for old in (path, _wal(path)):
        old.unlink(missing_ok=True)
    fresh = _open_file(root, path)
    if fresh is None:
        raise StoreError(f"cannot create the index {path}; {_ELSEWHERE}")
    return _prepared(fresh, root, path), True, note


def _config() -> dict[str, str | bool | int | float | list[str]]:
    """Raises StoreError for a limit that DuckDB would not understand."""
    limit = os.environ.get("REGIMESCOPE_INDEX_MEMORY") or MEMORY
    if not re.fullmatch(r"\d+(\.\d+)?\s*([KMGT]i?B)", limit):
        raise StoreError(f"REGIMESCOPE_INDEX_MEMORY={limit!r}: want a number and a unit, say 512MB")
    return {"threads": _THREADS, "memory_limit": limit}


Doubt = Literal["foreign", "unreadable", "empty"]


def doubts(connection: duckdb.DuckDBPyConnection) -> Doubt | str | None:
    """Why this database is not an index of this version: foreign | empty | the version of regimescope that made it;
    None = it is one. Raises duckdb.Error when it cannot be asked.
    """
    try:
        made = connection.execute("SELECT schema_hash, app_version FROM meta").fetchall()
    except (duckdb.CatalogException, duckdb.BinderException):  # another program's, or a start that got no further
        return "foreign" if connection.execute("SELECT 1 FROM duckdb_tables()").fetchall() else "empty"
    if not made:
        return "foreign"
    return None if made[0][0] == SCHEMA_HASH else str(made[0][1])


def is_damaged(error: duckdb.Error) -> bool:
    """Whether a block of the file is not what was written: only a new index helps."""
    return "corrupt database file" in str(error).lower()


def is_unusable(error: duckdb.Error) -> bool:
    """Whether this is what a reader gets of an index that is broken, full or being opened again; other errors are
    mistakes in the query.
    """
    return isinstance(error, _UNUSABLE) or is_damaged(error)


def is_locked(message: str) -> bool:
    """Whether this error of DuckDB says that another process has the file. A damaged block is no lock."""
    return "could not set lock" in message.lower()


def is_database(path: Path) -> bool:
    """Whether DuckDB made this file, in whatever version."""
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError:  # a folder, say
        return False


def _put_away(path: Path, doubt: str | None) -> str:
    """Move a file that is not ours aside; what is said about it, or about one of ours that will be deleted."""
    if doubt == "unreadable" and is_database(path):
        made = f"of a storage version that DuckDB {duckdb.__version__} does not read, or damaged"
        return f"the index was {made}: it is rebuilt from the segments"
    if doubt not in ("unreadable", "foreign"):
        return f"the index was made by regimescope {doubt} with other tables: it is rebuilt from the segments"
    aside = path.with_name(f"{path.name}.foreign-{time.time_ns()}")
    try:
        path.rename(aside)
        if _wal(path).exists():
            _wal(path).rename(_wal(aside))
    except OSError as error:
        raise StoreError(f"cannot move {path}, which is no index of ours: {error.strerror}; {_ELSEWHERE}") from None
    return f"{path} was no index of regimescope: it is now {aside.name}, and a new index is made from the segments"


def _wal(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def _open_file(root: Path, path: Path) -> duckdb.DuckDBPyConnection | None:
    """The connection; None when the file is not one that this DuckDB reads. Raises StoreOwned, StoreError."""
    try:
        return duckdb.connect(str(path), config=_config())
    except duckdb.Error as error:
        message = str(error)
        if is_locked(message):
            raise _owned(root) from None
        passing = isinstance(error, duckdb.FatalException | duckdb.ConnectionException) or any(
            said in message.lower() for said in ("permission", "no such file", "no space left", "input/output error")
        )
        if passing:
            raise StoreError(f"cannot open the index {path}: {message.splitlines()[0]}; {_ELSEWHERE}") from None
        return None


def _owned(root: Path) -> StoreOwned:
    endpoint = read_endpoint(root)
    if endpoint is None:
        return StoreOwned(f"another process owns the index of {root}; stop it, or use another root")
    return StoreOwned(
        f"a server for {root} is already running at {endpoint.address} (pid {endpoint.pid})", endpoint.address
    )


def _prepared(connection: duckdb.DuckDBPyConnection, root: Path, path: Path | None) -> duckdb.DuckDBPyConnection:
    try:
        connection.begin()
        connection.execute(SCHEMA).fetchall()
        connection.execute(
            "INSERT INTO meta (schema_hash, app_version) VALUES (?, ?)", [SCHEMA_HASH, __version__]
        ).fetchall()
        connection.commit()
    except duckdb.Error as error:  # disk full, say
        connection.close()
        raise StoreError(f"cannot create the index {path}: {str(error).splitlines()[0]}; {_ELSEWHERE}") from None
    return _locked_down(connection)


def _locked_down(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """No SQL on this connection, whatever it holds, reads or writes a file: segments and rollouts are read by Python,
    and the folder of the runs also holds the server's token. The index's own files and what it spills are exempt.
    """
    connection.execute("SET enable_external_access=false").fetchall()
    connection.execute("SET lock_configuration=true").fetchall()
    return connection
