"""Where the server of a root listens: `root/.regimescope/endpoint.json`, mode 0600, written by the server, read by the
command line.

The file holds the read token, so only the user that started the server can talk to it. It is touched every 10 s; on
another host, where the lock of the index cannot be seen, a young file says that a server is alive there. Standard
library only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

FRESH_S = 30.0
"Younger than this, an endpoint that does not answer from here still counts as alive on another host."

_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Address and token of a running server."""

    host: str
    port: int
    pid: int
    started: float
    "Unix seconds."
    token: str
    "Read token: the header x-regimescope-token of every JSON route."
    machine: str = ""
    "Host name of the server's machine, for roots on shared storage."

    @property
    def address(self) -> str:
        """The URL to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def endpoint_path(root: str | os.PathLike[str]) -> Path:
    """The file below the root, whether it exists or not."""
    return Path(root) / ".regimescope" / "endpoint.json"


def write_endpoint(root: str | os.PathLike[str], ep: Endpoint) -> Path:
    """Write the file with mode 0600 by rename. Raises OSError where the root is read-only."""
    path = endpoint_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"endpoint.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(ep), file)
    os.replace(temporary, path)
    return path


def read_endpoint(root: str | os.PathLike[str]) -> Endpoint | None:
    """What the file says; None when it is missing, unreadable or broken. Says nothing about whether the server still
    runs.
    """
    try:
        values = json.loads(endpoint_path(root).read_text(encoding="utf-8"))
        return Endpoint(
            host=str(values["host"]),
            port=int(values["port"]),
            pid=int(values["pid"]),
            started=float(values["started"]),
            token=str(values["token"]),
            machine=str(values.get("machine", "")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def touch_endpoint(root: str | os.PathLike[str]) -> None:
    """Say again that the server is alive; does nothing when the file is gone."""
    with contextlib.suppress(OSError):
        os.utime(endpoint_path(root))


def remove_endpoint(root: str | os.PathLike[str], ep: Endpoint) -> None:
    """Take the file away at the end, unless another server wrote its own by now."""
    if read_endpoint(root) == ep:
        with contextlib.suppress(OSError):
            endpoint_path(root).unlink()


def is_alive(ep: Endpoint, timeout_s: float = _TIMEOUT_S) -> bool:
    """Whether the server answers its health route."""
    with _connection(ep, timeout_s) as connection:
        try:
            connection.request("GET", "/_stcore/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def is_fresh(root: str | os.PathLike[str]) -> bool:
    """Whether the file was touched within the last FRESH_S seconds, by this host's clock."""
    try:
        return time.time() - endpoint_path(root).stat().st_mtime < FRESH_S
    except OSError:
        return False


@contextlib.contextmanager
def _connection(ep: Endpoint, timeout_s: float) -> Iterator[http.client.HTTPConnection]:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(ep.host, ep.host)
    connection = http.client.HTTPConnection(host, ep.port, timeout=timeout_s)
    try:
        yield connection
    finally:
        connection.close()
