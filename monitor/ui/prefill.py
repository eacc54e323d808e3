"""What is filled into the editor of bounds from elsewhere: an address, or a published window. Pure.

What lies outside the limits of the run is not filled in and said; nothing is moved to the nearest value that would fit,
for what a person confirms is what happens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from regimescope.monitor.bounds import Bounds, Limits, SignLimits
from regimescope.monitor.query import named_bounds
from regimescope.monitor.ui.texts import bound_label, weight
from regimescope.monitor.ui.url_bounds import PARAMETERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Bounds to fill in."""

    values: Mapping[str, float]
    "By name; the others stay as they are in force."
    problems: tuple[str, ...] = ()
    "What was not filled in, a sentence each."


def from_link(parameters: Mapping[str, str], limits: Limits) -> Prefill:
    """The four parameters of an address (`?neg_min=0`), as far as they are numbers within the limits.

    >>> from_link({"neg_min": "0", "pos_max": "1e3"}, Limits()).values
    {'neg.w_min': 0.0}
    """
    values, problems = dict[str, float](), list[str]()
    for key, name in PARAMETERS.items():
        if key not in parameters:
            continue
        try:
            value = float(parameters[key])
        except ValueError:
            value = math.nan
        if math.isnan(value):
            problems.append(f"{bound_label(name)} of this address is no number: not filled in.")
        else:
            values[name] = value
    fitting = within(values, limits)
    return Prefill(values=fitting.values, problems=(*problems, *fitting.problems))


def of_window(window: Bounds, limits: Limits) -> Prefill:
    """A published window, as far as the limits let it in."""
    return within(named_bounds(window), limits)


def within(values: Mapping[str, float], limits: Limits) -> Prefill:
    """Those of these bounds that the run would accept."""
    kept, problems = dict[str, float](), list[str]()
    for name, value in values.items():
        sign, _, side = name.partition(".")
        own: SignLimits | None = getattr(limits, sign)
        if own is None:
            continue  # the weight of this sign is constant: the editor says so
        low, high = getattr(own, side)
        if low <= value <= high:
            kept[name] = value
        else:
            problems.append(
                f"{bound_label(name)} = {weight(value)} is outside this run's limits "
                f"{weight(low)} to {weight(high)}: not filled in."
            )
    return Prefill(values=kept, problems=tuple(problems))
