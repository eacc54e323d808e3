"""Words of the pages: signatures, regimes, bounds, numbers, spans of time. Pure; the sentences are in texts.toml."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

BOUNDS = ("pos.w_min", "pos.w_max", "neg.w_min", "neg.w_max")
"The four bounds, in the order in which the editor shows them."

REGIME_OF = {"pos.w_max": "R1", "pos.w_min": "R2", "neg.w_max": "R3", "neg.w_min": "R4"}
"Regime whose tokens a bound holds."


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureText:
    """What the pages say about one kind of failure."""

    title: str
    "Shown in headings and lanes."
    metric: str
    "Metric of the evidence chart; empty = no chart."
    unit: str
    "Axis title of that chart."
    why: str
    "The mechanism, with its paper."
    also: tuple[str, ...]
    "Other explanations, each with the check that tells them apart."


@cache
def _tables() -> dict[str, Any]:
    with (Path(__file__).parent / "texts.toml").open("rb") as file:
        return tomllib.load(file)


def signature_text(signature: str) -> SignatureText:
    """The texts of a signature; one that is not in texts.toml gets its own name and no chart."""
    entry = _tables()["signature"].get(signature)
    if entry is None:
        return SignatureText(title=signature.replace("_", " ").capitalize(), metric="", unit="", why="", also=())
    return SignatureText(**{**entry, "also": tuple(entry["also"])})


def driver_text(regime: str) -> str:
    """What a regime holds, in words: "A<0, r<1: wrong answers that got less likely"."""
    return str(_tables()["driver"].get(regime, ""))


def state_text(state: str | None) -> str:
    """The trainer's state in words."""
    return str(_tables()["state"].get(state or "running", state))


def token_words() -> dict[str, Any]:
    """Names of the token viewer's colours, of its legends and of the lines of its inspector."""
    return dict(_tables()["tokens"])


def bound_label(key: str) -> str:
    """ "neg.w_min" -> "w_min of A<0"."""
    sign, _, name = key.partition(".")
    return f"{name} of {'A>0' if sign == 'pos' else 'A<0'}"


def number(value: float | None, digits: int = 3) -> str:
    """A number for a tile or sentence: 3 significant digits, thousands grouped, missing = a dash."""
    if value is None:
        return "–"  # noqa: RUF001 - an en dash is the usual sign for "no value"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.1e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if places else f"{value:.0f}"


def percent(fraction: float | None) -> str:
    """A fraction 0..1 as percentage with at most one decimal."""
    if fraction is None or not math.isfinite(fraction):
        return number(fraction)
    value = 100 * fraction
    return f"{value:.0f} %" if value == 0 or abs(value) >= 10 else f"{value:.1f} %"


def weight(value: float) -> str:
    """A bound as typed: no trailing zeros, infinity as its sign."""
    return "∞" if math.isinf(value) else f"{value:.6g}"


def span(seconds: float) -> str:
    """A span of time in the largest sensible unit: "12 s", "4 min", "2.5 h", "3 d"."""
    seconds = max(0.0, seconds)
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 9.5 or seconds == 0 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def ago(seconds: float) -> str:
    """A span for "… ago": whole seconds, then as span()."""
    return f"{max(0.0, seconds):.0f} s" if seconds < 89.5 else span(seconds)


def size(count: int) -> str:
    """Bytes in the largest sensible unit: "812 B", "1.3 MB"."""
    found = next(((count / n, unit) for n, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if count >= n), None)
    return f"{count} B" if found is None else f"{found[0]:.1f} {found[1]}"


def plural(count: int, word: str) -> str:
    """ "1 alert", "2 alerts"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def eps_label(key: str, value: float | None) -> str:
    """A bound as distance from 1: "eps_low 1" for w_min 0, "eps_high 10" for w_max 11."""
    name = "eps_low" if key.endswith("w_min") else "eps_high"
    if value is None:
        return f"{name} ?"
    return f"{name} {weight(1 - value if name == 'eps_low' else value - 1)}"
