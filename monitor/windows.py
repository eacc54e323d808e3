"""Published windows of the weight, from windows.toml: what the what-if compares side by side.

>>> [published.bounds.pos.w_max for published in windows() if published.name == "dapo"]
[1.28]
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regimescope.monitor.bounds import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedWindow:
    """The bounds of one paper or of one framework's defaults."""

    name: str
    title: str
    "As people know it."
    bounds: Bounds
    source: str
    "Where the numbers are from."
    preset: str | None = None
    "The trainer's objective with the same bounds."


@cache
def windows() -> tuple[PublishedWindow, ...]:
    """All of them, in the order of the file."""
    with Path(__file__).with_name("windows.toml").open("rb") as file:
        tables = tomllib.load(file)
    return tuple(
        PublishedWindow(
            name=name, title=row["title"], bounds=Bounds.from_wire({"pos": row["pos"], "neg": row["neg"]}),
            source=row["source"], preset=row.get("preset"),
        )
        for name, row in tables.items()
    )  # fmt: skip
