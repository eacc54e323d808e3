"""Where the server of a root listens: `root/.regimescope/endpoint.json`, mode 0600, written by the server, read by the
command line. Where the root cannot be written it lies beside the index, for this user on this host.

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

from regimescope.monitor.places import index_path

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


def _spare_path(root: str | os.PathLike[str]) -> Path:
    """The file of a root that cannot be written."""
    return index_path(Path(root)).with_name("endpoint.json")


def write_endpoint(root: str | os.PathLike[str], ep: Endpoint) -> Path:
    """Write the file with mode 0600 by rename, beside the index where the root cannot be written. Raises OSError where
    neither can.
    """
    try:
        return _write(endpoint_path(root), ep)
    except OSError:
        return _write(_spare_path(root), ep)


def _write(path: Path, ep: Endpoint) -> Path:
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
    return _read(endpoint_path(root)) or _read(_spare_path(root))


def _read(path: Path) -> Endpoint | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
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
        os.utime(_path_in_use(root))


def remove_endpoint(root: str | os.PathLike[str], ep: Endpoint) -> None:
    """Take the file away at the end, unless another server wrote its own by now."""
    if read_endpoint(root) == ep:
        with contextlib.suppress(OSError):
            _path_in_use(root).unlink()


def _path_in_use(root: str | os.PathLike[str]) -> Path:
    """The file that `read_endpoint` reads."""
    return endpoint_path(root) if _read(endpoint_path(root)) is not None else _spare_path(root)


def is_alive(ep: Endpoint, timeout_s: float = _TIMEOUT_S) -> bool:
    """Whether the server answers its health route."""
    with _connection(ep, timeout_s) as connection:
        try:
            connection.request("GET", "/_stcore/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def ask_health(ep: Endpoint, timeout_s: float = 5.0) -> dict[str, object] | None:
    """What the server says at GET /api/health; None where it does not answer so, an older one say."""
    with _connection(ep, timeout_s) as connection:
        try:
            connection.request("GET", "/api/health", headers={"x-regimescope-token": ep.token})
            answer = connection.getresponse()
            body = json.loads(answer.read()) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
    return body if isinstance(body, dict) else None


def is_fresh(root: str | os.PathLike[str]) -> bool:
    """Whether the file was touched within the last FRESH_S seconds, by this host's clock."""
    try:
        return time.time() - _path_in_use(root).stat().st_mtime < FRESH_S
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
