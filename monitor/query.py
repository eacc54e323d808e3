"""The public read functions over the index: what pages, routes, reports and users call. No other module outside the store writes SQL.

Every function takes a cursor of `Store.cursor()` and returns frozen records. Times are unix seconds of the trainer's clock. Metric names are those of
docs/metrics.md; `<bucket>.<column>` ("R4.clip_low_frac") reads the buckets, "pos.w_min" and the other three read the bounds in force.
Rows that a later launch superseded are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.token_stats import BUCKETS

BUCKET_COLUMNS = (
    "tokens",
    "token_frac",
    "clip_high_frac",
    "clip_low_frac",
    "ratio_mean",
    "weight_mean",
    "clip_gap",
    "grad_mass",
    "entropy_mean",
    "entropy_effect",
    "log_ratio_mean",
)
"Columns of v_bucket_step that exist as metrics, each as `<bucket>.<column>`."

BOUND_NAMES = ("pos.w_min", "pos.w_max", "neg.w_min", "neg.w_max")

Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run with its newest launch."""

    run_key: int
    path: str
    'Folder relative to the root: the identity. "." when the root is the run itself.'
    run_id: str
    name: str | None
    status: str
    "running | ended | crashed | imported"
    state: str | None
    "What the trainer says it is doing; None = it never said."
    state_since: float | None
    started_at: float | None
    last_row_at: float | None
    last_step: int | None
    "Newest step that any rank of the newest launch finished."
    launch_no: int | None
    launch_id: str | None
    objective: str | None
    framework: str | None
    ratio_source: str | None
    ranks: int
    capabilities: tuple[str, ...]
    limits: Limits | None
    "None: the run is only observed and accepts no bounds."
    weight_rule: WeightRule | None
    config: Mapping[str, object]
    end_reason: str | None
    "finished | stopped | rollback | error; None = no end line."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRow:
    """A part of the steps: kind `all` (slice 0), `env` or `lag`."""

    slice_id: int
    kind: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one metric in step order."""

    steps: list[int]
    values: list[float | None]
    "None where the value is not finite."
    nonfinite: list[int]
    "Steps with a NaN or infinity; of a thinned series the first in each bin."
    nonfinite_count: int = 0
    "All of them."
    thinned: bool = False
    "Each bin is shown by its minimum and maximum."


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest value of a metric, and the one some steps before."""

    step: int
    value: float
    before: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One episode of a rule, with what a person last said about it."""

    alert_id: str
    incident_id: str
    signature: str
    rule: str
    severity: str
    "info | warning | critical"
    state: str
    "pending | firing | resolved"
    driver: str | None
    "R1 … R4, where the evidence tells."
    step_onset: int
    step_detected: int
    step_last: int
    evidence: Mapping[str, object]
    remedy: Mapping[str, object]
    'bound ("neg.w_min" or None), direction, target, text.'
    inhibited_by: str | None
    "Rule that explains this one."
    title: str
    text: str
    "One sentence: what is seen."
    direction: str | None
    score: float | None
    launch_no: int
    ordinal: int
    superseded: bool
    "Found in a stretch that a later launch repeats."
    mark: str | None = None
    "acknowledge | snooze | false_alarm | confirmed | reopen"
    mark_actor: str | None = None
    mark_text: str | None = None
    until_step: int | None = None
    "End of a snooze."
    slice: str | None = None
    '"env=math"; None = everything.'

    @property
    def open(self) -> bool:
        """Firing now, on the stretch that counts."""
        return self.state == "firing" and not self.superseded


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundChange:
    """One of the four bounds in a command."""

    name: str
    "pos.w_min, pos.w_max, neg.w_min or neg.w_max"
    old: float | None
    "At the revision that the command expects; None = not known."
    new: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """A command and how far it got."""

    command_id: str
    launch_id: str
    kind: str
    args: Mapping[str, object]
    expect: int | None
    issued_at: float
    not_after: float
    by: str | None
    why: str | None
    alert_id: str | None
    status: str
    "pending | applying | applied | rejected | expired"
    ranks: int | None
    applied_ranks: int
    applied_step: int | None
    "First step under the new bounds."
    revision: int | None
    applied: Bounds | None
    message: str | None
    "The trainer's words on a rejection."
    changes: tuple[BoundChange, ...] = ()
    "The bounds that differ from those in force when it was issued."


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsInForce:
    """Bounds of the newest launch, by header, acks and bucket rows."""

    bounds: Bounds
    revision: int
    since_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """Anything dated."""

    kind: str
    step: int | None
    t: float | None
    data: Mapping[str, object]
    launch_no: int | None = None
    superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """A tailed file and its losses."""

    segment: str
    byte_offset: int
    lost: int
    "Records that the recorder dropped or that are missing from the file."
    bad_lines: int
    refused: str | None = None
    "Why nothing more of this file is read."


_RUN_COLUMNS = """run_key, path, run_id, name, status, state, epoch(state_since), epoch(started_at), epoch(last_row_at), last_step, launch_no, launch_id,
    objective, framework, ratio_source, ranks, capabilities, limits, weight_rule, config, end_reason"""


def list_runs(con: Connection) -> list[RunRow]:
    """All runs, the one that wrote last first."""
    return [
        _run_row(r)
        for r in con.execute(f"SELECT {_RUN_COLUMNS} FROM v_run ORDER BY last_row_at DESC NULLS LAST, path").fetchall()
    ]


def run_by_path(con: Connection, path: str) -> RunRow | None:
    """The run of this folder (relative to the root), or None."""
    rows = con.execute(f"SELECT {_RUN_COLUMNS} FROM v_run WHERE path = ?", [path]).fetchall()
    return _run_row(rows[0]) if rows else None


def run_by_key(con: Connection, run_key: int) -> RunRow | None:
    """The run of this key, or None."""
    rows = con.execute(f"SELECT {_RUN_COLUMNS} FROM v_run WHERE run_key = ?", [run_key]).fetchall()
    return _run_row(rows[0]) if rows else None


def slices(con: Connection, run_key: int) -> list[SliceRow]:
    """Slice 0 first."""
    rows = con.execute(
        "SELECT slice_id, kind, value FROM slice WHERE run_key = ? ORDER BY slice_id", [run_key]
    ).fetchall()
    return [SliceRow(slice_id=i, kind=kind, value=value) for i, kind, value in rows]


def metric_names(con: Connection, run_key: int) -> list[str]:
    """Scalars, then `<bucket>.<column>` and the bounds where the run has buckets; each sorted."""
    names = con.execute(
        "SELECT DISTINCT name FROM metric JOIN scalar USING (metric_id) WHERE run_key = ? ORDER BY name", [run_key]
    ).fetchall()
    buckets = con.execute(
        "SELECT DISTINCT bucket::VARCHAR FROM bucket_step WHERE run_key = ? ORDER BY 1", [run_key]
    ).fetchall()
    derived = [f"{bucket}.{column}" for (bucket,) in buckets for column in BUCKET_COLUMNS]
    return [name for (name,) in names] + derived + (list(BOUND_NAMES) if buckets else [])


def rows_after(con: Connection, run_key: int, slice_id: int, name: str, since_step: int) -> Series:
    """Every point with step > since_step, not thinned."""
    source, values = _source(run_key, slice_id, name)
    rows = con.execute(
        f"SELECT step, value FROM ({source}) WHERE step > ? ORDER BY step", [*values, since_step]
    ).fetchall()
    return _plain(rows)


def envelope(con: Connection, run_key: int, slice_id: int, name: str, x0: int | None, x1: int | None, n: int) -> Series:
    """At most about n points of x0 <= step <= x1 (None = the end): all of them when they fit, else minimum and maximum of each of n/2 bins.

    An isolated spike survives. NaN sorts above every number in DuckDB and would win each maximum: bins look at finite values only.
    """
    source, values = _source(run_key, slice_id, name)
    ranged = f"SELECT step, value FROM ({source}) WHERE step >= ? AND step <= ?"
    values = [*values, 0 if x0 is None else max(0, x0), 2**62 if x1 is None else x1]
    count, low, high = con.execute(f"SELECT count(*), min(step), max(step) FROM ({ranged})", values).fetchall()[0]
    if count <= n:
        return _plain(con.execute(f"{ranged} ORDER BY step", values).fetchall())
    width = max(1, math.ceil((high - low + 1) / max(1, n // 2)))
    rows = con.execute(
        f"""SELECT arg_min(step, value) FILTER (isfinite(value)), min(value) FILTER (isfinite(value)),
                   arg_max(step, value) FILTER (isfinite(value)), max(value) FILTER (isfinite(value)),
                   min(step) FILTER (NOT isfinite(value)), count(*) FILTER (NOT isfinite(value))
            FROM ({ranged}) GROUP BY (step - ?) // ? ORDER BY min(step)""",
        [*values, low, width],
    ).fetchall()
    return _binned(rows)


