"""The figures of the Regimes page as pure functions: the histogram over log r with the bounds, and its heatmap over the
steps.

    fig = ratio_figure(histogram, now=rule.pos, then=moved.pos, sign=1, theme="dark")
    fig = heat_figure(heatmap, lower=series, upper=series, sign=1, theme="dark")

The axis is log r, its labels are r. Nothing in them is text of a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from regimescope.monitor.bounds import SignRule
from regimescope.monitor.query import RatioHeatmap, RatioHistogram, Series
from regimescope.monitor.reweigh import held_ranges
from regimescope.monitor.ui.palette import Theme, colors, faded
from regimescope.monitor.ui.texts import number, percent, weight

_FONT = '"Source Sans", "Source Sans Pro", "DejaVu Sans", sans-serif'
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.28, 2, 5, 11, 20, 50, 101)
_BARS = 80
"About so many bars on either chart."
_GRID = 0.05
"Steps of the edge set away from 1."
_OPEN = 0.25
"Drawn width of an open bin."
_TAIL = 1e-4
"Share of the tokens that may lie outside of what is shown at first."
_TAIL_S = 0.02
"The same for ratios of sequences: nearly all are within a hundredth of 1."
_FEW = 12
"Fewer steps than that are all named."
_REGIMES = {1: ("R1", "R2"), -1: ("R3", "R4")}
HEIGHT = 270


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Neighbouring bins, drawn as one."""

    low: float
    high: float
    "Log r; an open end is drawn 0.25 wide."
    tokens: int


def bars(edges: Sequence[float], counts: Sequence[int], *, width: float) -> list[Bar]:
    """The bins added up to bars at least `width` wide; none reaches over r = 1."""
    ends = [edges[0] - _OPEN, *edges, edges[-1] + _OPEN]
    found: list[Bar] = []
    start, tokens = 0, 0
    for i, count in enumerate(counts):
        tokens += count
        end = ends[i + 1]
        if end - ends[start] >= width - 1e-9 or end == 0.0 or i == len(counts) - 1:
            found.append(Bar(low=ends[start], high=end, tokens=tokens))
            start, tokens = i + 1, 0
    return found


def shown(edges: Sequence[float], counts: Sequence[int], tail: float = _TAIL) -> tuple[float, float]:
    """Log r between which all but the share `tail` of the tokens lie, with some room; at least from 1/1.05 to 1.05."""
    ends = [edges[0] - _OPEN, *edges, edges[-1] + _OPEN]
    spare, total = tail / 2 * sum(counts), 0
    low, high = -_GRID, _GRID
    for i, count in enumerate(counts):
        if total <= spare < total + count:
            low = min(low, ends[i])
        total += count
        if count and total >= sum(counts) - spare:
            high = max(high, ends[i + 1])
            break
    room = 0.04 * (high - low)
    return low - room, high + room


