"""The token viewer: one components.v2 component that colours a response token by token. Its browser side is tokens.js.

    token_viewer(view, rev="run/31/0/12", place={"step": "31", "id": "12"}, tok=17, color="ratio")

Hover, clicks, colours and the window of 8,192 tokens stay in the browser; the address keeps the token and the colour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from regimescope.monitor.repeats import Loop
from regimescope.monitor.token_view import TokenView
from regimescope.monitor.ui.palette import palette
from regimescope.monitor.ui.texts import token_words, weight

COLORS = ("ratio", "entropy", "regime", "mass", "repetition")
"What tokens can be coloured by, as the address says it."
COLUMNS = 240
"Of the map, at most."
_DIGITS = 7
"Of float32."


def token_viewer(view: TokenView, *, rev: str, place: Mapping[str, str], tok: int | None, color: str | None) -> None:
    """Draw it. rev: names the response; unchanged = nothing is built again. place: step and id in the address. tok:
    token to open, from 0.
    """
    _VIEWER(key="tokens", data=wire(view, rev=rev, place=place, tok=tok, color=color))


def wire(
    view: TokenView, *, rev: str, place: Mapping[str, str], tok: int | None, color: str | None
) -> dict[str, object]:
    """What tokens.js reads. JSON: numbers that are not finite are the strings that Number() reads, unknown ones null;
    small numbers per token are digits of one string.
    """
    return {
        "rev": rev,
        "place": dict(place),
        "tok": tok if tok is not None and 0 <= tok < view.count else None,
        "color": color if color in COLORS else COLORS[0],
        "count": view.count,
        "texts": None if view.texts is None else list(view.texts),
        "ids": None if view.token_ids is None else list(view.token_ids),
        "old": _numbers(view.logp_old),
        "new": _numbers(view.logp_new),
        "entropy": _numbers(view.entropy),
        "weight": _numbers(view.weight),
        "advantage": None if view.advantage is None else _number(view.advantage),
        "bucket": None if view.bucket is None else "".join("-" if b is None else str(b) for b in view.bucket),
        "clip": None if view.clip is None else "".join(_SIDES[side] for side in view.clip),
        **_clip_map(view),
        "repeated": None if view.repeated is None else "".join("1" if x else "0" for x in view.repeated),
        "loop": _loop(view.loop),
        "bounds": bounds_text(view),
        "scale": dict(palette()["entropy"]),
        "words": token_words(),
    }


def _clip_map(view: TokenView) -> dict[str, object]:
    """The map above the text: share of clipped tokens by column, upwards and downwards, and the same in words."""
    columns = max(1, min(COLUMNS, view.count))
    high, low, size = [0.0] * columns, [0.0] * columns, [0] * columns
    for at in range(view.count):
        size[at * columns // view.count] += 1
    for at, side in enumerate(view.clip or ()):
        if side:
            column = at * columns // view.count
            (high if side == "high" else low)[column] += 1 / size[column]
    above, below = view.clipped
    words = f"Of {view.count:,} tokens {above:,} are clipped high and {below:,} low"
    return {
        "high": [round(share, 3) for share in high],
        "low": [round(share, 3) for share in low],
        "clipped": above + below,
        "map": words if view.clip is not None else "Clipped tokens are not known",
    }


_SIDES = {"": "0", "high": "1", "low": "2"}


def bounds_text(view: TokenView) -> str:
    """ "w 0.8 to 11 (A>0)", the bounds of the response's sign."""
    if view.bounds is None or view.advantage is None:
        return "not known"
    side, sign = (view.bounds.neg, "A<0") if view.advantage < 0 else (view.bounds.pos, "A>0")
    return f"w {weight(side.w_min)} to {weight(side.w_max)} ({sign})"


def _loop(loop: Loop | None) -> dict[str, int] | None:
    return None if loop is None else {"start": loop.start, "end": loop.start + loop.covered}


def _numbers(values: Sequence[float | None] | None) -> list[float | str | None] | None:
    return None if values is None else [None if x is None else _number(x) for x in values]


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return float(f"{value:.{_DIGITS}g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def script() -> str:
    """tokens.js without indentation and comment lines: it travels with every message of the page."""
    lines = (line.strip() for line in part("js").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//")) + "\n"


def part(suffix: str) -> str:
    """A file of the component: html, css or js."""
    return (Path(__file__).parent / f"tokens.{suffix}").read_text("utf-8")


_VIEWER = st.components.v2.component(
    "regimescope_tokens", html=part("html"), css=part("css"), js=script(), isolate_styles=False
)