def latest(con: Connection, run_key: int, names: Iterable[str], *, back: int = 50) -> dict[str, Latest]:
    """The newest value of each metric that has one (slice 0), with the newest at least `back` steps older, if any."""
    found = {}
    for name in names:
        source, values = _source(run_key, 0, name)
        rows = con.execute(
            f"""WITH x AS (SELECT step, value FROM ({source}) WHERE value IS NOT NULL), m AS (SELECT max(step) AS top FROM x)
                SELECT max(step), arg_max(value, step), arg_max(value, step) FILTER (step + ? <= top) FROM x, m""",
            [*values, back],
        ).fetchall()
        step, value, before = rows[0]
        if step is not None:
            found[name] = Latest(step=step, value=value, before=before)
    return found


def alerts(con: Connection, run_key: int) -> list[AlertRow]:
    """All episodes, the one detected last first."""
    rows = con.execute(
        """SELECT alert_id::VARCHAR, incident_id::VARCHAR, signature, rule, severity, state, driver::VARCHAR, step_onset, step_detected, step_last,
                  evidence, remedy, inhibited_by, title, text, direction, score, launch_no, ordinal, superseded, mark, mark_actor, mark_text, until_step,
                  slice_id, s.kind, s.value
           FROM v_alert LEFT JOIN slice s USING (run_key, slice_id) WHERE run_key = ? ORDER BY step_detected DESC, launch_no DESC, rule""",
        [run_key],
    ).fetchall()
    return [_alert_row(r) for r in rows]