def ratio_figure(
    histogram: RatioHistogram, *, now: SignRule | None, then: SignRule | None, sign: int, theme: Theme, name: str = "r"
) -> go.Figure:
    """Tokens by ratio, one sign of the advantage. Shaded: where the rule in force holds tokens away from the base; the
    dashed line is a bound that was moved. `name`: s for whole sequences.
    """
    ink = colors(theme)
    figure = _canvas(ink)
    low, high = shown(histogram.edges, histogram.counts, _TAIL_S if name == "s" else _TAIL)
    drawn = bars(histogram.edges, histogram.counts, width=(high - low) / _BARS)
    total = sum(histogram.counts) or 1
    for regime, above in zip(_REGIMES[sign], (True, False), strict=True):
        mine = [bar for bar in drawn if (bar.low >= 0) == above]
        figure.add_bar(
            x=[(bar.low + bar.high) / 2 for bar in mine],
            y=[bar.tokens or None for bar in mine],
            width=[bar.high - bar.low for bar in mine],
            name=regime,
            marker={"color": ink[regime], "line": {"width": 0}},
            hovertemplate=[
                f"{regime}, {name} {number(math.exp(bar.low))} to {number(math.exp(bar.high))}<br>"
                f"{bar.tokens:,} tokens, {percent(bar.tokens / total)}<extra></extra>"
                for bar in mine
            ],
        )
    ranges = held_ranges(now) if now is not None else []
    moved = held_ranges(then) if then is not None else ranges
    low, high = _with_bounds(low, high, [*ranges, *moved])
    for start, end in ranges:
        figure.add_vrect(x0=max(_log(start), low - 9), x1=min(_log(end), high + 9), fillcolor=faded(ink["muted"], 0.16),
                         line_width=0, layer="below")  # fmt: skip
    for ratio in sorted(_ends(ranges)):
        kept = ratio in _ends(moved)
        style = (ink["ink"], "solid") if kept else (ink["muted"], "dot")
        _bound(figure, ratio, f"{name} = {weight(ratio)}" + ("" if kept else " in force"), style, low, high, top=True)
    for ratio in sorted(_ends(moved) - _ends(ranges)):
        _bound(figure, ratio, f"{name} = {weight(ratio)}", (ink["critical"], "dash"), low, high, top=False)
    figure.update_layout(height=HEIGHT, bargap=0, showlegend=False, hovermode="closest")
    figure.update_xaxes(
        range=[low, high], title={"text": f"{name} (log scale)", "font": {"size": 12}}, **_ratio_ticks(low, high)
    )
    figure.update_yaxes(
        type="log", title={"text": "tokens (log scale)", "font": {"size": 12}}, dtick=1, tickformat=",d"
    )
    return figure


def heat_figure(
    heatmap: RatioHeatmap,
    *,
    lower: Series,
    upper: Series,
    sign: int,
    theme: Theme,
    name: str = "r",
    flipped: bool = False,
) -> go.Figure:
    """Share of the tokens by step and ratio, on a log colour scale, with the bounds over the steps.

    `flipped`: the weight is 1/r, so a bound of w is one of 1/r.
    """
    ink = colors(theme)
    figure = _canvas(ink)
    dark, light = _REGIMES[sign]
    whole = [sum(column) for column in zip(*heatmap.counts, strict=True)]
    low, high = shown(heatmap.edges, whole, _TAIL_S if name == "s" else _TAIL)
    width = max((high - low) / _BARS, _GRID if high - low > 0.5 else 0.0)
    rows = [bars(heatmap.edges, column, width=width) for column in heatmap.counts]
    kept = [i for i, bar in enumerate(rows[0]) if bar.high > low and bar.low < high]
    steps, at = _all_steps(heatmap)
    z = [[_shade(rows[at[step]][i].tokens, sum(heatmap.counts[at[step]])) if step in at else None for step in steps]
         for i in kept]  # fmt: skip
    text = [[_cell(rows[at[step]][i], heatmap, at[step], name) if step in at else "" for step in steps] for i in kept]
    figure.add_heatmap(
        x=[*(step - 0.5 for step in steps), steps[-1] + heatmap.width - 0.5],
        y=[rows[0][i].low for i in kept] + [rows[0][kept[-1]].high],
        z=z,
        text=text,
        hovertemplate="%{text}<extra></extra>",
        colorscale=[[0, faded(ink[light], 0.06)], [0.5, ink[light]], [1, ink[dark]]],
        zmin=-4,
        zmax=0,
        colorbar={
            "title": {"text": "share", "font": {"size": 11}}, "thickness": 10, "tickvals": [-4, -3, -2, -1, 0],
            "ticktext": ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"], "tickfont": {"size": 11}, "outlinewidth": 0,
        },
    )  # fmt: skip
    for series, dash in ((upper, "solid"), (lower, "dash")):
        points = [(s, v) for s, v in zip(series.steps, series.values, strict=True) if v is not None and v > 0]
        figure.add_scatter(
            x=[step for step, _ in points],
            y=[-math.log(v) if flipped else math.log(v) for _, v in points],
            mode="lines",
            line={"color": ink["ink"], "width": 1.5, "dash": dash, "shape": "hv"},
            hovertemplate=[f"step {step}, bound w = {weight(v)}<extra></extra>" for step, v in points],
        )
    figure.update_layout(height=HEIGHT, showlegend=False, hovermode="closest")
    ends = [math.log(v) for s in (lower, upper) for v in s.values[-1:] if v is not None and 0 < v < math.inf]
    low, high = _with_bounds(low, high, [(0.0, math.exp(-end if flipped else end)) for end in ends])
    figure.update_xaxes(
        title={"text": "step", "font": {"size": 12}},
        tickformat="d",
        range=[steps[0] - 0.5, steps[-1] + heatmap.width - 0.5],
        dtick=1 if len(steps) < _FEW else None,
    )
    figure.update_yaxes(
        title={"text": f"{name} (log scale)", "font": {"size": 12}}, range=[low, high], **_ratio_ticks(low, high)
    )
    return figure


