"""Envelopes: a metric over a range of steps, thinned to about n points that keep every spike. `query.py` is the public
door; `envelopes(con, run, slice, names, x0, x1, n)` reads many metrics at once.

A run of one rank that logs a scalar once a step has its points in the table already: they are read there, several
metrics in one scan, instead of through the view that combines ranks and updates. The query itself tells whether that
holds, for it counts the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from regimescope.monitor.records import Series
from regimescope.monitor.series import Connection, is_scalar, plain, source, span

METRICS_AT_ONCE = 8
"Scalars of one scan; each holds its points in memory meanwhile."
MAX_STEPS = 1 << 26
"Longer ranges of steps are not counted bit by bit: 8 MB a metric."

_BIN = """arg_min(step, value) FILTER (isfinite(value)), min(value) FILTER (isfinite(value)),
          arg_max(step, value) FILTER (isfinite(value)), max(value) FILTER (isfinite(value)),
          min(step) FILTER (NOT isfinite(value)), count(*) FILTER (NOT isfinite(value)), min(step)"""
"What is kept of a bin. NaN sorts above every number in DuckDB and would win each maximum: finite values only."

VALUES = {
    "mean": "(0 + value * weight) / nullif(weight, 0)",
    "sum": "0 + value",
    "min": "value",
    "max": "value",
    "last": "value",
}
"What the view makes of the only row of a step, by the metric's `agg`; the same to the last bit."


def envelope(con: Connection, run_key: int, slice_id: int, name: str, x0: int | None, x1: int | None, n: int) -> Series:
    """At most about n points of x0 <= step <= x1 (None = the end): all of them when they fit, else minimum and maximum
    of each of n/2 bins, so that an isolated spike survives.
    """
    return envelopes(con, run_key, slice_id, [name], x0, x1, n)[name]


def envelopes(
    con: Connection, run_key: int, slice_id: int, names: Iterable[str], x0: int | None, x1: int | None, n: int
) -> dict[str, Series]:
    """`envelope` of many metrics by name; cheaper than one by one."""
    wanted = list(dict.fromkeys(names))
    scalars = [name for name in wanted if is_scalar(name)]
    rules = surviving_rows(con, run_key)
    found: dict[str, Series] = {}
    if rules is not None:
        for i in range(0, len(scalars), METRICS_AT_ONCE):
            some = scalars[i : i + METRICS_AT_ONCE]
            found |= _from_table(con, [run_key, slice_id, *span((x0, x1))], some, rules, n)
    return {
        name: found[name] if name in found else _from_view(con, run_key, slice_id, name, x0, x1, n) for name in wanted
    }


def surviving_rows(con: Connection, run_key: int) -> str | None:
    """SQL that leaves superseded rows of this run out; None when several ranks wrote it."""
    launches = con.execute(
        "SELECT launch_no, ranks, superseded_from FROM launch WHERE run_key = ?", [run_key]
    ).fetchall()
    if any(ranks > 1 for _, ranks, _ in launches):
        return None
    return "".join(
        f" AND NOT (launch_no = {number} AND step >= {first})" for number, _, first in launches if first is not None
    )


def _from_table(con: Connection, place: list[int], names: Sequence[str], surviving: str, n: int) -> dict[str, Series]:
    """The envelopes of those scalars that have one row a step; the others are left out."""
    found = {name: plain([]) for name in names}
    known = con.execute("SELECT metric_id, name, agg FROM metric WHERE list_contains(?, name)", [names]).fetchall()
    values = [_Metric(*row) for row in known]
    where = f"run_key = ? AND slice_id = ? AND step BETWEEN ? AND ?{surviving} AND metric_id IN "
    if values:
        bounds = con.execute(
            f"""SELECT metric_id, count(*), min(step)::BIGINT, max(step)::BIGINT FROM scalar
                WHERE {where} {_ids(values)} GROUP BY metric_id""",
            place,
        ).fetchall()
        spans = {number: _Span(*rest) for number, *rest in bounds}
        values = [m for m in values if m.number in spans]
    repeated = [m for m in values if spans[m.number].steps < spans[m.number].rows or spans[m.number].steps > MAX_STEPS]
    values = [m for m in values if m not in repeated]
    if values:
        rows = con.execute(_bins(values, spans, f"{where} {_ids(values)}", n), place).fetchall()
        for metric in values:
            bins = [row[1:] for row in rows if row[0] == metric.number]
            if sum(row[-1] for row in bins) != spans[metric.number].rows or bins[0][0] != spans[metric.number].rows:
                repeated.append(metric)  # a step with more than one row; or the table grew between the two queries
            elif spans[metric.number].rows <= n:
                found[metric.name] = plain([(row[-2], row[2]) for row in bins])
            else:
                found[metric.name] = _binned([row[1:] for row in bins])
    return {name: series for name, series in found.items() if name not in {m.name for m in repeated}}


class _Metric(NamedTuple):
    number: int
    name: str
    agg: str


class _Span(NamedTuple):
    rows: int
    low: int
    high: int

    @property
    def steps(self) -> int:
        return self.high - self.low + 1

    def bin(self, n: int) -> str:
        """SQL of the bin of a step: each its own where all points fit."""
        return f"(step - {self.low}) // {1 if self.rows <= n else -(-self.steps // max(1, n // 2))}"


def _bins(metrics: Sequence[_Metric], spans: Mapping[int, _Span], where: str, n: int) -> str:
    """SQL of the bins of these metrics in one scan: metric, its number of distinct steps, the bin, its rows."""
    low, high = min(spans[m.number].low for m in metrics), max(spans[m.number].high for m in metrics)
    value = by_metric({m.number: VALUES[m.agg] for m in metrics})
    at = by_metric({m.number: spans[m.number].bin(n) for m in metrics})
    return f"""WITH p AS MATERIALIZED (
                   SELECT metric_id, step::BIGINT AS step, {value} AS value FROM scalar WHERE {where} AND step <= {high}
               ),
               b AS (
                   SELECT metric_id, bit_count(bitstring_agg(step, {low}, {high})) AS steps FROM p GROUP BY metric_id
               ),
               e AS (SELECT metric_id, {_BIN} AS first, count(*) AS rows FROM p GROUP BY metric_id, {at})
               SELECT metric_id, steps, e.* EXCLUDE (metric_id) FROM e JOIN b USING (metric_id) ORDER BY first"""


def by_metric(choices: Mapping[int, str]) -> str:
    """SQL that is this for each metric; plain where it is the same for all."""
    numbers: dict[str, list[str]] = {}
    for number, sql in choices.items():
        numbers.setdefault(sql, []).append(str(number))
    if len(numbers) == 1:
        return next(iter(numbers))
    cases = [f"WHEN metric_id IN ({', '.join(some)}) THEN {sql}" for sql, some in numbers.items()]
    return f"CASE {' '.join(cases)} END"


def _ids(metrics: Iterable[_Metric]) -> str:
    return f"({', '.join(str(m.number) for m in metrics)})"


def _from_view(
    con: Connection, run_key: int, slice_id: int, name: str, x0: int | None, x1: int | None, n: int
) -> Series:
    first, last = span((x0, x1))
    sql, values = source(run_key, slice_id, name, first, last)
    count, low, high = con.execute(f"SELECT count(*), min(step), max(step) FROM ({sql})", values).fetchall()[0]
    if count <= n:
        return plain(con.execute(f"SELECT step, value FROM ({sql}) ORDER BY step", values).fetchall())
    width = max(1, math.ceil((high - low + 1) / max(1, n // 2)))
    rows = con.execute(
        f"SELECT {_BIN} FROM ({sql}) GROUP BY (step - ?) // ? ORDER BY min(step)", [*values, low, width]
    ).fetchall()
    return _binned(rows)


def _binned(rows: Sequence[tuple[Any, ...]]) -> Series:
    steps: list[int] = []
    values: list[float | None] = []
    for step_lo, lo, step_hi, hi, *_ in rows:
        if step_lo is None:
            continue
        for step, value in sorted({(step_lo, lo), (step_hi, hi)}):
            steps.append(step)
            values.append(value)
    bad = [row[4] for row in rows if row[4] is not None]
    return Series(steps=steps, values=values, nonfinite=bad, nonfinite_count=sum(row[5] for row in rows), thinned=True)
