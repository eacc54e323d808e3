"""Reward from math-verify: `Verifier().verdict("so #### 1/2", "0.5", ended=True, form="math").correct`.

`extraction.py` finds the answer in a response, `comparison.py` says what its notation decides, and math-verify judges
the rest: plain numbers here, everything else in a process of its own with a time limit (`judge_process.py`). No marker
and no end token are incorrect. What fails in the verifier itself is `infra_failed`, counted, and no verdict on the
policy: no exception leaves `verdict`. Judged pairs are remembered; the first time a number costs about a millisecond,
an expression some 20 (2 cores, math-verify 0.9).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Literal

from regimescope.trainer.answers.comparison import Questions, questions
from regimescope.trainer.answers.extraction import answer_span
from regimescope.trainer.answers.judge import NUMBER, math_judge
from regimescope.trainer.answers.judge_process import JudgeFailed, JudgeProcess, forget_after_fork
from regimescope.trainer.task import MARKER, AnswerForm

Outcome = Literal["correct", "incorrect", "infra_failed"]

REMEMBERED = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the verifier says about one response."""

    outcome: Outcome
    "`infra_failed` is no verdict on the policy: leave the response out of its group."
    span: str | None
    "The text that was taken for the answer; None without marker or end token."

    @property
    def correct(self) -> bool:
        """Judged correct."""
        return self.outcome == "correct"

    @property
    def reward(self) -> float:
        """+1 correct, -1 incorrect, NaN where there is no verdict."""
        return {"correct": 1.0, "incorrect": -1.0, "infra_failed": float("nan")}[self.outcome]


class Verifier:
    """Judges responses; safe to share between threads, over a fork, and to pickle.

    `failures` counts failures of the judge by kind (an exception's name, `start`, `died`, `nonsense`), `timeouts`
    judgements longer than `limit_s`; both start at 0 in a pickled copy.
    """

    def __init__(self, *, marker: str = MARKER, limit_s: float = 5.0, judge: JudgeProcess | None = None) -> None:
        """`marker`: before the answer of form "number", and of form "math" where neither box nor `####` is there."""
        self.failures: dict[str, int] = {}
        self.timeouts = 0
        self.judge = judge if judge is not None else JudgeProcess(limit_s=limit_s)
        self._marker = marker
        self._known: dict[tuple[str, str], bool] = {}
        self._lock = threading.Lock()
        forget_after_fork(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._marker, self.judge)

    def verdict(self, text: str, answer: int | str, *, ended: bool, form: AnswerForm = "number") -> Verdict:
        """Judge one response text, without prompt and end token; `ended`: the end token came within the limit."""
        span = answer_span(text, form, self._marker) if ended else None
        if span is None:
            return Verdict(outcome="incorrect", span=span)
        return Verdict(outcome=self._outcome(_asked(str(answer), span, form)), span=span)

    def close(self) -> None:
        """End the worker process, where one was started; the next question starts another."""
        self.judge.close()

    def forget(self) -> None:
        """In a forked child: a lock that another thread of the parent held is held for ever."""
        self._lock = threading.Lock()

    def _outcome(self, asked: bool | Questions) -> Outcome:
        """All pairs must be equal; one that is not decides, then one without verdict."""
        if isinstance(asked, bool):
            return "correct" if asked else "incorrect"
        outcome: Outcome = "correct"
        for answer, span in asked:
            equal = self._equal(answer, span)
            if equal is False:
                return "incorrect"
            outcome = outcome if equal else "infra_failed"
        return outcome

    def _equal(self, answer: str, span: str) -> bool | None:
        """None where the judge fails; that is counted and not remembered: the next try may succeed."""
        known = self._known.get((answer, span))
        if known is not None:
            return known
        try:
            if NUMBER.fullmatch(answer) and NUMBER.fullmatch(span):
                with self._lock:  # sympy promises nothing to threads
                    equal = math_judge(answer, span)
            else:
                equal = self.judge.equal(answer, span)
        except TimeoutError:
            with self._lock:
                self.timeouts += 1
            return None
        except Exception as error:  # any failure of foreign code is an outcome to count
            kind = error.kind if isinstance(error, JudgeFailed) else type(error).__name__
            with self._lock:
                self.failures[kind] = self.failures.get(kind, 0) + 1
            return None
        if len(self._known) < REMEMBERED:
            self._known[answer, span] = equal
        return equal


def _asked(answer: str, span: str, form: AnswerForm) -> bool | Questions:
    if form == "math":
        return questions(answer, span)
    return ((answer, span),) if NUMBER.fullmatch(span) else False


def _again(marker: str, judge: JudgeProcess) -> Verifier:
    return Verifier(marker=marker, judge=judge)
