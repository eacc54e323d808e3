"""What became of a run, and its measures, on runs drawn by hand."""

import math
from dataclasses import replace

import pytest

from regimescope.trainer.lab.labels import Labels

GOOD = [0.5] * 5 + [0.8] * 35
NONE = Labels(length=None, repetition=None, decay=None, gone=None, halved=None)


@pytest.mark.parametrize(
    ("labels", "ending"),
    [
        ({}, "healthy"),
        ({"decay": 9}, "decay"),
        ({"gone": 9, "halved": 9}, "lost"),
        ({"gone": 9, "decay": 9}, "lost"),
        ({"gone": 9, "length": 12}, "length"),
        ({"gone": 9, "repetition": 12}, "repetition"),
        ({"gone": 9, "length": 12, "repetition": 11}, "repetition"),
        ({"gone": 9, "length": 11, "repetition": 12}, "length"),
    ],
)
def test_the_ending_is_what_began_first(make, labels, ending):
    assert replace(make("dispo", GOOD), labels=replace(NONE, **labels)).ending == ending


def test_the_measures_of_a_healthy_run(make):
    measures = make("dispo", [0.5] * 10 + [0.9] * 5 + [0.7] * 15, entropy=0.2).measures
    assert measures["accuracy"] == pytest.approx(0.7)
    assert (measures["peak"], measures["peak_step"]) == (pytest.approx(0.9), 10)
    assert measures["entropy"] == pytest.approx(0.2)


def test_entropy_is_compared_while_accuracy_lasts_and_without_the_first_steps(make):
    run = make("dispo", [0.6] * 10 + [0.0] * 20)
    rows = [{**row, "entropy_mean": 0.3 if row["step"] < 5 else 0.1 if row["step"] < 10 else 0.9} for row in run.rows]
    gone = replace(run, rows=rows, labels=replace(NONE, gone=10))
    assert gone.measures["entropy"] == pytest.approx(0.1)
    assert math.isnan(replace(gone, labels=replace(NONE, gone=3)).measures["entropy"])
