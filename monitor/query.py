"""The public read functions over the index: what pages, routes, reports and users call. No other module outside the
store writes SQL.

Every function takes a cursor of `Store.cursor()` and returns frozen records (`records.py`). Times are unix seconds of
the trainer's clock. Metric names are those of docs/metrics.md; `<bucket>.<column>` ("R4.clip_low_frac") reads the
buckets, "pos.w_min" and the other three the bounds in force. Rows that a later launch superseded are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.buckets import BucketRow, BucketSums, bucket_sums, buckets
from regimescope.monitor.envelopes import envelope, envelopes
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.histograms import (
    Histogram,
    RatioHeatmap,
    RatioHistogram,
    RatioStep,
    RatioSteps,
    histogram,
    histogram_names,
    ratio_heatmap,
    ratio_histogram,
    ratio_steps,
)
from regimescope.monitor.history import History, history
from regimescope.monitor.records import (
    AlertRow,
    BoundChange,
    BoundsInForce,
    CommandRow,
    EventRow,
    IncidentRow,
    Latest,
    MetricSource,
    NoteRow,
    RunRow,
    SegmentRow,
    Series,
    SliceRow,
)
from regimescope.monitor.rollout_rows import (
    RolloutFacets,
    RolloutFilter,
    RolloutRow,
    rollout_count,
    rollout_facets,
    rollout_group,
    rollouts,
    rollouts_where,
)
from regimescope.monitor.rollout_rows import Sort as RolloutSort
from regimescope.monitor.series import (
    ALL_STEPS,
    BOUND_NAMES,
    BUCKET_COLUMNS,
    Connection,
    Steps,
    by_slice,
    is_known_metric,
    latest,
    metric_names,
    news,
    news_of,
    rows_after,
)

__all__ = [
    "ALL_STEPS",
    "BOUND_NAMES",
    "BUCKET_COLUMNS",
    "AlertRow",
    "BoundChange",
    "BoundsInForce",
    "BucketRow",
    "BucketSums",
    "CommandRow",
    "Connection",
    "EventRow",
    "Histogram",
    "History",
    "IncidentRow",
    "Latest",
    "MetricSource",
    "NoteRow",
    "RatioHeatmap",
    "RatioHistogram",
    "RatioStep",
    "RatioSteps",
    "RolloutFacets",
    "RolloutFilter",
    "RolloutRow",
    "RolloutSort",
    "RunRow",
    "SegmentRow",
    "Series",
    "SliceRow",
    "Steps",
    "alerts",
    "bounds_in_force",
    "bucket_sums",
    "buckets",
    "by_slice",
    "checkpoints",
    "commands",
    "envelope",
    "envelopes",
    "events",
    "histogram",
    "histogram_names",
    "history",
    "incidents",
    "is_known_metric",
    "latest",
    "list_runs",
    "metric_names",
    "metric_sources",
    "named_bounds",
    "news",
    "news_of",
    "notes",
    "ratio_heatmap",
    "ratio_histogram",
    "ratio_steps",
    "repeated_stretches",
    "rollout_count",
    "rollout_facets",
    "rollout_group",
    "rollouts",
    "rollouts_where",
    "rows_after",
    "run_by_key",
    "run_by_path",
    "run_key_of",
    "run_paths",
    "segments",
    "slices",
    "step_count",
    "step_times",
]

T = TypeVar("T")

_POSITIVE, _NEGATIVE = "('R1', 'R2', 'pos_eq1')", "('R3', 'R4', 'neg_eq1')"

_RUN = """SELECT run_key, path, run_id, name, status, state, epoch(state_since) AS state_since,
                 epoch(started_at) AS started_at, epoch(last_row_at) AS last_row_at, last_step, launch_no, launch_id,
                 objective, framework, ratio_source,
                 coalesce(ranks, 1) AS ranks, capabilities, limits, weight_rule, config, end_reason, imported_from
          FROM v_run"""


def list_runs(con: Connection) -> list[RunRow]:
    """All runs, the one that wrote last first."""
    return [_run_row(r) for r in _rows(con, f"{_RUN} ORDER BY last_row_at DESC NULLS LAST, path", [])]


def run_by_path(con: Connection, path: str) -> RunRow | None:
    """The run of this folder (relative to the root), or None."""
    return next((_run_row(r) for r in _rows(con, f"{_RUN} WHERE path = ?", [path])), None)


def run_key_of(con: Connection, path: str) -> int | None:
    """The key of the run of this folder, or None: cheaper than the whole row."""
    rows = con.execute("SELECT run_key FROM run WHERE path = ?", [path]).fetchall()
    return rows[0][0] if rows else None


def run_by_key(con: Connection, run_key: int) -> RunRow | None:
    """The run of this key, or None."""
    return next((_run_row(r) for r in _rows(con, f"{_RUN} WHERE run_key = ?", [run_key])), None)


def metric_sources(con: Connection, run_key: int) -> list[MetricSource]:
    """Which key of the foreign log fed which metric, by name; empty for a run that was recorded."""
    sql = """SELECT DISTINCT name, source_key, transform, trust FROM metric_source JOIN metric USING (metric_id)
             WHERE run_key = ? ORDER BY name, source_key"""
    return [MetricSource(**r) for r in _rows(con, sql, [run_key])]


def slices(con: Connection, run_key: int) -> list[SliceRow]:
    """Slice 0 first."""
    sql = "SELECT slice_id, kind, value FROM slice WHERE run_key = ? ORDER BY slice_id"
    return [SliceRow(**r) for r in _rows(con, sql, [run_key])]


def alerts(con: Connection, run_key: int) -> list[AlertRow]:
    """All episodes, the one detected last first."""
    sql = """SELECT alert_id::VARCHAR AS alert_id, incident_id::VARCHAR AS incident_id, signature, rule, severity,
                    state, driver::VARCHAR AS driver, step_onset, step_detected, step_last, evidence, remedy,
                    inhibited_by, coalesce(title, rule) AS title, coalesce(text, '') AS text, direction, score,
                    launch_no, ordinal, superseded, mark, mark_actor, mark_text, until_step,
                    CASE WHEN slice_id > 0 THEN s.kind || '=' || s.value END AS slice
             FROM v_alert LEFT JOIN slice s USING (run_key, slice_id) WHERE run_key = ?
             ORDER BY step_detected DESC, launch_no DESC, rule"""
    rows = _rows(con, sql, [run_key])
    return [AlertRow(**{**r, "evidence": _object(r["evidence"]), "remedy": _object(r["remedy"])}) for r in rows]


def incidents(con: Connection, run_key: int) -> list[IncidentRow]:
    """The one that began last first."""
    sql = """SELECT incident_id::VARCHAR AS incident_id, signature, driver::VARCHAR AS driver,
                    step_onset::BIGINT AS step_onset, step_last::BIGINT AS step_last, firing, superseded,
                    alert_ids::VARCHAR[] AS alerts
             FROM v_incident WHERE run_key = ? ORDER BY step_onset DESC, step_last DESC, incident_id"""
    return [IncidentRow(**{**r, "alerts": tuple(r["alerts"])}) for r in _rows(con, sql, [run_key])]


def commands(con: Connection, run_key: int) -> list[CommandRow]:
    """Newest first."""
    sql = """SELECT command_id::VARCHAR AS command_id, launch_id, kind, args, expected_revision AS expect,
                    epoch(issued_at) AS issued_at, epoch(not_after) AS not_after, issuer AS "by", reason AS why,
                    alert_id::VARCHAR AS alert_id, status, ranks, applied_ranks, applied_step, revision, applied,
                    message
             FROM v_command WHERE run_key = ? ORDER BY issued_at DESC, command_id DESC"""
    rows = _rows(con, sql, [run_key])
    history = _bounds_by_revision(con, run_key) if rows else {}
    said = con.execute(
        """SELECT command_id::VARCHAR, list_sort(list(DISTINCT rank) FILTER (status = 'applied')),
                  arg_min(message, rank) FILTER (message <> '')
           FROM ack WHERE run_key = ? GROUP BY command_id""",
        [run_key],
    ).fetchall()
    answers = {command: (tuple(ranks or ()), message) for command, ranks, message in said}
    return [_command_row(r, history, *answers.get(r["command_id"], ((), None))) for r in rows]


def bounds_in_force(con: Connection, run_key: int) -> BoundsInForce | None:
    """Of the newest launch; None when it declares no bounds and has no buckets."""
    newest = con.execute("SELECT max(launch_no) FROM launch WHERE run_key = ?", [run_key]).fetchall()[0][0]
    known = {} if newest is None else _bounds_by_revision(con, run_key, newest)
    if not known:
        return None
    revision = max(known)
    bounds, step = known[revision]
    return BoundsInForce(bounds=bounds, revision=revision, since_step=step)


def events(con: Connection, run_key: int, kinds: Sequence[str] | None = None) -> list[EventRow]:
    """Events of these kinds (None = all), oldest first."""
    sql = f"""SELECT kind, step, epoch(e.ts) AS t, payload AS data, launch_no,
                     coalesce(step >= superseded_from, false) AS superseded
              FROM event e LEFT JOIN launch l USING (run_key, launch_no)
              WHERE run_key = ? {"" if kinds is None else "AND list_contains(?, kind)"}
              ORDER BY launch_no NULLS LAST, seq, rank"""
    values: list[object] = [run_key] if kinds is None else [run_key, list(kinds)]
    return [EventRow(**{**r, "data": _object(r["data"])}) for r in _rows(con, sql, values)]


def checkpoints(con: Connection, run_key: int) -> list[EventRow]:
    """Checkpoints on the surviving stretch that were not deleted since, oldest first, each as it was told last;
    `data["path"]` is relative to the run folder, or as a foreign log has it.
    """
    told = [e for e in events(con, run_key, ["checkpoint"]) if not e.superseded]
    newest = {e.step: i for i, e in enumerate(told)}
    gone = {(step, i) for i, e in enumerate(told) for step in _steps(e.data.get("deleted"))}
    deleted = {step for step, i in gone if newest.get(step, -1) < i}
    return [e for i, e in enumerate(told) if e.step not in deleted and newest[e.step] == i]


def _steps(value: object) -> list[int]:
    return [step for step in value if isinstance(step, int)] if isinstance(value, list) else []


def segments(con: Connection, run_key: int) -> list[SegmentRow]:
    """The tailed files with what was lost in them."""
    sql = """SELECT segment, byte_offset, lost, dropped, bad_lines, refused FROM segment
             WHERE run_key = ? ORDER BY segment"""
    return [SegmentRow(**r) for r in _rows(con, sql, [run_key])]


def repeated_stretches(con: Connection, run_key: int) -> list[tuple[int, int]]:
    """First and last step of what a launch did and a later one does again: its rows are left out everywhere."""
    rows = con.execute(
        """SELECT superseded_from, max(step) FROM launch JOIN step_done USING (run_key, launch_no)
           WHERE run_key = ? AND step >= superseded_from GROUP BY launch_no, superseded_from ORDER BY 1, 2""",
        [run_key],
    ).fetchall()
    return [(first, last) for first, last in rows]


def notes(con: Connection, run_key: int) -> list[NoteRow]:
    """What people wrote about alerts, oldest first."""
    sql = """SELECT alert_id::VARCHAR AS alert_id, actor, epoch(ts) AS t, coalesce(text, '') AS text FROM mark
             WHERE run_key = ? AND kind = 'note' ORDER BY ts, mark_id"""
    return [NoteRow(**r) for r in _rows(con, sql, [run_key])]


def run_paths(con: Connection) -> list[str]:
    """Folders of all runs, sorted: cheaper than the rows."""
    return [path for (path,) in con.execute("SELECT path FROM run ORDER BY path").fetchall()]


def step_count(con: Connection, run_key: int) -> int:
    """Number of surviving steps that some rank finished."""
    return int(con.execute("SELECT count(DISTINCT step) FROM v_step WHERE run_key = ?", [run_key]).fetchall()[0][0])


def step_times(con: Connection, run_key: int, count: int) -> list[float]:
    """Ends of the last `count` steps of the newest launch, unix seconds of the trainer's clock, ascending."""
    rows = con.execute(
        """SELECT epoch(max(ts)) FROM step_done
           WHERE run_key = ? AND launch_no = (SELECT max(launch_no) FROM launch WHERE run_key = ?)
           GROUP BY step ORDER BY step DESC LIMIT ?""",
        [run_key, run_key, count],
    ).fetchall()
    return sorted(t for (t,) in rows if t is not None)


