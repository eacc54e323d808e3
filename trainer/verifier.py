"""Reward from math-verify: only the text after the last `#` is judged, and only where it is one plain number.

No marker, no end token, or anything but a number there is incorrect; `#3+3` is no answer. What fails in the verifier
itself (an exception, its time limit) is `infra_failed`, counted, and no verdict on the policy. Judged pairs are
remembered, so a step of 256 responses costs a few milliseconds.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from math_verify import parse, verify

from regimescope.trainer.task import MARKER

Outcome = Literal["correct", "incorrect", "infra_failed"]
Judge = Callable[[str, str], bool]
"(answer, span) -> whether they are equal; may raise."

NUMBER = re.compile(r"[+-]?\d{1,12}(?:[./]\d{1,12})?")
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


def _not_about_timeouts(record: logging.LogRecord) -> bool:
    return "Timeout is disabled" not in record.getMessage()


for _name in ("math_verify.parser", "math_verify.grader"):
    logging.getLogger(_name).addFilter(_not_about_timeouts)  # it warns that we keep the time ourselves


def math_judge(answer: str, span: str) -> bool:
    """Whether math-verify finds the two equal. Its own time limits are off: they only work in the main thread."""
    return bool(verify(list(_parsed(answer)), list(_parsed(span)), timeout_seconds=None, raise_on_error=True))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Any, ...]:
    """What math-verify reads in a text, some 0.3 ms the first time."""
    return tuple(parse(text, parsing_timeout=None, raise_on_error=True))


class Verifier:
    """Judges responses; safe to share between threads.

    `failures` counts exceptions of the judge by the name of their class, `timeouts` judgements longer than `limit_s`.
    """

    def __init__(self, *, marker: str = MARKER, limit_s: float = 5.0, judge: Judge = math_judge) -> None:
        self.failures: dict[str, int] = {}
        self.timeouts = 0
        self._marker = marker
        self._limit_s = limit_s
        self._judge = judge
        self._known: dict[tuple[str, str], bool] = {}
        self._lock = threading.Lock()

    def verdict(self, text: str, answer: int | str, *, ended: bool) -> Verdict:
        """Judge one response text, without prompt and end token; `ended`: the end token came within the limit."""
        span = text.rpartition(self._marker)[2].strip() if ended and self._marker in text else None
        if span is None or not NUMBER.fullmatch(span):
            return Verdict(outcome="incorrect", span=span)
        equal = self._equal(str(answer), span)
        outcome: Outcome = "infra_failed" if equal is None else "correct" if equal else "incorrect"
        return Verdict(outcome=outcome, span=span)

    def _equal(self, answer: str, span: str) -> bool | None:
        with self._lock:
            known = self._known.get((answer, span))
            if known is None:
                known = self._within_limit(answer, span)
                if known is not None and len(self._known) < REMEMBERED:
                    self._known[answer, span] = known
            return known

    def _within_limit(self, answer: str, span: str) -> bool | None:
        """Run the judge in a thread of its own; one that hangs is left behind (a daemon does not keep the process)."""
        results: list[bool] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                results.append(self._judge(answer, span))
            except Exception as error:  # any failure of foreign code is an outcome to count
                errors.append(error)

        thread = threading.Thread(target=work, name="verifier", daemon=True)
        thread.start()
        thread.join(self._limit_s)
        if results:
            return results[0]
        if errors:
            name = type(errors[0]).__name__
            self.failures[name] = self.failures.get(name, 0) + 1
        else:
            self.timeouts += 1
        return None
