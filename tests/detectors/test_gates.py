"""False alarms on healthy runs, recall, lag and lead on failing ones. CI form: some 20 s of CPU together. The ten
times longer one is a benchmark's matter (`./dev bench detectors gates 10`)."""

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


def lead(rows, found, given_runs):
    """Steps from the first warning to that at which accuracy is half gone for good; None: it never is."""
    half = given_runs.accuracy_half([{"step": step, **row} for step, row in enumerate(rows)])
    warned = [f.step_detected for f in found if f.severity != "info"]
    return None if half is None or not warned else half - min(warned)


def test_false_alarms(traces, side_traces):
    """AR(1) noise of three strengths, normal and Student-t(4), times the healthy families, with mismatch, held-out
    accuracy and R4: no critical, <= .05 warnings per 1,000."""
    count, steps = Counter(), 0
    for phi in (0.0, 0.6, 0.8):
        for tails in ("normal", "t4"):
            for family in traces.FAMILIES:
                noise = traces.Noise(phi=phi, tails=tails)
                rows = traces.healthy(family, 3000, steps, noise)  # the steps so far are the seed: each run has another
                rows = side_traces.with_sides(rows, family, steps, noise)
                steps += len(rows)
                count.update(finding.severity for finding in findings(rows))
    assert steps == 162_000 and count["critical"] == 0
    assert count["warning"] <= 0.05 * steps / 1000, f"{count['warning']} warnings in {steps} steps"


@pytest.mark.parametrize("kind", ["length", "repetition"])
@pytest.mark.parametrize("onsets", [(3, 5, 8, 12, 20, 30, 40), (200, 230, 260, 290, 320, 350)], ids=["early", "late"])
def test_collapses_are_found_in_time(traces, given_runs, kind, onsets):
    lags, leads = [], []
    for onset in onsets:
        for seed in range(3):
            rows = traces.incident(kind, onset, onset + 60, seed + 10 * onset)
            found = findings(rows)
            leads.append(lead(rows, found, given_runs))
            first = [
                f for f in found if f.signature == SIGNATURE[kind] and f.severity != "info" and f.step_detected >= onset
            ]
            assert first, (onset, seed)
            assert first[0].severity == "critical"
            lags.append(first[0].step_detected - onset)
    assert median(lags) <= 10
    assert None not in leads and median(leads) > 0, leads


@pytest.mark.parametrize(("onsets", "lag"), [((12, 25, 40), 75), ((200, 250, 300, 350), 60)], ids=["early", "late"])
def test_decay_is_found(traces, given_runs, onsets, lag):
    """Early in a run the noise of accuracy is not known well, so the same fall needs longer."""
    lags, leads = [], []
    for onset in onsets:
        for seed in range(3):
            rows = traces.incident("decay", onset, onset + 230, seed + 10 * onset)
            found = findings(rows)
            leads.append(lead(rows, found, given_runs))
            first = [f for f in found if f.signature == SIGNATURE["decay"] and f.severity != "info"]
            assert first, (onset, seed)
            assert first[0].direction == "up"
            lags.append(first[0].step_detected - onset)
    assert median(lags) <= lag
    assert median(x for x in leads if x is not None) > 0, leads