def named_bounds(bounds: Bounds) -> dict[str, float]:
    """The four bounds by the names of BOUND_NAMES."""
    values = (bounds.pos.w_min, bounds.pos.w_max, bounds.neg.w_min, bounds.neg.w_max)
    return dict(zip(BOUND_NAMES, values, strict=True))


def _rows(con: Connection, sql: str, values: Sequence[object]) -> list[dict[str, Any]]:
    """All rows, by column name; read to the end."""
    result = con.execute(sql, list(values))
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _run_row(r: dict[str, Any]) -> RunRow:
    parsed = {
        "limits": _parsed(r["limits"], Limits.from_wire),
        "weight_rule": _parsed(r["weight_rule"], WeightRule.from_wire),
        "config": _object(r["config"]),
        "capabilities": tuple(r["capabilities"] or ()),
    }
    return RunRow(**{**r, **parsed})


def _command_row(
    r: dict[str, Any], history: Mapping[int, tuple[Bounds, int]], ranks: tuple[int, ...], message: str | None
) -> CommandRow:
    args = _object(r["args"])
    wire = args if r["kind"] == "set_bounds" else args.get("bounds") if r["kind"] == "rollback" else None
    wanted = _parsed(json.dumps(wire), Bounds.from_wire) if isinstance(wire, Mapping) else None
    before = history[r["expect"]][0] if r["expect"] in history else None
    parsed = {"args": args, "applied": _parsed(r["applied"], Bounds.from_wire), "applied_by": ranks}
    return CommandRow(**{**r, **parsed, "message": message or r["message"]}, changes=_changes(before, wanted))


