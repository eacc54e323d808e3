"""Static figures as pure functions: the incident timeline and the evidence of one alert.

    fig = incident_timeline(alerts, marks, last_step=449, theme="dark", chosen="5b3f…")
    st.plotly_chart(fig, theme=None, config=CONFIG)

Text that may come from a run (slice names) is escaped: Plotly reads a subset of HTML.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import plotly.graph_objects as go

from regimescope.monitor.query import AlertRow, Series
from regimescope.monitor.ui.palette import Theme, colors, faded
from regimescope.monitor.ui.texts import number, signature_text

CONFIG: Mapping[str, Any] = {
    "displaylogo": False,
    "modeBarButtons": [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
}
"Modebar as a whitelist: the default of Plotly 7 has a button that uploads the chart."

SEVERITY_TONE = {"critical": "critical", "warning": "watch", "info": "info"}
STEPS_BEFORE_ONSET = 200
STEPS_AFTER = 150
"Steps shown after the detection, or after the last change of bounds."
BASELINE_POINTS = 20
"Points before the onset that make the reference of a chart."
LEFT_PX = 68
"Left margin of charts that stand below each other, so that their steps do too."
_LANE_PX, _MARGIN_PX = 34, 64
_MANY, _FEWEST = 30, 5
"More checkpoints than that are drawn small."
_FONT = '"Source Sans", "Source Sans Pro", "DejaVu Sans", sans-serif'


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something dated that every chart carries."""

    step: int
    "First step under the new bounds, or the step of the checkpoint."
    kind: Literal["bounds", "checkpoint"]
    label: str
    "Hover text; escaped when drawn."


def incident_timeline(
    alerts: Sequence[AlertRow], marks: Sequence[Mark], *, last_step: int, theme: Theme, chosen: str | None = None
) -> go.Figure:
    """One lane per signature, in order of the first onset: thin from onset to detection, solid while the alert fired.

    Alerts that others explain or people called false are dimmed; bounds changes (diamonds) and checkpoints (triangles)
    have the last lane.
    """
    ink = colors(theme)
    figure = base_figure(ink)
    order = sorted(
        {alert.signature for alert in alerts}, key=lambda s: min(a.step_onset for a in alerts if a.signature == s)
    )
    lanes = {signature: len(order) - position for position, signature in enumerate(order)}
    for alert in sorted(alerts, key=lambda alert: alert.alert_id == chosen):
        _alert_bar(figure, alert, lanes[alert.signature], last_step, ink, chosen == alert.alert_id)
    _marks_lane(figure, marks, ink)
    titles = [signature_text(signature).title for signature in order]
    figure.update_layout(height=_MARGIN_PX + _LANE_PX * (len(order) + 1), showlegend=False, hovermode="closest")
    figure.update_yaxes(
        tickvals=[*lanes.values(), 0],
        ticktext=[*titles, "Bounds, checkpoints"],
        range=[-0.6, len(order) + 0.6],
        fixedrange=True,
    )
    figure.update_xaxes(
        range=padded(min([alert.step_onset for alert in alerts] + [mark.step for mark in marks] + [0]), last_step)
    )
    return figure


def _alert_bar(
    figure: go.Figure, alert: AlertRow, lane: int, last_step: int, ink: Mapping[str, str], chosen: bool
) -> None:
    color = ink[SEVERITY_TONE.get(alert.severity, "info")]
    dim = 0.35 if alert.inhibited_by or alert.superseded or alert.mark == "false_alarm" else 1.0
    end = last_step if alert.open else max(alert.step_last, alert.step_detected)
    where = f"<br>slice {escape(alert.slice)}" if alert.slice else ""
    text = (
        f"<b>{signature_text(alert.signature).title}</b> · {alert.severity} · {alert.state}"
        f"<br>onset {alert.step_onset}, detected {alert.step_detected}{where}"
    )
    hover = {"hovertemplate": text + "<extra></extra>", "customdata": [[alert.alert_id]] * 2, "opacity": dim}
    figure.add_scatter(
        x=[alert.step_onset, alert.step_detected],
        y=[lane, lane],
        mode="lines",
        line={"color": color, "width": 3},
        **hover,
    )
    figure.add_scatter(
        x=[alert.step_detected, max(end, alert.step_detected + 1)],
        y=[lane, lane],
        mode="lines",
        line={"color": color, "width": 18 if chosen else 12},
        **hover,
    )
    figure.add_scatter(
        x=[alert.step_onset],
        y=[lane],
        mode="markers",
        marker={"color": color, "size": 9, "symbol": "line-ns", "line": {"width": 2, "color": color}},
        **{**hover, "customdata": [[alert.alert_id]]},
    )


def _marks_lane(figure: go.Figure, marks: Sequence[Mark], ink: Mapping[str, str]) -> None:
    for kind, symbol, color in (("checkpoint", "triangle-up", ink["muted"]), ("bounds", "diamond", ink["info"])):
        some = [mark for mark in marks if mark.kind == kind]
        figure.add_scatter(
            x=[mark.step for mark in some],
            y=[0] * len(some),
            mode="markers",
            marker={"symbol": symbol, "size": 10 if len(some) <= _MANY else 5, "color": color},
            hovertemplate=[f"{escape(mark.label)}<extra></extra>" for mark in some],
        )


