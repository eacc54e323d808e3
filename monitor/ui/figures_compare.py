"""The curves of two runs as small multiples on one axis: a pure figure.

fig = small_multiples([Cell(title="Length", curves=(Line(…), Line(…)))], marks, theme="dark", x_title="step")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from regimescope.monitor.ui.palette import Theme, colors

COLUMNS = 4
_ROW_PX = 190
_MANY = 40
"More marks of a kind than that are left out, the oldest first."
_FONT = '"Source Sans", "Source Sans Pro", "DejaVu Sans", sans-serif'
Which = Literal["A", "B"]
_TONE: Mapping[str, str] = {"A": "info", "B": "watch"}
_DASH: Mapping[str, str] = {"A": "solid", "B": "dot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A metric of one of the runs."""

    which: Which
    x: Sequence[float]
    y: Sequence[float | None]
    bad: Sequence[float] = ()
    "Places of NaN and infinities."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One small chart."""

    title: str
    curves: tuple[Line, ...]
    share: bool = False
    "Fractions are shown in percent."


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """Something dated, on the axis of the charts."""

    which: Which
    kind: Literal["onset", "bounds", "checkpoint"]
    x: float


def small_multiples(cells: Sequence[Cell], marks: Sequence[At], *, theme: Theme, x_title: str) -> go.Figure:
    """A chart per cell, four in a row, all with one x axis: a zoom into one is a zoom into all.

    A is solid, B dotted. A line is an onset, a dashed one a change of bounds, a triangle a checkpoint, a cross a value
    that is not finite.
    """
    ink = colors(theme)
    rows = max(1, -(-len(cells) // COLUMNS))
    figure = make_subplots(
        rows=rows, cols=COLUMNS, subplot_titles=[cell.title for cell in cells], shared_xaxes="all",
        vertical_spacing=min(0.3, 52 / (_ROW_PX * rows)), horizontal_spacing=0.045,
    )  # fmt: skip
    for i, cell in enumerate(cells):
        row, col = divmod(i, COLUMNS)
        _curves(figure, cell, ink, row + 1, col + 1, legend=i == 0)
        _marks(figure, marks, ink, row + 1, col + 1)
        figure.update_yaxes(
            tickformat=".2~%" if cell.share else None,
            rangemode="nonnegative" if cell.share else "normal",
            row=row + 1,
            col=col + 1,
        )
        figure.update_xaxes(showticklabels=True, row=row + 1, col=col + 1)
    for i in range(len(cells), rows * COLUMNS):
        row, col = divmod(i, COLUMNS)
        figure.update_xaxes(visible=False, row=row + 1, col=col + 1)
        figure.update_yaxes(visible=False, row=row + 1, col=col + 1)
    _dress(figure, ink, rows, x_title)
    return figure


def _dress(figure: go.Figure, ink: Mapping[str, str], rows: int, x_title: str) -> None:
    figure.update_layout(
        height=_ROW_PX * rows + 70,
        margin={"l": 8, "r": 8, "t": 52, "b": 34},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "color": ink["ink"], "size": 12},
        hoverlabel={"font": {"family": _FONT}},
        hovermode="x",
        legend={"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
    )
    figure.update_annotations(font={"size": 13, "color": ink["ink"]})
    figure.add_annotation(
        text=x_title, x=0.5, y=0, xref="paper", yref="paper", yshift=-34, showarrow=False, font={"color": ink["muted"]}
    )
    grid = {"gridcolor": ink["rule"], "zeroline": False, "linecolor": ink["rule"], "automargin": True}
    figure.update_xaxes(**grid, nticks=6)
    figure.update_yaxes(**grid, nticks=5)


def _curves(figure: go.Figure, cell: Cell, ink: Mapping[str, str], row: int, col: int, *, legend: bool) -> None:
    for line in cell.curves:
        color = ink[_TONE[line.which]]
        number = "%{y:.1%}" if cell.share else "%{y:.4g}"
        figure.add_scatter(
            x=list(line.x),
            y=list(line.y),
            mode="lines",
            name=line.which,
            legendgroup=line.which,
            showlegend=legend,
            line={"color": color, "width": 1.8, "dash": _DASH[line.which]},
            hovertemplate=f"{line.which}: {number}<extra></extra>",
            row=row,
            col=col,
        )
        for x in line.bad[:_MANY]:
            figure.add_annotation(
                x=x,
                y=0,
                yref="y domain",
                text="x",
                showarrow=False,
                font={"color": color},
                row=row,
                col=col,
            )


def _marks(figure: go.Figure, marks: Sequence[At], ink: Mapping[str, str], row: int, col: int) -> None:
    for which in ("A", "B"):
        color = ink[_TONE[which]]
        mine = [mark for mark in marks if mark.which == which]
        for kind, dash in (("onset", "solid"), ("bounds", "dash")):
            for mark in [m for m in mine if m.kind == kind][-_MANY:]:
                tone = ink["critical"] if kind == "onset" and which == "A" else color
                figure.add_vline(
                    x=mark.x, line={"color": tone, "width": 1.2, "dash": dash}, opacity=0.8, row=row, col=col
                )
        for mark in [m for m in mine if m.kind == "checkpoint"][-_MANY:]:
            figure.add_annotation(
                x=mark.x, y=0, yref="y domain", text="▴", showarrow=False, font={"color": color, "size": 14},
                row=row, col=col,
            )  # fmt: skip
