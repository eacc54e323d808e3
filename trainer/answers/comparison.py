r"""What is left to ask math-verify: `questions("6", "$6$ km") == (("6", "6"),)`, `questions("6", "3+3") is False`.

Rules of a reward, stricter than equality, because a policy learns whatever is let through:
- Where the reference is a number, the answer is one number written out. A sum, a root, an integral that equals it, or a
  chain such as `7=6`, is not.
- Work left undone (`\int`, `\sum`, `n!`, ...) is no answer unless the reference has it too. An expression that is
  equal but not simplified is accepted.
- Words and times of day must be the same text.
- A set is no interval and no tuple. Two known units must agree; a unit that is missing on one side is no matter.
- A percentage may be given as its number or as its value: 42%, 42 and 0.42 answer each other.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from regimescope.trainer.answers.notation import Reading, known_unit, read_answer, read_number

Questions = tuple[tuple[str, str], ...]
"(reference, answer) pairs; math-verify must find the two of every pair equal."

_EQUALS = re.compile(r"(?<![\\<>!:=])=(?!=)")
_NAME = re.compile(r"\\?[A-Za-z]+(?: ?_ ?(?:\w|\{\w+\}))?(?: ?\( ?[A-Za-z\d] ?\))?")
_UNDONE = re.compile(r"\\(?:int|iint|oint|sum|prod|lim|binom|det|max|min|gcd|lcm)(?![a-zA-Z])|!")


def questions(answer: str, span: str) -> bool | Questions:
    """Whether the span answers the reference, where the notation alone decides; else what math-verify has to say."""
    reference = read_reference(answer)
    if reference is None:
        return False
    reading = read_answer(span, algebra=reference.kind == "expression")
    if reading is None or _units_disagree(reference.unit, reading.unit):
        return False
    if reference.kind in ("words", "clock"):
        return (reading.kind, reading.text) == (reference.kind, reference.text)
    if reference.kind == "number":
        return _about_number(reference, reading)
    return _about_expression(reference.text, reading)


@lru_cache(maxsize=4096)
def read_reference(answer: str) -> Reading | None:
    """How the reference is read; `6m` in it is a product, and `x = 6` is the number 6."""
    reading = read_answer(answer, algebra=True)
    if reading is None or reading.kind != "expression":
        return reading
    name, equals, value = reading.text.partition("=")
    if equals and _NAME.fullmatch(name.strip()) and (number := read_number(value)):
        return replace(reading, text=number, kind="number")
    return reading


def _about_number(reference: Reading, reading: Reading) -> bool | Questions:
    parts = [part.strip() for part in _EQUALS.split(reading.text)] if reading.kind == "expression" else [reading.text]
    if len(parts) > 1 and _NAME.fullmatch(parts[0]):
        parts = parts[1:]
    readings = [reading if reading.kind == "number" else read_answer(part) for part in parts]
    pairs = []
    for part in readings:
        if part is None or part.kind != "number" or _units_disagree(reference.unit, part.unit):
            return False
        pairs.append(_nearest_scale(reference, part))
    return tuple(pairs)


def _nearest_scale(reference: Reading, reading: Reading) -> tuple[str, str]:
    """The two numbers, a percentage divided by 100 where that is nearer to a number without percent sign."""
    ours, theirs = reference.text, reading.text
    if reference.percent == reading.percent:
        return ours, theirs
    if reading.percent:
        return ours, _nearest(ours, theirs)
    return _nearest(theirs, ours), theirs


def _nearest(number: str, percentage: str) -> str:
    goal, as_number = Fraction(number), Fraction(percentage)
    return percentage if abs(as_number - goal) <= abs(as_number / 100 - goal) else str(as_number / 100)


def _about_expression(reference: str, reading: Reading) -> bool | Questions:
    if reading.text.replace(" ", "") == reference.replace(" ", ""):
        return True
    if reading.kind in ("words", "clock") or {"set", "bracket"} == {_enclosure(reference), _enclosure(reading.text)}:
        return False
    if set(_UNDONE.findall(reading.text)) - set(_UNDONE.findall(reference)):
        return False
    parts = [part.strip() for part in _EQUALS.split(reading.text)]
    if len(parts) == 1 or _EQUALS.search(reference) or re.search("[,;]", reading.text):
        return ((reference, reading.text),)
    if _NAME.fullmatch(parts[0]):
        parts = parts[1:]
    return tuple((reference, part) for part in parts)


def _enclosure(text: str) -> str:
    if text.startswith((r"\{", r"\lbrace")) and text.endswith((r"\}", r"\rbrace")):
        return "set"
    return "bracket" if text.startswith(("(", "[")) and text.endswith((")", "]")) else ""


def _units_disagree(first: str, second: str) -> bool:
    return first != second and bool(first and second) and known_unit(first) and known_unit(second)
