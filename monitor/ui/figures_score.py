"""The score of an alert's rule over steps, under its evidence: 1 is the threshold. A pure figure.

fig = score_chart(series, alert, first=0, last=449, theme="light")
"""

from __future__ import annotations

import plotly.graph_objects as go

from regimescope.monitor.query import AlertRow, Series
from regimescope.monitor.ui.figures import LEFT_PX, SEVERITY_TONE, base_figure, padded
from regimescope.monitor.ui.palette import Theme, colors, faded

HEIGHT_PX = 150


def score_chart(series: Series, alert: AlertRow, *, first: int, last: int, theme: Theme) -> go.Figure:
    """The same steps as the evidence chart above it; nothing is drawn where the rule was quiet."""
    ink = colors(theme)
    color = ink[SEVERITY_TONE.get(alert.severity, "info")]
    figure = base_figure(ink)
    figure.add_scatter(
        x=series.steps,
        y=series.values,
        mode="lines+markers",
        line={"color": ink["ink"], "width": 1.8},
        marker={"size": 4},
        hovertemplate="step %{x}: score %{y:.3g}<extra></extra>",
    )
    figure.add_hline(
        y=1,
        line={"color": ink["muted"], "width": 1, "dash": "dot"},
        annotation={"text": "threshold", "font": {"color": ink["muted"], "size": 11}},
        annotation_position="top left",
    )
    figure.add_vrect(
        x0=alert.step_onset, x1=alert.step_detected, fillcolor=faded(color, 0.14), line_width=0, layer="below"
    )
    for step in (alert.step_onset, alert.step_detected):
        figure.add_vline(x=step, line={"color": color, "width": 1.5})
    figure.update_layout(
        height=HEIGHT_PX, showlegend=False, hovermode="x", margin={"l": LEFT_PX, "r": 12, "t": 8, "b": 8}
    )
    top = max([value for value in series.values if value is not None], default=1.0)
    figure.update_yaxes(
        automargin=False, title={"text": "score", "font": {"size": 12}}, range=[0, 1.15 * max(1.0, top)], nticks=4
    )
    figure.update_xaxes(range=padded(first, last))
    return figure
