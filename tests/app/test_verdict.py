"""The verdict: the order of docs/dashboard, section 6, and which alerts count. Golden rows, no store."""

import dataclasses

import pytest

from regimescope.monitor.live import Liveness
from regimescope.monitor.query import AlertRow, RunRow
from regimescope.monitor.ui.verdict import alert_line, is_snoozed, open_alerts, skew_text, state_s, verdict

RUN = RunRow(
    run_key=1,
    path="demo",
    run_id="r",
    name=None,
    status="running",
    state="running",
    state_since=None,
    started_at=0.0,
    last_row_at=1000.0,
    last_step=449,
    launch_no=0,
    launch_id="l",
    objective="dispo",
    framework=None,
    ratio_source="behaviour",
    ranks=1,
    capabilities=("set_bounds",),
    limits=None,
    weight_rule=None,
    config={},
    end_reason=None,
)
LIVE = Liveness(
    silent_s=12.0, median_step_s=38.0, stale=False, ended=False, state="running", state_since=None, last_step=449
)
ALERT = AlertRow(
    alert_id="a",
    incident_id="i",
    signature="length_collapse",
    rule="length_collapse",
    severity="critical",
    state="firing",
    driver="R4",
    step_onset=412,
    step_detected=431,
    step_last=449,
    evidence={},
    remedy={},
    inhibited_by=None,
    title="Length collapse",
    text="",
    direction=None,
    score=1.4,
    launch_no=0,
    ordinal=0,
    superseded=False,
)
WARM = (10, 10)


def alert(**changes: object) -> AlertRow:
    return dataclasses.replace(ALERT, **changes)


def live(**changes: object) -> Liveness:
    return dataclasses.replace(LIVE, **changes)


def run(**changes: object) -> RunRow:
    return dataclasses.replace(RUN, **changes)


STOPPED = {"end_reason": "stopped"}
WAITS = {"state": "waiting_rollouts", "state_since": 880.0}


@pytest.mark.parametrize(
    ("word", "run_row", "liveness", "alerts", "warming"),
    [
        ("ENDED", run(**STOPPED), live(ended=True, stale=True, state="paused"), [ALERT], (0, 10)),
        ("STALE", RUN, live(stale=True, state="paused"), [ALERT], (0, 10)),
        ("PAUSED", RUN, live(state="paused"), [ALERT], (0, 10)),
        ("COLLAPSING", RUN, live(**WAITS), [ALERT, alert(severity="warning")], (0, 10)),
        ("WATCH", RUN, live(**WAITS), [alert(severity="warning")], (0, 10)),
        ("WAITING", RUN, live(**WAITS), [alert(severity="info")], (0, 10)),
        ("WARMING UP", RUN, LIVE, [alert(severity="info")], (4, 10)),
        ("HEALTHY", RUN, LIVE, [], WARM),
    ],
)
def test_the_first_that_applies(
    word: str, run_row: RunRow, liveness: Liveness, alerts: list[AlertRow], warming: tuple[int, int]
) -> None:
    assert verdict(run_row, liveness, alerts, warming).word == word


def test_an_open_alert_stays_visible_beside_paused_stale_and_ended() -> None:
    for liveness in (live(state="paused"), live(stale=True), live(ended=True)):
        assert verdict(RUN, liveness, [ALERT], WARM).beside == "COLLAPSING"
    assert verdict(RUN, live(state="paused"), [alert(severity="warning")], WARM).beside == "WATCH"
    assert verdict(RUN, LIVE, [ALERT], WARM).beside == ""


def test_a_store_that_is_not_written_sees_neither_health_nor_silence() -> None:
    for liveness, alerts in ((LIVE, []), (live(stale=True), []), (live(state="paused"), [ALERT])):
        found = verdict(RUN, liveness, alerts, WARM, degraded=True)
        assert found.word == "UNSEEN" and found.reason.endswith("store degraded")
        assert found.beside == ("COLLAPSING" if alerts else "")
    assert verdict(RUN, live(ended=True), [], WARM, degraded=True).word == "ENDED"


