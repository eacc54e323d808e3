"""What each signature asks for beside its own shift."""

import math
import random

import pytest

from regimescope.detectors import Event, Suite

RNG_SEED = 7


def rows(steps, **paths):
    """One mapping per step; a path is a function of the step, 2 % of noise on top."""
    rng = random.Random(RNG_SEED)
    return [{name: path(step) * (1 + 0.02 * rng.gauss(0, 1)) for name, path in paths.items()} for step in range(steps)]


def step_at(when, before, after, over=1):
    return lambda step: before + (after - before) * min(1.0, max(0.0, (step - when) / over))


def run(data, declared=None):
    suite = Suite()
    start = [] if declared is None else [Event(kind="start", step=0, data=declared)]
    for step, row in enumerate(data):
        suite.update(step, row, start if step == 0 else ())
    return {f.signature: f for f in suite.findings()}


def test_shorter_alone_is_no_collapse():
    """A slow halving without distress: an info."""
    found = run(rows(200, response_length_mean=step_at(60, 400, 180, 60), grad_norm=lambda s: 0.3))
    assert found["length_collapse"].severity == "info"


def test_shorter_in_distress_is_critical():
    found = run(rows(120, response_length_mean=step_at(60, 400, 100, 8), grad_norm=step_at(58, 0.3, 3, 4)))
    assert found["length_collapse"].severity == "critical"
    assert 58 <= found["length_collapse"].step_onset <= 62 < found["length_collapse"].step_detected <= 70


@pytest.mark.parametrize(("accuracy", "severity"), [(0.3, "warning"), (0.05, "critical")])
@pytest.mark.parametrize(
    ("signature", "path"),
    [("length_collapse", {"response_length_mean": step_at(60, 400, 210, 8)}),
     ("repetition_collapse", {"rep4_mean": step_at(60, 0.1, 0.21, 3)})],
)  # fmt: skip
def test_what_would_be_a_warning_is_critical_once_accuracy_is_gone(signature, path, accuracy, severity):
    found = run(rows(80, **path, accuracy=step_at(58, 0.7, accuracy, 8)))
    assert found[signature].severity == severity
    if severity == "critical":
        assert found["accuracy_collapse"].inhibited_by == signature


@pytest.mark.parametrize(
    ("rep4", "beside", "severity"),
    [
        (0.45, {}, "critical"),
        (0.45, {"accuracy": lambda s: 0.7}, "warning"),
        (0.21, {"accuracy": lambda s: 0.7}, "info"),
        (0.45, {"accuracy": step_at(58, 0.7, 0.4, 8)}, "critical"),
        (0.45, {"accuracy": lambda s: 0.7, "grad_norm": step_at(58, 0.3, 5, 4)}, "critical"),
        (0.7, {"accuracy": lambda s: 0.7}, "critical"),
    ],
)
def test_a_burst_of_repetition_counts_one_severity_less_while_accuracy_holds(rep4, beside, severity):
    found = run(rows(72, rep4_mean=step_at(60, 0.1, rep4, 3), **beside))
    assert found["repetition_collapse"].severity == severity


@pytest.mark.parametrize("begin", [6, 60])
@pytest.mark.parametrize(("after", "severity"), [(0.56, "warning"), (0.7, "info"), (0.05, "critical")])
def test_repetition_that_comes_with_a_gain_of_accuracy_is_an_info(begin, after, severity):
    """The gain counts from where the repetition began, before the rule could speak as well."""
    found = run(rows(begin + 16, rep4_mean=step_at(begin, 0.1, 0.4, 3), accuracy=step_at(begin, 0.55, after, 4)))
    assert found["repetition_collapse"].severity == severity


@pytest.mark.parametrize(
    ("before", "after", "accuracy", "found"),
    [(0.12, 0.37, 0.0, True), (0.12, 0.37, 0.5, False), (0.12, 0.22, 0.0, False), (0.2, 0.37, 0.0, False)],
)
def test_loops_in_the_first_steps_are_named_once_accuracy_is_gone(before, after, accuracy, found):
    """Before the shift has a reference: above a quarter, and twice what the run began with."""
    data = [{"rep4_mean": before, "accuracy": 0.6}] * 3 + [{"rep4_mean": after, "accuracy": accuracy}] * 9
    alert = run(data).get("repetition_collapse")
    assert (alert is not None and alert.severity == "critical") == found


