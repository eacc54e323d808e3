"""Predicted against observed: a run written by the real Recorder whose bounds a real command moves."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path

import pytest

from regimescope.monitor import query
from regimescope.monitor.bounds import Bounds, WeightRule
from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.control import Ack, ControlFolder
from regimescope.monitor.edges import LR1
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.observed import Outcome, outcome
from regimescope.monitor.record import Recorder
from regimescope.monitor.store import Store
from regimescope.monitor.token_stats import RatioHist, TokenStats

TIGHT = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [1.0, 101.0]})
LOOSE = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [0.0, 101.0]})
R4 = 400
"Tokens of R4 a step, all at r = 0.5 with |A| = 1."


def hist(ratio: float, tokens: int) -> RatioHist:
    place = bisect_right(LR1, math.log(ratio))
    counts = tuple(tokens if i == place else 0 for i in range(len(LR1) + 1))
    sums, both = tuple(map(float, counts)), tuple(ratio * n for n in counts)
    return RatioHist(counts=counts, ratio_sum=both, abs_adv_sum=sums, abs_adv_ratio_sum=both)


def step(trainer, recorder: Recorder, number: int, bounds: Bounds, revision: int, *, held: int, **more: float) -> None:
    weight = held * 1.0 + (R4 - held) * 0.5  # a held token weighs w_min of the tight bounds
    tokens = (600, 0, 0, R4, 0, 0, 0)
    plain = trainer.stats()
    stats = replace(
        plain, tokens=tokens, clip_high=(0,) * 7, clip_low=(0, 0, 0, held, 0, 0, 0),
        abs_adv_weight_sum=(600.0, 0.0, 0.0, weight, 0.0, 0.0, 0.0),
        hist_pos=hist(1.05, 600), hist_neg=hist(0.5, R4),
    )  # fmt: skip
    assert isinstance(stats, TokenStats)
    recorder.buckets(number, 0, stats, revision=revision, bounds=bounds)
    recorder.ratio_hist(number, stats)
    recorder.step(number, {"accuracy": 0.5, "entropy_mean": 1.0} | more)


def applied(run_dir: Path, recorder: Recorder, at: int, bounds: Bounds, revision: int, kind: str = "set_bounds") -> str:
    """A command and its ack; its id."""
    args = bounds.to_wire() if kind == "set_bounds" else {"checkpoint": at - 1, "bounds": bounds.to_wire()}
    with MonitorSegment(run_dir) as segment:
        command = issue(run_dir, segment, kind=kind, args=args, launch=recorder.launch, expect=revision - 1, by="ana",
                        why="x")  # fmt: skip
    recorder.ack(Ack(id=command.id, step=at, status="applied", revision=revision, applied=bounds))
    return command.id


def outcomes(root: Path) -> dict[str, Outcome | None]:
    store = Store.in_memory(root)
    try:
        Ingester(store).catch_up()
        with store.cursor() as con:
            (run,) = query.list_runs(con)
            commands = query.commands(con, run.run_key)
            return {c.command_id: outcome(con, run, commands, c) for c in commands}
    finally:
        store.close()


@pytest.fixture
def recorder(trainer):
    """25 steps under the tight bounds, which hold all of R4."""
    with trainer.open(rule=WeightRule.capped(TIGHT)) as made:
        ControlFolder(trainer.run_dir, launch=made.launch, can=("pause",))
        for number in range(25):
            step(trainer, made, number, TIGHT, 0, held=R4)
        yield made


def test_what_was_predicted_stands_beside_what_came(trainer, root: Path, recorder: Recorder) -> None:
    command = applied(trainer.run_dir, recorder, 25, LOOSE, 1)
    for number in range(25, 37):
        step(trainer, recorder, number, LOOSE, 1, held=40, accuracy=0.7)
    found = outcomes(root)[command]
    assert found is not None
    assert (found.first, found.steps, found.of, found.before, found.note) == (25, 12, 30, 20, "")
    (regime,) = found.regimes
    assert (regime.regime, regime.clipped_before, regime.clipped_predicted) == ("R4", 1.0, 0.0)
    assert regime.clipped_observed == pytest.approx(0.1)
    assert regime.mass_before == pytest.approx(400 / 1030)  # replayed: 600 tokens at r = 1.05
    assert regime.mass_predicted == pytest.approx(200 / 830)
    assert regime.mass_observed == pytest.approx(220 / 820)
    moved = {metric.name: (metric.before, metric.after) for metric in found.metrics}
    assert moved["accuracy"] == pytest.approx((0.5, 0.7)) and moved["entropy_mean"] == (1.0, 1.0)


def test_only_steps_of_its_own_revision_count(trainer, root: Path, recorder: Recorder) -> None:
    """The next change ends the look, and 30 steps do."""
    one = applied(trainer.run_dir, recorder, 25, LOOSE, 1)
    for number in range(25, 30):
        step(trainer, recorder, number, LOOSE, 1, held=0)
    two = applied(trainer.run_dir, recorder, 30, TIGHT, 2)
    for number in range(30, 75):
        step(trainer, recorder, number, TIGHT, 2, held=R4)
    found = outcomes(root)
    first, second = found[one], found[two]
    assert first is not None and second is not None
    assert (first.steps, first.note) == (5, "The bounds moved again at step 30.")
    assert (second.steps, second.note) == (30, "")
    assert second.regimes[0].clipped_observed == 1.0
    assert second.regimes[0].clipped_predicted == 1.0  # predicted from the 20 steps before, of both revisions


def test_a_change_whose_steps_a_rollback_left_says_so(trainer, root: Path, recorder: Recorder) -> None:
    change = applied(trainer.run_dir, recorder, 25, LOOSE, 1)
    for number in range(25, 30):
        step(trainer, recorder, number, LOOSE, 1, held=0)
    recorder.end("rollback")
    with trainer.open(launch="launch-b", start="rollback", first_step=11, revision=2,
                      rule=WeightRule.capped(TIGHT)) as again:  # fmt: skip
        back = applied(trainer.run_dir, again, 11, TIGHT, 2, "rollback")
        step(trainer, again, 11, TIGHT, 2, held=R4)
        found = outcomes(root)
    first, second = found[change], found[back]
    assert first is not None and second is not None
    assert (first.steps, first.note) == (0, "Its steps were left by a later rollback.")
    assert (second.first, second.steps, [r.regime for r in second.regimes]) == (11, 1, ["R4"])


def test_a_command_that_moved_nothing_has_no_outcome(trainer, root: Path, recorder: Recorder) -> None:
    pause = applied(trainer.run_dir, recorder, 25, TIGHT, 1)
    assert outcomes(root)[pause] is None


def test_the_ranks_that_have_applied_it_are_named(trainer, root: Path) -> None:
    with trainer.open(ranks=2) as recorder:
        ControlFolder(trainer.run_dir, launch=recorder.launch, can=("pause",))
        applied(trainer.run_dir, recorder, 0, LOOSE, 1)
        store = Store.in_memory(root)
        Ingester(store).catch_up()
        with store.cursor() as con:
            (command,) = query.commands(con, 1)
        store.close()
    assert (command.status, command.applied_by, command.ranks) == ("applying", (0,), 2)