def commands(con: Connection, run_key: int) -> list[CommandRow]:
    """Newest first."""
    rows = con.execute(
        """SELECT command_id::VARCHAR, launch_id, kind, args, expected_revision, epoch(issued_at), epoch(not_after), issuer, reason, alert_id::VARCHAR,
                  status, ranks, applied_ranks, applied_step, revision, applied, message
           FROM v_command WHERE run_key = ? ORDER BY issued_at DESC, command_id DESC""",
        [run_key],
    ).fetchall()
    history = _bounds_by_revision(con, run_key) if rows else {}
    return [_command_row(r, history) for r in rows]


def bounds_in_force(con: Connection, run_key: int) -> BoundsInForce | None:
    """Of the newest launch; None when it declares no bounds and has no buckets."""
    launches = con.execute("SELECT max(launch_no) FROM launch WHERE run_key = ?", [run_key]).fetchall()
    known = _bounds_by_revision(con, run_key, launches[0][0]) if launches[0][0] is not None else {}
    if not known:
        return None
    revision = max(known)
    bounds, step = known[revision]
    return BoundsInForce(bounds=bounds, revision=revision, since_step=step)


def events(con: Connection, run_key: int, kinds: Sequence[str] | None = None) -> list[EventRow]:
    """Events of these kinds (None = all), oldest first."""
    chosen = "" if kinds is None else "AND list_contains(?, kind)"
    rows = con.execute(
        f"""SELECT kind, step, epoch(e.ts), payload, launch_no, coalesce(step >= superseded_from, false)
            FROM event e LEFT JOIN launch l USING (run_key, launch_no) WHERE run_key = ? {chosen} ORDER BY launch_no NULLS LAST, seq, rank""",
        [run_key] if kinds is None else [run_key, list(kinds)],
    ).fetchall()
    return [
        EventRow(kind=kind, step=step, t=t, data=_object(payload), launch_no=launch_no, superseded=superseded)
        for kind, step, t, payload, launch_no, superseded in rows
    ]


def checkpoints(con: Connection, run_key: int) -> list[EventRow]:
    """Checkpoints on the surviving stretch, oldest first; `data["path"]` is relative to the run folder."""
    return [e for e in events(con, run_key, ["checkpoint"]) if not e.superseded]


def segments(con: Connection, run_key: int) -> list[SegmentRow]:
    """The tailed files with what was lost in them."""
    rows = con.execute(
        "SELECT segment, byte_offset, lost, bad_lines, refused FROM segment WHERE run_key = ? ORDER BY segment",
        [run_key],
    ).fetchall()
    return [SegmentRow(segment=r[0], byte_offset=r[1], lost=r[2], bad_lines=r[3], refused=r[4]) for r in rows]


def repeated_stretches(con: Connection, run_key: int) -> list[tuple[int, int]]:
    """First and last step of what a launch did and a later one does again: its rows are left out everywhere."""
    return con.execute(
        """SELECT superseded_from, max(step) FROM launch JOIN step_done USING (run_key, launch_no)
           WHERE run_key = ? AND step >= superseded_from GROUP BY launch_no, superseded_from ORDER BY 1, 2""",
        [run_key],
    ).fetchall()


