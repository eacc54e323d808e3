"""The numbers of the Regimes page: the seven buckets of the newest step or one of its updates, with their change, and
the same by lag. Reads through query.py, adds up in plain functions.

    matrix = matrix_of(monitor, run_key, slice_id=0, update=None)      # cells by bucket, None before the first buckets
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regimescope.monitor import query
from regimescope.monitor.memo import Memo
from regimescope.monitor.query import BucketRow, BucketSums, Connection, SliceRow
from regimescope.monitor.service import Monitor
from regimescope.monitor.what_if import LAST_STEPS

BACK = 50
"Steps between a value and the one it is compared with."
_SEEN = 20
"Steps back in which the newest buckets are looked for: a step without an update has none."
REGIMES = ("R1", "R2", "R3", "R4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The seven buckets of one moment."""

    step: int
    updates: tuple[int, ...]
    "Gradient updates of that step, ascending."
    update: int | None
    "The one these rows are of; None = all of the step."
    now: Mapping[str, BucketRow]
    before: Mapping[str, BucketRow]
    "The newest at least BACK steps older; empty = there is none."
    sampled: float | None
    "Share of the tokens on which the entropy effect was measured; None = not measured."


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """What the tokens of one lag were, over the last steps that trained on them."""

    lag: str
    steps: int
    tokens: int
    clipped: Mapping[str, float | None]
    "By regime."
    log_ratio: float | None
    "Mean of log r."


_kept: Memo[Matrix | None] = Memo()


def matrix_of(monitor: Monitor, run_key: int, *, slice_id: int, update: int | None) -> Matrix | None:
    """Of the newest step; read once per step. Raises duckdb.Error."""
    head = monitor.head(run_key)

    def read() -> Matrix | None:
        with monitor.store.cursor() as con:
            return read_matrix(con, run_key, head.last, slice_id=slice_id, update=update)

    return _kept.get((monitor.store.instance, run_key, slice_id, update), head, read)


def read_matrix(con: Connection, run_key: int, last_step: int, *, slice_id: int, update: int | None) -> Matrix | None:
    """Of the newest step up to `last_step` that has buckets of this slice; None where there is none."""
    rows = _recent(con, run_key, last_step, slice_id, per_update=True)
    if not rows:
        newest = query.latest(con, run_key, ["R1.tokens"]).get("R1.tokens")
        rows = _recent(con, run_key, newest.step, slice_id, per_update=True) if newest is not None else []
    if not rows:
        return None
    step = rows[0].step
    updates = tuple(sorted({row.update for row in rows if row.update is not None}))
    chosen = update if update in updates else None
    single = chosen is not None
    now = rows if single else query.buckets(con, run_key, steps=(step, step), slice_id=slice_id)
    before = _recent(con, run_key, step - BACK, slice_id, per_update=single) if step >= BACK else []
    sums = query.bucket_sums(con, run_key, steps=(step, step), slice_id=slice_id)
    return Matrix(
        step=step,
        updates=updates,
        update=chosen,
        now={row.bucket: row for row in now if row.update == chosen},
        before={row.bucket: row for row in before if row.update == chosen},
        sampled=sampled_share(sums),
    )


def _recent(con: Connection, run_key: int, last: int, slice_id: int, *, per_update: bool) -> list[BucketRow]:
    """Of the newest step up to `last`, which is nearly always that one; else within the 20 before."""
    rows = query.buckets(con, run_key, steps=(last, last), slice_id=slice_id, per_update=per_update)
    if rows:
        return rows
    before = (last - _SEEN, last)
    return _newest(query.buckets(con, run_key, steps=before, slice_id=slice_id, per_update=per_update))


def _newest(rows: Sequence[BucketRow]) -> list[BucketRow]:
    last = max((row.step for row in rows), default=None)
    return [row for row in rows if row.step == last]


def sampled_share(sums: Sequence[BucketSums]) -> float | None:
    """Share of the tokens of the four regimes on which the entropy effect was measured."""
    mine = [row for row in sums if row.bucket in REGIMES and row.entropy_effect_tokens is not None]
    tokens = sum(row.tokens for row in mine)
    return sum(row.entropy_effect_tokens or 0 for row in mine) / tokens if tokens else None


def clipped(row: BucketRow | None) -> float | None:
    """Share of a bucket's tokens whose weight is not the base, on either side."""
    if row is None or row.clip_high_frac is None or row.clip_low_frac is None:
        return None
    return min(1.0, row.clip_high_frac + row.clip_low_frac)


def by_lag(con: Connection, run_key: int, last_step: int, slices: Sequence[SliceRow]) -> list[LagRow]:
    """A row per slice of kind `lag` that was trained on in the last 20 steps."""
    found = []
    for part in slices:
        if part.kind != "lag":
            continue
        rows = query.buckets(con, run_key, steps=(last_step - LAST_STEPS + 1, last_step), slice_id=part.slice_id)
        if rows:
            found.append(lag_row(part.value, rows))
    return sorted(found, key=lambda row: row.lag)


def lag_row(lag: str, rows: Sequence[BucketRow]) -> LagRow:
    """Rows of several steps added up, each weighted with its tokens."""
    tokens = sum(row.tokens for row in rows)
    drift = [(row.log_ratio_mean, row.tokens) for row in rows if row.log_ratio_mean is not None]
    shares: dict[str, float | None] = {}
    for regime in REGIMES:
        pairs = [(clipped(row) or 0.0, row.tokens) for row in rows if row.bucket == regime]
        shares[regime] = _mean(pairs)
    return LagRow(lag=lag, steps=len({row.step for row in rows}), tokens=tokens, clipped=shares, log_ratio=_mean(drift))


def _mean(pairs: Sequence[tuple[float, int]]) -> float | None:
    weight = sum(count for _, count in pairs)
    return sum(value * count for value, count in pairs if count) / weight if weight else None