def _all_steps(heatmap: RatioHeatmap) -> tuple[list[int], dict[int, int]]:
    """First steps of all columns, those of empty stretches too, and the place of each that is there."""
    first, last, width = heatmap.steps[0], heatmap.steps[-1], heatmap.width
    return list(range(first, last + 1, width)), {step: i for i, step in enumerate(heatmap.steps)}


def _shade(tokens: int, total: int) -> float | None:
    return math.log10(max(1e-4, tokens / total)) if tokens else None


def _cell(bar: Bar, heatmap: RatioHeatmap, column: int, name: str) -> str:
    first = heatmap.steps[column]
    steps = f"step {first}" if heatmap.width == 1 else f"steps {first} to {first + heatmap.width - 1}"
    share = percent(bar.tokens / (sum(heatmap.counts[column]) or 1))
    where = f"{name} {number(math.exp(bar.low))} to {number(math.exp(bar.high))}"
    return f"{steps}<br>{where}<br>{bar.tokens:,} tokens, {share}"


def _with_bounds(low: float, high: float, ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The shown range, widened to bounds that are near it, so that they can be seen."""
    near = [_log(ratio) for ratio in _ends(ranges) if abs(_log(ratio)) < 2.0 * max(abs(low), abs(high), 0.3)]
    room = 0.06 * (high - low)
    return min([low, *(x - room for x in near)]), max([high, *(x + room for x in near)])


def _ends(ranges: Sequence[tuple[float, float]]) -> set[float]:
    return {ratio for pair in ranges for ratio in pair if 0 < ratio < math.inf}


def _log(ratio: float) -> float:
    return -math.inf if ratio <= 0 else math.log(ratio)


def _bound(
    figure: go.Figure, ratio: float, text: str, style: tuple[str, str], low: float, high: float, *, top: bool
) -> None:
    """A line with its label on the side away from 1, or inside where that would leave the chart."""
    x, (color, dash) = math.log(ratio), style
    right = ratio > 1 if min(x - low, high - x) > 0.2 * (high - low) else x - low < high - x
    figure.add_vline(x=x, line={"color": color, "width": 2, "dash": dash})
    figure.add_annotation(
        x=x, y=1.0 if top else 0.88, yref="paper", text=text, showarrow=False, xanchor="left" if right else "right",
        xshift=4 if right else -4, yanchor="top", font={"size": 11, "color": color},
    )  # fmt: skip


def _ratio_ticks(low: float, high: float) -> dict[str, Any]:
    """Ticks at round ratios that are far enough apart."""
    kept: list[float] = []
    for ratio in sorted(_TICKS, key=lambda r: abs(math.log(r))):
        x = math.log(ratio)
        if low <= x <= high and all(abs(x - math.log(other)) > (high - low) / 14 for other in kept):
            kept.append(ratio)
    if len(kept) < 4:
        kept = sorted({*kept, *(round(math.exp(low + (high - low) * i / 6), 3) for i in range(1, 6))})
    return {"tickvals": [math.log(r) for r in sorted(kept)], "ticktext": [number(float(r)) for r in sorted(kept)]}


def _canvas(ink: Any) -> go.Figure:
    figure = go.Figure()
    grid = {"gridcolor": ink["rule"], "zeroline": False, "linecolor": ink["rule"], "automargin": True}
    figure.update_layout(
        margin={"l": 8, "r": 12, "t": 8, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "color": ink["ink"], "size": 13},
        hoverlabel={"font": {"family": _FONT}},
        xaxis=grid,
        yaxis=grid,
    )
    return figure