def step_count(con: Connection, run_key: int) -> int:
    """Number of surviving steps that some rank finished."""
    return int(con.execute("SELECT count(DISTINCT step) FROM v_step WHERE run_key = ?", [run_key]).fetchall()[0][0])


def step_times(con: Connection, run_key: int, count: int) -> list[float]:
    """Ends of the last `count` steps of the newest launch, unix seconds of the trainer's clock, ascending."""
    rows = con.execute(
        """SELECT epoch(max(ts)) FROM step_done WHERE run_key = ? AND launch_no = (SELECT max(launch_no) FROM launch WHERE run_key = ?)
           GROUP BY step ORDER BY step DESC LIMIT ?""",
        [run_key, run_key, count],
    ).fetchall()
    return sorted(t for (t,) in rows if t is not None)


def is_known_metric(con: Connection, run_key: int, name: str) -> bool:
    """Whether the run has, or by its buckets can have, this metric."""
    bucket, _, column = name.partition(".")
    if name in BOUND_NAMES or (bucket in BUCKETS and column in BUCKET_COLUMNS):
        return True
    return bool(con.execute("SELECT 1 FROM metric WHERE name = ?", [name]).fetchall())


def _source(run_key: int, slice_id: int, name: str) -> tuple[str, list[object]]:
    """SQL of (step, value) for a metric, and its parameters. Steps come out signed, so that differences are safe."""
    bucket, _, column = name.partition(".")
    if name in BOUND_NAMES:
        members = "('R1', 'R2', 'pos_eq1')" if bucket == "pos" else "('R3', 'R4', 'neg_eq1')"
        sql = f"""SELECT step::BIGINT AS step, any_value({column}) AS value FROM v_bucket_step
                  WHERE run_key = ? AND slice_id = 0 AND bucket IN {members} GROUP BY step"""
        return sql, [run_key]
    if bucket in BUCKETS and column in BUCKET_COLUMNS:
        sql = f"SELECT step::BIGINT AS step, {column}::DOUBLE AS value FROM v_bucket_step WHERE run_key = ? AND slice_id = ? AND bucket = '{bucket}'"
        return f"SELECT step, value FROM ({sql}) WHERE value IS NOT NULL", [run_key, slice_id]
    sql = "SELECT step::BIGINT AS step, value FROM v_metric_step WHERE run_key = ? AND slice_id = ? AND name = ?"
    return sql, [run_key, slice_id, name]


def _plain(rows: Sequence[tuple[int, float | None]]) -> Series:
    values = [v if v is not None and math.isfinite(v) else None for _, v in rows]
    bad = [step for (step, _), value in zip(rows, values, strict=True) if value is None]
    return Series(steps=[step for step, _ in rows], values=values, nonfinite=bad, nonfinite_count=len(bad))


def _binned(rows: Sequence[tuple[int | None, float, int, float, int | None, int]]) -> Series:
    steps: list[int] = []
    values: list[float | None] = []
    for step_lo, lo, step_hi, hi, _, _ in rows:
        if step_lo is None:
            continue
        for step, value in sorted({(step_lo, lo), (step_hi, hi)}):
            steps.append(step)
            values.append(value)
    bad = [row[4] for row in rows if row[4] is not None]
    return Series(steps=steps, values=values, nonfinite=bad, nonfinite_count=sum(row[5] for row in rows), thinned=True)


def _run_row(r: tuple[Any, ...]) -> RunRow:
    (
        run_key,
        path,
        run_id,
        name,
        status,
        state,
        since,
        started,
        last_row,
        last_step,
        launch_no,
        launch_id,
        objective,
        framework,
        source,
        ranks,
    ) = r[:16]
    capabilities, limits, rule, config, end_reason = r[16:]
    return RunRow(
        run_key=run_key, path=path, run_id=run_id, name=name, status=status, state=state, state_since=since, started_at=started,
        last_row_at=last_row, last_step=last_step, launch_no=launch_no, launch_id=launch_id, objective=objective, framework=framework,
        ratio_source=source, ranks=ranks or 1, capabilities=tuple(capabilities or ()), limits=_limits(limits), weight_rule=_rule(rule),
        config=_object(config), end_reason=end_reason,
    )  # fmt: skip


