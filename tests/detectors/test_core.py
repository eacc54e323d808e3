"""The shift detector and the means against direct formulas and river."""

import math
import random
from statistics import median, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.detectors import core, load_rules, means

CORE = load_rules().core
STATE = ("evidence", "effect", "onset", "points_since_onset", "slow", "fast", "accepted", "seen", "value")


def feed(shift, values, first=0):
    for step, value in enumerate(values, first):
        shift.update(step, value)
    return shift


def noise(n, seed=0, sd=1.0):
    rng = random.Random(seed)
    return [rng.gauss(0, sd) for _ in range(n)]


def direct_cusum(values, sign, reference, scale):
    """S by the closed form: the largest excess of the last points, max over j of sum_{i>=j} (z_i - k), z clipped."""
    excess = [max(-4.0, min(4.0, sign * (x - reference) / scale)) - CORE["k"] for x in values]
    return max(0.0, max(sum(excess[j:]) for j in range(len(excess))))


@pytest.mark.parametrize("sign", [1, -1])
def test_evidence_is_the_direct_cusum(sign):
    """With a constant reference (no noise before the shift) the recursion equals the closed form, below its cap."""
    shift = feed(core.Shift(core.identity, sign, 1.0, CORE), [0.0] * 60)
    tail = [sign * 1.2] * 8
    for step, x in enumerate(tail, 60):
        reference = shift.slow
        before = shift.evidence
        shift.update(step, x)
        assert shift.evidence == pytest.approx(max(0.0, before + sign * (x - reference) / shift.scale - CORE["k"]))
    frozen = feed(core.Shift(core.identity, sign, 1.0, CORE), [0.0] * 60 + [sign * 3.5] * 2)
    assert frozen.evidence >= CORE["h"] / 2  # from here on the reference stands still
    reference, scale, first = frozen.slow, frozen.scale, frozen.evidence
    rest = [sign * x for x in (2.2, 1.5, 2.8, 1.9)]
    for step, x in enumerate(rest, 62):
        frozen.update(step, x)
    assert frozen.slow == reference
    expected = first + direct_cusum(rest, sign, reference, scale)
    assert frozen.evidence == pytest.approx(min(2 * CORE["h"], expected))


@given(seed=st.integers(0, 1000), sign=st.sampled_from((-1, 1)), jump=st.floats(-1, 1))
def test_points_of_a_long_run_are_those_of_the_general_path_to_the_last_digit(seed, sign, jump):
    class General(core.Shift):
        """Never takes the short path."""

        __slots__ = ()

        def update(self, step, value, weight=None):
            self._plain = False
            super().update(step, value, weight)

    short, general = (kind(core.log_value, sign, 0.05, CORE) for kind in (core.Shift, General))
    for step, x in enumerate(noise(160, seed, 0.2)):
        value = math.exp(x + (jump if step > 75 else 0))
        if step == 90:
            short.reseat(), general.reseat()
        short.update(step, value)
        general.update(step, value)
        assert [getattr(short, name) for name in STATE] == [getattr(general, name) for name in STATE]
    assert short._plain  # it was taken


def test_page_hinkley_of_river_alarms_within_five_steps():
    """The same standardised stream; river's test has no upper slack on the mean, so a few points apart is agreement."""
    drift = pytest.importorskip("river.drift", reason="river is in the development group")
    for seed in range(5):
        values = noise(200, seed) + [x + 5.0 for x in noise(60, seed + 100)]
        reference, scale = median(values[:45]), 1.4826 * median(abs(x - median(values[:45])) for x in values[:45])
        ours = core.Shift(core.identity, 1, 0.001, CORE)
        theirs = drift.PageHinkley(min_instances=10, delta=0.5, threshold=20, mode="up")
        alarms: list[int | None] = [None, None]
        for step, x in enumerate(values):
            ours.update(step, x)
            theirs.update((x - reference) / scale)
            if alarms[0] is None and ours.evidence > CORE["h"]:
                alarms[0] = step
            if alarms[1] is None and theirs.drift_detected:
                alarms[1] = step
        assert alarms[0] is not None and alarms[1] is not None
        assert alarms[0] >= 200 and abs(alarms[0] - alarms[1]) <= 5


