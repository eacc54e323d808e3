r"""How an answer may be written: `read_answer(r"$1{,}234$ km") == Reading(text="1234", kind="number", unit="km")`.

Reads thousands separators, fractions, mixed numbers, powers of ten, repeating decimals, percent, units, words, times of
day and the wrappers that models put around an answer. Nothing is evaluated: `3+3` is no number, it is an expression for
math-verify. math-verify's own reading takes `1 234` for 235, `1 1/2` for 1, `6e2` for 12e, any anagram for the word,
and drops the units `km` and `m` alike; so this comes first.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from regimescope.trainer.answers.extraction import balanced

Kind = Literal["number", "words", "clock", "expression"]

_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_SAME_SIGN: dict[int, str] = {
    **dict.fromkeys(map(ord, "\u2212\u2012\u2013\ufe63"), "-"),
    **dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\t\n\r"), " "),
    **{ord("½"): " 1/2", ord("¼"): " 1/4", ord("¾"): " 3/4", ord("²"): "^2", ord("³"): "^3", ord("°"): r"^\circ "},
    **{ord("\u00d7"): r"\times ", ord("·"): r"\cdot ", ord("⋅"): r"\cdot ", ord("π"): r"\pi ", ord("∞"): r"\infty "},
    **{ord("≤"): r"\le ", ord("≥"): r"\ge ", ord("\u222a"): r"\cup ", ord("≈"): r"\approx "},
}
_SPACES = re.compile(r"\\[,;: ]|~|\\quad(?![a-zA-Z])|\s+")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_NOISE = re.compile(r"\\!|\\(?:left|right|displaystyle)(?![a-zA-Z])")
_WRAP = r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|boxed|fbox)\s*"
_WRAPPED = re.compile(rf"{_WRAP}\{{([^{{}}]*)\}}")
_PAIRS = (("**", "**"), ("*", "*"), ("`", "`"), (r"\(", r"\)"), (r"\[", r"\]"))

_PLAIN = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMERAL = re.compile(rf"([+-]?) ?({_PLAIN})", re.ASCII)
_POWER = re.compile(
    rf"([+-]?) ?(?:(?:({_PLAIN}) ?(?:\\times|\\cdot|\*|x) ?)?10 ?\^ ?(?:\{{ ?([+-]?\d{{1,2}}) ?\}}|([+-]?\d))"
    rf"|({_PLAIN})[eE]([+-]?\d{{1,2}}))",
    re.ASCII,
)
_OVER = re.compile(
    rf"([+-]?) ?(\d+(?= |\\))? ?(?:\\frac ?(?:\{{ ?([+-]?) ?({_PLAIN}) ?\}}|(\d)) ?(?:\{{ ?({_PLAIN}) ?\}}|(\d))"
    rf"|(\d+) ?/ ?(\d+))",
    re.ASCII,
)
_REPEATING = re.compile(r"([+-]?)(\d*)\.(\d*)\\overline ?\{ ?(\d{1,40}) ?\}", re.ASCII)
_PERCENT = re.compile(r" ?(?:\\?%|percent(?:age)?|pct|\\(?:text|mathrm) ?\{ ?percent ?\})$", re.IGNORECASE)
_BASE = re.compile(r"_ ?\{? ?(\d+|\\?[a-z]+) ?\}?$")
_TEXT_UNIT = re.compile(r"\\(?:text|textrm|mathrm|mbox) ?\{([^{}]*)\}((?: ?\^ ?\{? ?\d ?\}?)?)$")
_DEGREE = re.compile(r" ?\^ ?\{? ?\\circ ?\}? ?([CF]?)$|\\degree$")
_BARE_UNIT = re.compile(r"(?<=[\d.}]) ?([A-Za-z][A-Za-z ./^{}\d-]*)$")
_WORDS = re.compile(r"[^\W\d_](?:[^\W\d_]|[ '-])*")
_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d)?(?: ?[ap]\.?m\.?)?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an answer says, before anything is computed."""

    text: str
    "A number as decimal or fraction, words in lower case, else the tidied expression without its unit."
    kind: Kind
    "`words` and `clock` are compared as text."
    unit: str = ""
    "Unit in the one spelling of units.toml, or as written; `base 2` for a subscript; empty: none."
    percent: bool = False
    "The number carries a percent sign."


