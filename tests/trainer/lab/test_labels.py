"""The onsets that detectors are measured against, on runs drawn by hand."""

import math

from regimescope.trainer.lab.labels import LASTING, label


def run(accuracy, length=None, rep4=None):
    """A row per value of accuracy; the other metrics as long, or left out."""
    rows = []
    for step, value in enumerate(accuracy):
        row = {"step": float(step), "accuracy": value}
        row |= {"response_length_mean": float(length[step])} if length else {}
        row |= {"rep4_mean": rep4[step]} if rep4 else {}
        rows.append(row)
    return rows


def test_a_healthy_run_has_no_onset_though_its_answers_get_short():
    rising = [0.4 + 0.02 * i for i in range(25)]
    found = label(run(rising, length=[100 - 3.5 * i for i in range(25)], rep4=[0.05] * 25))
    assert found.healthy and found.length is None and found.halved is None


def test_a_length_collapse_begins_where_the_length_stays_low():
    accuracy = [0.6] * 10 + [0.1] * 15
    length = [40] * 8 + [20, 40, 40] + [40] * 3 + [10] * 11  # one short answer before is none
    found = label(run(accuracy, length=length))
    assert (found.length, found.repetition, found.decay) == (14, None, None)
    assert found.gone == found.halved == 11  # the second of three low values takes the mean below half


def test_a_repetition_collapse_needs_the_level_and_a_rise():
    accuracy = [0.6] * 10 + [0.05] * 15
    assert label(run(accuracy, rep4=[0.05] * 12 + [0.6] * 13)).repetition == 12
    assert label(run(accuracy, rep4=[0.05] * 12 + [0.12] * 13)).repetition is None  # below the level
    assert label(run(accuracy, rep4=[0.4] * 25)).repetition is None  # as it was from the start


def test_a_decay_begins_at_the_peak():
    accuracy = [0.3 + 0.01 * i for i in range(30)] + [0.6 - 0.01 * i for i in range(30)]
    found = label(run(accuracy))
    assert found.decay is not None and 27 <= found.decay <= 32 and found.gone is None
    assert label(run([*accuracy, *[0.6] * 12])).decay is None  # lost, but not for good


def test_accuracy_that_comes_back_is_halved_and_not_gone():
    accuracy = [0.6] * 5 + [0.1] * 6 + [0.6] * 14
    assert label(run(accuracy)).gone is None and label(run(accuracy)).halved is None
    again = label(run([*accuracy, *[0.05] * 10]))
    assert again.halved == 6 and again.gone == 26


def test_a_condition_must_last_and_gaps_are_skipped():
    short = [0.6] * 10 + [0.0] * (LASTING - 1)
    assert label(run(short)).gone is None
    holes = run([0.6, math.nan] * 6 + [0.0] * 6)
    assert label(holes).gone == 13  # steps are those of the log
    assert label([]).healthy