def test_onset_is_the_last_point_before_the_shift():
    shift = feed(core.Shift(core.log_value, -1, 0.05, CORE), [400.0] * 50 + [100.0] * 6)
    assert shift.onset == 49 and shift.points_since_onset == 6
    assert shift.effect == pytest.approx(math.log(4), abs=0.12)


def test_reference_follows_a_drift_but_no_collapse():
    drift = feed(core.Shift(core.log_value, -1, 0.05, CORE), [400 * math.exp(-step / 2000) for step in range(2000)])
    assert drift.evidence == 0 and drift.slow < math.log(400) - 0.9
    collapse = feed(core.Shift(core.log_value, -1, 0.05, CORE), [400.0] * 60 + [100.0] * 300)
    assert collapse.slow == pytest.approx(math.log(400), abs=0.15) and collapse.evidence == 2 * CORE["h"]


def test_a_shift_inside_the_warm_up_is_seen_as_soon_as_the_scale_is_known():
    """The first eight accepted points are replayed against the median of their first three."""
    shift = feed(core.Shift(core.log_value, -1, 0.05, CORE), [40.0] * 6 + [8.0] * 8)
    assert shift.onset <= 5 and shift.effect > math.log(2.2)


def test_robust_scale_of_a_drift_with_noise_is_that_of_the_noise():
    values = [0.3 * i + x for i, x in enumerate(noise(40, 3))]
    assert core.robust_scale(values, 0.01, settled=True) == pytest.approx(stdev(noise(40, 3)), rel=0.5)
    assert core.robust_scale([1.0] * 8, 0.05, settled=False) == pytest.approx(0.05 * math.sqrt(3) * (1 + 6 / 8))


def test_batch_size_is_a_floor_of_the_scale_of_a_share():
    few, many = core.Shift(core.logit, -1, 0.1, CORE), core.Shift(core.logit, -1, 0.1, CORE)
    for step in range(12):
        few.update(step, 0.5, 16.0)
        many.update(step, 0.5, 10000.0)
    assert few.scale == pytest.approx(5 * many.scale)  # 1/sqrt(16 · .25) against the floor of .1


def test_reseat_keeps_the_scale_and_does_not_take_a_return_to_baseline_for_a_shift():
    shift = feed(core.Shift(core.log_value, -1, 0.05, CORE), [40.0 + (i % 3) for i in range(50)])
    scale = shift.scale
    shift.reseat()
    feed(shift, [96.0] * 6 + [40.0] * 20, 50)
    assert shift.scale == scale and shift.effect < 0.1 and shift.evidence == 0
    feed(shift, [10.0] * 5, 80)
    assert shift.effect > 1 and shift.evidence > CORE["h"]


@given(st.floats(1e-3, 1e3), st.integers(0, 5))
def test_log_metrics_are_scale_free(factor, seed):
    values = [math.exp(x) for x in noise(80, seed, 0.1)] + [0.3] * 10
    plain = feed(core.Shift(core.log_value, -1, 0.05, CORE), values)
    scaled = feed(core.Shift(core.log_value, -1, 0.05, CORE), [factor * x for x in values])
    assert scaled.evidence == pytest.approx(plain.evidence) and scaled.effect == pytest.approx(plain.effect)


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_standard_error_of_the_mean_is_right_up_to_its_allowance(phi):
    """Monte Carlo: 1.5 x the spread of the exponential mean over 300 AR(1) series, within a third."""
    ends, errors = [], []
    for seed in range(300):
        rng, x, mean = random.Random(seed), 0.0, means.NoisyEwma(8)
        for _ in range(150):
            x = phi * x + math.sqrt(1 - phi**2) * rng.gauss(0, 1)
            mean.update(x)
        ends.append(mean.value)
        errors.append(mean.standard_error())
    assert median(errors) == pytest.approx(1.5 * stdev(ends), rel=0.33)
