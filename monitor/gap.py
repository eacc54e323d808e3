"""How far the weights in force are from those that DISPO's published bounds give on the same tokens, per regime.

`read_gaps(con, place, bounds, mass, capped)`: step -> `<regime>.dispo_gap`, the gradient mass that DISPO's bounds would
add (or take, negative) over all that is there. Exact, from the histograms of log r, since every published bound is one
of their edges. Only for a weight of base r with caps alone; a step without histogram has no gap. It tells a bound that
is missing, which clips nothing, from one that does not matter.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from regimescope.monitor.bounds import Bounds, SignBounds
from regimescope.monitor.query import Connection

DISPO = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [0.0, 101.0]})
"arXiv 2602.00983."
_REGIMES = {"pos": ("R2", "R1"), "neg": ("R4", "R3")}
"Of r < 1 and of r > 1."
_NEAR = 1e-6  # of an edge

_BELOW, _ABOVE = "[1:if(sign = 1, ?, ?)]", "[if(sign = 1, ?, ?) + 1:]"
_SUMS = ", ".join(
    f"coalesce(sum(list_sum({column}{part})), 0)"
    for part in (_BELOW, _BELOW, _ABOVE, _ABOVE)
    for column in ("abs_adv_sum", "abs_adv_ratio_sum")
)
_QUERY = f"""
    SELECT step::BIGINT, sign, {_SUMS} FROM (
        SELECT * FROM ratio_hist
        WHERE run_key = ? AND launch_no = ? AND step BETWEEN ? AND ? AND slice_id = 0 AND edges_id = ?
          AND abs_adv_ratio_sum IS NOT NULL
        QUALIFY update IS NULL OR NOT bool_or(update IS NULL) OVER (PARTITION BY rank, step, sign))
    GROUP BY step, sign"""
_EDGES = """
    SELECT edges_id, edges FROM hist_edges WHERE name = 'lr1' AND edges_id IN (
        SELECT edges_id FROM ratio_hist WHERE run_key = ? AND launch_no = ? AND step BETWEEN ? AND ?)"""


def read_gaps(
    con: Connection,
    place: Sequence[int],
    bounds: Mapping[int, Bounds],
    mass: Mapping[int, float | None],
    capped: Collection[str],
) -> dict[int, dict[str, float]]:
    """`place`: run, launch, first and last step. `bounds`: in force, by step; a step that is not there is left out.
    `mass`: sum of w|A| of all tokens, by step. `capped`: the signs that can have a gap.
    """
    if not capped or not bounds:
        return {}
    found: dict[int, dict[str, float]] = {}
    for edges_id, edges in con.execute(_EDGES, list(place)).fetchall():
        for now, first, last in _stretches(bounds):
            for step, sign, *sums in _read(con, place, edges_id, edges, now, first, last):
                side, whole = "pos" if sign == 1 else "neg", mass.get(step)
                if side not in capped or step not in bounds or not whole or not math.isfinite(whole):
                    continue
                gaps = side_gaps(sums, getattr(now, side), getattr(DISPO, side))
                found.setdefault(step, {}).update(
                    {f"{regime}.dispo_gap": gap / whole for regime, gap in zip(_REGIMES[side], gaps, strict=True)}
                )
    return found


def side_gaps(sums: Sequence[float], now: SignBounds, other: SignBounds) -> tuple[float, float]:
    """Gradient mass under `other` bounds less that under those of `now`: of the tokens with r < 1, and with r > 1.

    `sums`: |A| and r|A| of the tokens below w_min of `now` and of `other`, above w_max of `now` and of `other`.

    >>> side_gaps([0, 0, 2, 1, 0, 0, 0, 0], DISPO.neg, DISPO.pos)  # 2 of |A| at r = 1/2, held at .8 instead
    (0.6000000000000001, 0.0)
    """
    below, below_other, above, above_other = zip(sums[::2], sums[1::2], strict=True)
    lifted = [w * adv - ratio if w > 0 else 0.0 for w, (adv, ratio) in ((now.w_min, below), (other.w_min, below_other))]
    cut = [ratio - w * adv if math.isfinite(w) else 0.0
           for w, (adv, ratio) in ((now.w_max, above), (other.w_max, above_other))]  # fmt: skip
    return lifted[1] - lifted[0], cut[0] - cut[1]


def bins_below(edges: Sequence[float], weight: float) -> int:
    """Number of bins below a weight; one that is no edge counts at the edge above it."""
    if weight <= 0:
        return 0
    return len(edges) + 1 if math.isinf(weight) else bisect_left(edges, math.log(weight) - _NEAR) + 1


def _read(
    con: Connection, place: Sequence[int], edges_id: int, edges: Sequence[float], now: Bounds, first: int, last: int
) -> list[tuple[int, int, float]]:
    """(step, sign, eight sums as in `side_gaps`), updates and ranks added; of a rank that wrote a
    histogram of the whole step, that one alone."""
    cuts = [
        bins_below(edges, getattr(getattr(bounds, side), name))
        for name in ("w_min", "w_max")
        for bounds in (now, DISPO)
        for _ in ("|A|", "r|A|")
        for side in ("pos", "neg")
    ]
    where = [*place[:2], first, last]
    return con.execute(_QUERY, [*cuts, *where, edges_id]).fetchall()


def _stretches(bounds: Mapping[int, Bounds]) -> Iterator[tuple[Bounds, int, int]]:
    """Steps in a row under the same bounds: those, first and last step."""
    for now, group in groupby(sorted(bounds), key=lambda step: bounds[step]):
        steps = list(group)
        yield now, steps[0], steps[-1]


def capped_sides(weight_rule: str | None) -> frozenset[str]:
    """Signs whose weight is r between caps, of a launch's rule as the index has it."""
    rule = json.loads(weight_rule) if weight_rule else {}
    return frozenset(
        side
        for side, one in rule.items()
        if one.get("base") == "r" and one.get("drop_below") is None and one.get("drop_above") is None
    )
