"""What holds for every suite: scale, shift of steps, gaps, NaN, silence, replay, one alert per failure, constant
memory."""

import math
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regimescope.detectors import Event, Suite

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KINDS = ("length", "repetition", "decay")
LOG_METRICS = ("entropy_mean", "grad_norm", "kl_step")
START = Event(
    kind="start", step=0, data={"objective": "dispo", "ratio_source": "behaviour", "neg.w_min": 1.0, "neg.w_max": 101.0}
)


def run(rows, first=0, suite=None):
    suite = suite or Suite()
    for step, row in enumerate(rows, first):
        suite.update(step, row)
    return suite.findings()


def key(finding):
    return finding.rule, finding.severity, finding.state, finding.ordinal, finding.step_onset, finding.step_detected


@FEW
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 50), factor=st.floats(0.5, 20))
def test_log_metrics_may_be_in_any_unit(traces, kind, seed, factor):
    rows = traces.incident(kind, 40, 160, seed)
    scaled = [{k: v * factor if k in LOG_METRICS else v for k, v in row.items()} for row in rows]
    assert [key(f) for f in run(scaled)] == [key(f) for f in run(rows)]


@FEW
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 50), offset=st.integers(1, 10_000))
def test_step_numbers_may_be_shifted(traces, kind, seed, offset):
    rows = traces.incident(kind, 40, 160, seed)
    moved = [
        replace(
            f, step_onset=f.step_onset + offset, step_detected=f.step_detected + offset, step_last=f.step_last + offset
        )
        for f in run(rows)
    ]
    assert run(rows, offset) == moved


@FEW
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 50), data=st.data())
def test_gaps_and_bad_numbers_are_tolerated(traces, kind, seed, data):
    """Every fifth value or so is missing, NaN or infinite; the failure is found all the same."""
    rows = traces.incident(kind, 60, 60 + (60 if kind != "decay" else 220), seed)
    names = [name for name in rows[0] if name not in LOG_METRICS]
    holes = data.draw(
        st.lists(st.tuples(st.integers(0, len(rows) - 1), st.sampled_from(names)), min_size=20, max_size=200)
    )
    for i, (step, name) in enumerate(holes):
        if i % 3 == 0:
            rows[step].pop(name, None)
        else:
            rows[step][name] = math.nan if i % 3 == 1 else math.inf
    found = {f.signature for f in run(rows) if f.severity != "info" and f.step_detected >= 60}
    assert {"length": "length_collapse", "repetition": "repetition_collapse", "decay": "exploration_decay"}[
        kind
    ] in found
    assert "nonfinite" not in found


LOGS = st.sampled_from(["response_length_mean", "entropy_mean", "grad_norm", "kl_step"])
SHARES = st.sampled_from(["accuracy", "rep4_mean", "repetition_frac", "zero_variance_frac"])


@FEW
@given(values=st.dictionaries(LOGS, st.floats(21, 1e6)), shares=st.dictionaries(SHARES, st.floats(0, 0.5)))
def test_constant_series_are_silent(values, shares):
    assert run([{**values, **shares, "accuracy.n": 64.0}] * 120) == []


@FEW
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 50), cut=st.integers(1, 150))
def test_replay_of_a_prefix_is_what_live_said(traces, kind, seed, cut):
    rows = traces.incident(kind, 40, 160, seed)
    live, seen = Suite(), []
    for step, row in enumerate(rows):
        live.update(step, row, [START] if step == 0 else ())
        seen.append(live.findings())
    replay = Suite()
    for step, row in enumerate(rows[:cut]):
        replay.update(step, row, [START] if step == 0 else ())
    assert replay.findings() == seen[cut - 1] and replay.blind() is not live.blind()


@FEW
@given(kind=st.sampled_from(("length", "repetition")), seed=st.integers(0, 50), onset=st.integers(3, 120))
def test_one_alert_per_rule_and_failure(traces, kind, seed, onset):
    found = [f for f in run(traces.incident(kind, onset, onset + 80, seed)) if f.severity != "info"]
    assert len({f.rule for f in found}) == len(found)
    primary = [f for f in found if f.inhibited_by is None and f.signature != "truncation_saturated"]
    assert [f.signature for f in primary] == [f"{kind}_collapse"]


def fallen(rows, factor):
    """The length times the factor from step 60 on."""
    name = "response_length_mean"
    return [row | {name: row[name] * (factor if step >= 60 else 1.0)} for step, row in enumerate(rows)]


@FEW
@given(seed=st.integers(0, 50), more=st.floats(0.1, 1.5))
def test_a_larger_collapse_is_never_found_later(traces, seed, more):
    rows = traces.healthy("plain", 90, seed)
    small, large = fallen(rows, 0.35), fallen(rows, 0.35 * math.exp(-more))
    first = [f.step_detected for f in run(small) if f.signature == "length_collapse"]
    second = [f.step_detected for f in run(large) if f.signature == "length_collapse"]
    assert first and second and second[0] <= first[0]


def size(value, seen=None):
    """Bytes of all that a value holds."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    total = sys.getsizeof(value)
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, str | bytes):
        parts = []
    elif hasattr(value, "__iter__") and hasattr(value, "__len__"):
        parts = list(value)
    else:
        names = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ())]
        parts = [getattr(value, n) for n in names if hasattr(value, n)] + list(getattr(value, "__dict__", {}).values())
    return total + sum(size(part, seen) for part in parts if not callable(part))


@pytest.mark.parametrize("steps", [3000])
def test_memory_does_not_grow_with_the_steps(traces, steps):
    suite = Suite()
    rows = traces.healthy("plain", 400, 3)
    for i in range(400):
        suite.update(i, rows[i] | {"R4.token_frac": 0.2})
    before = size(suite)
    for i in range(400, steps):
        suite.update(i, rows[i % 400] | {"R4.token_frac": 0.2})
    assert size(suite) <= before * 1.02 + 64
