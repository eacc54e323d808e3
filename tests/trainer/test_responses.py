"""Response statistics: golden values, and agreement with the definitions written out naively."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.trainer.responses import Response, response_metrics, seq_rep_n, tail_loop

FEW_IDS = st.lists(st.integers(0, 2), max_size=60)
UNIT = st.lists(st.integers(0, 2), min_size=1, max_size=9)
LOOPING = st.builds(
    lambda head, unit, times, rest: [*head, *(unit * times), *unit[:rest]],
    FEW_IDS,
    UNIT,
    st.integers(1, 12),
    st.integers(0, 8),
)


def naive_seq_rep(ids: Sequence[int], n: int) -> float:
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def naive_tail_loop(ids: Sequence[int]) -> tuple[int, int]:
    for period in range(1, 257):
        covered = period
        while covered < len(ids) and ids[-1 - covered] == ids[-1 - covered + period]:
            covered += 1
        if covered <= len(ids) and covered >= max(3 * period, 24):
            return period, covered
    return 0, 0


def test_seq_rep_golden() -> None:
    assert seq_rep_n([1, 2, 3, 4, 1, 2, 3, 4], 4) == pytest.approx(1 - 4 / 5)
    assert seq_rep_n([1] * 23, 4) == pytest.approx(0.95)
    assert seq_rep_n([1, 2, 3], 4) == 0.0
    assert seq_rep_n([], 1) == 0.0
    assert seq_rep_n([7, 7, 7, 8], 1) == 0.5
    assert seq_rep_n(list(range(100)), 20) == 0.0


@given(ids=FEW_IDS | LOOPING, n=st.integers(1, 20))
def test_seq_rep_is_its_definition(ids: list[int], n: int) -> None:
    assert seq_rep_n(ids, n) == pytest.approx(naive_seq_rep(ids, n))
    assert seq_rep_n(tuple(ids), n) == seq_rep_n(ids, n)


def test_tail_loop_golden() -> None:
    assert tail_loop([5] * 24) == (1, 24)
    assert tail_loop([5] * 23) == (0, 0)
    assert tail_loop([9, 9, *[1, 2] * 12]) == (2, 24)
    assert tail_loop([9, 2, *[1, 2] * 12]) == (2, 25)
    assert tail_loop([*range(100, 110), *list(range(10)) * 3]) == (10, 30)
    assert tail_loop([*range(100, 110), *list(range(10)) * 2]) == (0, 0)
    assert tail_loop([5] * 100 + [6]) == (0, 0)
    assert tail_loop(list(range(256)) * 3) == (256, 768)
    assert tail_loop(list(range(257)) * 3) == (0, 0)
    assert tail_loop([]) == (0, 0)


@given(ids=FEW_IDS | LOOPING)
def test_tail_loop_is_its_definition(ids: list[int]) -> None:
    assert tail_loop(ids) == naive_tail_loop(ids)


def test_metrics_golden() -> None:
    responses = [
        Response(token_ids=(3, 4, 5, 1), ended=True, outcome="correct"),
        Response(token_ids=(3, 1), ended=True, outcome="incorrect"),
        Response(token_ids=(7,) * 30, ended=False, outcome="incorrect"),
        Response(token_ids=(2, 3, 4, 5, 6, 7, 1), ended=True, outcome="infra_failed"),
    ]
    metrics = response_metrics(responses)
    assert metrics == {
        "accuracy": (0.25, 4.0),
        "infra_failed_frac": (0.25, 4.0),
        "response_length_mean": (43 / 4, 4.0),
        "response_length_max": 30.0,
        "response_length_p10": pytest.approx(2.6),
        "response_length_p50": 5.5,
        "response_length_p90": pytest.approx(23.1),
        "response_length_p99": pytest.approx(29.31),
        "response_length_correct_mean": (4.0, 1.0),
        "response_length_incorrect_mean": (16.0, 2.0),
        "eos_frac": (0.75, 4.0),
        "truncated_frac": (0.25, 4.0),
        "rep4_mean": (pytest.approx((1 - 1 / 27) / 4), 4.0),
        "repetition_frac": (0.25, 4.0),
        "tail_loop_frac": (0.25, 4.0),
    }


def test_a_mean_over_nothing_is_left_out() -> None:
    assert response_metrics([]) == {}
    metrics = response_metrics([Response(token_ids=(1,), ended=True, outcome="correct")])
    assert "response_length_incorrect_mean" not in metrics
    assert metrics["response_length_mean"] == (1.0, 1.0)


def test_the_end_token_counts_for_length_and_not_for_repetition() -> None:
    body = (1, 2, 3, 4) * 6
    for ended, ids in ((True, (*body, 9)), (False, body)):
        metrics = response_metrics([Response(token_ids=ids, ended=ended, outcome="incorrect")])
        assert metrics["rep4_mean"] == (pytest.approx(1 - 4 / 21), 1.0)
        assert metrics["tail_loop_frac"] == (1.0, 1.0)
        assert metrics["response_length_mean"] == (float(len(ids)), 1.0)
