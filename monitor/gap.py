"""How far the weights in force are from those that DISPO's published bounds give on the same tokens, per regime.

`read_gaps(con, place, bounds)`: step -> `<regime>.dispo_gap`, the gradient mass that DISPO's bounds would add (or take,
negative) over all that is there. Exact, from the histograms of log r, since every published bound is one of their
edges. Only for a weight of base r with caps alone; a step without histogram has no gap. It tells a bound that is
missing, which clips nothing, from one that does not matter.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from regimescope.monitor.bounds import Bounds, SignBounds
from regimescope.monitor.query import Connection

DISPO = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [0.0, 101.0]})
"arXiv 2602.00983."
_SIDES = ((1, "pos", "R2", "R1"), (-1, "neg", "R4", "R3"))
_NEAR = 1e-6  # of an edge

Sums = tuple[Sequence[float], Sequence[float]]
"Per bin: sum of |A|, sum of r|A|."


def read_gaps(con: Connection, place: Sequence[int], bounds: Mapping[int, Bounds]) -> dict[int, dict[str, float]]:
    """`place`: run, launch, first and last step. `bounds`: in force, by step; a step that is not there is left out."""
    capped = _capped(con, place)
    if not capped or not bounds:
        return {}
    total = dict(
        con.execute(
            """SELECT step::BIGINT, sum(abs_adv_weight_sum) FROM bucket_step
               WHERE run_key = ? AND launch_no = ? AND step BETWEEN ? AND ? AND slice_id = 0 GROUP BY step""",
            list(place),
        ).fetchall()
    )
    found: dict[int, dict[str, float]] = {}
    for step, sign, edges, mass, ratio_mass in _histograms(con, place):
        _, side, low, high = _SIDES[0 if sign == 1 else 1]
        whole = total.get(step)
        if side not in capped or step not in bounds or not whole or not math.isfinite(whole):
            continue
        below, above = side_gaps(edges, (mass, ratio_mass), getattr(bounds[step], side), getattr(DISPO, side))
        gaps = found.setdefault(step, {})
        for regime, gap in ((low, below), (high, above)):
            gaps[f"{regime}.dispo_gap"] = gaps.get(f"{regime}.dispo_gap", 0.0) + gap / whole
    return found


def side_gaps(edges: Sequence[float], sums: Sums, now: SignBounds, other: SignBounds) -> tuple[float, float]:
    """Gradient mass under `other` bounds less that under those of `now`: of the tokens with r < 1, and with r > 1.

    >>> edges = [math.log(0.8), 0.0]
    >>> side_gaps(edges, ([2.0, 1.0, 1.0], [1.0, 0.9, 1.5]), DISPO.neg, DISPO.pos)[0]  # 2 of |A| at r = 1/2, held at .8
    0.6000000000000001
    """
    return (
        _lifted(edges, sums, other.w_min) - _lifted(edges, sums, now.w_min),
        _cut(edges, sums, now.w_max) - _cut(edges, sums, other.w_max),
    )


def _lifted(edges: Sequence[float], sums: Sums, w_min: float) -> float:
    """What a lower bound adds to the bins below it: b|A| - r|A|."""
    bins = _bin(edges, w_min)
    return w_min * sum(sums[0][:bins]) - sum(sums[1][:bins])


def _cut(edges: Sequence[float], sums: Sums, w_max: float) -> float:
    """What an upper bound takes from the bins above it: r|A| - b|A|."""
    if math.isinf(w_max):
        return 0.0
    bins = _bin(edges, w_max)
    return sum(sums[1][bins:]) - w_max * sum(sums[0][bins:])


def _bin(edges: Sequence[float], weight: float) -> int:
    """Number of bins below a weight; one that is no edge counts at the edge above it."""
    return 0 if weight <= 0 else bisect_left(edges, math.log(weight) - _NEAR) + 1


def _capped(con: Connection, place: Sequence[int]) -> set[str]:
    """Sides whose weight is r between caps."""
    rows = con.execute("SELECT weight_rule FROM launch WHERE run_key = ? AND launch_no = ?", list(place[:2])).fetchall()
    rule = json.loads(rows[0][0]) if rows and rows[0][0] else {}
    return {
        side
        for side, one in rule.items()
        if one.get("base") == "r" and one.get("drop_below") is None and one.get("drop_above") is None
    }


def _histograms(
    con: Connection, place: Sequence[int]
) -> list[tuple[int, int, Sequence[float], Sequence[float], Sequence[float]]]:
    """(step, sign, edges, sums of |A| and of r|A| per bin), updates and ranks one after the other; of a rank that wrote
    one of the whole step, that one alone."""
    rows = con.execute(
        """SELECT step::BIGINT, sign, edges, abs_adv_sum, abs_adv_ratio_sum
           FROM ratio_hist JOIN hist_edges USING (edges_id)
           WHERE run_key = ? AND launch_no = ? AND step BETWEEN ? AND ? AND slice_id = 0
             AND abs_adv_ratio_sum IS NOT NULL
           QUALIFY update IS NULL OR NOT bool_or(update IS NULL) OVER (PARTITION BY rank, step, sign)
           ORDER BY step, sign, rank, update""",
        list(place),
    ).fetchall()
    return rows
