"""The server as one st.App: pages, JSON routes, security middleware and the monitor's lifespan in one process.

    app = st.App(**app_options())          # app.py; `streamlit run` looks for this literal call
    run(app)                               # `python app.py`; `regimescope serve` passes its Settings to both

The monitor lives in the lifespan, never in a page. Opening the index is the election: where a root has a server
already, its address is printed and the process ends with 0.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import getpass
import logging
import os
import secrets
import socket
import sys
import threading
import time
import traceback
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp
from streamlit import config as streamlit_config

from regimescope.monitor.endpoint import (
    Endpoint,
    endpoint_path,
    is_alive,
    is_fresh,
    read_endpoint,
    remove_endpoint,
    touch_endpoint,
    write_endpoint,
)
from regimescope.monitor.errors import RegimescopeError, StoreOwned
from regimescope.monitor.notify.notifier import Notifier
from regimescope.monitor.notify.post import check
from regimescope.monitor.notify.targets import Plan, load_plan
from regimescope.monitor.rules_file import rules_of
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.ui.context import Context, install
from regimescope.monitor.ui.routes import ROUTES
from regimescope.monitor.ui.security import SecurityHeaders, allowed_hosts, is_loopback
from regimescope.monitor.ui.settings import ServeError, Settings, server_config

_TOUCH_S = 10.0
_HEALTHY_WITHIN_S = 60.0
_ADDRESS_WITHIN_S = 10.0
_log = logging.getLogger("regimescope")


def app_options(settings: Settings | None = None) -> dict[str, Any]:
    """The arguments of st.App; without settings, those of the environment. Takes the root.

    Leaves the process when there is nothing to serve: with 0 and an address where another server owns the root, with 2
    and one line for a mistake.
    """
    try:
        settings = settings or Settings.from_environment()
        store = _elect(settings.root)
        rules_of(store.root)  # a mistake in it is told here, in one line
        plan = Plan() if settings.read_only else load_plan(store.root)
        check(plan)
    except StoreOwned as owned:
        print(f"regimescope: {owned}", flush=True)
        sys.exit(0)
    except RegimescopeError as error:
        fail(str(error))
    if store.note is not None:
        print(f"regimescope: {store.note}", flush=True)
    atexit.register(store.close)
    return {
        "script_path": Path(__file__).parent / "main.py",
        "lifespan": partial(run_monitor, settings=settings, store=store, plan=plan),
        "routes": ROUTES,
        "on_script_error": plain_error,
        "middleware": [Middleware(SecurityHeaders), Middleware(KnownHosts)],
    }


def run(app: st.App, settings: Settings | None = None) -> None:
    """Serve until a signal comes. A busy port ends the process with 2 and one line."""
    try:
        settings = settings or Settings.from_environment()
        _check_port(settings.host, settings.port)
    except RegimescopeError as error:
        fail(str(error))
    # our own line says that the server is up
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
    app.run(config=server_config(settings))


def fail(message: str) -> NoReturn:
    """One line for a user's mistake, exit code 2."""
    print(f"regimescope: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


class KnownHosts(TrustedHostMiddleware):
    """Answers 400 to a Host that is not ours. Built at the first request, when Streamlit's final address is known."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, allowed_hosts=allowed_hosts(_bound_host()), www_redirect=False)


@asynccontextmanager
async def run_monitor(app: st.App, *, settings: Settings, store: Store, plan: Plan) -> AsyncIterator[None]:
    """Ingestion, detectors and endpoint.json, for as long as the server runs."""
    host, port = _bound_host(), int(streamlit_config.get_option("server.port"))
    read_only = settings.read_only or not (is_loopback(host) or settings.control_token)
    if read_only and not settings.read_only:
        print(f"regimescope: listening on {host} without REGIMESCOPE_CONTROL_TOKEN, so read-only", flush=True)
    actor = settings.actor or _user()
    monitor = Monitor(store.root, read_only=read_only, actor=actor, store=store)
    endpoint = Endpoint(
        host=host,
        port=port,
        pid=os.getpid(),
        started=time.time(),
        token=secrets.token_urlsafe(32),
        machine=socket.gethostname(),
    )
    context = Context(
        monitor=monitor,
        read_token=endpoint.token,
        read_only=read_only,
        actor=actor,
        control_token=settings.control_token,
        address=_browser_address(endpoint),
    )
    if plan.targets and not read_only:
        monitor.notifier = Notifier(monitor, plan, link=context.address)
    monitor.start()
    _publish(store.root, endpoint)
    install(context)
    touching = asyncio.create_task(_keep_fresh(store.root))
    threading.Thread(target=_announce, args=(endpoint, context, settings), daemon=True).start()
    try:
        yield
    finally:
        touching.cancel()
        install(None)
        remove_endpoint(store.root, endpoint)
        await asyncio.to_thread(monitor.stop)
        store.close()


def plain_error(error: Exception) -> bool:
    """What a page shows instead of a traceback: one sentence, what to do, details folded away.

    True = Streamlit shows nothing of its own.
    """
    _log.error("a page failed", exc_info=error)
    if isinstance(error, RegimescopeError):
        st.error(str(error), icon=":material/error:")
        return True
    text = "This page could not be drawn. Recording and training go on; reload the page to try again."
    st.error(text, icon=":material/error:")
    with st.expander("Details"):
        st.code("".join(traceback.format_exception(error)), language=None)
    return True


def _elect(root: Path) -> Store:
    """The index of the root, made if missing. Raises StoreOwned with the server's address, ServeError, StoreError."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServeError(f"root {root}: {error.strerror}; name a folder that can be created") from None
    known = read_endpoint(root)
    if known is not None and is_alive(known):
        raise StoreOwned(f"{root} is already served at {_browser_address(known)} (pid {known.pid})", known.address)
    if known is not None and known.machine != socket.gethostname() and is_fresh(root):  # the lock does not reach there
        raise StoreOwned(
            f"{root} is served on {known.machine}, at {known.address} there (pid {known.pid})", known.address
        )
    try:
        return Store.open(root)
    except StoreOwned as owned:
        raise _with_address(root, owned) from None


def _with_address(root: Path, owned: StoreOwned) -> StoreOwned:
    """The same, once the owner has said where it listens: it may be starting this very moment."""
    deadline = time.monotonic() + _ADDRESS_WITHIN_S
    while time.monotonic() < deadline:
        known = read_endpoint(root)
        if known is not None and is_alive(known):
            return StoreOwned(f"{root} is already served at {_browser_address(known)} (pid {known.pid})", known.address)
        time.sleep(0.2)
    return owned


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise ServeError(
                    f"port {port} on {host} is not available ({error.strerror}): choose another with --port or "
                    "REGIMESCOPE_PORT; 0 takes any free one"
                ) from None
            raise ServeError(f"cannot listen on {host}: {error.strerror or error}; choose another --host") from None


def _bound_host() -> str:
    return str(streamlit_config.get_option("server.address") or "0.0.0.0")


def _browser_address(endpoint: Endpoint) -> str:
    """The address with a name that a browser on this machine can open."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(endpoint.host, endpoint.host)
    return replace(endpoint, host=host).address


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number without a name
        return f"uid {os.getuid()}"


def _publish(root: Path, endpoint: Endpoint) -> None:
    try:
        write_endpoint(root, endpoint)
    except OSError as error:
        _log.warning(
            "cannot write %s (%s): the command line will not find this server", endpoint_path(root), error.strerror
        )


async def _keep_fresh(root: Path) -> None:
    while True:
        await asyncio.sleep(_TOUCH_S)
        touch_endpoint(root)


def _announce(endpoint: Endpoint, context: Context, settings: Settings) -> None:
    """Print the address when the server answers, and open the browser if asked."""
    deadline = time.monotonic() + _HEALTHY_WITHIN_S
    while not is_alive(endpoint):
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
    with contextlib.suppress(OSError):  # stdout may be a closed pipe
        note = ", read-only" if context.read_only else ""
        print(f"regimescope: {context.address}  runs below {settings.root}{note}", flush=True)
    if settings.open_browser:
        webbrowser.open(context.address)
