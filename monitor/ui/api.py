"""What the JSON routes share: the read token, refusals as {"error": one sentence} with a 4xx status, and 503 with the
reason while the index cannot be used.
"""

from __future__ import annotations

import duckdb
from starlette.requests import Request
from starlette.responses import JSONResponse

from regimescope.monitor.store import is_unusable
from regimescope.monitor.ui.context import Context, NoContext, current
from regimescope.monitor.ui.security import READ_HEADER, read_token_matches


class BadRequest(Exception):
    """What is wrong with a request, and the HTTP status that says so."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def authorised(request: Request) -> Context:
    try:
        ctx = current()
    except NoContext:
        raise BadRequest("the server is starting or stopping", 403) from None
    if not read_token_matches(request.headers.get(READ_HEADER), ctx):
        raise BadRequest("read token missing or wrong", 401)
    return ctx


def refused(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers={"cache-control": "no-store"})


def unavailable(ctx: Context, error: duckdb.Error) -> JSONResponse:
    """The index cannot be used just now: 503, {"error", "degraded": {"reason", "since"}}. Raises the error when it is a
    mistake of ours instead.
    """
    if ctx.monitor.degraded is None and not is_unusable(error):
        raise error
    ctx.monitor.doubt(error)
    state = degraded(ctx) or {"reason": str(error).splitlines()[0], "since": None}
    said = f"store degraded: {state['reason']}. It recovers by itself; training and recording go on"
    headers = {"cache-control": "no-store", "retry-after": "5"}
    return JSONResponse({"error": said, "degraded": state}, 503, headers=headers)


def degraded(ctx: Context) -> dict[str, object] | None:
    """Why the index does not work and since when (unix seconds); None = it does."""
    reason, since = ctx.monitor.degraded, ctx.monitor.degraded_since
    return None if reason is None else {"reason": reason, "since": since}
