"""exploration_decay: how much accuracy has to be lost depends on what rose with it; a bound only by the measured
effect."""

import random
from statistics import median

import pytest

from regimescope.detectors import Event, Suite, load_rules

NAME = "exploration_decay"
UP = {"entropy_mean": (0.3, 1.35), "grad_norm": (0.3, 2.0), "response_length_mean": (300.0, 1.15)}
"Level and factor of each sign that a decay can come with."


def ramp(start, span, factor):
    return lambda step: factor ** min(1.0, max(0.0, (step - start) / span))


def rows(lost, *, steps=150, onset=80, span=30, noise=0.035, phi=0.0, seed=1, up=(), factors=None):
    """Accuracy 0.7 that loses a share from `onset` on, with AR(1) noise; the metrics of `up` rise with it."""
    rng, fall, wander = random.Random(seed), ramp(onset, span, 1 - lost), 0.0
    factors = {name: UP[name][1] for name in up} | (factors or {})
    paths = {name: ramp(onset, span, factors.get(name, 1.0)) for name in UP}
    data = []
    for step in range(steps):
        wander = phi * wander + noise * rng.gauss(0, 1)
        signs = {name: level * paths[name](step) for name, (level, _) in UP.items()}
        data.append({"accuracy": 0.7 * fall(step) + wander, **signs})
    return data


def run(data, declared=None):
    suite = Suite()
    for step, row in enumerate(data):
        suite.update(step, row, [Event(kind="start", step=0, data=declared or {})] if step == 0 else ())
    return {finding.rule: finding for finding in suite.findings()}


def severity(data):
    found = run(data).get(NAME)
    return None if found is None else found.severity


TWO = ("entropy_mean", "grad_norm")


def warned(lost=0.16, **signs):
    """How many of eight runs in which accuracy wanders and loses a share."""
    return sum(severity(rows(lost, noise=0.03, phi=0.8, seed=seed, **signs)) is not None for seed in range(8))


def test_the_more_rises_with_the_loss_the_sooner_it_is_one():
    alone = warned()
    for name in UP:
        assert alone < warned(up=(name,)) <= 7, name
    for other in ("entropy_mean", "response_length_mean"):
        assert warned(up=("grad_norm", other)) == 8, other


def test_what_two_signs_make_enough_evidence_must_be_a_larger_loss(tmp_path):
    """A healthy run of the lab lost 11 % with two signs, for 35 steps, and came back. What is plain stays a warning."""
    path = tmp_path / "mine.toml"
    path.write_text(f'[[rule]]\nname = "{NAME}"\ntwo_signs_effect = 1.0\n')

    def warnings(rules, noise):
        found = 0
        for seed in range(8):
            suite = Suite(rules)
            for step, row in enumerate(rows(0.11, noise=noise, phi=0.8, seed=seed, up=TWO)):
                suite.update(step, row)
            found += NAME in {finding.rule for finding in suite.findings()}
        return found

    assert warnings(load_rules(), 0.02) < warnings(load_rules(path), 0.02)
    assert warnings(load_rules(), 0.005) == 8


def test_much_longer_answers_count_as_two_signs():
    assert warned(factors={"response_length_mean": 1.3}) == warned(up=TWO) > warned(up=("response_length_mean",))


def test_the_alert_says_what_rose():
    assert run(rows(0.3, up=TWO))[NAME].evidence["also_up"] == "entropy_mean, grad_norm"
    assert run(rows(0.3))[NAME].evidence["also_up"] is None


def test_signs_without_a_loss_are_nothing():
    assert severity(rows(0.03, up=tuple(UP))) is None


@pytest.mark.parametrize(("up", "expected"), [((), "warning"), (("grad_norm",), "critical"), (TWO, "critical")])
def test_a_fifth_is_critical_with_a_sign(up, expected):
    assert severity(rows(0.2, up=up)) == expected


def test_without_any_sign_a_third_is_critical():
    assert severity(rows(0.33)) == "critical"


@pytest.mark.parametrize("onset", [12, 80, 700])
def test_a_sharp_loss_is_critical_within_ten_steps(onset):
    """Without waiting for a mean of half-life 8, and in the first steps of a run as well as later."""
    found = run(rows(0.6, onset=onset, span=3, steps=onset + 11))[NAME]
    assert found.severity == "critical" and found.remedy.bound is None
    assert found.evidence["share_lost"] > 0.33


