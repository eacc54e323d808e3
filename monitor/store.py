"""The index: one DuckDB file for all runs below a root. Opening it read-write is the election of the one monitor
process.

The segments are the truth, so every doubt about the file (another schema hash, a storage version that DuckDB refuses,
garbage) ends in the same way: it is deleted, and the ingester fills a new one. `Store.open(root)` owns the file or
raises StoreOwned; `Store.in_memory(root)` is private to a command that only reads. Queries run on a cursor of their own
and are read to the end (`fetchall`), for an open result blocks the connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import duckdb

from regimescope import __version__
from regimescope.monitor.endpoint import read_endpoint
from regimescope.monitor.errors import StoreError, StoreOwned

SCHEMA = (Path(__file__).parent / "schema.sql").read_text(encoding="utf-8")
SCHEMA_HASH = hashlib.sha256(SCHEMA.encode()).hexdigest()[:16]

_THREADS = 2
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

    def __init__(self, root: Path, path: Path | None) -> None:
        """Use `open` or `in_memory`."""
        self.root, self.path = root, path
        self.instance = uuid.uuid4().hex[:12]
        self._connection, self.rebuilt = _connect(root, path)

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

    def reopen(self) -> None:
        """Close and open again: after a full disk DuckDB refuses everything until then; what was committed is intact.
        Raises as `open` does.
        """
        self.close()
        self.instance = uuid.uuid4().hex[:12]
        self._connection, self.rebuilt = _connect(self.root, self.path)

    def close(self) -> None:
        """Give the index up. Cursors that are still open become unusable."""
        with contextlib.suppress(duckdb.Error):
            self._connection.close()


def index_path(root: Path) -> Path:
    """`<user cache>/regimescope/<hash of root>/monitor.duckdb`, on local disk also where the root is not;
    REGIMESCOPE_CACHE replaces the first two.
    """
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return cache_folder() / digest / "monitor.duckdb"


def cache_folder() -> Path:
    """REGIMESCOPE_CACHE, else `regimescope` in the user's cache folder."""
    if named := os.environ.get("REGIMESCOPE_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regimescope"


def _connect(root: Path, path: Path | None) -> tuple[duckdb.DuckDBPyConnection, bool]:
    if path is None:
        spill = str(cache_folder() / "spill")  # else DuckDB makes a `.tmp` in whatever folder it was called from
        connection = duckdb.connect(":memory:", config={"threads": _THREADS, "temp_directory": spill})
        return _prepared(connection, root, None), True
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"cannot create {path.parent} for the index: {error.strerror}; {_ELSEWHERE}") from None
    found = _open_file(root, path)
    if found is not None and _schema_hash(found) == SCHEMA_HASH:
        return _locked_down(found, root, path), False
    if found is not None:
        found.close()
    for old in (path, path.with_name(path.name + ".wal")):
        old.unlink(missing_ok=True)
    fresh = _open_file(root, path)
    if fresh is None:
        raise StoreError(f"cannot create the index {path}; {_ELSEWHERE}")
    return _prepared(fresh, root, path), True


def _open_file(root: Path, path: Path) -> duckdb.DuckDBPyConnection | None:
    """The connection; None when the file is not one that this DuckDB reads. Raises StoreOwned, StoreError."""
    try:
        return duckdb.connect(str(path), config={"threads": _THREADS})
    except duckdb.Error as error:
        message = str(error)
        if "lock" in message.lower():
            raise _owned(root) from None
        if any(said in message.lower() for said in ("permission", "no such file", "no space left")):
            raise StoreError(f"cannot open the index {path}: {message.splitlines()[0]}; {_ELSEWHERE}") from None
        return None


def _owned(root: Path) -> StoreOwned:
    endpoint = read_endpoint(root)
    if endpoint is None:
        return StoreOwned(f"another process owns the index of {root}; stop it, or use another root")
    return StoreOwned(
        f"a server for {root} is already running at {endpoint.address} (pid {endpoint.pid})", endpoint.address
    )


def _schema_hash(connection: duckdb.DuckDBPyConnection) -> str | None:
    try:
        rows = connection.execute("SELECT schema_hash FROM meta").fetchall()
    except duckdb.Error:
        return None
    return str(rows[0][0]) if rows else None


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
    return _locked_down(connection, root, path)


def _locked_down(connection: duckdb.DuckDBPyConnection, root: Path, path: Path | None) -> duckdb.DuckDBPyConnection:
    """No SQL on this connection, whatever it holds, reads or writes outside the root and the index's own folder."""
    folders = [root, *([path.parent] if path else [])]
    listed = ", ".join("'" + str(folder).replace("'", "''") + "/'" for folder in folders)
    connection.execute(f"SET allowed_directories=[{listed}]").fetchall()
    connection.execute("SET enable_external_access=false").fetchall()
    connection.execute("SET lock_configuration=true").fetchall()
    return connection
