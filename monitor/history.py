"""Whole metrics as arrays, for reports and notebooks: `history(con, run_key, slice_id, names)`, every point, NaN and
infinities as they are. `query.py` is the public door.

Read like envelopes: from the table where a run has one rank and a scalar has one row a step, else through the view that
combines ranks and updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regimescope.monitor.envelopes import VALUES, by_metric, surviving_rows
from regimescope.monitor.series import ALL_STEPS, Connection, Steps, is_scalar, source, span


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """All points of one metric in step order, n of them."""

    steps: NDArray[np.int64]
    "[n], ascending, each once."
    values: NDArray[np.float64]
    "[n]; NaN also where the index holds no number."

    def __len__(self) -> int:
        return len(self.steps)


def history(
    con: Connection, run_key: int, slice_id: int, names: Iterable[str], steps: Steps = ALL_STEPS
) -> dict[str, History]:
    """Every point of these metrics by name, in the order of the names; one that is not there has none."""
    wanted = list(dict.fromkeys(names))
    surviving = surviving_rows(con, run_key)
    found: dict[str, History] = {}
    if surviving is not None:
        scalars = [name for name in wanted if is_scalar(name)]
        found = _from_table(con, [run_key, slice_id, *span(steps)], scalars, surviving)
    return {name: found[name] if name in found else _from_view(con, run_key, slice_id, name, steps) for name in wanted}


def _from_table(con: Connection, place: list[int], names: Sequence[str], surviving: str) -> dict[str, History]:
    """Of those scalars that have one row a step; the others are left out."""
    known = con.execute("SELECT metric_id, name, agg FROM metric WHERE list_contains(?, name)", [names]).fetchall()
    if not known:
        return {}
    numbers = [number for number, _, _ in known]
    value_of = by_metric({number: VALUES[agg] for number, _, agg in known})
    columns = con.execute(
        f"""SELECT metric_id, step::BIGINT AS step, {value_of} AS value
            FROM scalar WHERE run_key = ? AND slice_id = ? AND step BETWEEN ? AND ?{surviving}
              AND metric_id IN ({", ".join(map(str, numbers))})""",
        place,
    ).fetchnumpy()
    of, at, value = columns["metric_id"], columns["step"], _filled(columns["value"])
    order = np.argsort(of, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        of, at, value = of[order], at[order], value[order]
    ends = np.searchsorted(of, numbers, side="left"), np.searchsorted(of, numbers, side="right")
    found = {}
    for (_, name, _), first, last in zip(known, *ends, strict=True):
        points = _in_order(at[first:last], value[first:last])
        if points is not None:
            found[name] = points
    return found


def _in_order(steps: NDArray[np.int64], values: NDArray[np.float64]) -> History | None:
    """None where a step comes twice."""
    if (steps[1:] <= steps[:-1]).any():
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        if (steps[1:] == steps[:-1]).any():
            return None
    return History(steps=steps, values=values)


def _from_view(con: Connection, run_key: int, slice_id: int, name: str, steps: Steps) -> History:
    sql, values = source(run_key, slice_id, name, *span(steps))
    columns = con.execute(f"SELECT step, value FROM ({sql}) ORDER BY step", values).fetchnumpy()
    return History(steps=columns["step"], values=_filled(columns["value"]))


def _filled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """NaN for NULL; DuckDB gives a masked array where a column has one."""
    return np.ma.filled(values.astype(np.float64, copy=False), np.nan)
