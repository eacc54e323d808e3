"""Verdicts on the paper's claims, from runs drawn by hand."""

import pytest

from regimescope.trainer.lab.claims import verdicts

LOOPS, SHORT = (90.0, 0.9), (4.0, 0.0)
GOOD = [0.5] * 5 + [0.8] * 35
DEAD = [0.5] * 10 + [0.0] * 30


def verdict_on(text, outcomes):
    (found,) = [v for v in verdicts(outcomes) if v.text == text]
    return found


R3 = "R3 off ends in repetition, DISPO does not"


def failing(make, arm, seed, answers=LOOPS):
    return make(arm, DEAD, seed=seed, answers=answers, bad_from=10)


def test_two_of_three_seeds_that_agree_reproduce_it(make):
    outcomes = [make("dispo", GOOD, seed=s) for s in range(3)]
    outcomes += [failing(make, "r3-off", 0), failing(make, "r3-off", 1), make("r3-off", GOOD, seed=2)]
    found = verdict_on(R3, outcomes)
    assert (found.word, found.agree, found.opposite, found.seeds) == ("reproduced", 2, 0, 3)
    assert found.detail == "repetition / healthy; repetition / healthy; healthy / healthy"


def test_one_seed_that_says_the_opposite_forbids_it(make):
    outcomes = [make("dispo", GOOD, seed=0), make("dispo", GOOD, seed=1), failing(make, "dispo", 2)]
    outcomes += [failing(make, "r3-off", 0), failing(make, "r3-off", 1), make("r3-off", GOOD, seed=2)]
    assert verdict_on(R3, outcomes).word == "not reproduced"


def test_another_ending_is_not_the_claimed_one(make):
    outcomes = [make("dispo", GOOD, seed=s) for s in range(3)]
    outcomes += [failing(make, "r4-off", s) for s in range(3)]
    assert verdict_on("R4 off ends in short answers, DISPO does not", outcomes).word == "not reproduced"
    assert verdict_on("R4 off fails, in whatever way, DISPO does not", outcomes).word == "reproduced"


def test_a_failing_run_beside_proves_nothing(make):
    outcomes = [failing(make, arm, s, SHORT) for arm in ("dispo", "r4-off") for s in range(3)]
    found = verdict_on("R4 off ends in short answers, DISPO does not", outcomes)
    assert (found.agree, found.opposite) == (0, 0)


@pytest.mark.parametrize(
    ("r1", "sft", "word"), [(0.2, 0.1, "reproduced"), (0.1, 0.2, "opposite"), (0.104, 0.1, "not reproduced")]
)
def test_measures_are_compared_with_a_least_difference(make, r1, sft, word):
    outcomes = [make("r1-10", GOOD, seed=s, entropy=r1) for s in range(3)]
    outcomes += [make("sft", GOOD, seed=s, entropy=sft) for s in range(3)]
    assert verdict_on("R1 (w_max 11) raises entropy against online SFT", outcomes).word == word


def test_less_turns_the_comparison_round(make):
    outcomes = [make("r2-1", GOOD, entropy=0.05), make("sft", GOOD, entropy=0.1)]
    assert verdict_on("R2 (w_min 0) lowers entropy against online SFT", outcomes).word == "reproduced"


def test_arms_are_compared_under_the_same_condition_and_seed_alone(make):
    outcomes = [make("dispo", GOOD, condition="stale", seed=1), failing(make, "r3-off", 1)]
    assert verdicts(outcomes) == []
