"""What the JSON routes share: the read token, and refusals as {"error": one sentence} with a 4xx status."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

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
