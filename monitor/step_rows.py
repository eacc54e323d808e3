"""The numbers of a launch's steps, in queries that cost little where there are few: scalars and buckets as the views
`v_metric_step_all` and `v_bucket_step_all` have them, without the views. Planning those costs DuckDB many times what
reading a step does, and a live run is read step by step. `timeline.py` makes points of what is read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from regimescope.monitor.derived import MASS, Sums, derive
from regimescope.monitor.envelopes import VALUES
from regimescope.monitor.series import Connection

SUMMED = (
    "tokens", "clip_high", "clip_low", "ratio_sum", "weight_sum", MASS, "entropy_sum", "entropy_effect_sum",
    "entropy_effect_tokens", "log_ratio_sum",
)  # fmt: skip
"Columns of bucket_step that the metrics of a bucket (BUCKET_COLUMNS) are made of."
_OF_ALL = ("tokens", MASS)
_CASES = " ".join(f"WHEN '{agg}' THEN {sql}" for agg, sql in VALUES.items())
_PLACE = "run_key = ? AND launch_no = ? AND step BETWEEN ? AND ?"


class ScalarRow(NamedTuple):
    """A metric of a step, ranks and updates combined."""

    step: int
    slice_id: int
    name: str
    value: float | None
    weight: float
    weighted: bool
    "Items stand behind the value."


class BucketNumbers(NamedTuple):
    """A bucket of a step, ranks and updates added."""

    step: int
    slice_id: int
    bucket: str
    revision: int
    w_min: float | None
    w_max: float | None
    sums: Sums
    whole: Sums
    "Of all seven."

    def value(self, column: str) -> float | None:
        """One of BUCKET_COLUMNS."""
        return derive(column, self.sums, self.whole)


def read_scalars(
    con: Connection, place: Sequence[int], slices: Sequence[int], of_slices: Sequence[str], *, one_rank: bool
) -> list[ScalarRow]:
    """`place`: run, launch, first and last step. `slices`: ids beside 0, of which `of_slices` are read."""
    where, values = f"{_PLACE} AND slice_id = 0", list[object](place)
    if slices:
        listed = ", ".join(map(str, (0, *slices)))
        where = f"{_PLACE} AND slice_id IN ({listed}) AND (slice_id = 0 OR list_contains(?, name))"
        values.append(sorted(of_slices))
    if one_rank:
        rows = con.execute(
            f"""SELECT step, slice_id, name, CASE agg {_CASES} END, weight, weight <> 1
                FROM scalar JOIN metric USING (metric_id) WHERE {where}""",
            values,
        ).fetchall()
        if len({row[:3] for row in rows}) == len(rows):  # one row a step: there is nothing to combine
            return [ScalarRow(*row) for row in rows]
    rows = con.execute(
        f"SELECT step, slice_id, name, value, weight, weighted FROM v_metric_step_all WHERE {where}", values
    ).fetchall()
    return [ScalarRow(*row) for row in rows]


def read_buckets(con: Connection, place: Sequence[int], slices: Sequence[int]) -> list[BucketNumbers]:
    """The same of the buckets."""
    listed = ", ".join(map(str, (0, *slices)))
    rows = con.execute(
        f"""SELECT step, slice_id, bucket::VARCHAR, max(revision), min(w_min), max(w_max),
                   {", ".join(f"sum({column})" for column in SUMMED)}
            FROM bucket_step WHERE {_PLACE} AND slice_id IN ({listed}) GROUP BY step, slice_id, bucket""",
        list(place),
    ).fetchall()
    whole: dict[tuple[int, int], dict[str, float | None]] = {}
    found = []
    for step, slice_id, bucket, revision, w_min, w_max, *values in rows:
        sums = dict(zip(SUMMED, values, strict=True))
        of_all = whole.setdefault((step, slice_id), dict.fromkeys(_OF_ALL))
        _add(of_all, sums)
        found.append(BucketNumbers(step, slice_id, bucket, revision, w_min, w_max, sums, of_all))
    return found


def _add(total: dict[str, float | None], sums: Mapping[str, float | None]) -> None:
    for column in _OF_ALL:
        if (value := sums[column]) is not None:
            total[column] = value + (total[column] or 0)