def window(alert: AlertRow, marks: Sequence[Mark], last_step: int) -> tuple[int, int]:
    """First and last step of the evidence: around the onset, the detection and the newest change of bounds."""
    moved = max((mark.step for mark in marks if mark.kind == "bounds"), default=0)
    return max(0, alert.step_onset - STEPS_BEFORE_ONSET), min(last_step, max(alert.step_detected, moved) + STEPS_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a metric was before an onset."""

    median: float
    low: float
    "10th percentile."
    high: float
    "90th percentile."
    points: int
    "How many points that is."


def baseline(series: Series, onset: int) -> Baseline | None:
    """The last BASELINE_POINTS finite points up to the onset; None with fewer than 5: that would be no reference."""
    pairs = zip(series.steps, series.values, strict=True)
    found = sorted([value for step, value in pairs if step <= onset and value is not None][-BASELINE_POINTS:])
    if len(found) < _FEWEST:
        return None
    tenth = round((len(found) - 1) / 10)
    return Baseline(median=statistics.median(found), low=found[tenth], high=found[-1 - tenth], points=len(found))


def evidence_chart(
    series: Series, alert: AlertRow, marks: Sequence[Mark], *, last_step: int, theme: Theme, metric: str, unit: str
) -> go.Figure:
    """The metric an alert watches, from 200 steps before its onset; shaded from onset to detection.

    Dotted: its median before the onset, with the band of the 10th to 90th percentile.
    A dashed line is an applied change of bounds, a triangle on the axis a checkpoint.
    """
    ink = colors(theme)
    color = ink[SEVERITY_TONE.get(alert.severity, "info")]
    figure = base_figure(ink)
    figure.add_scatter(
        x=series.steps,
        y=series.values,
        mode="lines+markers" if len(series.steps) < 60 else "lines",
        name=escape(metric),
        line={"color": ink["ink"], "width": 1.8},
        marker={"size": 4},
        hovertemplate="step %{x}: %{y:.4g}<extra></extra>",
    )
    _reference(figure, baseline(series, alert.step_onset), ink)
    figure.add_vrect(
        x0=alert.step_onset, x1=alert.step_detected, fillcolor=faded(color, 0.14), line_width=0, layer="below"
    )
    _flag(figure, alert.step_onset, f"onset {alert.step_onset}", color, ink, right=False)
    _flag(figure, alert.step_detected, f"detected {alert.step_detected}", color, ink, right=True)
    first, last = window(alert, marks, last_step)
    inside = [mark for mark in marks if first <= mark.step <= last]
    for mark in inside:
        _mark_line(figure, mark, ink, 9 if len(inside) <= _MANY else 5)
    figure.update_layout(height=330, showlegend=False, hovermode="x", margin_l=LEFT_PX)
    figure.update_yaxes(
        automargin=False, title={"text": f"{escape(metric)}, {unit}" if unit else escape(metric), "font": {"size": 12}}
    )
    figure.update_xaxes(range=padded(first, last), title={"text": "step", "font": {"size": 12}})
    return figure


def _reference(figure: go.Figure, before: Baseline | None, ink: Mapping[str, str]) -> None:
    if before is None:
        return
    text = f"{number(before.median)}: median of {before.points} points before"
    figure.add_hline(
        y=before.median,
        line={"color": ink["muted"], "width": 1, "dash": "dot"},
        annotation={"text": text, "font": {"color": ink["muted"], "size": 11}},
        annotation_position="top right",
    )
    figure.add_hrect(y0=before.low, y1=before.high, fillcolor=faded(ink["muted"], 0.12), line_width=0, layer="below")


def _flag(figure: go.Figure, step: int, text: str, color: str, ink: Mapping[str, str], *, right: bool) -> None:
    figure.add_vline(x=step, line={"color": color, "width": 1.5})
    figure.add_annotation(
        x=step,
        y=1,
        yref="paper",
        text=text,
        showarrow=False,
        xanchor="left" if right else "right",
        yanchor="bottom",
        xshift=3 if right else -3,
        font={"size": 11, "color": color},
    )


def _mark_line(figure: go.Figure, mark: Mark, ink: Mapping[str, str], size: int) -> None:
    if mark.kind == "bounds":
        figure.add_vline(x=mark.step, line={"color": ink["info"], "width": 1.5, "dash": "dash"})
        text, symbol, color = escape(mark.label), "diamond", ink["info"]
    else:
        text, symbol, color = escape(mark.label), "triangle-up", ink["muted"]
    figure.add_scatter(
        x=[mark.step],
        y=[0],
        yaxis="y2",
        mode="markers",
        marker={"symbol": symbol, "size": size, "color": color},
        hovertemplate=f"{text}<extra></extra>",
    )


def base_figure(ink: Mapping[str, str]) -> go.Figure:
    """An empty figure with our margins, fonts and grid; `y2` is the axis of marks at the edge."""
    figure = go.Figure()
    figure.update_layout(
        margin={"l": 8, "r": 12, "t": 28, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "color": ink["ink"], "size": 13},
        hoverlabel={"font": {"family": _FONT}},
        yaxis2={"overlaying": "y", "range": [-0.02, 1], "visible": False, "fixedrange": True},
    )
    grid = {"gridcolor": ink["rule"], "zeroline": False, "linecolor": ink["rule"], "automargin": True}
    figure.update_xaxes(**grid, tickformat="d", minallowed=-20, nticks=12)
    figure.update_layout(yaxis=grid)
    return figure


def padded(low: int, high: int) -> list[float]:
    """The range of an axis that shows these steps."""
    pad = max(0.5, 0.02 * (high - low))
    return [low - pad, high + pad]
