"""docs/scorecard.svg: per data set and detector a bar for what was found and one for the false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

NAME, BAR, NUMBER, LINE, HEAD, GAP = 275, 180, 50, 22, 52, 24
FOUND, FALSE, INK, PAPER = "#1b7f5c", "#c2410c", "#1f2933", "#ffffff"
FONT = 'font-family="system-ui, sans-serif" font-size="13"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One detector."""

    name: str
    "With its version."
    found: float
    "Share of the collapses, 0 to 1."
    false: float
    "False alarms per 1,000 healthy rows; NaN without any."


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One data set."""

    title: str
    "Above its bars."
    bars: Sequence[Bar]
    "From top to bottom."


def figure(panels: Sequence[Panel]) -> str:
    """The SVG."""
    width = NAME + 2 * (BAR + NUMBER) + GAP
    parts, top = [], 0
    most = max([bar.false for panel in panels for bar in panel.bars if bar.false == bar.false], default=0.0) or 1.0
    for panel in panels:
        parts += _panel(panel, top, most)
        top += HEAD + LINE * len(panel.bars) + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" height="{top}" '
            f'role="img" aria-label="What each detector found, and its false alarms" {FONT}>',
            f'<rect width="{width}" height="{top}" fill="{PAPER}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _panel(panel: Panel, top: int, most: float) -> list[str]:
    false = NAME + BAR + NUMBER + GAP
    lines = [
        _text(8, top + 20, panel.title, weight="bold"),
        _text(NAME, top + 42, "collapses found", color=FOUND),
        _text(false, top + 42, "false alarms per 1,000 rows", color=FALSE),
    ]
    for i, bar in enumerate(panel.bars):
        y = top + HEAD + LINE * i
        lines.append(_text(8, y + 13, bar.name, weight="bold" if i == 0 else "normal"))
        lines += _bar(NAME, y, bar.found, f"{bar.found:.0%}", FOUND)
        if bar.false == bar.false:
            lines += _bar(false, y, bar.false / most, f"{bar.false:.2g}" if bar.false else "0", FALSE)
    return lines


def _bar(x: int, y: int, share: float, text: str, color: str) -> list[str]:
    width = BAR * share
    return [
        f'<rect x="{x}" y="{y + 2}" width="{max(width, 1):.1f}" height="{LINE - 8}" fill="{color}"/>',
        _text(x + width + 6, y + 13, text),
    ]


def _text(x: float, y: int, text: str, *, color: str = INK, weight: str = "normal") -> str:
    return f'<text x="{x:.0f}" y="{y}" fill="{color}" font-weight="{weight}">{escape(text)}</text>'
