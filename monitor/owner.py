"""Who owns the index of a root, seen from outside and without disturbing the owner: `owner_of(root)`.

The lock of the database says whether a process of this host holds it, the endpoint file says where a server listens, on
whichever host. For `doctor` and `prune`.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb

from regimescope.monitor.endpoint import Endpoint, is_alive, is_fresh, read_endpoint
from regimescope.monitor.store import doubts, index_path, is_database, is_locked

State = Literal["missing", "free", "owned", "stale", "foreign", "denied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The database file of a root."""

    path: Path
    state: State
    """missing | free | owned by a process | stale: not one that this version reads | foreign: another program's |
    denied: not ours to read"""
    pid: int | None = None
    "Of the owner, where the lock tells it."
    offsets: dict[str, int] | None = None
    "`<run>/segments/<file>` -> bytes read of it; known only when nobody owns the index."


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Lock and endpoint together."""

    index: Index
    endpoint: Endpoint | None
    answers: bool
    "The server of the endpoint answers from here."
    elsewhere: bool
    "The endpoint is of another host and was touched within the last 30 s."

    @property
    def in_use(self) -> bool:
        """Somebody has the index, as far as can be seen."""
        return self.index.state == "owned" or self.answers or self.elsewhere


def owner_of(root: Path) -> Owner:
    """Look at lock and endpoint. A free database is opened for reading for a moment."""
    endpoint = read_endpoint(root)
    answers = endpoint is not None and is_alive(endpoint)
    foreign = endpoint is not None and endpoint.machine not in ("", socket.gethostname())
    return Owner(
        index=read_index(index_path(root)),
        endpoint=endpoint,
        answers=answers,
        elsewhere=foreign and not answers and is_fresh(root),
    )


def read_index(path: Path) -> Index:
    """State of the file, and the offsets where nobody holds it."""
    if not path.is_file():
        return Index(path=path, state="missing")
    try:
        connection = duckdb.connect(str(path), read_only=True, config={"threads": 1})
    except duckdb.ConnectionException:  # this process has it open read-write
        return Index(path=path, state="owned")
    except duckdb.Error as error:
        message = str(error)
        if is_locked(message):
            pid = re.search(r"PID (\d+)", message)
            return Index(path=path, state="owned", pid=int(pid[1]) if pid else None)
        if "permission" in message.lower():
            return Index(path=path, state="denied")
        return Index(path=path, state="stale" if is_database(path) else "foreign")
    try:
        if (doubt := doubts(connection)) is not None:
            return Index(path=path, state="foreign" if doubt == "foreign" else "stale")
        rows = connection.execute("SELECT path, segment, byte_offset FROM segment JOIN run USING (run_key)").fetchall()
    except duckdb.Error:  # damaged
        return Index(path=path, state="stale")
    finally:
        connection.close()
    return Index(path=path, state="free", offsets={f"{run}/segments/{name}": at for run, name, at in rows})
