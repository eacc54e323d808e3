"""Rules that are off until measured: each works once a user switches it on, and is absent before."""

import random

import pytest

from regimescope.detectors import Event, Suite, load_rules

NAMES = ("clip_saturation", "reward_stall", "weight_imbalance", "mismatch_clipped", "no_signal")
BEHAVIOUR = {"objective": "dispo", "ratio_source": "behaviour", "neg.w_min": 1.0, "neg.w_max": 101.0}


@pytest.fixture
def on(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("".join(f'[[rule]]\nname = "{name}"\nenabled = true\n' for name in NAMES))
    return load_rules(path)


def run(rows, rules, declared=BEHAVIOUR):
    suite = Suite(rules)
    for step, row in enumerate(rows):
        suite.update(step, row, [Event(kind="start", step=0, data=declared)] if step == 0 else ())
    return {found.rule: found for found in suite.findings() if found.rule in NAMES}


def noisy(name, before, after, when=40, steps=80):
    rng = random.Random(9)
    return [{name: (before if step < when else after) * (1 + 0.05 * rng.gauss(0, 1))} for step in range(steps)]


def test_off_by_default(rules):
    assert not any(rules[name].enabled for name in NAMES)
    assert run(noisy("R4.clip_low_frac", 0.05, 0.7), rules) == {}
    assert not set(NAMES) & {blind.rule for blind in Suite().blind()}


@pytest.mark.parametrize(
    ("side", "severity"),
    [
        ("R1.clip_high_frac", "info"),
        ("R2.clip_low_frac", "info"),
        ("R3.clip_high_frac", "warning"),
        ("R4.clip_low_frac", "warning"),
    ],
)
def test_clip_saturation_names_the_side(on, side, severity):
    found = run(noisy(side, 0.05, 0.7), on)["clip_saturation"]
    assert (found.severity, found.evidence["binds"]) == (severity, side) and 38 <= found.step_onset <= 40
    assert run(noisy(side, 0.05, 0.2), on) == {} and run(noisy(side, 0.7, 0.72), on) == {}
    assert run(noisy(side, 0.05, 0.7), on, BEHAVIOUR | {"ratio_source": "proximal"}) == {}


def test_clip_saturation_proposes_the_bound_of_a_negative_side(on):
    rows = [row | {"R4.token_frac": 0.3} for row in noisy("R4.clip_low_frac", 0.05, 0.7)]
    remedy = run(rows, on)["clip_saturation"].remedy
    assert (remedy.bound, remedy.direction, remedy.target) == ("neg.w_min", "lower", 0)


def accuracies(path, steps=320):
    rng = random.Random(4)
    return [{"accuracy": path(step) + 0.02 * rng.gauss(0, 1)} for step in range(steps)]


def test_reward_stall_needs_a_hundred_points_without_gain(on):
    found = run(accuracies(lambda s: min(0.6, 0.3 + 0.003 * s)), on)["reward_stall"]
    assert found.severity == "info" and 190 <= found.step_detected <= 240
    assert found.remedy.bound is None
    assert run(accuracies(lambda s: 0.3 + 0.0015 * s), on) == {}
    assert run(accuracies(lambda s: 0.97), on) == {}
    assert run(accuracies(lambda s: 0.5, steps=100), on) == {}


def test_weight_imbalance_compares_the_two_signs(on):
    def rows(after):
        rest = {"R1.token_frac": 0.3, "pos_eq1.weight_mean": 1.0, "pos_eq1.token_frac": 0.1}
        rest |= {"R4.weight_mean": 0.95, "R4.token_frac": 0.3}
        return [row | rest for row in noisy("R1.weight_mean", 1.05, after)]

    found = run(rows(2.0), on)["weight_imbalance"]
    assert found.severity == "info" and found.evidence["weight_positive"] > found.evidence["weight_negative"]
    assert run(rows(1.1), on) == {}
    one_sign = [{key: value for key, value in row.items() if not key.startswith("R4")} for row in rows(2.0)]
    assert run(one_sign, on) == {}


DEAD = {"zero_variance_frac": 1.0, "grad_norm": 0.0}


def test_no_signal_needs_equal_rewards_and_a_gradient_of_exactly_nothing(on):
    found = run([DEAD] * 5, on)["no_signal"]
    assert (found.severity, found.step_onset, found.step_detected, found.remedy.bound) == ("warning", 0, 4, None)
    assert "no_signal" in run([{"reward_std": 0.0, "loss": 0.0}] * 5, on)
    assert "no_signal" not in run([DEAD] * 4, on)
    for change in ({"zero_variance_frac": 0.99}, {"grad_norm": 1e-9}, {"grad_norm": float("nan")}):
        assert "no_signal" not in run([DEAD | change] * 9, on)
    assert "no_signal" not in run([{"zero_variance_frac": 1.0}] * 9, on)


def fresh(**changes):
    return [{"updates": 1.0, "lag_max": 0.0, "R4.clip_low_frac": 0.5, "R4.token_frac": 0.1, **changes}] * 3


def test_clipping_on_a_fresh_rollout_is_a_mismatch(on):
    found = run(fresh(), on)["mismatch_clipped"]
    assert (found.signature, found.severity, found.remedy.bound) == ("engine_mismatch", "warning", None)


@pytest.mark.parametrize(
    "changes",
    [{"updates": 4.0}, {"lag_max": 2.0}, {"R4.clip_low_frac": 0.001}],
    ids=["later updates", "stale", "rounding"],
)
def test_clipping_that_may_be_is_none(on, changes):
    assert run(fresh(**changes), on) == {}


def test_only_where_the_ratio_is_to_the_weights_that_generated(on):
    for source in ("proximal", "infer"):
        assert run(fresh(), on, BEHAVIOUR | {"ratio_source": source}) == {}
