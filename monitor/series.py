"""Points of a metric for charts and tiles: after a step, thinned to an envelope, the newest. The SQL of it; `query.py`
is the public door.

A metric is a scalar by its name, `<bucket>.<column>` ("R4.clip_low_frac"), or one of the four bounds ("pos.w_min").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import duckdb

from regimescope.monitor.records import Latest, Series
from regimescope.monitor.token_stats import BUCKETS

BUCKET_COLUMNS = (
    "tokens", "token_frac", "clip_high_frac", "clip_low_frac", "ratio_mean", "weight_mean", "clip_gap", "grad_mass",
    "entropy_mean", "entropy_effect", "log_ratio_mean",
)  # fmt: skip
"Columns of v_bucket_step that exist as metrics, each as `<bucket>.<column>`."

BOUND_NAMES = ("pos.w_min", "pos.w_max", "neg.w_min", "neg.w_max")

Connection = duckdb.DuckDBPyConnection

_LAST_STEP = 1 << 62


def metric_names(con: Connection, run_key: int) -> list[str]:
    """Scalars, then `<bucket>.<column>` and the bounds where the run has buckets; each sorted."""
    names = con.execute(
        """SELECT name FROM metric WHERE metric_id IN (SELECT DISTINCT metric_id FROM scalar WHERE run_key = ?)
           ORDER BY name""",
        [run_key],
    ).fetchall()
    buckets = con.execute(
        "SELECT DISTINCT bucket FROM bucket_step WHERE run_key = ? ORDER BY bucket", [run_key]
    ).fetchall()
    derived = [f"{bucket}.{column}" for (bucket,) in buckets for column in BUCKET_COLUMNS]
    return [name for (name,) in names] + derived + (list(BOUND_NAMES) if buckets else [])


def is_known_metric(con: Connection, run_key: int, name: str) -> bool:
    """Whether a metric of this name can have points in this index."""
    bucket, _, column = name.partition(".")
    if name in BOUND_NAMES or (bucket in BUCKETS and column in BUCKET_COLUMNS):
        return True
    return bool(con.execute("SELECT 1 FROM metric WHERE name = ?", [name]).fetchall())


def rows_after(con: Connection, run_key: int, slice_id: int, name: str, since_step: int) -> Series:
    """Every point with step > since_step, not thinned."""
    source, values = _source(run_key, slice_id, name, since_step + 1, _LAST_STEP)
    return _plain(con.execute(f"SELECT step, value FROM ({source}) ORDER BY step", values).fetchall())


def envelope(con: Connection, run_key: int, slice_id: int, name: str, x0: int | None, x1: int | None, n: int) -> Series:
    """At most about n points of x0 <= step <= x1 (None = the end): all of them when they fit, else minimum and maximum
    of each of n/2 bins.

    An isolated spike survives. NaN sorts above every number in DuckDB and would win each maximum: bins look at finite
    values only and count the others.
    """
    source, values = _source(run_key, slice_id, name, x0 or 0, _LAST_STEP if x1 is None else x1)
    count, low, high = con.execute(f"SELECT count(*), min(step), max(step) FROM ({source})", values).fetchall()[0]
    if count <= n:
        return _plain(con.execute(f"SELECT step, value FROM ({source}) ORDER BY step", values).fetchall())
    width = max(1, math.ceil((high - low + 1) / max(1, n // 2)))
    rows = con.execute(
        f"""SELECT arg_min(step, value) FILTER (isfinite(value)), min(value) FILTER (isfinite(value)),
                   arg_max(step, value) FILTER (isfinite(value)), max(value) FILTER (isfinite(value)),
                   min(step) FILTER (NOT isfinite(value)), count(*) FILTER (NOT isfinite(value))
            FROM ({source}) GROUP BY (step - ?) // ? ORDER BY min(step)""",
        [*values, low, width],
    ).fetchall()
    return _binned(rows)


def latest(con: Connection, run_key: int, names: Iterable[str], *, back: int = 50) -> dict[str, Latest]:
    """The newest value of each metric that has one (slice 0), with the newest at least `back` steps older, if any."""
    found = {}
    for name in names:
        source, values = _source(run_key, 0, name, 0, _LAST_STEP)
        rows = con.execute(
            f"""WITH x AS (SELECT step, value FROM ({source}) WHERE value IS NOT NULL),
                     m AS (SELECT max(step) AS top FROM x)
                SELECT max(step), arg_max(value, step), arg_max(value, step) FILTER (step + ? <= top) FROM x, m""",
            [*values, back],
        ).fetchall()
        step, value, before = rows[0]
        if step is not None:
            found[name] = Latest(step=step, value=value, before=before)
    return found


def _source(run_key: int, slice_id: int, name: str, first: int, last: int) -> tuple[str, list[object]]:
    """SQL of (step, value) for a metric between two steps, and its parameters. Steps are signed."""
    bucket, _, column = name.partition(".")
    first, last = max(0, first), max(0, last)
    if name in BOUND_NAMES:
        members = "('R1', 'R2', 'pos_eq1')" if bucket == "pos" else "('R3', 'R4', 'neg_eq1')"
        sql = f"""SELECT step::BIGINT AS step, any_value({column}) AS value FROM v_bucket_step
                  WHERE run_key = ? AND slice_id = 0 AND step BETWEEN ? AND ? AND bucket IN {members} GROUP BY step"""
        return sql, [run_key, first, last]
    if bucket in BUCKETS and column in BUCKET_COLUMNS:
        sql = f"""SELECT step::BIGINT AS step, {column}::DOUBLE AS value FROM v_bucket_step
                  WHERE run_key = ? AND slice_id = ? AND step BETWEEN ? AND ? AND bucket = '{bucket}'
                    AND {column} IS NOT NULL"""
        return sql, [run_key, slice_id, first, last]
    sql = """SELECT step::BIGINT AS step, value FROM v_metric_step
             WHERE run_key = ? AND slice_id = ? AND step BETWEEN ? AND ? AND name = ?"""
    return sql, [run_key, slice_id, first, last, name]


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
