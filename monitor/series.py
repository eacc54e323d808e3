"""Points of a metric for charts and tiles: after a step, and the newest. The SQL of it; `query.py` is the public door,
`envelopes.py` thins them.

A metric is a scalar by its name, `<bucket>.<column>` ("R4.clip_low_frac"), or one of the four bounds ("pos.w_min").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

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

Steps = tuple[int | None, int | None]
"First and last step of a range, both in it; None = the first or last there is."
ALL_STEPS: Steps = (None, None)

_LAST_STEP = 1 << 62


def span(steps: Steps) -> tuple[int, int]:
    """The two ends as SQL takes them."""
    first, last = steps
    return max(0, first or 0), _LAST_STEP if last is None else max(-1, last)


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


def is_scalar(name: str) -> bool:
    """Whether this is neither a number of a bucket nor a bound."""
    bucket, _, column = name.partition(".")
    return name not in BOUND_NAMES and not (bucket in BUCKETS and column in BUCKET_COLUMNS)


def is_known_metric(con: Connection, run_key: int, name: str) -> bool:
    """Whether a metric of this name can have points in this index."""
    if not is_scalar(name):
        return True
    return bool(con.execute("SELECT 1 FROM metric WHERE name = ?", [name]).fetchall())


def rows_after(con: Connection, run_key: int, slice_id: int, name: str, since_step: int) -> Series:
    """Every point with step > since_step, not thinned."""
    sql, values = source(run_key, slice_id, name, since_step + 1, _LAST_STEP)
    return plain(con.execute(f"SELECT step, value FROM ({sql}) ORDER BY step", values).fetchall())


def news(con: Connection, run_key: int, slice_id: int, names: Sequence[str], since_step: int) -> dict[str, Series]:
    """`rows_after` of many metrics by name, in two queries for all of them: what a live page asks every second."""
    rows: dict[str, list[tuple[int, float | None]]] = {name: [] for name in names}
    for name, step, value in _scalars(con, run_key, slice_id, names, since_step + 1):
        rows[name].append((step, value))
    for name, step, value in _recent_buckets(con, run_key, names, since_step + 1, slice_id):
        rows[name].append((step, value))
    found = {name: plain(sorted(points)) for name, points in rows.items()}
    bounds = [name for name in names if name in BOUND_NAMES]
    return found | {name: rows_after(con, run_key, slice_id, name, since_step) for name in bounds}


def news_of(
    points: Iterable[tuple[int, Mapping[str, float]]], names: Sequence[str], since_step: int
) -> dict[str, Series]:
    """`news` from points that are in memory, ascending: slice 0, no bounds."""
    later = [(step, metrics) for step, metrics in points if step > since_step]
    return {name: plain([(step, metrics[name]) for step, metrics in later if name in metrics]) for name in names}


def by_slice(con: Connection, run_key: int, name: str, since_step: int) -> dict[int, Series]:
    """`rows_after` of one scalar in every slice but 0, by slice id; one query for all."""
    rows = con.execute(
        """SELECT slice_id, step::BIGINT, value FROM v_metric_step
           WHERE run_key = ? AND slice_id > 0 AND step >= ? AND name = ? ORDER BY step""",
        [run_key, max(0, since_step + 1), name],
    ).fetchall()
    found: dict[int, list[tuple[int, float | None]]] = {}
    for slice_id, step, value in rows:
        found.setdefault(slice_id, []).append((step, value))
    return {slice_id: plain(points) for slice_id, points in found.items()}


def _scalars(
    con: Connection, run_key: int, slice_id: int, names: Sequence[str], first: int
) -> list[tuple[str, int, float | None]]:
    return con.execute(
        """SELECT name, step::BIGINT, value FROM v_metric_step
           WHERE run_key = ? AND slice_id = ? AND step >= ? AND list_contains(?, name)""",
        [run_key, slice_id, max(0, first), list(names)],
    ).fetchall()


def latest(con: Connection, run_key: int, names: Iterable[str], *, back: int = 50) -> dict[str, Latest]:
    """The newest value of each metric that has one (slice 0), with the newest at least `back` steps older, if any.

    Looks at the last steps first, all names in one query; only what is rarer than that is searched in the whole run.
    """
    wanted = list(dict.fromkeys(names))
    last = con.execute("SELECT max(step)::BIGINT FROM scalar WHERE run_key = ?", [run_key]).fetchall()[0][0]
    first = max(0, (last or 0) - 4 * back)
    points = _recent_scalars(con, run_key, wanted, first) + _recent_buckets(con, run_key, wanted, first)
    found = _latest_of(points, back)
    for name in wanted:
        if name in BOUND_NAMES or (first > 0 and (name not in found or found[name].before is None)):
            sql, values = source(run_key, 0, name, 0, _LAST_STEP)
            rows = con.execute(f"SELECT step, value FROM ({sql}) WHERE value IS NOT NULL", values).fetchall()
            found |= _latest_of([(name, step, value) for step, value in rows], back)
    return found


def _recent_scalars(con: Connection, run_key: int, names: Sequence[str], first: int) -> list[tuple[str, int, float]]:
    rows = _scalars(con, run_key, 0, names, first)
    return [(name, step, value) for name, step, value in rows if value is not None]


def _recent_buckets(
    con: Connection, run_key: int, names: Sequence[str], first: int, slice_id: int = 0
) -> list[tuple[str, int, float]]:
    pairs = [(name, *name.split(".", 1)) for name in names if "." in name]
    chosen = [
        (name, bucket, column) for name, bucket, column in pairs if bucket in BUCKETS and column in BUCKET_COLUMNS
    ]
    if not chosen:
        return []
    columns = sorted({column for _, _, column in chosen})
    rows = con.execute(
        f"""SELECT bucket::VARCHAR, step::BIGINT, {", ".join(columns)} FROM v_bucket_step
            WHERE run_key = ? AND slice_id = ? AND step >= ?""",
        [run_key, slice_id, max(0, first)],
    ).fetchall()
    at = {column: i for i, column in enumerate(columns, start=2)}
    points = ((name, row[1], row[at[column]]) for row in rows for name, bucket, column in chosen if bucket == row[0])
    return [(name, step, float(value)) for name, step, value in points if value is not None]


def _latest_of(points: Iterable[tuple[str, int, float]], back: int) -> dict[str, Latest]:
    by_name: dict[str, dict[int, float]] = {}
    for name, step, value in points:
        by_name.setdefault(name, {})[step] = value
    found = {}
    for name, values in by_name.items():
        top = max(values)
        earlier = max((step for step in values if step + back <= top), default=None)
        found[name] = Latest(step=top, value=values[top], before=None if earlier is None else values[earlier])
    return found


def source(run_key: int, slice_id: int, name: str, first: int, last: int) -> tuple[str, list[object]]:
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


def plain(rows: Sequence[tuple[int, float | None]]) -> Series:
    """Points as they are; what is not finite becomes None and is listed."""
    values = [v if v is not None and math.isfinite(v) else None for _, v in rows]
    bad = [step for (step, _), value in zip(rows, values, strict=True) if value is None]
    return Series(steps=[step for step, _ in rows], values=values, nonfinite=bad, nonfinite_count=len(bad))
