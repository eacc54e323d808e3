"""Loops and repeated tokens of one response agree with the trainer's measure over batches."""

import random

import pytest

from regimescope.monitor.repeats import Loop, loop_of, repeated_tokens
from regimescope.trainer.repetition import seq_rep, tail_loops


def response(seed):
    """Random tokens, then maybe a loop, then maybe something else."""
    draw = random.Random(seed)
    loop = [draw.randrange(6) for _ in range(draw.choice([1, 2, 7, 40]))]
    tail = [9] * draw.choice([0, 0, 3])
    return [draw.randrange(6) for _ in range(draw.randrange(30))] + loop * draw.choice([0, 2, 5, 20]) + tail


def test_the_loop_at_the_end_is_the_trainers():
    agreed = 0
    for seed in range(300):
        ids = response(seed)
        theirs, mine = tail_loops([ids]), loop_of(ids)
        if theirs.period[0]:
            assert (mine.start, mine.period, mine.covered, mine.rounds, mine.at_end) == (
                theirs.start[0], theirs.period[0], theirs.covered[0], theirs.count[0], True,
            ), ids  # fmt: skip
            agreed += 1
        else:
            assert mine is None or not mine.at_end, ids
    assert agreed > 50


def test_a_loop_that_the_response_left_again_is_found():
    ids = [9, 8, *[1, 2, 3, 4, 5, 6, 7, 0] * 3, 5, 5]
    assert loop_of(ids) == Loop(start=2, period=8, covered=24, at_end=False)
    longer = [*[1, 2, 3, 4, 5, 6, 7, 0] * 4, 5, *[3] * 24]
    assert loop_of(longer) == Loop(start=33, period=1, covered=24, at_end=True), "that at the end wins"


def test_the_end_token_is_no_part_of_the_loop():
    ids = [*[5, 6] * 12, 1]
    assert loop_of(ids, ended=True) == Loop(start=0, period=2, covered=24, at_end=True)
    assert loop_of(ids) == Loop(start=0, period=2, covered=24, at_end=False)


@pytest.mark.parametrize("ids", [[], [1], [1] * 23, [1, 2, 3, 4, 5, 6, 7, 8] * 2 + [1] * 7, list(range(100))])
def test_what_is_too_short_is_no_loop(ids):
    assert loop_of(ids) is None


def test_the_share_of_repeated_grams_is_the_trainers():
    for seed in range(100):
        ids = response(seed)
        grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
        new = [i for i, gram in enumerate(grams) if gram not in grams[:i]]
        marked = {j for i in range(len(grams)) if i not in new for j in range(i, i + 4)}
        assert repeated_tokens(ids) == [i in marked for i in range(len(ids))]
        if grams:
            assert 1 - len(new) / len(grams) == pytest.approx(seq_rep([ids], 4)[0])


def test_unknown_ids_are_like_any_other():
    assert loop_of([None] * 24) == Loop(start=0, period=1, covered=24, at_end=True)
    assert repeated_tokens([None] * 5) == [False, True, True, True, True]