def read_answer(text: str, *, algebra: bool = False) -> Reading | None:
    """None where nothing can be read: empty, unbalanced braces, control characters or lone surrogates.

    `algebra`: `6m` is six times m, not six metres; so a reference is read, and an answer to an expression.
    """
    tidied, in_words = _tidy(text)
    if not tidied or not balanced(tidied):
        return None
    if _CLOCK.fullmatch(tidied):
        return Reading(text=tidied.replace(" ", "").replace(".", "").lower(), kind="clock")
    if number := read_number(tidied):
        return Reading(text=number, kind="number")
    letters = sum(map(str.isalpha, tidied))
    if _WORDS.fullmatch(tidied) and letters >= (2 if in_words else 4):
        return Reading(text=tidied.casefold(), kind="words")
    percent = _PERCENT.search(tidied)
    if percent and (number := read_number(tidied[: percent.start()])):
        return Reading(text=number, kind="number", percent=True)
    variable = algebra and re.search(r"\d[A-Za-z]$", tidied)
    rest, unit = (tidied, "") if variable else _split_unit(tidied)
    if number := read_number(rest):
        return Reading(text=number, kind="number", unit=unit)
    return Reading(text=rest, kind="expression", unit=unit)


def read_number(text: str) -> str | None:
    """A number in plain notation: decimal, whole number or `n/d`; None where the text is anything but one number."""
    text = text.strip()
    for opening, closing in (("(", ")"), ("[", "]"), (r"\{", r"\}"), ("{", "}")):
        if text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)].strip()
            break
    if match := _NUMERAL.fullmatch(text):
        return _sign(match[1]) + _plain(match[2])
    if match := _POWER.fullmatch(text):
        mantissa, exponent = match[2] or match[5] or "1", match[3] or match[4] or match[6]
        return _sign(match[1]) + _shifted(_plain(mantissa), int(exponent))
    if match := _OVER.fullmatch(text):
        whole, top, bottom = match[2] or "0", match[4] or match[5] or match[8], match[6] or match[7] or match[9]
        if Fraction(_plain(bottom)) == 0 or (match[3] and match[2]):
            return None
        value = Fraction(whole) + Fraction(_plain(top)) / Fraction(_plain(bottom))
        return str(-value if "-" in (match[1], match[3]) and match[1] != match[3] else value)
    if match := _REPEATING.fullmatch(text):
        fixed, cycle = f"{match[2] or 0}.{match[3] or 0}", Fraction(int(match[4]), 10 ** len(match[4]) - 1)
        value = Fraction(fixed) + cycle / 10 ** len(match[3])
        return str(-value if match[1] == "-" else value)
    return None


def _plain(digits: str) -> str:
    digits = digits.replace(",", "").replace(" ", "").rstrip(".") if "." in digits else re.sub("[, ]", "", digits)
    return f"0{digits}" if digits.startswith(".") else digits


def _sign(sign: str) -> str:
    return "-" if sign == "-" else ""


def _shifted(mantissa: str, exponent: int) -> str:
    """The mantissa times a power of ten, without rounding."""
    whole, _, places = mantissa.partition(".")
    point = len(whole) + exponent
    digits = whole + places
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    if point >= len(digits):
        return digits.lstrip("0") + "0" * (point - len(digits)) if digits.strip("0") else "0"
    return f"{digits[:point]}.{digits[point:]}"