def test_a_sharp_loss_that_comes_back_at_once_is_not_critical():
    """Half of the accuracy for three points."""
    data = rows(0.0)
    dipped = [row | {"accuracy": row["accuracy"] / 2} if 80 <= step < 83 else row for step, row in enumerate(data)]
    assert severity(dipped) != "critical"


def test_a_loss_of_a_third_within_the_noise_of_few_responses_is_none():
    """Sixteen responses a step: means of five points lose a third of the best mean of nine by chance."""
    rng = random.Random(5)
    share = lambda: sum(rng.random() < 0.4 for _ in range(16)) / 16  # noqa: E731
    assert run([{"accuracy": share()} for _ in range(600)]) == {}


def test_switched_off_the_sharp_loss_is_not_looked_for(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[[rule]]\nname = "exploration_decay_sharp"\nenabled = false\n')
    data = rows(0.6, onset=12, span=3, steps=23)
    without = Suite(load_rules(path))
    for step, row in enumerate(data):
        without.update(step, row)
    assert NAME in run(data) and NAME not in {finding.rule for finding in without.findings()}


def test_the_top_of_a_fast_climb_is_its_last_points():
    """From a warm start of 0.5 to 0.8 in ten steps: the loss counts from 0.8, not from a mean that holds the start."""
    rng = random.Random(3)
    accuracy = [0.5 + 0.03 * step for step in range(10)] + [0.8] * 6 + [0.8 * 0.99**step for step in range(60)]
    signs = [{"entropy_mean": 0.2 * 1.01**step, "grad_norm": 0.3 * 1.02**step} for step in range(len(accuracy))]
    data = [{"accuracy": x + 0.03 * rng.gauss(0, 1), **sign} for x, sign in zip(accuracy, signs, strict=True)]
    found = run(data)[NAME]
    assert found.evidence["accuracy_peak"] == pytest.approx(0.8, abs=0.02)
    assert found.step_onset <= 16 < found.step_detected <= 60


def test_the_onset_is_not_a_lucky_top_of_long_ago():
    data = rows(0.4, steps=760, onset=700, span=40)
    lucky = [row | {"accuracy": row["accuracy"] + 0.04} if 100 <= step < 112 else row for step, row in enumerate(data)]
    assert run(lucky)[NAME].step_onset >= 600


def test_entropy_that_rose_makes_it_no_entropy_collapse():
    """Entropy is far below where it began, but has risen since accuracy was at its top."""
    data = rows(0.25, steps=330, onset=250, up=TWO)
    fallen = [row | {"entropy_mean": row["entropy_mean"] * ramp(80, 80, 0.1)(step)} for step, row in enumerate(data)]
    found = run(fallen)
    assert found[NAME].direction == "up" and found.get("entropy_collapse", found[NAME]).severity != "warning"


BINDING = {
    "R1": {"R1.clip_high_frac": 0.3, "R1.token_frac": 0.3},
    "R2": {"R2.clip_low_frac": 0.3, "R2.token_frac": 0.3},
}


@pytest.mark.parametrize("regime", ["R1", "R2"])
@pytest.mark.parametrize(("effect", "text"), [(None, "a paper"), (0.2, "measured as lifting entropy"), (-0.2, None)])
def test_with_entropy_down_the_measured_effect_decides_whether_a_bound_is_raised(regime, effect, text):
    buckets = BINDING[regime] | ({} if effect is None else {f"{regime}.entropy_effect": effect})
    data = [row | buckets for row in rows(0.4, factors={"entropy_mean": 0.7})]
    found = run(data, {"pos.w_max": 1.28, "pos.w_min": 0.5})[NAME]
    assert found.direction == "down"
    if text is None:
        assert found.remedy.bound is None
    else:
        assert found.remedy.bound == {"R1": "pos.w_max", "R2": "pos.w_min"}[regime] and text in found.remedy.text
    assert found.evidence["paper_expects"] == "R1 or R2"


def test_generated_decays_are_critical_within_sixty_steps(traces):
    warned, critical = [], []
    for onset in (20, 40, 200, 260, 320):
        for seed in range(3):
            suite, first = Suite(), {}
            for step, row in enumerate(traces.incident("decay", onset, onset + 120, 40_000 + 100 * onset + seed)):
                for finding in suite.update(step, row):
                    if finding.rule == NAME and step >= onset:
                        first.setdefault(finding.severity, step - onset)
            warned.append(first.get("warning", 999))
            critical.append(first.get("critical", 999))
    assert median(warned) <= 55 and median(critical) <= 62
