"""Curves as SVG, for files that open from disk: `svg(chart)`. Colours are classes, so that the file has both themes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 12, 10, 28
_TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve."""

    label: str
    color: str
    "Key of the palette."
    x: Sequence[float]
    y: Sequence[float]
    "NaN and infinities leave a gap."
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A vertical line."""

    x: float
    kind: str
    "onset | detected | bounds"
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing of some curves over one axis."""

    title: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    x_title: str = "step"


def svg(chart: Chart) -> str:
    """The drawing as text."""
    xs = [x for line in chart.lines for x in line.x]
    ys = [y for line in chart.lines for y in line.y if math.isfinite(y)]
    if not xs or not ys:
        return ""
    x0, x1 = _span(min(xs), max(xs))
    y0, y1 = _span(min(ys), max(ys), pad=0.06)

    def at_x(x: float) -> float:
        return _LEFT + (x - x0) / (x1 - x0) * (WIDTH - _LEFT - _RIGHT)

    def at_y(y: float) -> float:
        return HEIGHT - _BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(_spoken(chart), quote=True)}">']
    for y in ticks(y0, y1):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{at_y(y) + 5:.1f}" text-anchor="end">{shown(y)}</text>')
    for x in ticks(x0, x1, most=7):
        parts.append(f'<text class="tick" x="{at_x(x):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{shown(x)}</text>')
    for mark in chart.marks:
        if x0 <= mark.x <= x1:
            parts.append(
                f'<line class="mark {escape(mark.kind)}" x1="{at_x(mark.x):.1f}" x2="{at_x(mark.x):.1f}" y1="{_TOP}" '
                f'y2="{HEIGHT - _BOTTOM}"><title>{escape(mark.label)}</title></line>'
            )
    for line in chart.lines:
        dash = ' stroke-dasharray="5 3"' if line.dashed else ""
        for piece in _pieces(line):
            points = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in piece)
            if len(piece) == 1:
                x, y = piece[0]
                parts.append(f'<circle class="fill-{escape(line.color)}" cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="2"/>')
            else:
                parts.append(f'<polyline class="line-{escape(line.color)}"{dash} points="{points}"/>')
    return "".join([*parts, "</svg>"])


def _pieces(line: Line) -> list[list[tuple[float, float]]]:
    """Runs of finite points."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(y):
            pieces[-1].append((x, y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _span(low: float, high: float, pad: float = 0.0) -> tuple[float, float]:
    if high - low <= 1e-12 * max(1.0, abs(high)):
        wide = abs(high) * 0.1 or 1.0
        return low - wide, high + wide
    return low - pad * (high - low), high + pad * (high - low)


def ticks(low: float, high: float, most: int = _TICKS) -> list[float]:
    """Round numbers between the two.

    >>> ticks(0.0, 1.0)
    [0.0, 0.5, 1.0]
    """
    raw = (high - low) / most
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def shown(value: float) -> str:
    """A number of an axis or a table, short."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if abs(value) >= 1e5:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def _spoken(chart: Chart) -> str:
    said = [f"{line.label} {shown(line.y[0])} to {shown(line.y[-1])}" for line in chart.lines if line.y]
    return f"{chart.title} over {chart.x_title}: {'; '.join(said)}"
