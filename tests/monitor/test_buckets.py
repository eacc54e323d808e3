"""The buckets of a step and of an update: seven at a time, with every derived number; ranks and updates add."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from regimescope.monitor import query
from regimescope.monitor.bounds import Bounds, SignBounds
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store
from regimescope.monitor.token_stats import BUCKETS


@pytest.fixture
def store(root: Path):
    made = Store.in_memory(root)
    yield made
    made.close()


def test_seven_rows_a_step_whose_numbers_are_those_of_the_sums(trainer, store: Store) -> None:
    first = replace(
        trainer.stats(1, r4_clipped=100), clamped=(0, 0, 0, 2, 0, 0, 0), weight_sum=(0.0,) * 3 + (300.0,) + (0.0,) * 3
    )
    second = trainer.stats(2)
    for rank, stats in ((0, first), (1, second)):
        with trainer.open(rank=rank, ranks=2) as recorder:
            for update in (0, 1):
                recorder.buckets(3, update, stats, revision=2, bounds=trainer.bounds)
    Ingester(store).catch_up()
    total = first + second + first + second
    with store.cursor() as con:
        rows = query.buckets(con, 1)
        updates = query.buckets(con, 1, per_update=True)
    assert [r.bucket for r in rows] == list(BUCKETS) and {r.update for r in rows} == {None}
    assert [(r.update, r.bucket) for r in updates] == [(u, b) for u in (0, 1) for b in BUCKETS]
    assert sum(r.token_frac for r in rows) == pytest.approx(1.0) and sum(r.grad_mass for r in rows) == pytest.approx(
        1.0
    )
    r4 = rows[3]
    assert (r4.step, r4.revision, r4.tokens, r4.clamped) == (3, 2, 2400, 4)
    assert (r4.w_min, r4.w_max, r4.eps_low, r4.eps_high) == (0.0, 101.0, 1.0, 100.0)
    assert r4.clip_low_frac == 200 / 2400 and r4.clip_high_frac == 0.0
    assert r4.token_frac == 2400 / sum(total.tokens) and r4.ratio_mean == 1.0
    assert r4.weight_mean == pytest.approx((2 * 300 + 2 * 800) / 2400) and r4.clip_gap == pytest.approx(1 - 2200 / 2400)
    assert r4.grad_mass == pytest.approx(total.abs_adv_weight_sum[3] / sum(total.abs_adv_weight_sum))
    assert (r4.entropy_mean, r4.logp_mean, r4.log_ratio_mean, r4.log_ratio_sq_mean) == (1.0, -1.0, 0.0, 0.0)
    assert r4.entropy_effect is None and rows[6].w_min is None and rows[6].eps_low is None
    for bucket in range(7):
        assert updates[bucket].tokens + updates[7 + bucket].tokens == rows[bucket].tokens
        assert updates[bucket].logp_mean == rows[bucket].logp_mean


def test_a_range_a_slice_and_what_a_later_launch_repeated(trainer, store: Store) -> None:
    with trainer.open() as recorder:
        for step in range(4):
            recorder.buckets(step, 0, trainer.stats(), revision=0, bounds=trainer.bounds)
            recorder.buckets(step, 0, trainer.stats(3), revision=0, bounds=trainer.bounds, slice=("env", "math"))
    tighter = Bounds(pos=SignBounds(w_min=0.8, w_max=2.0), neg=SignBounds(w_min=0.5, w_max=2.0))
    with trainer.open(launch="b", start="resume", first_step=2) as recorder:
        recorder.buckets(2, 0, replace(trainer.stats(), logp_sum=(math.nan,) * 7), revision=1, bounds=tighter)
    Ingester(store).catch_up()
    with store.cursor() as con:
        rows = query.buckets(con, 1)
        sliced = query.buckets(con, 1, slice_id=1, per_update=True)
        assert [r.step for r in query.buckets(con, 1, steps=(1, 1))] == [1] * 7
        assert (
            query.buckets(con, 1, steps=(3, None)) == query.buckets(con, 9) == query.buckets(con, 1, slice_id=5) == []
        )
    assert [r.step for r in rows] == [s for s in (0, 1, 2) for _ in range(7)]
    assert (rows[14].revision, rows[14].w_max, rows[17].eps_low) == (1, 2.0, 0.5) and math.isnan(rows[14].logp_mean)
    assert [r.step for r in sliced] == [0] * 7 + [1] * 7 and sliced[0].tokens == 3 * rows[0].tokens
