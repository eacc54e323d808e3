"""The verifier: what counts as an answer, and what happens when the verifier itself fails."""

import logging
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from regimescope.trainer.verifier import Verifier, math_judge


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return Verifier()


@pytest.mark.parametrize(
    ("text", "outcome", "span"),
    [
        ("3+5=8;8-2=6;#6", "correct", "6"),
        ("#6", "correct", "6"),
        ("# 6 ", "correct", "6"),
        ("#06", "correct", "06"),
        ("#6.0", "correct", "6.0"),
        ("#12/2", "correct", "12/2"),
        ("#7#6", "correct", "6"),
        ("#6#7", "incorrect", "7"),
        ("#66", "incorrect", "66"),
        ("#-6", "incorrect", "-6"),
        ("#3+3", "incorrect", "3+3"),
        ("#6;", "incorrect", "6;"),
        ("#9-3=6", "incorrect", "9-3=6"),
        ("#C6", "incorrect", "C6"),
        ("#", "incorrect", ""),
        ("3+5=8;8-2=6;6", "incorrect", None),
        ("", "incorrect", None),
        ("#" + "6" * 40, "incorrect", "6" * 40),
    ],
)
def test_only_a_number_after_the_marker_counts(verifier: Verifier, text: str, outcome: str, span: str | None) -> None:
    verdict = verifier.verdict(text, 6, ended=True)
    assert (verdict.outcome, verdict.span) == (outcome, span)


def test_without_end_token_nothing_is_right(verifier: Verifier) -> None:
    verdict = verifier.verdict("#6", 6, ended=False)
    assert (verdict.outcome, verdict.span, verdict.reward) == ("incorrect", None, -1.0)


def test_rewards(verifier: Verifier) -> None:
    assert verifier.verdict("#6", 6, ended=True).reward == 1.0
    assert verifier.verdict("#7", 6, ended=True).reward == -1.0


def test_another_marker_and_a_text_answer() -> None:
    verifier = Verifier(marker="####")
    assert verifier.verdict("so #### 1/2", "0.5", ended=True).correct
    assert not verifier.verdict("so # 1/2", "0.5", ended=True).correct


def test_a_failing_judge_is_no_verdict_on_the_policy() -> None:
    def broken(answer: str, span: str) -> bool:
        raise RuntimeError("out of order")

    verifier = Verifier(judge=broken)
    verdicts = [verifier.verdict("#6", 6, ended=True) for _ in range(2)]
    assert [verdict.outcome for verdict in verdicts] == ["infra_failed"] * 2
    assert all(math.isnan(verdict.reward) and not verdict.correct for verdict in verdicts)
    assert verifier.failures == {"RuntimeError": 2}  # not remembered: the next try may succeed
    assert verifier.verdict("nothing", 6, ended=True).outcome == "incorrect"


def test_a_slow_judge_is_left_behind_and_counted() -> None:
    release = threading.Event()

    def slow(answer: str, span: str) -> bool:
        return release.wait(30)

    verifier = Verifier(judge=slow, limit_s=0.05)
    start = time.perf_counter()
    assert verifier.verdict("#6", 6, ended=True).outcome == "infra_failed"
    assert time.perf_counter() - start < 5
    assert (verifier.timeouts, verifier.failures) == (1, {})
    release.set()


def test_each_pair_is_judged_once() -> None:
    asked: list[tuple[str, str]] = []

    def counting(answer: str, span: str) -> bool:
        asked.append((answer, span))
        return answer == span

    verifier = Verifier(judge=counting)
    for _ in range(3):
        assert verifier.verdict("#6", 6, ended=True).correct
        assert not verifier.verdict("#7", 6, ended=True).correct
    assert asked == [("6", "6"), ("6", "7")]


def test_many_threads_agree() -> None:
    verifier = Verifier()
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda i: verifier.verdict(f"#{i % 7}", 3, ended=True).correct, range(200)))
    assert outcomes == [i % 7 == 3 for i in range(200)]
    assert (verifier.failures, verifier.timeouts) == ({}, 0)


def test_math_judge_knows_equal_numbers_and_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert math_judge("6", "12/2")
        assert not math_judge("6", "5")
    assert not caplog.records