def test_collapsing_says_what_since_when_and_which_regime() -> None:
    found = verdict(RUN, LIVE, [ALERT, alert(alert_id="b", severity="warning", step_onset=420)], WARM)
    assert found.reason == "length collapse since step 412, driven by R4, and 1 more alert"
    assert found.tone == "critical"
    assert alert_line(alert(driver=None)) == "length collapse since step 412"


def test_warming_up_counts_points() -> None:
    assert verdict(RUN, LIVE, [], (4, 10)).reason.startswith("4/10")


@pytest.mark.parametrize(
    "silent",
    [
        alert(state="resolved"),
        alert(state="pending"),
        alert(inhibited_by="nonfinite"),
        alert(superseded=True),
        alert(mark="false_alarm"),
        alert(signature="bounds_lint", severity="warning"),
        alert(severity="warning", mark="snooze", until_step=460),
    ],
)
def test_alerts_that_make_no_verdict(silent: AlertRow) -> None:
    assert open_alerts([silent], 449) == []
    assert verdict(RUN, LIVE, [silent], WARM).word == "HEALTHY"


def test_an_alert_of_a_slice_is_named_with_it() -> None:
    assert alert_line(alert(slice="env=math")) == "length collapse of env=math since step 412, driven by R4"
    assert alert_line(alert(driver=None)) == "length collapse since step 412"
    long = alert_line(alert(slice="env=" + "x" * 300))
    assert len(long) < 140 and "…" in long
    assert verdict(RUN, LIVE, [alert(slice="env=math")], WARM).reason.startswith("length collapse of env=math since")


def test_a_snooze_ends_and_never_hides_a_critical_alert() -> None:
    asleep = alert(severity="warning", mark="snooze", until_step=460)
    assert is_snoozed(asleep, 459)
    assert not is_snoozed(asleep, 460)
    assert not is_snoozed(dataclasses.replace(asleep, severity="critical"), 449)


def test_acknowledged_is_still_open() -> None:
    assert verdict(RUN, LIVE, [alert(mark="acknowledge")], WARM).word == "COLLAPSING"


def test_worst_first_then_the_earliest_onset() -> None:
    late, early = alert(alert_id="late", step_onset=420), alert(alert_id="early", step_onset=400)
    warning = alert(alert_id="w", severity="warning", step_onset=1)
    assert [a.alert_id for a in open_alerts([warning, late, early], 449)] == ["early", "late", "w"]


def test_waiting_only_after_three_step_times() -> None:
    short = live(state="waiting_rollouts", state_since=900.0)  # 100 s by the trainer's clock, 12 s by ours
    assert state_s(RUN, short) == pytest.approx(112.0)
    assert verdict(RUN, short, [], WARM).word == "HEALTHY"
    assert verdict(RUN, live(**WAITS), [], WARM).reason == "for rollouts for 2 min (step time 38 s)"


def test_stale_and_ended_say_how() -> None:
    assert verdict(RUN, live(stale=True, silent_s=240.0), [], WARM).reason.startswith(
        "last sign of life 4 min ago (step time 38 s)"
    )
    assert verdict(run(end_reason="finished"), live(ended=True), [], WARM).reason == "finished after step 449"
    assert verdict(run(end_reason="error"), live(ended=True), [], WARM).reason == "ended with an error after step 449"


@pytest.mark.parametrize(
    ("last_row_at", "said"),
    [(1000.0, ""), (1250.0, ""), (1600.0, "10 min ahead of"), (100.0, "15 min behind"), (None, "")],
)
def test_a_clock_that_is_minutes_off_is_told(last_row_at, said):
    text = skew_text(dataclasses.replace(RUN, last_row_at=last_row_at), LIVE, 1012.0)
    assert said in text and bool(text) is bool(said)


def test_no_word_of_a_clock_once_a_run_is_silent_or_over():
    off = dataclasses.replace(RUN, last_row_at=9000.0)
    for changes in ({"stale": True}, {"ended": True}):
        assert skew_text(off, dataclasses.replace(LIVE, **changes), 1012.0) == ""


def test_a_pause_names_who_asked_for_it():
    paused = dataclasses.replace(LIVE, state="paused")
    assert verdict(RUN, paused, [], WARM, paused_by="ana").reason == "at step 449 by ana; it still reads commands"
    assert verdict(RUN, paused, [], WARM).reason == "at step 449; it still reads commands"
