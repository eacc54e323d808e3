"""The detectors over env slices in the index: found on their slice, dimmed beside the whole, live equals replay."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from regimescope.detectors import Suite
from regimescope.monitor import query, replay
from regimescope.monitor.check import as_text, make_report
from regimescope.monitor.private import read_run
from regimescope.monitor.record import Recorder
from regimescope.monitor.service import Monitor
from regimescope.monitor.ui.verdict import open_alerts

TASKS = ("proofs", "sums", "units", "words")


def alerts(monitor: Monitor) -> list[query.AlertRow]:
    with monitor.store.cursor() as con:
        return query.alerts(con, 1)


def tell(recorder: Recorder, step: int, tasks: Mapping[str, Mapping[str, float]], n: float = 64.0) -> None:
    """The rows of the slices of a step, as the trainer writes them: before the step line."""
    for task, metrics in tasks.items():
        length, accuracy = metrics.get("length", 35.0), metrics.get("accuracy", 0.5)
        recorder.step(
            step,
            {
                "response_length_mean": (length, n), "accuracy": (accuracy, n), "entropy_mean": (0.8, n * length),
                "reward_mean": (2 * accuracy - 1, n),
            },
            slice=("env", task),
        )  # fmt: skip


def one_fails(trainer, step: int) -> dict[str, Mapping[str, float]]:
    return {task: trainer.collapsing(step) if task == "proofs" else {} for task in TASKS}


def test_a_task_that_fails_alone_is_found_on_its_slice(trainer, watch) -> None:
    with trainer.open() as recorder:
        for step in range(40):
            tell(recorder, step, one_fails(trainer, step))
            trainer.step(recorder, step)  # the whole hardly moves: here not at all
    monitor = watch()
    monitor.catch_up()
    found = alerts(monitor)
    assert {a.slice for a in found} == {"env=proofs"}
    (length,) = (a for a in found if a.signature == "length_collapse")
    assert length.severity == "critical"
    assert 18 <= length.step_onset <= length.step_detected <= 32 and length.inhibited_by is None
    assert open_alerts(found, 39)[0] == length
    with read_run(trainer.run_dir, None, rollouts=False) as view:
        report = make_report(view)
    assert report.verdict == "critical" and {a["slice"] for a in report.alerts} == {"env=proofs"}
    assert "length_collapse (env=proofs)" in as_text(report)


def test_a_failure_of_all_is_one_alert_and_dimmed_ones(trainer, watch) -> None:
    with trainer.open() as recorder:
        for step in range(45):
            tell(recorder, step, {task: trainer.collapsing(step) for task in TASKS})
            trainer.step(recorder, step, **trainer.collapsing(step))
    monitor = watch()
    monitor.catch_up()
    found = alerts(monitor)
    assert {a.slice for a in found if a.signature == "length_collapse"} == {None, *(f"env={task}" for task in TASKS)}
    shown = open_alerts(found, 44)
    assert shown and all(a.slice is None for a in shown)
    assert all(a.inhibited_by for a in found if a.slice)
    assert len({a.incident_id for a in found}) == 1
    assert len({a.alert_id for a in found}) == len(found)
    with read_run(trainer.run_dir, None, rollouts=False) as view:
        report = make_report(view)
    text = as_text(report)
    short = "length_collapse, explained by length_collapse: " + ", ".join(f"env={task}" for task in TASKS)
    assert short in text.replace("\n    ", " ") and "length_collapse (env=" not in text
    assert not any(a["counts"] for a in report.alerts if a["slice"]) and report.verdict == "critical"


def test_live_gives_the_same_as_a_replay(trainer, watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks; a slice that comes late, one that is gone for a while, an event in a step without it."""
    given: list[dict[str, list[tuple[object, ...]]]] = []

    class Recording(Suite):
        def update(self, step, metrics, events=()):
            given[-1].setdefault(self.slice or "", []).append((step, dict(metrics), [(e.kind, e.step) for e in events]))
            return super().update(step, metrics, events)

    monkeypatch.setattr("regimescope.detectors.slices.Suite", Recording)
    given.append({})
    live = watch()
    ranks = [trainer.open(rank=rank, ranks=2) for rank in (0, 1)]
    for step in range(40):
        for recorder in ranks:
            tasks = one_fails(trainer, step)
            if step < 7:
                del tasks["words"]
            if 10 <= step < 14:
                del tasks["sums"]
            tell(recorder, step, tasks, n=32.0)
            recorder.buckets(step, 0, trainer.stats(), revision=0, bounds=trainer.bounds, slice=("env", "proofs"))
            if step == 11 and recorder is ranks[0]:
                recorder.event("curriculum", {"level": 2}, step=11)
            trainer.step(recorder, step)
            if step % 4 == 1:
                live.tick()
    for recorder in ranks:
        recorder.end("finished")
    live.tick()
    given.append({})
    again = watch()
    again.catch_up()
    assert alerts(live) == alerts(again) != []
    assert given[0] == given[1] and given[0].keys() == set(TASKS)
    assert [step for step, *_ in given[0]["words"]] == list(range(7, 40))
    assert [step for step, *_ in given[0]["sums"]] == [s for s in range(40) if not 10 <= s < 14 or s == 11]
    assert given[0]["sums"][10] == (11, {}, [("curriculum", 11)])
    step, metrics, events = given[0]["words"][0]
    assert (step, events) == (7, [("start", 7)]) and metrics["accuracy.n"] == 64.0
    _, metrics, _ = given[0]["proofs"][0]
    assert metrics["R4.token_frac"] > 0 and "pos_eq1.token_frac" not in metrics


def test_later_launches_and_other_kinds_of_slices(trainer, watch) -> None:
    with trainer.open() as recorder:
        for step in range(40):
            tell(recorder, step, one_fails(trainer, step))
            recorder.step(
                step, {"accuracy": (0.0 if step > 20 else 0.9, 8.0)}, slice=("lag", "1")
            )  # shown, not watched
            trainer.step(recorder, step)
    live = watch()
    live.tick()
    before = {a.alert_id: a for a in alerts(live)}
    assert {a.slice for a in before.values()} == {"env=proofs"}
    with trainer.open(launch="b", start="resume", first_step=15) as recorder:
        for step in range(15, 30):
            tell(recorder, step, {task: {} for task in TASKS})
            trainer.step(recorder, step)
            live.tick()
    after = {a.alert_id: a for a in alerts(live)}
    assert after.keys() == before.keys()
    assert all(a.superseded and a.state == "resolved" and a.launch_no == 0 for a in after.values())
    again = watch()
    again.catch_up()
    assert {a.alert_id for a in alerts(again)} == set(after)


def test_slices_make_the_pieces_of_a_replay_smaller(trainer, watch, monkeypatch: pytest.MonkeyPatch) -> None:
    with trainer.open() as recorder:
        for step in range(40):
            tell(recorder, step, one_fails(trainer, step))
            trainer.step(recorder, step)
    sizes: list[int] = []

    def counting(con, run_key, launch, steps, parts, **wanted):
        sizes.append(len(steps))
        return read_span(con, run_key, launch, steps, parts, **wanted)

    read_span = replay.read_span
    monkeypatch.setattr(replay, "read_span", counting)
    whole = watch()
    whole.catch_up()
    monkeypatch.setattr(replay, "SPAN", 30)
    monkeypatch.setattr(replay, "SPAN_LEAST", 3)
    pieces = watch()
    pieces.catch_up()
    assert sizes == [40, 6, 6, 6, 6, 6, 6, 4]
    assert alerts(whole) == alerts(pieces) != []
