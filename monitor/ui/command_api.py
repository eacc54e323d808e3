"""POST /api/commands: what the command line asks of a run through its server; the Control page issues its own.

Checked here for form, by the monitor for sense (limits, a run that listens), and by the trainer, which decides.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import duckdb
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from regimescope.monitor import query
from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import KINDS
from regimescope.monitor.errors import BoundsError, ControlError
from regimescope.monitor.ui.api import BadRequest, authorised, refused, unavailable
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.security import CONTROL_HEADER, GATE, ControlRefused

MAX_BODY = 8192
"Bytes of a command's body."
_TEXT_LIMITS = {"why": 1000, "by": 120, "alert": 64}


async def commands(request: Request) -> Response:
    """Issue one command: {"run", "kind", "args", "expect", "why", "by", "alert"}.

    Answers {"id"} with 202: the trainer has yet to decide.
    """
    try:
        ctx = authorised(request)
        peer = request.client.host if request.client else ""
        GATE.check(request.headers.get(CONTROL_HEADER), ctx, peer=peer)
        ask = CommandRequest.parse(await _body(request))
        try:
            command_id = await run_in_threadpool(_submit, ctx, ask)
        except duckdb.Error as error:
            return unavailable(ctx, error)
    except (BadRequest, ControlRefused) as error:
        return refused(str(error), error.status)
    except ClientDisconnect:
        return refused("the request ended early", 400)
    return JSONResponse({"id": command_id}, 202, headers={"cache-control": "no-store"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """The body of POST /api/commands."""

    run: str
    kind: str
    args: dict[str, object]
    """set_bounds: {"pos": [w_min, w_max], "neg": [w_min, w_max]}; rollback: {"checkpoint": step, "bounds": the same};
    the other kinds take none."""
    expect: int | None
    "Revision that the asker saw; the trainer rejects when another is in force."
    why: str
    by: str | None
    alert: str | None

    @classmethod
    def parse(cls, body: object) -> CommandRequest:
        """Raises BadRequest."""
        if not isinstance(body, dict):
            raise BadRequest("want a JSON object with run, kind, args, expect and why")
        unknown = sorted(set(body) - {"run", "kind", "args", "expect", "why", "by", "alert"})
        if unknown:
            raise BadRequest(f"unknown key {unknown[0][:40]!r}; known: run, kind, args, expect, why, by, alert")
        kind = body.get("kind")
        if kind not in KINDS:
            raise BadRequest(f"kind: want one of {', '.join(KINDS)}")
        expect = body.get("expect")
        if expect is not None and (isinstance(expect, bool) or not isinstance(expect, int) or expect < 0):
            raise BadRequest("expect: want the revision number that was seen, or null")
        why = _text(body, "why")
        if kind in ("set_bounds", "rollback") and not why.strip():
            raise BadRequest("why: say in a few words what the change is for")
        return cls(
            run=_text(body, "run", 4096),
            kind=str(kind),
            args=_args(str(kind), body.get("args")),
            expect=expect,
            why=why,
            by=_text(body, "by") or None,
            alert=_text(body, "alert") or None,
        )


def _text(body: dict[str, object], key: str, limit: int | None = None) -> str:
    value = body.get(key)
    most = limit or _TEXT_LIMITS[key]
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > most:
        raise BadRequest(f"{key}: want a text of at most {most} characters")
    return value


def _args(kind: str, args: object) -> dict[str, object]:
    if kind == "rollback":
        given = args if isinstance(args, dict) and set(args) == {"checkpoint", "bounds"} else {"checkpoint": None}
        step = given["checkpoint"]
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise BadRequest('args: want {"checkpoint": step, "bounds": {"pos": [...], "neg": [...]}}')
        return {"checkpoint": step, "bounds": _args("set_bounds", given["bounds"])}
    if kind != "set_bounds":
        if args not in (None, {}):
            raise BadRequest(f"args: {kind} takes none")
        return {}
    pairs = args if isinstance(args, dict) and set(args) == {"pos", "neg"} else {"": None}
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs.values()):
        raise BadRequest('args: want {"pos": [w_min, w_max], "neg": [w_min, w_max]}')
    try:
        return dict(Bounds.from_wire(pairs).to_wire())
    except BoundsError as error:
        raise BadRequest(str(error)) from None


def _submit(ctx: Context, ask: CommandRequest) -> str:
    with ctx.monitor.store.cursor() as con:
        run_key = query.run_key_of(con, ask.run)
    if run_key is None:
        raise BadRequest("no such run below this root", 404)
    by = ask.by or ctx.actor
    try:
        command = ctx.monitor.requests.submit(
            run_key, kind=ask.kind, args=ask.args, expect=ask.expect, by=by, why=ask.why, alert=ask.alert
        )
    except ControlError as error:
        raise BadRequest(str(error), 409) from None
    return command.id


async def _body(request: Request) -> object:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadRequest("content-type: want application/json", 415)
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY:
            raise BadRequest(f"body: more than {MAX_BODY} bytes", 413)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise BadRequest("body: not JSON") from None
