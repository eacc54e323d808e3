"""A sharp loss: noise from before the fall, and a row of points that quiet ones break."""

import pytest

from regimescope.detectors import load_rules
from regimescope.detectors.sharp_loss import SharpLoss

STEADY = [0.7, 0.72] * 10


@pytest.fixture
def loss():
    return SharpLoss(load_rules()["exploration_decay_sharp"])


def critical(loss, values):
    found = []
    for step, value in enumerate(values):
        loss.add(value)
        found.append(loss.update(step) is not None)
    return found


def test_noise_is_that_of_the_points_before_the_fall(loss):
    """The steps of the fall itself are as large as what is lost."""
    assert critical(loss, [*STEADY[:10], *[0.05, 0.6] * 4, 0.05])[-1]


def test_the_same_loss_is_none_where_neighbours_differ_as_much(loss):
    assert not any(critical(loss, [*[0.4, 1.0] * 10, *[0.3, 0.5] * 5]))


def test_a_quiet_point_begins_the_row_anew(loss):
    assert critical(loss, [*STEADY, *[0.1] * 7])[-1]
    loss.quiet()
    assert loss.share == 0 and loss.update(30) is None


def test_after_a_restart_the_old_top_is_forgotten(loss):
    critical(loss, STEADY)
    loss.restart()
    assert not any(critical(loss, [0.3, 0.32] * 8))
