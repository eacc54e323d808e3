"""Detectors over the index: live equals replay, alerts keep their ids, launches own their alerts, silence is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regimescope.detectors import Suite
from regimescope.monitor import query
from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import Ack
from regimescope.monitor.live import GAP_FLOOR_S
from regimescope.monitor.replay import LATE_S, Replayer
from regimescope.monitor.service import Monitor
from regimescope.monitor.timeline import read_launches, read_span, steps_after

COMMAND = "0199a3c4-7d1e-7000-8000-0000000000a1"
WIDER = Bounds.from_wire({"pos": [0.8, 5.0], "neg": [0.0, 101.0]})


def alerts(monitor: Monitor, run_key: int = 1) -> list[query.AlertRow]:
    with monitor.store.cursor() as con:
        return query.alerts(con, run_key)


class Recording(Suite):
    """The real suite, which also keeps what it was given."""

    given: list[tuple[int, dict[str, float], list[tuple[str, int, dict[str, object]]]]]

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.given = []
        suites.append(self)

    def update(self, step, metrics, events=()):
        self.given.append((step, dict(metrics), [(e.kind, e.step, dict(e.data)) for e in events]))
        return super().update(step, metrics, events)


suites: list[Recording] = []


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    """Suites that are made from now on, in order."""
    suites.clear()
    monkeypatch.setattr("regimescope.monitor.replay.Suite", Recording)
    return suites


def test_a_collapse_is_found_and_stored_whole(collapsed, watch) -> None:
    monitor = watch()
    monitor.catch_up()
    found = {a.signature: a for a in alerts(monitor) if a.severity == "critical"}
    assert "length_collapse" in found
    alert = found["length_collapse"]
    assert 18 <= alert.step_onset <= alert.step_detected <= 32
    assert alert.launch_no == 0 and not alert.superseded and alert.title and alert.evidence
    assert set(alert.remedy) == {"bound", "direction", "target", "text"}
    assert monitor.head(1).last == 39 and monitor.warming(1)[0] >= 10
    assert {b.rule for b in monitor.blind(1)}


def test_live_gives_the_same_alerts_as_a_replay(trainer, watch) -> None:
    live = watch()
    with trainer.open() as recorder:
        for step in range(40):
            trainer.step(recorder, step, **trainer.collapsing(step))
            if step % 3 == 0:
                live.tick()
            if step == 10:
                recorder.event("curriculum", {"level": 2}, step=11)
    live.tick()
    again = watch()
    again.catch_up()
    assert alerts(live) == alerts(again) != []


def test_live_gives_the_suite_the_same_as_a_replay(trainer, watch, recording) -> None:
    live = watch()
    with trainer.open() as recorder:
        for step in range(8):
            trainer.step(recorder, step)
            live.tick()
            recorder.event("checkpoint", {"path": "x"}, step=step)
            if step == 3:
                recorder.ack(Ack(id=COMMAND, step=4, status="applied", revision=1, applied=WIDER))
                trainer.bounds, trainer.revision = WIDER, 1
            if step == 5:
                recorder.event("sampling", {"temperature": 0.5}, step=6)
                live.tick()
    live.tick()
    (first,) = recording
    watch().catch_up()
    assert recording[-1].given == first.given
    assert [step for step, *_ in first.given] == list(range(8))


def test_what_the_suite_is_given(trainer, watch, recording) -> None:
    with trainer.open() as recorder:
        trainer.step(recorder, 0, kl_ref=float("nan"))
        recorder.ack(Ack(id=COMMAND, step=1, status="applied", revision=1, applied=WIDER))
        recorder.step(1, {"accuracy": (0.5, 16.0)})  # no update
        trainer.bounds, trainer.revision = WIDER, 1
        trainer.step(recorder, 2)
    watch().catch_up()
    (suite,) = recording
    (_, first, start), (_, second, changed), (_, third, nothing) = suite.given
    assert first["accuracy"] == 0.5 and first["accuracy.n"] == 256.0 and first["R4.tokens"] == 400.0
    assert first["R1.clip_high_frac"] == 6 / 300 and first["pos.w_max"] == 11.0 and first["kl_ref"] != first["kl_ref"]
    assert "kl_ref.n" not in first  # a plain number: how many items is not known
    assert "R4.tokens" not in second and second["pos.w_max"] == 5.0 and third["pos.w_max"] == 5.0
    kind, step, data = start[0]
    assert (len(start), kind, step) == (1, "start", 0)
    assert data == {
        "objective": "dispo", "ratio_source": "behaviour", "pos.base": "r", "neg.base": "r", "pos.w_min": 0.8,
        "pos.w_max": 11.0, "neg.w_min": 0.0, "neg.w_max": 101.0, "revision": 0, "framework": "regimescope",
        **{f"{sign}.w_min.limits": (0.0, 1.0) for sign in ("pos", "neg")},
        **{f"{sign}.w_max.limits": (1.0, 101.0) for sign in ("pos", "neg")},
    }  # fmt: skip
    assert [(k, s, d["revision"], d["pos.w_max"]) for k, s, d in changed] == [("bounds_changed", 1, 1, 5.0)]
    assert nothing == []


def test_a_resumed_launch_sees_the_surviving_steps_and_its_own(trainer, watch, recording) -> None:
    with trainer.open() as recorder:
        for step in range(5):
            trainer.step(recorder, step, accuracy=0.1)
    trainer.bounds, trainer.revision = WIDER, 3
    with trainer.open(launch="b", start="resume", first_step=3) as recorder:
        for step in range(3, 6):
            trainer.step(recorder, step, accuracy=0.9)
    watch().catch_up()
    old, new = recording[-2:]
    assert [(s, m["accuracy"]) for s, m, _ in old.given] == [(s, 0.1) for s in range(5)]
    assert [(s, m["accuracy"]) for s, m, _ in new.given] == [(s, 0.1) for s in range(3)] + [
        (s, 0.9) for s in range(3, 6)
    ]
    events = [(s, kind, data["revision"]) for s, _, found in new.given for kind, _, data in found]
    assert events[:2] == [(0, "start", 0), (3, "resume", 3)]


def test_alerts_of_a_repeated_stretch_stay_and_are_closed(trainer, watch) -> None:
    with trainer.open() as recorder:
        for step in range(40):
            trainer.step(recorder, step, **trainer.collapsing(step))
    live = watch()
    live.tick()
    before = {a.alert_id: a for a in alerts(live)}
    assert any(a.open and a.severity == "critical" for a in before.values())
    epoch = live.head(1).epoch
    with trainer.open(launch="b", start="resume", first_step=15) as recorder:
        for step in range(15, 30):
            trainer.step(recorder, step)
        live.tick()
    assert live.head(1).epoch != epoch and live.head(1).last == 29
    after = {a.alert_id: a for a in alerts(live)}
    assert before.keys() <= after.keys()
    late = [after[i] for i, a in before.items() if a.step_detected >= 15]
    assert late and all(a.superseded and a.state == "resolved" and a.launch_no == 0 for a in late)
    assert not any(a.open and a.severity == "critical" for a in after.values())


def test_a_step_of_several_ranks_is_given_once_and_complete(trainer, watch, recording) -> None:
    live = watch()
    ranks = [trainer.open(rank=rank, ranks=2) for rank in (0, 1)]
    trainer.step(ranks[0], 0)
    live.tick()
    assert live.head(1).last == -1
    trainer.step(ranks[1], 0)
    live.tick()
    assert live.head(1).last == 0
    trainer.step(ranks[0], 1)
    trainer.step(ranks[0], 2)
    live.tick()
    assert live.head(1).last == 0  # rank 0 is two steps ahead of what rank 1 sent, one ahead of step 1
    trainer.step(ranks[0], 3)
    live.tick()
    assert live.head(1).last == 1
    trainer.step(ranks[1], 1)  # late: changes the tables, not the findings
    live.tick()
    for recorder in ranks:
        recorder.end("stopped")
    live.tick()
    assert [step for step, *_ in recording[-1].given] == [0, 1, 2, 3]
    assert recording[-1].given[0][1]["R4.tokens"] == 800.0


def test_a_rank_that_does_not_come_is_waited_for_a_minute(trainer, watch, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("regimescope.monitor.replay.time.monotonic", lambda: now[0])
    live = watch()
    recorder = trainer.open(rank=0, ranks=2)
    trainer.step(recorder, 0)
    live.tick()
    assert live.head(1).last == -1
    now[0] += LATE_S + 1
    live.tick()
    assert live.head(1).last == 0
    recorder.close()


def test_silence_opens_a_gap_and_news_closes_it(trainer, watch, monkeypatch: pytest.MonkeyPatch) -> None:
    live = watch()
    with trainer.open() as recorder:
        for step in range(4):
            trainer.step(recorder, step)
        live.tick()
        replayer: Replayer = live._replayer
        replayer.update(set(), {1: GAP_FLOOR_S - 1})
        assert not [a for a in alerts(live) if a.rule == "telemetry_gap"]
        replayer.update(set(), {1: GAP_FLOOR_S + 1})
        (gap,) = [a for a in alerts(live) if a.rule == "telemetry_gap"]
        assert (gap.severity, gap.state, gap.step_onset) == ("warning", "firing", 3)
        replayer.update(set(), {1: GAP_FLOOR_S + 60})
        assert [a for a in alerts(live) if a.rule == "telemetry_gap"] == [gap]
        trainer.step(recorder, 4)
        live.tick()
        assert not [a for a in alerts(live) if a.rule == "telemetry_gap"]


@pytest.mark.parametrize("state", ["paused", "waiting_rollouts", "evaluating", "checkpointing"])
def test_a_trainer_that_says_why_it_is_silent_has_no_gap(trainer, watch, state: str) -> None:
    live = watch()
    with trainer.open() as recorder:
        for step in range(4):
            trainer.step(recorder, step)
        recorder.state(state, step=4)
        live.tick()
        live._replayer.update(set(), {1: 3600.0})
        assert not [a for a in alerts(live) if a.rule == "telemetry_gap"]


def test_no_gap_after_the_end(collapsed, watch) -> None:
    live = watch()
    live.tick()
    live._replayer.update(set(), {1: 3600.0})
    assert not [a for a in alerts(live) if a.rule == "telemetry_gap"]


def test_alert_ids_depend_on_the_path_and_the_launch(collapsed, watch, root: Path) -> None:
    (root / "run").rename(root / "moved")
    moved = watch()
    moved.catch_up()
    ids = {a.alert_id for a in alerts(moved)}
    (root / "moved").rename(root / "run")
    back = watch()
    back.catch_up()
    here = {a.alert_id for a in alerts(back)}
    assert len(ids) == len(here) and not ids & here


def test_a_point_is_what_the_detectors_contract_says(trainer, watch) -> None:
    with trainer.open() as recorder:
        trainer.step(recorder, 7)
    monitor = watch()
    monitor.catch_up()
    with monitor.store.cursor() as con:
        (launch,) = read_launches(con, 1)
        (point,) = read_span(con, 1, launch, steps_after(con, 1, launch, -1))
        (partial,) = read_span(con, 1, replace(launch, ranks=2), steps_after(con, 1, launch, -1))
    assert point.step == 7 and not point.partial and partial.partial
    assert all(isinstance(value, float) for value in point.metrics.values())
