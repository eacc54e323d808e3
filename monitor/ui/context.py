"""What pages and routes need of the process they run in. The lifespan of the app installs it, tests do so by hand.

ctx = current()
with ctx.monitor.store.cursor() as con:
    runs = query.list_runs(con)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regimescope.monitor.errors import RegimescopeError

if TYPE_CHECKING:
    from regimescope.monitor.service import Monitor


class NoContext(RegimescopeError):
    """A page or route ran outside a started server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The server that this process is."""

    monitor: Monitor
    "Ingestion, detectors and commands of the runs below monitor.root."
    read_token: str
    "Random per process; the grid sends it as x-regimescope-token with each request."
    read_only: bool
    "No command leaves this server: no Control page, POST /api/commands answers 403."
    actor: str
    "Who commands are issued by when nothing better is known: --actor, else the user of the operating system."
    control_token: str | None
    "Must be typed before a command when the server listens beyond loopback; None = not needed."
    address: str
    "URL of the first page, such as http://127.0.0.1:8501."


_installed: Context | None = None


def install(ctx: Context | None) -> None:
    """Make ctx the context of this process; None takes it away."""
    global _installed
    _installed = ctx


def current() -> Context:
    """The context of this process. Raises NoContext before the server has started."""
    if _installed is None:
        raise NoContext("no server runs in this process: start it with `regimescope serve` or `streamlit run app.py`")
    return _installed
