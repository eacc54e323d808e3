"""The published windows: those that the trainer has as objectives are the same there."""

from __future__ import annotations

import math

import pytest

from regimescope.monitor.edges import LR1
from regimescope.monitor.windows import windows
from regimescope.trainer.loss.published import published_rule


@pytest.mark.parametrize("window", windows(), ids=lambda window: window.name)
def test_a_window_is_that_of_the_objective_and_lies_on_edges(window):
    if window.preset:
        assert published_rule(window.preset).bounds == window.bounds
    for side in (window.bounds.pos, window.bounds.neg):
        for weight in (side.w_min, side.w_max):
            at_edge = weight == 0 or math.isinf(weight) or min(abs(math.log(weight) - edge) for edge in LR1) < 1e-9
            assert at_edge, weight
    assert window.source and window.title
