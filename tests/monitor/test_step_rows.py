"""What the detectors are given is what the public views say, however the steps were logged."""

from __future__ import annotations

import math
import random
from dataclasses import fields

import pytest

from regimescope.monitor.derived import FORMULAS
from regimescope.monitor.query import BUCKET_COLUMNS
from regimescope.monitor.step_rows import read_buckets, read_scalars
from regimescope.monitor.timeline import read_launches
from regimescope.monitor.token_stats import TokenStats

PLACE = [1, 0, 0, 3]


def drawn(draw: random.Random) -> TokenStats:
    """Seven buckets of random sums, one of them empty; the entropy effect was not sampled."""
    values: dict[str, tuple[float, ...] | tuple[int, ...]] = {}
    for one in fields(TokenStats):
        if one.name in ("tokens", "clip_high", "clip_low", "clamped"):
            values[one.name] = (0, *(draw.randint(1, 999) for _ in range(6)))
        elif one.name.endswith("_sum"):
            values[one.name] = (0.0, *(draw.uniform(-5, 5) for _ in range(6)))
    values["abs_adv_weight_sum"] = tuple(abs(x) for x in values["abs_adv_weight_sum"])
    return TokenStats(**{name: value for name, value in values.items() if not name.startswith("entropy_effect")})  # type: ignore[arg-type]


@pytest.fixture
def con(trainer, watch):
    """A run of four steps with two updates each; a metric by step, one by update, one that is no number."""
    draw = random.Random(3)
    with trainer.open() as recorder:
        for step in range(4):
            for update in range(2):
                recorder.buckets(step, update, drawn(draw), revision=0, bounds=trainer.bounds)
            recorder.step(step, {"accuracy": (draw.random(), 7.0), "lr": draw.random(), "loss": math.nan})
    monitor = watch()
    monitor.catch_up()
    with monitor.store.cursor() as cursor:
        yield cursor


def test_every_number_of_a_bucket_has_a_formula_that_python_reads_from_the_schema() -> None:
    assert set(BUCKET_COLUMNS) <= FORMULAS.keys()


def test_the_numbers_of_buckets_are_those_of_the_view(con) -> None:
    rows = con.execute(
        f"""SELECT step, bucket::VARCHAR, revision, w_min, w_max, {", ".join(BUCKET_COLUMNS)} FROM v_bucket_step_all
            WHERE run_key = 1 AND slice_id = 0"""
    ).fetchall()
    wanted = {(step, bucket): rest for step, bucket, *rest in rows}
    found = {
        (row.step, row.bucket): [row.revision, row.w_min, row.w_max, *map(row.value, BUCKET_COLUMNS)]
        for row in read_buckets(con, PLACE, [])
    }
    assert len(found) == 28 and found.keys() == wanted.keys()
    for place, values in found.items():
        for value, one in zip(values, wanted[place], strict=True):
            assert value == (one if one is None else pytest.approx(one, rel=1e-12)), place


@pytest.mark.parametrize("twice", [False, True])
def test_the_scalars_are_those_of_the_view_also_where_a_step_has_two_rows(con, twice: bool) -> None:
    if twice:
        con.execute("INSERT INTO scalar SELECT * REPLACE (value + 1 AS value) FROM scalar WHERE step = 2").fetchall()
    wanted = con.execute(
        "SELECT step, slice_id, name, value, weight, weighted FROM v_metric_step_all WHERE run_key = 1"
    ).fetchall()
    found = read_scalars(con, PLACE, [], [], one_rank=True)
    assert sorted(map(str, map(tuple, found))) == sorted(map(str, wanted)) and len(found) == 12


def test_a_launch_declares_which_signs_can_have_a_gap(con) -> None:
    (launch,) = read_launches(con, 1)
    assert launch.capped == {"pos", "neg"}
