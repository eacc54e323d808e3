"""Histograms over a range of steps: the importance ratio by sign, the same as a heatmap over steps, and any other. The
SQL of it; `query.py` is the public door.

Ranks and updates are added, bin by bin; where a rank wrote a histogram of a whole step, those of its updates are not
added to it once more. Rows that a later launch superseded are left out. Bins of different edge sets do not add: the set
that the newest step uses is answered, and `left_out` counts the rows of the others. A sum with a NaN or an infinity in
it is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from regimescope.monitor.series import ALL_STEPS, Connection, Steps, span

Sign = Literal[1, -1]

_MOST_COLUMNS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts per bin of a range of steps. k edges make k + 1 bins: bin i is [edge i-1, edge i), the outer two open."""

    edges_name: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    "One per bin."
    steps: int
    "Steps in it."
    first: int
    last: int
    "The first and last of them."
    left_out: int
    "Rows of the index that use other edges."


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioHistogram(Histogram):
    """Over log r of one sign of the advantage; counts are tokens. r = 1 and A = 0 are buckets, not bins."""

    ratio_sum: tuple[float, ...]
    "Sum of r per bin."
    abs_adv_sum: tuple[float, ...]
    "Sum of |A| per bin."
    abs_adv_ratio_sum: tuple[float, ...] | None
    "Sum of r|A| per bin; None where one of the rows does not have it."


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioHeatmap:
    """Tokens by step and bin of log r, for one sign of the advantage."""

    edges_name: str
    edges: tuple[float, ...]
    width: int
    "Steps that a column adds up."
    steps: tuple[int, ...]
    "First step of each column, ascending; a stretch without histograms has no column."
    counts: tuple[tuple[int, ...], ...]
    "Per column, per bin."
    left_out: int
    "Rows of the index that use other edges."


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioStep:
    """Over log r, of one step and one sign of the advantage."""

    step: int
    sign: int
    "1 or -1."
    counts: tuple[int, ...]
    "Tokens per bin."
    ratio_sum: tuple[float, ...]
    "Sum of r per bin."
    abs_adv_sum: tuple[float, ...]
    "Sum of |A| per bin."
    abs_adv_ratio_sum: tuple[float, ...] | None
    "Sum of r|A| per bin; None where one of the rows does not have it."


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSteps:
    """The last steps that have a histogram over log r, one by one."""

    edges_name: str
    edges: tuple[float, ...]
    steps: tuple[RatioStep, ...]
    "By step and sign, ascending; a sign without a row has none."
    left_out: int
    "Rows of the index in this range that use other edges."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Rows of one edge set in one of the two tables."""

    source: str
    values: list[object]
    edges_name: str
    edges: tuple[float, ...]
    steps: int
    first: int
    last: int
    left_out: int


def ratio_histogram(
    con: Connection, run_key: int, *, sign: Sign, steps: Steps = ALL_STEPS, slice_id: int = 0
) -> RatioHistogram | None:
    """The sum of the range; None where it has none."""
    part = _ratio_part(con, run_key, sign, steps, slice_id)
    if part is None:
        return None
    rows = con.execute(
        f"""SELECT bin, sum(n)::BIGINT, sum(rs), sum(aas), sum(aars), count(aars) = count(*)
            FROM (SELECT unnest(range(len(counts))) AS bin, unnest(counts) AS n, unnest(ratio_sum) AS rs,
                         unnest(abs_adv_sum) AS aas, unnest(abs_adv_ratio_sum) AS aars FROM {part.source})
            GROUP BY bin ORDER BY bin""",
        part.values,
    ).fetchall()
    _, counts, ratio, advantage, both, whole = zip(*rows, strict=True)
    return RatioHistogram(
        edges_name=part.edges_name, edges=part.edges, counts=counts, steps=part.steps, first=part.first,
        last=part.last, left_out=part.left_out, ratio_sum=ratio, abs_adv_sum=advantage,
        abs_adv_ratio_sum=both if all(whole) else None,
    )  # fmt: skip


def ratio_steps(
    con: Connection, run_key: int, *, last: int, until: int | None = None, slice_id: int = 0
) -> RatioSteps | None:
    """The last `last` steps up to `until` (None = the newest) that have one, not added up; None where there is none."""
    end = span((None, until))[1]
    (first,) = con.execute(
        """SELECT min(step)::BIGINT FROM (
               SELECT DISTINCT step FROM ratio_hist JOIN launch USING (run_key, launch_no)
               WHERE run_key = ? AND slice_id = ? AND step <= ?
                 AND (superseded_from IS NULL OR step < superseded_from)
               ORDER BY step DESC LIMIT ?)""",
        [run_key, slice_id, end, last],
    ).fetchall()[0]
    part = None if first is None else _part(con, "ratio_hist", run_key, (first, end), slice_id, "sign <> ?", 0)
    if part is None:
        return None
    rows = con.execute(
        f"""SELECT step::BIGINT, sign, list(n ORDER BY bin), list(rs ORDER BY bin), list(aas ORDER BY bin),
                   CASE WHEN bool_and(whole) THEN list(aars ORDER BY bin) END
            FROM (SELECT step, sign, bin, sum(n)::BIGINT AS n, sum(rs) AS rs, sum(aas) AS aas, sum(aars) AS aars,
                         count(aars) = count(*) AS whole
                  FROM (SELECT step, sign, unnest(range(len(counts))) AS bin, unnest(counts) AS n,
                               unnest(ratio_sum) AS rs, unnest(abs_adv_sum) AS aas, unnest(abs_adv_ratio_sum) AS aars
                        FROM {part.source})
                  GROUP BY step, sign, bin)
            GROUP BY step, sign ORDER BY step, sign""",
        part.values,
    ).fetchall()
    return RatioSteps(
        edges_name=part.edges_name, edges=part.edges, left_out=part.left_out,
        steps=tuple(
            RatioStep(
                step=step, sign=sign, counts=tuple(counts), ratio_sum=tuple(ratio), abs_adv_sum=tuple(advantage),
                abs_adv_ratio_sum=None if both is None else tuple(both),
            )
            for step, sign, counts, ratio, advantage, both in rows
        ),
    )  # fmt: skip


def ratio_heatmap(
    con: Connection, run_key: int, *, sign: Sign, steps: Steps = ALL_STEPS, slice_id: int = 0, n: int = 200
) -> RatioHeatmap | None:
    """At most n columns: where there are more steps, neighbours are added. None where the range has no histogram.
    Raises ValueError for n out of 1 to 400.
    """
    if not 1 <= n <= _MOST_COLUMNS:
        raise ValueError(f"n={n}: want 1 to {_MOST_COLUMNS} columns")
    part = _ratio_part(con, run_key, sign, steps, slice_id)
    if part is None:
        return None
    width = math.ceil((part.last - part.first + 1) / n)
    rows = con.execute(
        f"""SELECT g, bin, sum(n)::BIGINT
            FROM (SELECT (step - ?) // ? AS g, unnest(range(len(counts))) AS bin, unnest(counts) AS n
                  FROM {part.source})
            GROUP BY g, bin ORDER BY g, bin""",
        [part.first, width, *part.values],
    ).fetchall()
    columns: dict[int, list[int]] = {}
    for column, _, count in rows:
        columns.setdefault(column, []).append(count)
    return RatioHeatmap(
        edges_name=part.edges_name, edges=part.edges, width=width, left_out=part.left_out,
        steps=tuple(part.first + column * width for column in columns), counts=tuple(map(tuple, columns.values())),
    )  # fmt: skip


def histogram(
    con: Connection, run_key: int, name: str, *, steps: Steps = ALL_STEPS, slice_id: int = 0
) -> Histogram | None:
    """The sum of the range for another metric, response_length say; None where it has none."""
    part = _part(
        con, "hist", run_key, steps, slice_id, "metric_id IN (SELECT metric_id FROM metric WHERE name = ?)", name
    )
    if part is None:
        return None
    rows = con.execute(
        f"""SELECT bin, sum(n)::BIGINT
            FROM (SELECT unnest(range(len(counts))) AS bin, unnest(counts) AS n FROM {part.source})
            GROUP BY bin ORDER BY bin""",
        part.values,
    ).fetchall()
    return Histogram(
        edges_name=part.edges_name, edges=part.edges, counts=tuple(count for _, count in rows), steps=part.steps,
        first=part.first, last=part.last, left_out=part.left_out,
    )  # fmt: skip


def histogram_names(con: Connection, run_key: int) -> list[str]:
    """Metrics of a run that `histogram` knows, sorted."""
    rows = con.execute(
        """SELECT name FROM metric WHERE metric_id IN (SELECT DISTINCT metric_id FROM hist WHERE run_key = ?)
           ORDER BY name""",
        [run_key],
    ).fetchall()
    return [name for (name,) in rows]


def _ratio_part(con: Connection, run_key: int, sign: Sign, steps: Steps, slice_id: int) -> _Part | None:
    if sign not in (1, -1):
        raise ValueError(f"sign={sign!r}: want 1 (A > 0) or -1 (A < 0)")
    return _part(con, "ratio_hist", run_key, steps, slice_id, "sign = ?", sign)


def _part(
    con: Connection, table: str, run_key: int, steps: Steps, slice_id: int, which: str, value: object
) -> _Part | None:
    """The rows to add: of the edge set of the newest step, whole steps in place of their updates."""
    source = f"""{table} JOIN launch USING (run_key, launch_no)
        WHERE run_key = ? AND slice_id = ? AND step BETWEEN ? AND ? AND {which}
          AND (superseded_from IS NULL OR step < superseded_from)"""
    values: list[object] = [run_key, slice_id, *span(steps), value]
    found = con.execute(
        f"""SELECT edges_id, count(*), count(DISTINCT step), min(step)::BIGINT, max(step)::BIGINT,
                   bool_or(update IS NULL) AND bool_or(update IS NOT NULL)
            FROM {source} GROUP BY edges_id ORDER BY max(step) DESC, edges_id DESC""",
        values,
    ).fetchall()
    if not found:
        return None
    edges_id, _, count, first, last, mixed = found[0]
    ((name, edges),) = con.execute("SELECT name, edges FROM hist_edges WHERE edges_id = ?", [edges_id]).fetchall()
    chosen, given = f"{source} AND edges_id = ?", [*values, edges_id]
    if mixed:
        chosen += f""" AND (update IS NULL OR (launch_no, rank, step) NOT IN
                            (SELECT (launch_no, rank, step) FROM {source} AND edges_id = ? AND update IS NULL))"""
        given += given
    return _Part(
        source=chosen, values=given, edges_name=name, edges=tuple(edges), steps=count, first=first, last=last,
        left_out=sum(rows for _, rows, *_ in found[1:]),
    )  # fmt: skip
