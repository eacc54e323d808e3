"""The read functions: envelopes keep spikes and count what is not finite, derived metrics have names, ranks combine."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from regimescope.detectors.incidents import UNNAMED
from regimescope.monitor import query
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store


@pytest.fixture
def store(root: Path):
    made = Store.in_memory(root)
    yield made
    made.close()


def test_an_envelope_keeps_an_isolated_spike_and_counts_what_is_not_finite(trainer, store: Store) -> None:
    with trainer.open() as recorder:
        for step in range(2000):
            value = (
                1000.0
                if step == 1234
                else -1000.0
                if step == 77
                else math.nan
                if step in (5, 6, 1900)
                else math.sin(step)
            )
            recorder.step(step, {"grad_norm": value})
    Ingester(store).catch_up()
    with store.cursor() as con:
        thin = query.envelope(con, 1, 0, "grad_norm", None, None, 100)
        assert thin.thinned and 80 <= len(thin.steps) <= 110
        points = dict(zip(thin.steps, thin.values, strict=True))
        assert points[1234] == 1000.0 and points[77] == -1000.0
        assert thin.steps == sorted(thin.steps) and None not in thin.values
        assert thin.nonfinite_count == 3 and thin.nonfinite == [5, 1900]
        near = query.envelope(con, 1, 0, "grad_norm", 0, 9, 100)
        assert not near.thinned and near.steps == list(range(10))
        assert (
            [step for step, value in zip(near.steps, near.values, strict=True) if value is None]
            == near.nonfinite
            == [5, 6]
        )
        assert query.envelope(con, 1, 0, "grad_norm", 5000, None, 100).steps == []
        assert query.rows_after(con, 1, 0, "grad_norm", 1997).steps == [1998, 1999]
        assert query.rows_after(con, 1, 0, "grad_norm", -1).nonfinite == [5, 6, 1900]


def test_the_envelope_of_a_range_touches_only_that_range(trainer, store: Store) -> None:
    with trainer.open() as recorder:
        for step in range(400):
            recorder.step(step, {"grad_norm": 1000.0 if step == 10 else 1.0})
    Ingester(store).catch_up()
    with store.cursor() as con:
        part = query.envelope(con, 1, 0, "grad_norm", 100, 299, 50)
    assert part.steps[0] >= 100 and part.steps[-1] <= 299 and max(part.values) == 1.0


def test_buckets_and_bounds_are_metrics_by_name(trainer, store: Store) -> None:
    with trainer.open() as recorder:
        for update in (0, 1):
            stats = trainer.stats(1 + update, r4_clipped=100 * update)
            recorder.buckets(0, update, stats, revision=0, bounds=trainer.bounds)
        recorder.step(0, {"accuracy": 0.5})
        recorder.step(1, {"accuracy": 0.25})  # no update: no buckets
    Ingester(store).catch_up()
    with store.cursor() as con:
        names = query.metric_names(con, 1)
        assert {"accuracy", "R4.clip_low_frac", "zero_adv.tokens", "neg.w_max"} <= set(names)
        assert query.rows_after(con, 1, 0, "R4.clip_low_frac", -1).values == [200 / 1200]
        assert query.rows_after(con, 1, 0, "R4.tokens", -1).steps == [0]
        assert query.rows_after(con, 1, 0, "pos.w_min", -1).values == [0.8]
        assert query.rows_after(con, 1, 0, "R4.entropy_effect", -1).steps == []  # not measured
        assert query.is_known_metric(con, 1, "R1.grad_mass") and not query.is_known_metric(con, 1, "R1.nonsense")
        newest = query.latest(con, 1, ["accuracy", "R4.tokens", "missing"], back=1)
    assert newest["accuracy"] == query.Latest(step=1, value=0.25, before=0.5)
    assert newest["R4.tokens"] == query.Latest(step=0, value=1200.0, before=None)
    assert "missing" not in newest


def test_updates_combine_where_a_step_has_no_value_of_its_own(trainer, store: Store) -> None:
    with trainer.open() as recorder:
        for update, value in enumerate([1.0, 3.0]):
            recorder.scalars(
                0,
                {"grad_norm": value, "own": value, "kl_step": (value, 1.0 + update), "ratio_max": value},
                update=update,
            )
            recorder.scalars(1, {"grad_norm": value}, update=update)
        recorder.step(0, {})
        recorder.step(1, {"grad_norm": 9.0})
    Ingester(store).catch_up()
    with store.cursor() as con:
        assert query.rows_after(con, 1, 0, "own", -1).values == [2.0]  # an unknown name is averaged
        assert query.rows_after(con, 1, 0, "grad_norm", -1).values == [3.0, 9.0]  # the largest of its updates
        assert query.rows_after(con, 1, 0, "kl_step", -1).values == [(1.0 + 2 * 3.0) / 3]
        assert query.rows_after(con, 1, 0, "ratio_max", -1).values == [3.0]


def test_a_run_row_carries_what_its_header_says(trainer, store: Store) -> None:
    with trainer.open(config={"lr": 1e-3}) as recorder:
        recorder.step(0, {"accuracy": 0.5})
        recorder.event("checkpoint", {"path": "checkpoints/0"}, step=0)
        recorder.end("stopped")
    Ingester(store).catch_up()
    with store.cursor() as con:
        run = query.run_by_path(con, "run")
        assert run is not None and query.run_by_path(con, "other") is None and query.run_by_key(con, 9) is None
        assert [r.path for r in query.list_runs(con)] == ["run"]
        assert [e.data["path"] for e in query.checkpoints(con, 1)] == ["checkpoints/0"]
        assert query.events(con, 1, ["nothing"]) == []
        assert query.step_count(con, 1) == 1
    assert (run.status, run.end_reason, run.last_step, run.objective) == ("ended", "stopped", 0, "dispo")
    assert run.limits is not None and run.limits.neg is not None and run.limits.neg.w_max == (1.0, 101.0)
    assert run.weight_rule is not None and run.weight_rule.bounds == trainer.bounds
    assert run.config == {"lr": 1e-3} and "set_bounds" in run.capabilities


def test_checkpoints_of_a_repeated_stretch_are_no_checkpoints(trainer, store: Store) -> None:
    with trainer.open() as recorder:
        for step in range(6):
            trainer.step(recorder, step)
            recorder.event("checkpoint", {"path": f"a{step}"}, step=step)
    with trainer.open(launch="b", start="resume", first_step=3) as recorder:
        trainer.step(recorder, 3)
        recorder.event("checkpoint", {"path": "b3"}, step=3)
    Ingester(store).catch_up()
    with store.cursor() as con:
        assert [e.data["path"] for e in query.checkpoints(con, 1)] == ["a0", "a1", "a2", "b3"]
        assert query.repeated_stretches(con, 1) == [(3, 5)]


def test_paths_and_slices_come_in_one_query(trainer, store: Store) -> None:
    with trainer.open() as recorder:
        for step in range(3):
            for name in ("math", "code"):
                recorder.scalars(step, {"accuracy": (0.25 * step, 8)}, slice=("env", name))
            trainer.step(recorder, step)
    Ingester(store).catch_up()
    with store.cursor() as con:
        assert query.run_paths(con) == ["run"]
        ids = [row.slice_id for row in query.slices(con, 1) if row.kind == "env"]
        found = query.by_slice(con, 1, "accuracy", 0)
        assert found == {i: query.rows_after(con, 1, i, "accuracy", 0) for i in ids}
        assert [series.steps for series in found.values()] == [[1, 2], [1, 2]]


def test_the_cause_of_an_incident_is_the_earliest_alert_that_names_a_failure(collapsed, watch) -> None:
    monitor = watch()
    monitor.tick()
    rows = [
        ("early_accuracy", 3, None, "R2"), ("accuracy_collapse", 5, None, None), ("zero_signal", 6, "nonfinite", "R3"),
        ("repetition_collapse", 9, None, None), ("length_collapse", 12, None, "R4"),
    ]  # fmt: skip
    one = "00000000-0000-0000-0000-000000000001"
    with monitor.store.cursor() as con:
        for signature, onset, by, driver in rows:
            con.execute(
                """INSERT INTO alert (run_key, incident_id, alert_id, launch_no, signature, rule, rule_version, ordinal,
                       severity, driver, step_onset, step_detected, step_last, state, inhibited_by)
                   VALUES (9, ?, uuid(), 0, ?, ?, 'x', 0, 'critical', ?, ?, 20, 30, 'firing', ?)""",
                [one, signature, signature, driver, onset, by],
            ).fetchall()
        (found,) = query.incidents(con, 9)
        assert (found.signature, found.step_onset, found.driver) == ("repetition_collapse", 3, "R4")
        con.execute("DELETE FROM alert WHERE signature IN ('repetition_collapse', 'length_collapse')").fetchall()
        (found,) = query.incidents(con, 9)
        assert (found.signature, found.driver) == ("early_accuracy", "R2")


def test_a_note_is_not_the_cause_of_an_incident_that_has_more() -> None:
    store = Store.in_memory(Path("."))
    with store.cursor() as con:
        for signature, severity, onset in (("negative_push", "info", 1), ("repetition_collapse", "critical", 4)):
            con.execute(
                """INSERT INTO alert (run_key, incident_id, alert_id, launch_no, signature, rule, rule_version, ordinal,
                       severity, step_onset, step_detected, step_last, state)
                   VALUES (9, ?, uuid(), 0, ?, ?, 'x', 0, ?, ?, 20, 30, 'firing')""",
                ["0" * 8 + "-0000-0000-0000-" + "0" * 12, signature, signature, severity, onset],
            ).fetchall()
        (found,) = query.incidents(con, 9)
        assert (found.signature, found.step_onset) == ("repetition_collapse", 1)
    store.close()


def test_the_signatures_that_name_no_failure_are_those_of_the_detectors() -> None:
    text = (Path(query.__file__).parent / "schema.sql").read_text()
    listed = re.search(r"signature IN \(([^)]+)\) OR severity = 'info' AS unnamed", text)
    assert listed and sorted(name.strip(" '") for name in listed[1].split(",")) == sorted(UNNAMED)


def test_incidents_name_their_alerts(collapsed, watch) -> None:
    monitor = watch()
    monitor.tick()
    with monitor.store.cursor() as con:
        alerts, found = query.alerts(con, 1), query.incidents(con, 1)
    assert found and sorted(a for i in found for a in i.alerts) == sorted(a.alert_id for a in alerts)
    for incident in found:
        mine = sorted(
            (a for a in alerts if a.incident_id == incident.incident_id), key=lambda a: (a.step_onset, a.rule)
        )
        assert [a.alert_id for a in mine] == list(incident.alerts)
        shown = sorted((a for a in mine if a.inhibited_by is None), key=lambda a: a.signature in UNNAMED)
        assert incident.signature == next((a.signature for a in shown), None)
        assert incident.driver == next((a.driver for a in [*shown, *mine] if a.driver), None)
        assert (incident.step_onset, incident.step_last) == (mine[0].step_onset, max(a.step_last for a in mine))
        assert incident.firing == any(a.open for a in mine) and not incident.superseded


def test_an_incident_of_a_repeated_stretch_is_history(collapsed, watch) -> None:
    with collapsed.open(launch="b", start="resume", first_step=15) as recorder:
        collapsed.step(recorder, 15)
    monitor = watch()
    monitor.tick()
    with monitor.store.cursor() as con:
        alerts, found = query.alerts(con, 1), query.incidents(con, 1)
    history = {a.incident_id for a in alerts} - {a.incident_id for a in alerts if not a.superseded}
    assert history and {i.incident_id for i in found if i.superseded} == history
    assert not any(i.firing for i in found if i.superseded)
