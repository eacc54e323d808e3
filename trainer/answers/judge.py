r"""math-verify's word on two answers: `math_judge("1/2", "0.5")`; and the worker process that `judge_process.py` asks
(`python -m regimescope.trainer.answers.judge`), one JSON object a line on each side.

    -> {"limit_s": 5}                                        first line; <- {"ready": true}
    -> {"id": 1, "answer": "\\sqrt{2}", "span": "2^{1/2}"}   <- {"id": 1, "equal": true}
    -> {"id": 2, "answer": "\\sqrt{2}", "span": null}        <- {"id": 2, "equal": true}: math-verify can read it
                                                             <- {"id": 3, "error": "ValueError"}

The worker limits its memory, ends at the end of its input, and is ended by its own alarm when a question takes too
long: a signal without Python handler works inside a big-integer power too, and when whoever asked is gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, TextIO

from math_verify import LatexExtractionConfig, parse, verify
from math_verify.parser import NormalizationConfig

NUMBER = re.compile(r"[+-]?\d{1,12}(?:[./]\d{1,12})?", re.ASCII)
"Numbers that math-verify is asked about without a process of its own: they cannot take long."
MEMORY_BYTES = 2 << 30
"Address space of the worker; sympy and its parsers take a fifth of it."
TOLERANCE = Fraction(1, 10_000)
"Relative: math-verify rounds decimals to six places, so it takes 0.0000001 for 0.0000002."

_WHOLE = LatexExtractionConfig(
    boxed_match_priority=0,
    normalization_config=NormalizationConfig(  # units are read before, by notation.py: here `2m` is a product
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last"
    ),
)


def _not_about_timeouts(record: logging.LogRecord) -> bool:
    return "Timeout is disabled" not in record.getMessage()


for _name in ("math_verify.parser", "math_verify.grader"):
    logging.getLogger(_name).addFilter(_not_about_timeouts)  # it warns that we keep the time ourselves


def math_judge(answer: str, span: str) -> bool:
    """Whether math-verify finds the two equal, each read as a whole; may raise whatever it raises.

    Its own time limits are off: they only work in a main thread. Numbers must also agree to `TOLERANCE`.
    """
    if NUMBER.fullmatch(answer) and NUMBER.fullmatch(span) and not _near(answer, span):
        return False
    gold, given = list(_parsed(answer)), list(_parsed(span))
    return bool(verify(gold, given, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True))


def readable(text: str) -> bool:
    """Whether math-verify makes an expression of it that it finds equal to itself."""
    return any(not isinstance(part, str) for part in _parsed(text)) and math_judge(text, text)


def _near(answer: str, span: str) -> bool:
    try:
        first, second = Fraction(answer), Fraction(span)
    except ZeroDivisionError:
        return False
    return abs(first - second) <= TOLERANCE * max(abs(first), abs(second))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[Any, ...]:
    """What math-verify reads in a text, some 0.3 ms for a number and 1 to 50 ms for LaTeX the first time."""
    if NUMBER.fullmatch(text):
        return tuple(parse(text, parsing_timeout=None, raise_on_error=True))
    return tuple(parse(rf"\boxed{{{text}}}", [_WHOLE], parsing_timeout=None, raise_on_error=True))


def main() -> None:
    """Answer questions on standard input until it ends."""
    questions, answers = sys.stdin, os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a stray print of a library must not look like an answer
    alarm = _alarm(float(json.loads(questions.readline())["limit_s"]))
    _limit_memory()
    _answer(answers, {"ready": True})
    for line in questions:
        question = json.loads(line)
        answer, span = question["answer"], question["span"]
        alarm(True)
        try:
            reply: dict[str, Any] = {"equal": readable(answer) if span is None else math_judge(answer, span)}
        except Exception as error:  # any failure of foreign code is an outcome to count
            reply = {"error": type(error).__name__}
        alarm(False)
        _answer(answers, {"id": question["id"]} | reply)


def _answer(answers: TextIO, reply: dict[str, Any]) -> None:
    print(json.dumps(reply), file=answers, flush=True)


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not everywhere, and not above a lower hard limit
        import resource  # noqa: PLC0415  (POSIX only)

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _alarm(limit_s: float) -> Callable[[bool], object]:
    """Switches the alarm that ends this process on and off; it rings after `judge_process.py` would have killed it."""
    import signal  # noqa: PLC0415  (its timer is POSIX only)

    if not hasattr(signal, "setitimer"):
        return bool
    return lambda on: signal.setitimer(signal.ITIMER_REAL, limit_s + 1.0 if on else 0.0)


if __name__ == "__main__":
    main()
