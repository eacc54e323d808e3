"""The colours of the page, read from palette.toml: regimes, buckets and states, for the light and the dark theme.

Charts take `colors(theme)`; the live grid gets both themes. Nothing else in the tree names a colour.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

Theme = Literal["light", "dark"]
Tone = Literal["ok", "watch", "critical", "info", "stale", "off"]
"off: nothing to say, for want of data."

_BADGE_COLORS: Mapping[Tone, Literal["green", "orange", "red", "blue", "gray"]] = {
    "ok": "green",
    "watch": "orange",
    "critical": "red",
    "info": "blue",
    "stale": "gray",
    "off": "gray",
}
_ICONS: Mapping[Tone, str] = {
    "ok": ":material/check_circle:",
    "watch": ":material/warning:",
    "critical": ":material/error:",
    "info": ":material/info:",
    "stale": ":material/signal_disconnected:",
    "off": ":material/radio_button_unchecked:",
}


@cache
def palette() -> Mapping[str, Mapping[str, str]]:
    """The tables `light`, `dark` (colour by name), `dash` (line style by regime) and `entropy` (steps of a scale)."""
    with (Path(__file__).parent / "palette.toml").open("rb") as file:
        tables: dict[str, dict[str, str]] = tomllib.load(file)
    return tables


def colors(theme: Theme) -> Mapping[str, str]:
    """Colour by name, as `#RRGGBB`."""
    return palette()[theme]


def faded(color: str, alpha: float) -> str:
    """`#RRGGBB` with an opacity in 0..1, as CSS `rgba()`: for bands and shading."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def badge_color(tone: Tone) -> Literal["green", "orange", "red", "blue", "gray"]:
    """Streamlit's name for a tone; the theme sets these names to the palette's values."""
    return _BADGE_COLORS[tone]


def icon(tone: Tone) -> str:
    """Material icon of a tone, so that a state is never told by colour alone."""
    return _ICONS[tone]
