"""heldout_gap: a gain in training that held-out problems do not show."""

import random

import pytest

from regimescope.detectors import Event, Suite


def run(rows, events=None):
    suite = Suite()
    for step, row in enumerate(rows):
        suite.update(step, row, (events or {}).get(step, ()))
    return [found for found in suite.findings() if found.signature == "heldout_gap"]


def series(training, heldout, steps=120, every=10):
    """Paths of the two accuracies, with noise; the held-out one every few steps."""
    rng = random.Random(11)
    rows = [{"accuracy": training(step) + rng.gauss(0, 0.02)} for step in range(steps)]
    for step in range(every - 1, steps, every):
        rows[step]["eval.accuracy"] = heldout(step) + rng.gauss(0, 0.01)
    return rows


def rising(step):
    return 0.4 + 0.003 * step


@pytest.mark.parametrize("heldout", [lambda s: 0.4, lambda s: 0.5 - 0.001 * s], ids=["flat", "falling"])
def test_training_alone_rises(heldout):
    (found,) = run(series(rising, heldout))
    assert found.severity == "warning" and found.step_detected < 120
    assert found.driver is None and found.remedy.bound is None and found.remedy.text.startswith("Not a bound")
    assert found.evidence["training_gain"] > 4.5 * found.evidence["training_gain_error"] > 0
    assert found.evidence["heldout_gain"] <= 2 * found.evidence["heldout_gain_error"]


@pytest.mark.parametrize(
    ("training", "heldout"),
    [
        (rising, lambda s: 0.35 + 0.002 * s),
        (lambda s: 0.5, lambda s: 0.6 - 0.002 * s),
        (rising, lambda s: 0.98),
        (lambda s: 0.4 + 0.0002 * s, lambda s: 0.4),
    ],
    ids=["both rise", "training does not", "nothing left to gain", "hardly a rise"],
)
def test_silent(training, heldout):
    assert run(series(training, heldout)) == []


def test_few_evaluations_and_few_answers_say_nothing():
    assert run(series(rising, lambda s: 0.4, steps=120, every=30)) == []  # the fourth is the last, `for` is 2
    few = [row | {"eval.accuracy.n": 12.0} for row in series(rising, lambda s: 0.4)]
    assert run(few) == []


def test_noisy_evaluations_widen_what_counts_as_flat():
    """What is noise by its own differences is no gain; but a few evaluations may tell too little about their noise."""
    found = 0
    for seed in range(12):
        rng = random.Random(seed)
        found += bool(run(series(rising, lambda s: 0.4 + rng.gauss(0, 0.15))))  # noqa: B023
    assert found <= 3 and run(series(rising, lambda s: 0.4))


def test_a_change_of_data_or_bounds_begins_anew():
    rows = series(rising, lambda s: 0.4)
    (found,) = run(rows)
    for kind in ("curriculum", "bounds_changed"):
        later = run(rows, {found.step_detected: [Event(kind=kind, step=found.step_detected)]})
        assert all(f.step_detected > found.step_detected + 40 for f in later)


def test_a_slow_gap_needs_more_than_two_evaluations_at_each_end():
    """Half the slope: the last two of eight evaluations are too near to the first two, thirds of twelve are not."""
    rng = random.Random(3)
    rows = series(lambda s: 0.4 + 0.0015 * s, lambda s: 0.4 + rng.gauss(0, 0.02), steps=160)
    (found,) = run(rows)
    assert found.evidence["evaluations"] >= 9 and found.step_onset < found.step_detected - 60


def test_it_is_blind_without_either_and_says_what_to_log():
    for missing in ("accuracy", "eval.accuracy"):
        suite = Suite()
        for step, row in enumerate(series(rising, rising)):
            suite.update(step, {name: value for name, value in row.items() if name != missing})
        sight = next(blind for blind in suite.blind() if blind.rule == "heldout_gap")
        assert sight.status == "blind" and sight.reason == f"{missing} is not logged" and sight.help


def test_points_without_a_verdict_on_the_policy_are_left_out():
    rows = series(rising, lambda s: 0.4)
    assert run([row | {"infra_failed_frac": 0.5} for row in rows]) == []


def test_healthy_noise_is_silent_and_hacking_is_found(traces, side_traces):
    noise = traces.Noise(phi=0.8, tails="t4")
    for family in ("learning", "early dip", "epoch wave"):
        assert run(side_traces.with_sides(traces.healthy(family, 600, 8, noise), family, 8, noise)) == []
    assert run(side_traces.side_incident("heldout", 40, 160, 40_001))