def _tidy(text: str) -> tuple[str, bool]:
    """(the text without wrappers, in one spelling of signs and spaces, whether a `\\text{}` was around it)."""
    text = text.strip()
    if any(unicodedata.category(char) in {"Cc", "Cs", "Co", "Cn"} and char not in "\t\n\r" for char in text):
        return "", False
    text = text.translate(_FULL_WIDTH).translate(_SAME_SIGN)
    text = "".join(_ascii_digit(char) for char in text if unicodedata.category(char) != "Cf")
    text = _NOISE.sub("", _FRACTION.sub(r"\\frac", text)).replace("{,}", ",")
    if len(re.findall(r"(?<!\\)\$", text)) % 2 == 0:
        text = re.sub(r"(?<!\\)\$", "", text)
    text = _SPACES.sub(" ", text)
    in_words = False
    for _ in range(8):  # wrappers in wrappers; more are no answer of anyone
        before = text
        text = re.sub(r"^(?:=|\\approx|:) ?", "", text.strip())
        text = re.sub(r"(?<=[^\\.,;]) ?[.,;]$", "", text)
        for opening, closing in _PAIRS:
            if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
                text = text[len(opening) : -len(closing)]
        if match := _WRAPPED.fullmatch(text):
            in_words |= not match[0].startswith((r"\boxed", r"\fbox"))
            text = match[1]
        if text == before:
            break
    return text, in_words


def _ascii_digit(char: str) -> str:
    return char if char.isascii() or not char.isdecimal() else str(unicodedata.decimal(char))


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    table: dict[str, Any] = tomllib.loads(Path(__file__).with_name("units.toml").read_text(encoding="utf-8"))
    same = {spelling: name for name, spellings in table["same"].items() for spelling in spellings}
    return same, frozenset(table["not_units"]), frozenset(table["letters"])


def known_unit(unit: str) -> bool:
    """Whether the unit is one that can contradict another."""
    return unit.startswith("base ") or unit.partition("^")[0] in _tables()[0].values()


def _split_unit(text: str) -> tuple[str, str]:
    """(what stands before the unit, the unit); the unit is empty where there is none."""
    currency = re.match(r"(?:\\?\$|[€£]) ?(?=[\d.+-])|(?P<minus>[+-]) ?(?:\\?\$|[€£]) ?(?=[\d.])", text)
    if currency:
        sign = currency["minus"] or ""
        return sign + text[currency.end() :], _one_spelling(currency[0].strip(r"+-\ "))
    if match := _DEGREE.search(text):
        return text[: match.start()], "degree" + (match[1] or "").lower()
    if match := _TEXT_UNIT.search(text):
        power, inside = re.sub(r"\D", "", match[2]), match[1].strip()
        return (text[: match.start()].strip(), _one_spelling(inside, power)) if _is_unit(inside) else (text, "")
    if (match := _BASE.search(text)) and read_number(text[: match.start()]):
        return text[: match.start()], f"base {match[1]}"
    if (match := _BARE_UNIT.search(text)) and read_number(text[: match.start()]):
        unit, _, power = match[1].partition("^")
        if _is_unit(unit) and re.fullmatch(r" ?\{? ?\d? ?\}? ?", power):
            return text[: match.start()], _one_spelling(unit.strip(), re.sub(r"\D", "", power))
    return text, ""


def _is_unit(text: str) -> bool:
    """Letters, dots and slashes only, and none of the words that change a number or join two answers."""
    words = re.findall(r"[A-Za-z]+", text)
    _, forbidden, letters = _tables()
    if not 1 <= len(words) <= 4 or not re.fullmatch(r"[A-Za-z ./°-]+", text):
        return False
    return all(word in letters if len(word) == 1 else word.lower() not in forbidden for word in words)


def _one_spelling(unit: str, power: str = "") -> str:
    same = _tables()[0]
    lower = unit.lower()
    name = same.get(unit) or same.get(lower) or same.get(lower.removesuffix("s").removesuffix(".")) or lower
    return f"{name}^{power}" if power not in ("", "1") else name