def _alert_row(r: tuple[Any, ...]) -> AlertRow:
    (
        alert_id,
        incident_id,
        signature,
        rule,
        severity,
        state,
        driver,
        onset,
        detected,
        last,
        evidence,
        remedy,
        inhibited_by,
        title,
        text,
    ) = r[:15]
    direction, score, launch_no, ordinal, superseded, mark, actor, mark_text, until_step, slice_id, kind, value = r[15:]
    return AlertRow(
        alert_id=alert_id, incident_id=incident_id, signature=signature, rule=rule, severity=severity, state=state, driver=driver, step_onset=onset,
        step_detected=detected, step_last=last, evidence=_object(evidence), remedy=_object(remedy), inhibited_by=inhibited_by, title=title or rule, text=text or "",
        direction=direction, score=score, launch_no=launch_no, ordinal=ordinal, superseded=superseded, mark=mark, mark_actor=actor,
        mark_text=mark_text, until_step=until_step, slice=f"{kind}={value}" if slice_id else None,
    )  # fmt: skip


def _command_row(r: tuple[Any, ...], history: Mapping[int, tuple[Bounds, int]]) -> CommandRow:
    (
        command_id,
        launch_id,
        kind,
        args,
        expect,
        issued,
        not_after,
        by,
        why,
        alert_id,
        status,
        ranks,
        applied_ranks,
        step,
        revision,
        applied,
        message,
    ) = r
    parsed = _object(args)
    before = history.get(expect) if isinstance(expect, int) else None
    return CommandRow(
        command_id=command_id, launch_id=launch_id, kind=kind, args=parsed, expect=expect, issued_at=issued, not_after=not_after, by=by, why=why,
        alert_id=alert_id, status=status, ranks=ranks, applied_ranks=applied_ranks, applied_step=step, revision=revision, applied=_bounds(applied),
        message=message, changes=_changes(before[0] if before else None, _bounds(args)) if kind == "set_bounds" else (),
    )  # fmt: skip


def _changes(old: Bounds | None, new: Bounds | None) -> tuple[BoundChange, ...]:
    if new is None:
        return ()
    before = named_bounds(old) if old else {}
    return tuple(
        BoundChange(name=name, old=before.get(name), new=value)
        for name, value in named_bounds(new).items()
        if before.get(name) != value
    )


def named_bounds(bounds: Bounds) -> dict[str, float]:
    """The four bounds by the names of BOUND_NAMES."""
    return {
        "pos.w_min": bounds.pos.w_min,
        "pos.w_max": bounds.pos.w_max,
        "neg.w_min": bounds.neg.w_min,
        "neg.w_max": bounds.neg.w_max,
    }


def _bounds_by_revision(con: Connection, run_key: int, launch_no: int | None = None) -> dict[int, tuple[Bounds, int]]:
    """Revision -> (bounds, first step under them), of one launch or all: headers, then acks, then bucket rows; an earlier source wins."""
    one, values = ("", [run_key]) if launch_no is None else ("AND launch_no = ?", [run_key, launch_no])
    rows = con.execute(
        f"""SELECT start_revision, start_bounds, first_step FROM launch WHERE run_key = ? AND start_bounds IS NOT NULL {one}
            UNION ALL SELECT revision, any_value(applied), min(step) FROM ack
            WHERE run_key = ? AND status = 'applied' AND applied IS NOT NULL AND revision IS NOT NULL {one} GROUP BY revision""",
        values * 2,
    ).fetchall()
    known: dict[int, tuple[Bounds, int]] = {}
    for revision, wire, step in rows:
        if (bounds := _bounds(wire)) is not None:
            known.setdefault(revision, (bounds, step or 0))
    rows = con.execute(
        f"""SELECT revision, min(w_min) FILTER (sign = 1), max(w_max) FILTER (sign = 1), min(w_min) FILTER (sign = -1), max(w_max) FILTER (sign = -1),
                   min(first_step) FROM v_bounds WHERE run_key = ? {one} GROUP BY revision""",
        values,
    ).fetchall()
    for revision, *sides, step in rows:
        if None not in sides:
            known.setdefault(revision, (Bounds.from_wire({"pos": sides[:2], "neg": sides[2:]}), step))
    return known


def _object(text: object) -> Mapping[str, object]:
    parsed = json.loads(text) if isinstance(text, str) else None
    return parsed if isinstance(parsed, dict) else {}


def _bounds(text: object) -> Bounds | None:
    try:
        return Bounds.from_wire(_object(text)) if text else None
    except BoundsError:
        return None


def _limits(text: object) -> Limits | None:
    try:
        return Limits.from_wire(_object(text)) if text else None
    except BoundsError:
        return None


def _rule(text: object) -> WeightRule | None:
    try:
        return WeightRule.from_wire(_object(text)) if text else None
    except BoundsError:
        return None