def test_lost_accuracy_is_not_benign_though_reward_rises():
    paths = {"response_length_mean": step_at(60, 400, 210, 8), "reward_mean": step_at(60, 0.2, 0.8, 8)}
    assert run(rows(90, **paths, accuracy=step_at(58, 0.7, 0.6, 8)))["length_collapse"].severity == "info"
    assert run(rows(90, **paths, accuracy=step_at(58, 0.7, 0.05, 8)))["length_collapse"].severity == "critical"


def test_rising_reward_makes_it_benign_and_distress_with_entropy_overrules_that():
    falling = {"response_length_mean": step_at(60, 400, 120, 8), "reward_mean": step_at(60, 0.2, 0.8, 8)}
    assert run(rows(120, **falling))["length_collapse"].severity == "info"
    distress = {"grad_norm": step_at(58, 0.3, 5, 4), "entropy_mean": step_at(60, 0.9, 0.05, 4)}
    assert run(rows(120, **falling, **distress))["length_collapse"].severity == "critical"


def test_repetition_needs_a_level_as_well():
    low = run(rows(120, rep4_mean=step_at(60, 0.01, 0.1, 5)))
    assert "repetition_collapse" not in low
    warned = run(rows(75, rep4_mean=step_at(60, 0.06, 0.2, 5)))
    assert warned["repetition_collapse"].severity == "warning"
    assert run(rows(120, rep4_mean=step_at(60, 0.06, 0.45, 5)))["repetition_collapse"].severity == "critical"


def test_a_few_looping_responses_are_seen_before_the_mean_moves():
    data = rows(100, repetition_frac=step_at(60, 0.01, 0.3, 5), rep4_mean=lambda s: 0.06)
    found = run(data)["repetition_collapse"]
    assert found.severity == "critical" and found.text == "More and more responses loop."


def test_decay_up_proposes_the_upper_bound_of_r1_by_entropy_effect():
    data = rows(
        260, accuracy=step_at(100, 0.7, 0.35, 120), entropy_mean=step_at(100, 0.3, 0.6, 120),
        **{"R1.entropy_effect": lambda s: 2.0, "R2.entropy_effect": lambda s: -1.0, "R1.token_frac": lambda s: 0.3},
        **{"R2.token_frac": lambda s: 0.3},
    )  # fmt: skip
    found = run(data, {"pos.w_max": 11.0, "pos.w_min": 0.8})["exploration_decay"]
    assert (found.severity, found.direction, found.driver) == ("critical", "up", "R1")
    assert (found.remedy.bound, found.remedy.direction, found.remedy.target) == ("pos.w_max", "lower", 1.28)


def test_decay_down_raises_the_upper_bound_where_it_binds():
    data = rows(
        260, accuracy=step_at(100, 0.7, 0.35, 120), entropy_mean=step_at(100, 0.3, 0.1, 120),
        **{"R1.clip_high_frac": lambda s: 0.3, "R1.token_frac": lambda s: 0.3},
    )  # fmt: skip
    found = run(data, {"pos.w_max": 1.2})["exploration_decay"]
    assert (found.direction, found.driver, found.remedy.bound, found.remedy.target) == ("down", "R1", "pos.w_max", 11)


def test_decay_without_entropy_is_unclear_and_proposes_nothing():
    found = run(rows(260, accuracy=step_at(100, 0.7, 0.35, 120)))["exploration_decay"]
    assert found.direction == "unclear" and found.remedy.bound is None
    assert found.remedy.text.startswith("No regime can be named: this log has no buckets.")


@pytest.mark.parametrize("kind", ["length", "repetition"])
def test_a_collapse_takes_in_the_decay_and_the_early_rules(traces, kind):
    suite = Suite()
    for step, row in enumerate(traces.incident(kind, 20, 70, 0)):
        suite.update(step, row)
    found = {f.rule: f for f in suite.findings()}
    name = f"{kind}_collapse"
    assert found[name].severity == "critical" and found[name].inhibited_by is None
    others = [f for f in found.values() if f.rule != name and f.signature != "truncation_saturated"]
    assert others and all(f.inhibited_by == name and f.incident == found[name].incident for f in others)


def test_constant_and_log_free_input_is_silent():
    assert run(rows(300, response_length_mean=lambda s: 400, rep4_mean=lambda s: 0.05, accuracy=lambda s: 0.5)) == {}
    assert math.isclose(Suite().rules.core["h"], 8)
