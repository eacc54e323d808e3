"""The verifier: what counts as an answer, and what happens when the verifier itself fails. The table of math answers is
in test_answers.py."""

import logging
import math
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from regimescope.trainer.answers.judge import math_judge
from regimescope.trainer.answers.judge_process import JudgeProcess
from regimescope.trainer.answers.verifier import Verifier

READY = "import sys, json\nsys.stdin.readline(); print('{\"ready\": true}', flush=True)\nfor line in sys.stdin:\n    "
"A worker of the judge's protocol, to be completed."


def worker(body: str) -> JudgeProcess:
    return JudgeProcess(command=(sys.executable, "-c", READY + body), limit_s=30.0)


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
        ("#6/0", "incorrect", "6/0"),
    ],
)
def test_only_a_number_after_the_marker_counts(verifier: Verifier, text: str, outcome: str, span: str | None) -> None:
    verdict = verifier.verdict(text, 6, ended=True)
    assert (verdict.outcome, verdict.span) == (outcome, span)
    assert verifier.failures == {}


def test_numbers_need_no_process(verifier: Verifier) -> None:
    assert verifier.verdict("#6", 6, ended=True).correct
    assert verifier.verdict("#### 1,234 km", "1234", ended=True, form="math").correct
    assert verifier.judge.pid is None


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
    reply = "print(json.dumps({'id': json.loads(line)['id'], 'error': 'RuntimeError'}), flush=True)"
    verifier = Verifier(judge=worker(reply))
    verdicts = [verifier.verdict(r"\boxed{x}", "x^2", ended=True, form="math") for _ in range(2)]
    assert [verdict.outcome for verdict in verdicts] == ["infra_failed"] * 2
    assert all(math.isnan(verdict.reward) and not verdict.correct for verdict in verdicts)
    assert verifier.failures == {"RuntimeError": 2}  # not remembered: the next try may succeed
    assert verifier.verdict("nothing", "x^2", ended=True, form="math").outcome == "incorrect"
    verifier.close()


def test_a_judge_that_cannot_start_or_dies_is_counted_by_kind() -> None:
    no_program = JudgeProcess(command=("/no/such/program",))
    for judge, kind in ((no_program, "FileNotFoundError"), (worker("sys.exit()"), "died")):
        verifier = Verifier(judge=judge)
        assert verifier.verdict(r"\boxed{x}", "x^2", ended=True, form="math").outcome == "infra_failed"
        assert verifier.failures == {kind: 1}
        verifier.close()


def test_a_slow_judge_is_killed_and_counted() -> None:
    verifier = Verifier(judge=JudgeProcess(command=(sys.executable, "-c", READY + "sys.stdin.read()"), limit_s=0.2))
    assert verifier.verdict(r"\boxed{x}", "x^2", ended=True, form="math").outcome == "infra_failed"
    assert (verifier.timeouts, verifier.failures, verifier.judge.pid) == (1, {}, None)


def test_an_answer_that_never_ends_costs_its_limit_and_no_more() -> None:
    verifier = Verifier(limit_s=1.5)
    assert verifier.verdict(r"\boxed{9^{9^{9^9}}x}", "x^2", ended=True, form="math").outcome == "infra_failed"
    assert sum(verifier.failures.values()) + verifier.timeouts == 1  # the memory limit may come first
    verifier.judge.limit_s = 30.0
    assert verifier.verdict(r"\boxed{x\cdot x}", "x^2", ended=True, form="math").correct
    verifier.close()


def test_each_pair_is_judged_once() -> None:
    reply = "print(json.dumps({'id': json.loads(line)['id'], 'equal': True}), flush=True); break"
    verifier = Verifier(judge=worker(reply))  # it ends after one answer
    for _ in range(3):
        assert verifier.verdict(r"\boxed{x\cdot x}", "x^2", ended=True, form="math").correct
    assert verifier.failures == {}
    verifier.close()


def test_one_wrong_side_of_a_chain_is_wrong_even_where_another_has_no_verdict() -> None:
    reply = """q = json.loads(line)
    said = {'equal': False} if q['span'] == 'z' else {'error': 'ValueError'}
    print(json.dumps({'id': q['id']} | said), flush=True)"""
    verifier = Verifier(judge=worker(reply))
    assert verifier.verdict(r"\boxed{2y=z}", "x^2", ended=True, form="math").outcome == "incorrect"
    assert verifier.verdict(r"\boxed{2y=3y}", "x^2", ended=True, form="math").outcome == "infra_failed"
    verifier.close()


def test_many_threads_agree() -> None:
    verifier = Verifier(limit_s=30.0)

    def correct(i: int) -> tuple[bool, bool]:
        number = verifier.verdict(f"#{i % 7}", 3, ended=True).correct
        return number, verifier.verdict(rf"\boxed{{{i % 7}y}}", "3y", ended=True, form="math").correct

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(correct, range(200)))
    assert outcomes == [(i % 7 == 3, i % 7 == 3) for i in range(200)]
    assert (verifier.failures, verifier.timeouts) == ({}, 0)
    verifier.close()


def test_a_verifier_can_be_sent_to_another_process() -> None:
    verifier = Verifier(marker="!", limit_s=7.0)
    copy = pickle.loads(pickle.dumps(verifier))
    assert copy.verdict("!6", 6, ended=True).correct
    assert copy.judge.limit_s == 7.0


def test_math_judge_knows_equal_numbers_and_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert math_judge("6", "12/2")
        assert not math_judge("6", "5")
        assert not math_judge("0.0000001", "0.0000002")
    assert not caplog.records
