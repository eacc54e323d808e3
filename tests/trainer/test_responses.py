"""Response statistics: golden values of the metrics, what is left out, and rows that agree with the measures."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor.metrics import METRICS
from regimescope.trainer.errors import ShapeError
from regimescope.trainer.repetition import seq_rep, tail_loops
from regimescope.trainer.responses import Response, response_metrics, response_rows, text_response
from regimescope.trainer.text_statistics import compression_ratios

SURE, UNSURE = math.log(0.995), math.log(0.9)
RESPONSES = [
    Response(token_ids=(3, 4, 5, 1), ended=True, outcome="correct"),
    Response(token_ids=(3, 1), ended=True, outcome="incorrect"),
    Response(token_ids=(7,) * 30, ended=False, outcome="incorrect"),
    Response(token_ids=(2, 3, 4, 5, 6, 7, 1), ended=True, outcome="infra_failed"),
]


def test_metrics_golden() -> None:
    assert response_metrics(RESPONSES) == {
        "accuracy": (0.25, 4.0),
        "infra_failed_frac": (0.25, 4.0),
        "response_length_mean": (43 / 4, 4.0),
        "response_length_min": 2.0,
        "response_length_max": 30.0,
        "response_length_p10": pytest.approx(2.6),
        "response_length_p50": 5.5,
        "response_length_p90": pytest.approx(23.1),
        "response_length_p99": pytest.approx(29.31),
        "response_length_correct_mean": (4.0, 1.0),
        "response_length_incorrect_mean": (16.0, 2.0),
        "short_frac": (0.5, 4.0),
        "aborted_frac": (0.0, 4.0),
        "eos_frac": (0.75, 4.0),
        "truncated_frac": (0.25, 4.0),
        "rep4_mean": (pytest.approx((1 - 1 / 27) / 4), 4.0),
        "rep20_mean": (pytest.approx((1 - 1 / 11) / 4), 4.0),
        "repetition_frac": (0.25, 4.0),
        "tail_loop_frac": (0.25, 4.0),
        "tail_loop_share_mean": (0.25, 4.0),
    }


def test_a_mean_over_nothing_is_left_out() -> None:
    assert response_metrics([]) == {}
    metrics = response_metrics([Response(token_ids=(1,), ended=True, outcome="correct")])
    assert not {"response_length_incorrect_mean", "sure_run_mean", "compression_mean"} & set(metrics)
    assert metrics["response_length_mean"] == (1.0, 1.0)


def test_the_end_token_counts_for_length_and_not_for_repetition() -> None:
    body = (1, 2, 3, 4) * 6
    logps = np.full(25, SURE, np.float32)
    for ended, ids in ((True, (*body, 9)), (False, body)):
        response = Response(token_ids=ids, ended=ended, outcome="incorrect", logps=logps[: len(ids)])
        metrics = response_metrics([response], sure_run=25)
        assert metrics["rep4_mean"] == (pytest.approx(1 - 4 / 21), 1.0)
        assert metrics["tail_loop_frac"] == metrics["tail_loop_share_mean"] == (1.0, 1.0)
        assert metrics["response_length_mean"] == (float(len(ids)), 1.0)
        assert (metrics["sure_run_mean"], metrics["sure_run_frac"]) == ((24.0, 1.0), (0.0, 1.0))


def test_thresholds_of_short_and_sure() -> None:
    logps = np.array([SURE] * 7 + [UNSURE] * 3, np.float32)
    responses = [
        Response(token_ids=(2,) * 10, ended=False, outcome="incorrect", logps=logps),
        Response(token_ids=(2,) * 10, ended=False, outcome="incorrect", logps=logps[::-1]),
        Response(token_ids=(2,) * 9, ended=False, outcome="incorrect"),
        Response(token_ids=(), ended=False, outcome="infra_failed", logps=logps[:0]),
    ]
    metrics = response_metrics(responses, short_tokens=10, sure_run=7)
    assert metrics["short_frac"] == (0.5, 4.0)
    assert metrics["aborted_frac"] == (0.25, 4.0)
    assert metrics["sure_run_frac"] == (pytest.approx(2 / 3), 3.0)
    assert metrics["sure_run_mean"] == (pytest.approx(14 / 3), 3.0)
    assert response_metrics(responses, sure_run=8)["sure_run_frac"] == (0.0, 3.0)


def test_compression_is_over_the_responses_with_a_text() -> None:
    texts = ["ha" * 3000, "a proof is a proof " * 6, ""]
    metrics = response_metrics([Response(token_ids=(5,), ended=False, outcome="correct", text=text) for text in texts])
    assert metrics["compression_mean"] == (pytest.approx(compression_ratios(texts[:2]).mean()), 2.0)
    assert metrics["compressible_frac"] == (0.5, 2.0)


def test_rows_keep_the_order_and_say_what_is_unknown() -> None:
    looping = Response(
        token_ids=(9, 8, *(1, 2, 3) * 9, 4),
        ended=True,
        outcome="incorrect",
        text="so " * 100,
        logps=np.full(30, UNSURE, np.float32),
    )
    rows = response_rows([RESPONSES[0], looping, RESPONSES[2]])
    assert rows.length.tolist() == [4, 30, 30]
    assert rows.loop_period.tolist() == [0, 3, 1]
    assert rows.loop_count.tolist() == [0, 9, 30]
    assert rows.loop_start.tolist() == [0, 2, 0]
    assert rows.loop_share.tolist() == [0.0, 27 / 29, 1.0]
    assert rows.rep4[1] == pytest.approx(1 - 5 / 26)
    assert np.isnan(rows.sure_run).tolist() == np.isnan(rows.compression).tolist() == [True, False, True]
    assert rows.sure_run[1] == 0.0
    assert rows.compression[1] > 10


def test_text_alone() -> None:
    text = "we get " + "wait no " * 20
    ended, cut = (text_response(text, ended=ended, outcome="incorrect", env="gsm8k") for ended in (True, False))
    rows = response_rows([ended, cut])
    assert rows.length.tolist() == [43, 42]
    assert (rows.loop_period.tolist(), rows.loop_start.tolist()) == ([2, 2], [2, 2])
    assert rows.compression.tolist() == compression_ratios([text] * 2).tolist()
    assert (ended.env, ended.text) == ("gsm8k", text)
    assert response_rows([text_response("", ended=False, outcome="incorrect")]).length.tolist() == [0]


@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=40), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    text=st.text(alphabet=st.characters(exclude_categories=()), max_size=20),
)
def test_any_ids_and_any_text(rows: list[tuple[list[int], bool]], text: str) -> None:
    """Also 0 tokens that "ended", negative and huge ids, unpaired surrogates: numbers, no exception."""
    responses = [
        Response(token_ids=ids, ended=ended, outcome="incorrect", text=text, logps=np.zeros(len(ids), np.float32))
        for ids, ended in rows
    ]
    bodies = [ids[:-1] if ended else ids for ids, ended in rows]
    result = response_rows(responses)
    assert result.rep20.tolist() == seq_rep(bodies, 20).tolist()
    assert result.loop_period.tolist() == tail_loops(bodies).period.tolist()
    assert result.sure_run.tolist() == [len(body) for body in bodies]
    metrics = response_metrics([*responses, text_response(text, ended=True, outcome="correct")])
    assert all(math.isfinite(value[0] if isinstance(value, tuple) else value) for value in metrics.values())


def test_every_metric_is_in_the_table() -> None:
    response = text_response("words " * 9, ended=True, outcome="correct")
    full = Response(token_ids=(1, 2), ended=True, outcome="incorrect", logps=np.zeros(2, np.float32))
    assert set(response_metrics([response, full])) <= set(METRICS)


def test_log_probabilities_that_do_not_fit_are_refused() -> None:
    wrong = Response(token_ids=(1, 2, 3), ended=True, outcome="correct", logps=np.zeros(2, np.float32))
    with pytest.raises(ShapeError, match=r"responses\[4\]: 2 log-probabilities for 3 tokens"):
        response_metrics([*RESPONSES, wrong])
