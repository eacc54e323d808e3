"""The JSON routes: GET /api/series for the charts, POST /api/commands for the command line, GET /api/plotly.min.js.

Every route but the library file wants the read token in the header x-regimescope-token. Errors are
{"error": one sentence} with a 4xx status. Handlers that read the index are plain functions: Starlette runs them in its
thread pool, not on the event loop.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Literal

import plotly.offline
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regimescope.monitor import query
from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import KINDS
from regimescope.monitor.errors import BoundsError, ControlError
from regimescope.monitor.ui.context import Context, NoContext, current
from regimescope.monitor.ui.security import CONTROL_HEADER, GATE, READ_HEADER, ControlRefused, read_token_matches

MAX_BODY = 8192
"Bytes of a command's body."
MAX_METRICS = 64
MAX_MARKS = 300
_TEXT_LIMITS = {"why": 1000, "by": 120, "alert": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that all charts show at a step."""

    step: int
    kind: Literal["onset", "bounds", "checkpoint"]
    label: str
    severity: str | None = None


class BadRequest(Exception):
    """What is wrong with a request, and the HTTP status that says so."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRequest:
    """The query of GET /api/series, checked for form; run, slice and metrics are looked up by the handler."""

    run: str
    "Path of the run below the root, as the index knows it."
    slice_id: int
    metrics: tuple[str, ...]
    epoch: str
    'Epoch the client holds; "" = nothing yet.'
    since: int
    "Last step the client has; -1 = none."
    x0: int | None
    x1: int | None
    "Range of an envelope; None = to the end."
    n: int
    "About so many points a metric, 50..2000."

    @classmethod
    def parse(cls, params: QueryParams) -> SeriesRequest:
        """Raises BadRequest."""
        metrics = tuple(name for name in params.get("metrics", "").split(",") if name)
        if not metrics or len(metrics) > MAX_METRICS:
            raise BadRequest(f"metrics: want 1 to {MAX_METRICS} names with commas between, got {len(metrics)}")
        return cls(
            run=params.get("run", ""),
            slice_id=_integer(params, "slice", 0) or 0,
            metrics=metrics,
            epoch=params.get("epoch", ""),
            since=_step(params, "since", -1),
            x0=_integer(params, "x0", None),
            x1=_integer(params, "x1", None),
            n=min(2000, max(50, _step(params, "n", 1000))),
        )


def _integer(params: QueryParams, name: str, default: int | None) -> int | None:
    text = params.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise BadRequest(f"{name}={text[:40]!r}: want a whole number") from None
    if abs(value) > 2**53:
        raise BadRequest(f"{name}={value}: out of range")
    return value


def _step(params: QueryParams, name: str, default: int) -> int:
    value = _integer(params, name, default)
    return default if value is None else value


def series(request: Request) -> Response:
    """New rows since the client's last step, or the whole range as an envelope when its epoch is another one.

    No news is a body of some 60 bytes.
    """
    try:
        ctx = _authorised(request)
        ask = SeriesRequest.parse(request.query_params)
        with ctx.monitor.store.cursor() as con:
            run_key = query.run_key_of(con, ask.run)
            if run_key is None:
                raise BadRequest("no such run below this root", 404)
            body = _series_body(ctx, con, run_key, ask)
    except BadRequest as error:
        return _refused(str(error), error.status)
    return JSONResponse(body, headers={"cache-control": "no-store"})


def _series_body(ctx: Context, con: query.Connection, run_key: int, ask: SeriesRequest) -> dict[str, object]:
    head = ctx.monitor.head(run_key)
    body: dict[str, object] = {"epoch": head.epoch, "last": head.last}
    live = ctx.monitor.liveness(run_key)
    if live.stale:
        body["stale"] = round(live.silent_s)
    if (ask.epoch, ask.since) == (head.epoch, head.last):
        return body
    if ask.epoch == head.epoch:
        found = query.news(con, run_key, ask.slice_id, ask.metrics, ask.since)
    else:
        _check_names(con, run_key, ask)
        found = _range(con, run_key, ask, head.last)
    body["series"] = {name: _wire_series(found[name], head.last) for name in found}
    body["marks"] = [asdict(mark) for mark in _marks(con, run_key)]
    body["repeated"] = query.repeated_stretches(con, run_key)
    return body


def _range(con: query.Connection, run_key: int, ask: SeriesRequest, last: int) -> dict[str, query.Series]:
    """All steps up to the head where they fit, else an envelope of the range."""
    if ask.x0 is None and ask.x1 is None and last < ask.n:
        return query.news(con, run_key, ask.slice_id, ask.metrics, -1)
    end = last if ask.x1 is None else min(ask.x1, last)
    return {name: query.envelope(con, run_key, ask.slice_id, name, ask.x0, end, ask.n) for name in ask.metrics}


def _wire_series(found: query.Series, last: int) -> dict[str, object]:
    """Steps up to the head, values rounded to 7 digits; a non-finite value is null, listed apart and counted."""
    points = [(x, y) for x, y in zip(found.steps, found.values, strict=True) if x <= last]
    values = [None if y is None else float(f"{y:.7g}") for _, y in points]
    wire: dict[str, object] = {"x": [x for x, _ in points], "y": values}
    if found.nonfinite:
        wire |= {"bad": [x for x in found.nonfinite if x <= last], "bad_count": found.nonfinite_count}
    if found.thinned:
        wire["thinned"] = True
    return wire


def _check_names(con: query.Connection, run_key: int, ask: SeriesRequest) -> None:
    if ask.slice_id and ask.slice_id not in {row.slice_id for row in query.slices(con, run_key)}:
        raise BadRequest(f"run has no slice {ask.slice_id}", 404)
    for name in ask.metrics:
        if not query.is_known_metric(con, run_key, name):
            raise BadRequest(f"no such metric {name[:60]!r}", 404)


def _marks(con: query.Connection, run_key: int) -> list[Mark]:
    """Onsets of alerts that fired, applied bounds, checkpoints; sorted by step."""
    marks = [
        Mark(step=a.step_onset, kind="onset", severity=a.severity, label=f"{a.signature.replace('_', ' ')}: onset")
        for a in query.alerts(con, run_key)
        if a.state != "pending"
        and not a.superseded
        and a.inhibited_by is None
        and a.severity != "info"
        and a.signature != "bounds_lint"  # a note about the settings, not something that set in
    ]
    for command in query.commands(con, run_key):
        if command.kind == "set_bounds" and command.status == "applied" and command.applied_step is not None:
            label = (
                ", ".join(f"{c.name} {_number(c.old)} → {_number(c.new)}" for c in command.changes) or "no difference"
            )
            marks.append(Mark(step=command.applied_step, kind="bounds", label=f"bounds changed: {label}"))
    marks += [
        Mark(step=point.step, kind="checkpoint", label=f"checkpoint at step {point.step}")
        for point in query.checkpoints(con, run_key)
        if point.step is not None
    ]
    return sorted(marks, key=lambda mark: (mark.step, mark.kind))[-MAX_MARKS:]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


async def commands(request: Request) -> Response:
    """Issue one command: {"run", "kind", "args", "expect", "why", "by", "alert"}.

    Answers {"id"} with 202: the trainer has yet to decide.
    """
    try:
        ctx = _authorised(request)
        peer = request.client.host if request.client else ""
        GATE.check(request.headers.get(CONTROL_HEADER), ctx, peer=peer)
        ask = CommandRequest.parse(await _body(request))
        command_id = await run_in_threadpool(_submit, ctx, ask)
    except (BadRequest, ControlRefused) as error:
        return _refused(str(error), error.status)
    except ClientDisconnect:
        return _refused("the request ended early", 400)
    return JSONResponse({"id": command_id}, 202, headers={"cache-control": "no-store"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """The body of POST /api/commands."""

    run: str
    kind: str
    args: dict[str, object]
    'set_bounds: {"pos": [w_min, w_max], "neg": [w_min, w_max]}; the other kinds take none.'
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
        if kind == "set_bounds" and not why.strip():
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
        command = ctx.monitor.submit(
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


def _authorised(request: Request) -> Context:
    try:
        ctx = current()
    except NoContext:
        raise BadRequest("the server is starting or stopping", 403) from None
    if not read_token_matches(request.headers.get(READ_HEADER), ctx):
        raise BadRequest("read token missing or wrong", 401)
    return ctx


def _refused(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers={"cache-control": "no-store"})


def plotly_library(request: Request) -> Response:
    """plotly.py's own plotly.min.js, kept by the browser for ever where ?v= is its version.

    It carries no data and takes no token: a script tag cannot send one.
    """
    packed = "gzip" in request.headers.get("accept-encoding", "")
    kept = request.query_params.get("v") == plotly.offline.get_plotlyjs_version()
    headers = {
        "vary": "accept-encoding",
        "cache-control": "public, max-age=31536000, immutable" if kept else "no-cache",
    }
    if packed:
        headers["content-encoding"] = "gzip"
    return Response(_library(packed), media_type="text/javascript", headers=headers)


@cache
def _library(packed: bool) -> bytes:
    text: bytes = plotly.offline.get_plotlyjs().encode()
    return gzip.compress(text, 9, mtime=0) if packed else text


ROUTES = [
    Route("/api/series", series, methods=["GET"]),
    Route("/api/commands", commands, methods=["POST"]),
    Route("/api/plotly.min.js", plotly_library, methods=["GET"]),
]
