"""Bounds in an address: `?pos_min=0.8&pos_max=11&neg_min=0&neg_max=inf`. Numbers are parsed and checked, nothing else
of the address is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.query import named_bounds

PARAMETERS: Mapping[str, str] = {
    "pos_min": "pos.w_min",
    "pos_max": "pos.w_max",
    "neg_min": "neg.w_min",
    "neg_max": "neg.w_max",
}
"Query parameter -> bound."


def bounds_of(parameters: Mapping[str, str], now: Bounds) -> Bounds:
    """`now` with what the address asks for; what is no bound, or makes none of the pair, is left out.

    >>> bounds_of({"neg_min": "1", "neg_max": "x"}, Bounds.from_wire({"pos": [0, 5], "neg": [0, 5]})).neg.w_min
    1.0
    """
    wanted = now
    for sign in ("pos", "neg"):
        values = {PARAMETERS[key]: x for key, x in _numbers(parameters).items() if key.startswith(sign)}
        try:
            wanted = wanted.with_values(values)
        except BoundsError:
            continue
    return wanted


def _numbers(parameters: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for key in PARAMETERS:
        try:
            value = float(parameters[key])
        except (KeyError, ValueError):
            continue
        if value >= 0:  # NaN is not
            found[key] = value
    return found


def parameters_of(bounds: Bounds) -> dict[str, str]:
    """The four parameters of an address."""
    values = named_bounds(bounds)
    return {key: number_text(values[name]) for key, name in PARAMETERS.items()}


def number_text(value: float) -> str:
    """As it stands in an address: digits that come back as the same number."""
    return "inf" if math.isinf(value) else f"{value:.12g}"
