"""Whole metrics as arrays: the points of the views, whatever a run logged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regimescope.monitor import history as module
from regimescope.monitor import query
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store

NAMES = ["accuracy", "entropy_mean", "kl_ref", "late", "R4.clip_low_frac", "neg.w_max", "nothing"]


def of_view(con: query.Connection, slice_id: int, name: str, steps: query.Steps = query.ALL_STEPS) -> list[object]:
    found = module._from_view(con, 1, slice_id, name, steps)
    return [*zip(found.steps.tolist(), map(repr, found.values.tolist()), strict=True)]


def points(found: query.History) -> list[object]:
    assert found.steps.dtype == np.int64 and found.values.dtype == np.float64
    return [*zip(found.steps.tolist(), map(repr, found.values.tolist()), strict=True)]


@pytest.fixture
def store(root):
    made = Store.in_memory(root)
    yield made
    made.close()


def test_it_has_the_points_of_the_view_with_what_is_not_finite(trainer, root, store: Store) -> None:
    with trainer.open() as recorder:
        for step in range(30):
            trainer.step(recorder, step, kl_ref=[0.1, math.nan, math.inf][step % 3], late=float(step))
        recorder.scalars(7, {"late": 70.0})  # twice, so its ranks and updates have to be combined
        recorder.scalars(2, {"early": 1.0})
        recorder.scalars(1, {"early": 2.0})
    Ingester(store).catch_up()
    with store.cursor() as con:
        found = query.history(con, 1, 0, [*NAMES, "early"])
        assert list(found) == [*NAMES, "early"]
        for name, metric in found.items():
            assert points(metric) == of_view(con, 0, name), name
        assert [len(found[name]) for name in ("accuracy", "nothing", "early")] == [30, 0, 2]
        assert found["early"].steps.tolist() == [1, 2] and np.isnan(found["kl_ref"].values).sum() == 10
        some = query.history(con, 1, 0, ["accuracy"], (5, 9))
        assert points(some["accuracy"]) == of_view(con, 0, "accuracy", (5, 9)) and len(some["accuracy"]) == 5


def test_ranks_are_combined_and_superseded_steps_left_out(trainer, root, store: Store) -> None:
    for rank in range(2):
        with trainer.open(launch="a", rank=rank, ranks=2) as recorder:
            for step in range(10):
                recorder.step(step, {"accuracy": (0.25 + 0.5 * rank, 1.0 + rank)})
    with trainer.open(launch="b", start="resume", first_step=6) as recorder:
        for step in range(6, 12):
            recorder.step(step, {"accuracy": (0.9, 4.0)})
    Ingester(store).catch_up()
    with store.cursor() as con:
        accuracy = query.history(con, 1, 0, ["accuracy"])["accuracy"]
        assert points(accuracy) == of_view(con, 0, "accuracy")
        assert accuracy.steps.tolist() == list(range(12))
        assert accuracy.values.tolist() == pytest.approx([1.75 / 3] * 6 + [0.9] * 6)


def test_a_resumed_run_of_one_rank_is_read_from_the_table(trainer, root, store: Store, monkeypatch) -> None:
    with trainer.open(launch="a") as recorder:
        for step in range(10):
            recorder.step(step, {"accuracy": 0.1})
    with trainer.open(launch="b", start="resume", first_step=6) as recorder:
        for step in range(6, 12):
            recorder.step(step, {"accuracy": 0.9})
    Ingester(store).catch_up()
    monkeypatch.setattr(module, "_from_view", lambda *_: pytest.fail("the view was asked"))
    with store.cursor() as con:
        accuracy = query.history(con, 1, 0, ["accuracy"])["accuracy"]
    assert accuracy.values.tolist() == [0.1] * 6 + [0.9] * 6
