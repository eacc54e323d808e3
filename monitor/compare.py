"""Two runs beside each other: on which axis, where a metric of one goes away from that of the other, and which
settings differ. Pure.

    x = place(steps, "onset", onset=412)
    diverged(Curve(x=…, values=…), Curve(x=…, values=…), watched)

The rule of `diverged`: the difference a - b, in the transformed unit of the detectors, is large, and still so less its
median over the first REFERENCE common points, to the same side for LASTING points in a row. Large is more than 4 times
its own noise (median absolute change from point to point over the first EARLY common points, as a standard deviation)
and than the least shift that a rule asks of this metric. So a constant difference is none, neither is one that comes
and goes, nor one that ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from regimescope.monitor.departures import Watched
from regimescope.monitor.tables import text

By: TypeAlias = Literal["step", "tokens", "onset"]
Numbers: TypeAlias = NDArray[np.float64]
REFERENCE, EARLY, LASTING = 3, 20, 5
LEAST = REFERENCE + LASTING
"Common points below which nothing is said."
_NOISES = 4.0
_TO_SD = 1.4826 / 2**0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """A metric of one run on a common axis."""

    x: Numbers
    "[n], ascending."
    values: Numbers
    "[n]; NaN and infinities are passed over."


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two runs go apart in one metric."""

    name: str
    x: float
    "On the common axis."
    a: float
    "Value of the first run there."
    b: float


def place(steps: Sequence[int] | NDArray[np.int64], by: By, *, onset: int = 0, tokens: Curve | None = None) -> Numbers:
    """Steps on the common axis. `tokens`: tokens of each step, over steps; a step without them has those up to it."""
    at = np.asarray(steps, dtype=np.float64)
    if by == "onset":
        return at - onset
    if by == "step" or tokens is None or not len(tokens.x):
        return at
    total = np.cumsum(np.where(np.isfinite(tokens.values), tokens.values, 0.0))
    index = np.searchsorted(tokens.x, at, side="right") - 1
    return np.where(index >= 0, total[np.maximum(index, 0)], 0.0)


def common(a: Curve, b: Curve) -> tuple[Numbers, Numbers, Numbers]:
    """x, values of a and values of b where both are known and finite. Where the axes share no points (tokens), b is
    read at the last point before each of a.
    """
    a, b = _finite(a), _finite(b)
    if not len(a.x) or not len(b.x):
        return np.empty(0), np.empty(0), np.empty(0)
    x, left, right = np.intersect1d(a.x, b.x, assume_unique=False, return_indices=True)
    if len(x) >= min(len(a.x), len(b.x)) / 2:
        return x, a.values[left], b.values[right]
    inside = (a.x >= b.x[0]) & (a.x <= b.x[-1])
    at = np.searchsorted(b.x, a.x[inside], side="right") - 1
    return a.x[inside], a.values[inside], b.values[at]


def diverged(a: Curve, b: Curve, watched: Watched) -> Divergence | None:
    """Where the metric of a goes away from that of b and stays away; None = it does not, or too little is common."""
    x, of_a, of_b = common(a, b)
    if len(x) < LEAST:
        return None
    apart = np.array([watched.transform(v) for v in of_a]) - np.array([watched.transform(v) for v in of_b])
    moves = np.diff(apart[:EARLY])
    noise = max(watched.floor, _TO_SD * float(np.median(np.abs(moves - np.median(moves)))))
    off = apart - np.median(apart[:REFERENCE])
    far = max(_NOISES * noise, min(watched.up, watched.down))
    sides = ((off > far) & (apart > far), (off < -far) & (apart < -far))
    starts = [int(np.argmax(held)) for side in sides if (held := _held(side)).any()]
    if not starts:
        return None
    first = min(starts)
    return Divergence(name=watched.name, x=float(x[first]), a=float(of_a[first]), b=float(of_b[first]))


def _held(side: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where LASTING points in a row begin."""
    return np.convolve(side, np.ones(LASTING), mode="valid") >= LASTING


def _finite(curve: Curve) -> Curve:
    keep = np.isfinite(curve.values) & np.isfinite(curve.x)
    return Curve(x=curve.x[keep], values=curve.values[keep])


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """A nested configuration as "optimizer.lr" -> text."""
    found: dict[str, str] = {}
    for key, value in config.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = text(value)
    return found


def differing(a: Mapping[str, str], b: Mapping[str, str]) -> list[tuple[str, str | None, str | None]]:
    """Key, value of a, value of b where they differ, by key; None = that side has no such key."""
    return [(key, a.get(key), b.get(key)) for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
