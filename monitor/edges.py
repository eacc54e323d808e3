"""Named bin edges of histograms, kept in `edges.json`.

A published set never changes: other edges get another name (`lr2`). k ascending edges make k + 1 bins, the outer two
open; bin i is [edge i-1, edge i). Standard library only.
"""

from __future__ import annotations

import json
from pathlib import Path

_SETS: dict[str, list[float]] = json.loads(Path(__file__).with_name("edges.json").read_text(encoding="utf-8"))

LR1: tuple[float, ...] = tuple(float(edge) for edge in _SETS["lr1"])
"""Edges over log r: every 0.05 from -5 to 5, fine around 0, and plus and minus the log of every bound that the pages
offer, so that a clip fraction predicted for such a bound is exact."""

LENGTH_EDGES: tuple[float, ...] = tuple(float(edge) for edge in _SETS["len1"])
"""Edges over the length of a response in tokens (`len1`): 1, 2, 3, 4, 6, 8, 12, ... 131072; bin 0 is length 0."""

NAMED_EDGES: dict[str, tuple[float, ...]] = {"lr1": LR1, "len1": LENGTH_EDGES}
