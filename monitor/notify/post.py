"""One message to one URL through apprise, and what may be shown of a URL.

    post("json://127.0.0.1:9000/hook", title, body)        # "" = taken, else why not

apprise is built anew for each message: its pacing goes by the wall clock, which may jump. What apprise logs may name
parts of a URL, so it goes nowhere; of it only the kind of failure is told.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import warnings
from functools import cache

import apprise

from regimescope.monitor.errors import NotifyFileError
from regimescope.monitor.notify.targets import Plan, Target

TIMEOUT_S = 4.0
"For connecting, and for each wait on the answer; a URL may say otherwise (`?cto=&rto=`)."

_STATUS = re.compile(r"error=(\d{3})")


class _Words(logging.Handler):
    """What apprise says in one thread during one message; it goes no further."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said = threading.local()

    def begin(self) -> None:
        self._said.lines = []

    def lines(self) -> list[str]:
        return list(getattr(self._said, "lines", ()))

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(self._said, "lines"):
            self._said.lines.append(record.getMessage())


_words = _Words()
_log = logging.getLogger("apprise")
_log.addHandler(_words)
_log.propagate = False


def post(url: str, title: str, body: str, *, kind: str = "warning") -> str:
    """Send plain text; "" when it was taken, else why not, without a part of the URL. Never raises. `kind`: info,
    success, warning or failure, which some services colour.
    """
    _words.begin()
    started = time.monotonic()
    try:
        to = _apprise(url)
        if to is None:
            return "apprise does not take its URL"
        taken = bool(to.notify(title=title, body=body, notify_type=kind, body_format=apprise.NotifyFormat.TEXT))
    except Exception as error:  # a plug-in of any service; nothing of it may end the thread
        return f"apprise failed: {type(error).__name__}"
    return "" if taken else _reason(_words.lines(), time.monotonic() - started)


def check(plan: Plan) -> None:
    """Whether apprise takes the URL of every target; nothing is sent. Raises NotifyFileError."""
    for target in plan.targets:
        if _apprise(target.url) is None:
            scheme = target.url.partition("://")[0]
            raise NotifyFileError(
                f"target {target.name}: apprise does not take its URL ({scheme}://…): see the form that the service "
                "wants at https://appriseit.com, and try it with `regimescope notify test`"
            )


def masked(target: Target) -> str:
    """What may be shown of its URL: scheme and host as apprise shows them, never path or options, where many services
    keep their key.
    """
    to = _apprise(target.url)
    if to is None:
        return f"{target.url.partition('://')[0]}://…"
    shown = str(to[0].url(privacy=True)).partition("?")[0]
    scheme, _, rest = shown.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/…"


def _apprise(url: str) -> apprise.Apprise | None:
    """With the one URL; None where apprise refuses it."""
    _load()
    _words.begin()
    # in this thread: in apprise's own pool, targets that hang would hold up the others
    to = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False, service_timeout=0, app_id="regimescope"))
    try:
        taken = to.add(url)
    except Exception:  # a plug-in that cannot read the URL
        return None
    if not taken or len(to) != 1:
        return None
    for end in ("cto", "rto"):
        if f"{end}=" not in url.partition("?")[2]:
            setattr(to[0], {"cto": "socket_connect_timeout", "rto": "socket_read_timeout"}[end], TIMEOUT_S)
    return to


@cache
def _load() -> None:
    """Its plug-ins are imported at the first use; one of them imports what Python calls deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        apprise.Apprise().add("json://localhost")


def _reason(lines: list[str], took_s: float) -> str:
    status = next((found[1] for line in lines if (found := _STATUS.search(line))), None)
    if status is not None:
        return f"it answered {status}"
    if took_s >= 0.9 * TIMEOUT_S:
        return f"no answer within {took_s:.0f} s"
    if any("onnection" in line for line in lines):
        return "no connection: nothing listens there, or it hung up"
    return "it refused the message"
