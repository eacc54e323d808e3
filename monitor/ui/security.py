"""Who may talk to the server: response headers, host names, the read token, the control token.

The read token (random per process, given to the page and kept in endpoint.json with mode 0600) stops other origins and
other local users; it is no login. The control token is asked before a command when the server listens beyond loopback,
or whenever one was set.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import logging
import re
import socket
import stat
import threading
import time
from collections import deque
from functools import cache
from pathlib import Path

import streamlit
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regimescope.monitor.errors import RegimescopeError
from regimescope.monitor.ui.context import Context

READ_HEADER = "x-regimescope-token"
CONTROL_HEADER = "x-regimescope-control"
TRIES, WINDOW_S = 5, 60.0
"Wrong control tokens that one address may try in a window."
_PEERS = 1000
_log = logging.getLogger("regimescope")
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")


class TokenError(RegimescopeError):
    """A control token that is missing where one is needed, or a file of one that cannot be used."""


class ControlRefused(RegimescopeError):
    """A command that may not be issued from here; `status` is the HTTP status of the answer."""

    def __init__(self, message: str, status: int = 403) -> None:
        super().__init__(message)
        self.status = status


class SecurityHeaders:
    """ASGI middleware that adds security_headers() to each HTTP response; websocket traffic passes untouched.

    An error of a route is answered here: the server's own answer would be made outside and go without headers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(security_headers())
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            await self.app(scope, receive, send_with_headers)
        except Exception:
            if started:
                raise
            _log.exception("%s %r failed", scope["method"], scope["path"])
            sorry = JSONResponse({"error": "this could not be answered; the server's log says why"}, 500)
            await sorry(scope, receive, send_with_headers)


@cache
def security_headers() -> dict[str, str]:
    """Headers of every response. Streamlit sets none of them: without, a foreign page could frame the Apply button.

    blob: is how components.v2 loads a script; the hashes are those of the inline scripts of Streamlit's own index page.
    """
    scripts = " ".join(["'self'", "blob:", *_inline_script_hashes()])
    policy = [
        "default-src 'self'",
        f"script-src {scripts}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "frame-ancestors 'none'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    ]
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }


def _inline_script_hashes() -> list[str]:
    page = (Path(streamlit.__file__).parent / "static" / "index.html").read_text("utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts]


def is_loopback(host: str) -> bool:
    """Whether a server bound to host can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(host: str) -> list[str]:
    """Host names that a request may carry, so that a foreign name pointed at this address (DNS rebinding) is refused.

    Always the local names; off loopback also the bound name and the machine's own names and addresses.
    """
    names = list(_LOCAL_NAMES)
    if not is_loopback(host):
        own = socket.gethostname()
        names += [host, own, socket.getfqdn(), *_addresses(own)]
    wild = {"0.0.0.0", "::", "[::]", ""}
    return [name for name in dict.fromkeys(names) if name not in wild]


def _addresses(name: str) -> list[str]:
    try:
        found = [str(info[4][0]) for info in socket.getaddrinfo(name, None)]
    except OSError:
        return []
    return [f"[{address}]" if ":" in address else address for address in found]


def read_token_matches(given: str | None, ctx: Context) -> bool:
    """Whether a request carries the read token of this process."""
    return hmac.compare_digest((given or "").encode(), ctx.read_token.encode())


def load_control_token(path: Path) -> str:
    """The token in a file that only its owner can read. Raises TokenError."""
    try:
        mode = path.stat().st_mode
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"control token file {path}: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise TokenError(f"control token file {path} is open to others (mode {stat.S_IMODE(mode):04o}): chmod 600 it")
    if len(text) < 16:
        raise TokenError(
            f"control token file {path} holds {len(text)} characters: use 16 or more, `openssl rand -hex 16` makes them"
        )
    return text


class ControlGate:
    """Compares control tokens, and stops an address that has tried TRIES wrong ones for the rest of the window."""

    def __init__(self, *, tries: int = TRIES, window_s: float = WINDOW_S) -> None:
        self._tries, self._window_s = tries, window_s
        self._failed: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def check(self, given: str | None, ctx: Context, *, peer: str, now: float | None = None) -> None:
        """Return if a command may be issued; else raise ControlRefused.

        peer is the address of the asker, now are seconds of any steady clock.
        """
        if ctx.read_only:
            raise ControlRefused("this server is read-only: start it without --read-only to send commands")
        if ctx.control_token is None:
            return
        with self._lock:
            moment = time.monotonic() if now is None else now
            failed = self._recent(peer, moment)
            if len(failed) >= self._tries:
                wait = self._window_s - (moment - failed[0])
                raise ControlRefused(f"too many wrong control tokens from here: try again in {wait:.0f} s", 429)
            if given and hmac.compare_digest(given.encode(), ctx.control_token.encode()):
                return
            if given:
                failed.append(moment)
        if given:
            raise ControlRefused("the control token is wrong")
        raise ControlRefused(f"a control token is needed (header {CONTROL_HEADER})")

    def _recent(self, peer: str, now: float) -> deque[float]:
        failed = self._failed.pop(peer, None) or deque()
        while failed and now - failed[0] >= self._window_s:
            failed.popleft()
        self._failed[peer] = failed
        while len(self._failed) > _PEERS:
            self._failed.pop(next(iter(self._failed)))
        return failed


GATE = ControlGate()
"The gate of this process: the route and the Control page count the same tries."
