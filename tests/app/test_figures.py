"""Figures as data: lanes, bars, shading, marks, and that nothing of a run reaches Plotly as markup."""

import dataclasses
import json

import pytest

from regimescope.monitor.query import AlertRow, Series
from regimescope.monitor.ui.figures import CONFIG, Mark, baseline, evidence_chart, incident_timeline
from regimescope.monitor.ui.palette import Theme, colors

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
    step_last=440,
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
EARLY = dataclasses.replace(
    ALERT, alert_id="b", signature="accuracy_collapse", step_onset=405, state="resolved", inhibited_by="x"
)
MARKS = [Mark(step=300, kind="checkpoint", label="checkpoint"), Mark(step=435, kind="bounds", label="neg.w_min 1 → 0")]
SERIES = Series(
    steps=[396, 398, 400, 405, 410, 420, 430, 440],
    values=[34.0, 35.0, 34.0, 35.0, 34.5, 20.0, None, 4.0],
    nonfinite=[430],
    nonfinite_count=1,
)


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> Theme:
    return request.param


def test_a_lane_per_signature_in_order_of_onset(theme: Theme) -> None:
    figure = incident_timeline([ALERT, EARLY], MARKS, last_step=449, theme=theme)
    assert list(figure.layout.yaxis.ticktext) == ["Accuracy collapse", "Length collapse", "Bounds, checkpoints"]
    assert list(figure.layout.yaxis.tickvals) == [2, 1, 0]


def test_a_bar_runs_from_detection_to_now_while_open_and_to_the_last_step_afterwards(theme: Theme) -> None:
    bars = {
        trace.customdata[0][0]: trace
        for trace in incident_timeline([ALERT, EARLY], MARKS, last_step=449, theme=theme).data
        if trace.mode == "lines" and trace.line.width > 5
    }
    assert list(bars["a"].x) == [431, 449]
    assert list(bars["b"].x) == [431, 440]
    assert bars["a"].line.color == colors(theme)["critical"]
    assert bars["b"].opacity < bars["a"].opacity


def test_bounds_changes_and_checkpoints_have_their_lane() -> None:
    traces = incident_timeline([ALERT], MARKS, last_step=449, theme="light").data
    symbols = {
        trace.marker.symbol: list(trace.x) for trace in traces if trace.marker.symbol in ("diamond", "triangle-up")
    }
    assert symbols == {"triangle-up": [300], "diamond": [435]}


def test_a_run_without_alerts_still_draws() -> None:
    assert incident_timeline([], [], last_step=0, theme="dark").layout.height > 0


def test_evidence_is_shaded_from_onset_to_detection_with_the_reference(theme: Theme) -> None:
    figure = evidence_chart(
        SERIES, ALERT, MARKS, last_step=449, theme=theme, metric="response_length_mean", unit="tokens"
    )
    band = next(shape for shape in figure.layout.shapes if shape.type == "rect" and shape.yref != "y")
    assert (band.x0, band.x1) == (412, 431)
    dashes = {shape.line.dash: shape for shape in figure.layout.shapes if shape.type == "line"}
    assert dashes["dot"].y0 == 34.5  # median of the five points before the onset
    assert dashes["dash"].x0 == 435
    assert list(figure.data[0].y) == SERIES.values
    assert "response_length_mean" in figure.layout.yaxis.title.text


def test_the_window_starts_200_steps_before_the_onset() -> None:
    figure = evidence_chart(SERIES, ALERT, MARKS, last_step=449, theme="light", metric="m", unit="")
    assert 205 < figure.layout.xaxis.range[0] < 212
    far = Mark(step=10, kind="checkpoint", label="old")
    assert len(evidence_chart(SERIES, ALERT, [far], last_step=449, theme="light", metric="m", unit="").data) == 1


def test_the_baseline_is_the_median_of_the_finite_points_up_to_the_onset() -> None:
    steps = list(range(100))
    values: list[float | None] = [float(step % 10) for step in steps]
    values[80] = None
    found = baseline(Series(steps=steps, values=values, nonfinite=[80]), 89)
    assert found is not None
    assert (found.points, found.median) == (20, 5.0)
    assert (found.low, found.high) == (1.0, 9.0)


def test_without_points_before_the_onset_there_is_no_reference() -> None:
    alert = dataclasses.replace(ALERT, step_onset=400, step_detected=405)
    figure = evidence_chart(SERIES, alert, [], last_step=449, theme="light", metric="m", unit="")
    assert not [shape for shape in figure.layout.shapes if shape.line.dash == "dot"]


def test_text_of_a_run_is_escaped() -> None:
    evil = dataclasses.replace(ALERT, slice="env=<a href='https://x.test'>x</a>")
    figures = [
        incident_timeline([evil], [Mark(step=1, kind="bounds", label="<b>x</b>")], last_step=9, theme="light"),
        evidence_chart(
            SERIES,
            evil,
            [Mark(step=412, kind="bounds", label="<b>x</b>")],
            last_step=9,
            theme="light",
            metric="<i>",
            unit="",
        ),
    ]
    for figure in figures:
        text = json.dumps(figure.to_plotly_json(), default=str)
        assert "<a " not in text
        assert "<b>x" not in text
        assert "<i>" not in text


def test_the_modebar_is_a_whitelist_without_upload() -> None:
    assert CONFIG["displaylogo"] is False
    assert CONFIG["modeBarButtons"] == [["zoom2d", "pan2d", "resetScale2d", "toImage"]]
