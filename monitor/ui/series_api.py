"""GET /api/series: the rows that a live chart lacks, or an envelope of the whole, with what the charts mark.

The handler is a plain function: Starlette runs it in its thread pool, not on the event loop.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import duckdb
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regimescope.monitor import query
from regimescope.monitor.service import Head, Monitor
from regimescope.monitor.ui.api import BadRequest, authorised, refused, unavailable
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import Said, read_said, shown_checkpoints
from regimescope.monitor.ui.verdict import of_slice, open_alerts

MAX_METRICS = 64
MAX_MARKS = 300
MOST_WAIT_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that all charts show at a step."""

    step: int
    kind: Literal["onset", "bounds", "checkpoint"]
    label: str
    severity: str | None = None


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
    wait_s: float
    "How long the answer may wait for news; 0 = not at all."

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
            wait_s=min(MOST_WAIT_MS, max(0, _step(params, "wait", 0))) / 1000,
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
        ctx = authorised(request)
        ask = SeriesRequest.parse(request.query_params)
        try:
            with ctx.monitor.store.cursor() as con:
                run_key = query.run_key_of(con, ask.run)
            if run_key is None:
                raise BadRequest("no such run below this root", 404)
            head = ctx.monitor.wait_for_news(run_key, Head(epoch=ask.epoch, last=ask.since), ask.wait_s)
            with ctx.monitor.store.cursor() as con:
                body = _series_body(ctx, con, run_key, ask, head)
        except duckdb.Error as error:
            return unavailable(ctx, error)
    except BadRequest as error:
        return refused(str(error), error.status)
    return JSONResponse(body, headers={"cache-control": "no-store"})


def _series_body(
    ctx: Context, con: query.Connection, run_key: int, ask: SeriesRequest, head: Head
) -> dict[str, object]:
    body: dict[str, object] = {"epoch": head.epoch, "last": head.last}
    silent = ctx.monitor.stale_s(run_key)
    if silent is not None:
        body["stale"] = round(silent)
    if (ask.epoch, ask.since) == (head.epoch, head.last):
        return body
    if ask.epoch == head.epoch:
        found = _news(ctx.monitor, con, run_key, ask, head.last)
    else:
        _check_names(con, run_key, ask)
        found = _range(con, run_key, ask, head.last)
    body["series"] = {name: _wire_series(found[name], head.last) for name in found}
    said = read_said(ctx.monitor, run_key)
    body["marks"] = [asdict(mark) for mark in _marks(said, head.last)]
    body["repeated"] = said.repeated
    return body


def _news(
    monitor: Monitor, con: query.Connection, run_key: int, ask: SeriesRequest, last: int
) -> dict[str, query.Series]:
    """What came after the client's last step: from memory where that has all of it, else from the index."""
    recent = monitor.recent(run_key)
    plain = ask.slice_id == 0 and not any(name in query.BOUND_NAMES for name in ask.metrics)
    if recent is not None and plain and recent.after <= ask.since and recent.last >= last:
        return query.news_of(recent.points, ask.metrics, ask.since)
    return query.news(con, run_key, ask.slice_id, ask.metrics, ask.since)


def _range(con: query.Connection, run_key: int, ask: SeriesRequest, last: int) -> dict[str, query.Series]:
    """All steps up to the head where they fit, else an envelope of the range."""
    if ask.x0 is None and ask.x1 is None and last < ask.n:
        return query.news(con, run_key, ask.slice_id, ask.metrics, -1)
    end = last if ask.x1 is None else min(ask.x1, last)
    return query.envelopes(con, run_key, ask.slice_id, ask.metrics, ask.x0, end, ask.n)


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


def _marks(said: Said, last: int) -> list[Mark]:
    """Onsets of alerts that fired, applied bounds, the checkpoints that matter; sorted by step."""
    marks = [
        Mark(
            step=a.step_onset,
            kind="onset",
            severity=a.severity,
            label=f"{a.signature.replace('_', ' ')}{of_slice(a)}: onset",
        )
        for a in said.alerts
        if a.state != "pending"
        and not a.superseded
        and a.inhibited_by is None
        and a.severity != "info"
        and a.signature != "bounds_lint"  # a note about the settings, not something that set in
    ]
    for command in said.commands:
        if command.kind == "set_bounds" and command.status == "applied" and command.applied_step is not None:
            label = (
                ", ".join(f"{c.name} {_number(c.old)} → {_number(c.new)}" for c in command.changes) or "no difference"
            )
            marks.append(Mark(step=command.applied_step, kind="bounds", label=f"bounds changed: {label}"))
    marks += [
        Mark(step=step, kind="checkpoint", label=f"checkpoint at step {step}")
        for step in shown_checkpoints(said.checkpoints, open_alerts(said.alerts, last))
    ]
    return sorted(marks, key=lambda mark: (mark.step, mark.kind))[-MAX_MARKS:]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