def _changes(old: Bounds | None, new: Bounds | None) -> tuple[BoundChange, ...]:
    if new is None:
        return ()
    before = named_bounds(old) if old else {}
    pairs = ((name, before.get(name), value) for name, value in named_bounds(new).items())
    return tuple(BoundChange(name=name, old=was, new=value) for name, was, value in pairs if was != value)


def _bounds_by_revision(con: Connection, run_key: int, launch_no: int | None = None) -> dict[int, tuple[Bounds, int]]:
    """Revision -> (bounds, first step under them), of one launch or all. Headers and acks win over bucket rows."""
    one, values = ("", [run_key]) if launch_no is None else ("AND launch_no = ?", [run_key, launch_no])
    said = con.execute(
        f"""SELECT start_revision, start_bounds, first_step FROM launch
            WHERE run_key = ? AND start_bounds IS NOT NULL {one}
            UNION ALL SELECT revision, any_value(applied), min(step) FROM ack WHERE run_key = ? AND status = 'applied'
            AND applied IS NOT NULL AND revision IS NOT NULL {one} GROUP BY revision""",
        values * 2,
    ).fetchall()
    used = con.execute(
        f"""SELECT revision, min(w_min) FILTER (bucket IN {_POSITIVE}), max(w_max) FILTER (bucket IN {_POSITIVE}),
                   min(w_min) FILTER (bucket IN {_NEGATIVE}), max(w_max) FILTER (bucket IN {_NEGATIVE}), min(step)
            FROM bucket_step WHERE slice_id = 0 AND run_key = ? {one} GROUP BY revision""",
        values,
    ).fetchall()
    known: dict[int, tuple[Bounds, int]] = {}
    for revision, wire, step in said:
        if (bounds := _parsed(wire, Bounds.from_wire)) is not None:
            known.setdefault(revision, (bounds, step or 0))
    for revision, *limits, step in used:
        if None not in limits:
            known.setdefault(revision, (Bounds.from_wire({"pos": limits[:2], "neg": limits[2:]}), step))
    return known


def _object(text: object) -> Mapping[str, object]:
    parsed = json.loads(text) if isinstance(text, str) else None
    return parsed if isinstance(parsed, dict) else {}


def _parsed(text: object, read: Callable[[Mapping[str, Any]], T]) -> T | None:
    try:
        return read(_object(text)) if text else None
    except BoundsError:
        return None
