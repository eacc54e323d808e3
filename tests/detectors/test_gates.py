"""False alarms on healthy runs, recall and lag on failing ones. CI form; the ten times longer one is a benchmark's
matter."""

from collections import Counter
from statistics import median

import pytest

from regimescope.detectors import Suite

SIGNATURE = {"length": "length_collapse", "repetition": "repetition_collapse", "decay": "exploration_decay"}


def findings(rows):
    suite = Suite()
    for step, row in enumerate(rows):
        suite.update(step, row)
    return suite.findings()


def test_false_alarms(traces):
    """AR(1) noise of three strengths, normal and Student-t(4), times the healthy families: no critical, <= .05
    warnings per 1,000."""
    count, steps = Counter(), 0
    for phi in (0.0, 0.6, 0.8):
        for tails in ("normal", "t4"):
            for family in traces.FAMILIES:
                rows = traces.healthy(family, 1500, steps, traces.Noise(phi=phi, tails=tails))
                steps += len(rows)  # which is also the seed: another noise for every run
                count.update(finding.severity for finding in findings(rows))
    assert steps >= 70_000 and count["critical"] == 0
    assert count["warning"] <= 0.05 * steps / 1000, f"{count['warning']} warnings in {steps} steps"


@pytest.mark.parametrize("kind", ["length", "repetition"])
@pytest.mark.parametrize("onsets", [(3, 5, 8, 12, 20, 30, 40), (200, 230, 260, 290, 320, 350)], ids=["early", "late"])
def test_collapses_are_found_in_time(traces, kind, onsets):
    lags = []
    for onset in onsets:
        for seed in range(3):
            found = findings(traces.incident(kind, onset, onset + 60, seed + 10 * onset))
            first = [
                f for f in found if f.signature == SIGNATURE[kind] and f.severity != "info" and f.step_detected >= onset
            ]
            assert first, (onset, seed)
            assert first[0].severity == "critical"
            lags.append(first[0].step_detected - onset)
    assert median(lags) <= 10


@pytest.mark.parametrize(("onsets", "lag"), [((12, 25, 40), 75), ((200, 250, 300, 350), 60)], ids=["early", "late"])
def test_decay_is_found(traces, onsets, lag):
    """Early in a run the noise of accuracy is not known well, so the same fall needs longer."""
    lags = []
    for onset in onsets:
        for seed in range(3):
            found = findings(traces.incident("decay", onset, onset + 230, seed + 10 * onset))
            first = [f for f in found if f.signature == SIGNATURE["decay"] and f.severity != "info"]
            assert first, (onset, seed)
            assert first[0].direction == "up"
            lags.append(first[0].step_detected - onset)
    assert median(lags) <= lag


def test_cost_is_flat_in_the_length_of_the_run(traces):
    """Operations, not seconds: the same collapse after 100 or 1,500 steps is found with the same lag."""
    lags = []
    for onset in (100, 1500):
        found = findings(traces.incident("length", onset, onset + 40, 5))
        lags.append(next(f.step_detected for f in found if f.signature == "length_collapse") - onset)
    assert abs(lags[0] - lags[1]) <= 2
