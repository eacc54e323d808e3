"""The published edge sets: computed again from their definition, for they never change."""

from __future__ import annotations

import math
from itertools import pairwise

from regimescope.monitor.edges import LENGTH_EDGES, LR1, NAMED_EDGES

OFFERED = (0.01, 0.05, 0.1, 0.2, 0.28, 0.3, 0.5, 0.8, 1, 2, 3, 4, 5, 10, 100)
"Distances from 1 of the bounds that the pages offer."


def test_lr1_is_its_definition() -> None:
    bounds = [round(1 + gap, 12) for gap in OFFERED] + [round(1 - gap, 12) for gap in OFFERED if gap < 1]
    wanted = {i / 20 for i in range(-100, 101)} | {1e-4, 1e-3, 1e-2, -1e-4, -1e-3, -1e-2}
    wanted |= {sign * math.log(bound) for bound in bounds for sign in (1, -1)}
    merged: list[float] = []
    for edge in sorted(wanted):
        if not merged or edge - merged[-1] > 1e-9:
            merged.append(edge)
    assert list(LR1) == merged
    assert len(LR1) == 249


def test_lr1_holds_the_log_of_every_published_bound_exactly() -> None:
    for bound in (0.8, 0.9, 1.1, 1.2, 1.28, 2, 3, 4, 5, 6, 11, 101, 1.01, 0.99, 0.5):
        assert math.log(bound) in LR1
    assert min(abs(edge + math.log(3)) for edge in LR1) < 1e-12
    assert 0.0 in LR1


def test_every_set_ascends_by_more_than_rounding() -> None:
    for edges in NAMED_EDGES.values():
        assert all(b - a > 1e-9 for a, b in pairwise(edges))


def test_length_edges() -> None:
    assert LENGTH_EDGES[:10] == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    assert LENGTH_EDGES[-1] == 131072
