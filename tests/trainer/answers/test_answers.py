"""The adversarial table: (reference, response, right verdict), each thought through by hand, before the real verifier.

A response is right when it states the reference's value as its one final answer. `ok` rows are right, `no` rows are
not; none may be an infrastructure failure, and none may raise.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.trainer.answers.extraction import MAX_SPAN, answer_span
from regimescope.trainer.answers.verifier import Verifier

ok, no = "correct", "incorrect"

WHERE = [  # where the answer stands
    ("6", r"so \boxed{6}", ok),
    ("6", r"\fbox{6}", ok),
    ("6", "#### 6", ok),
    ("6", "3 apples and 3 apples\n#### 6\n", ok),
    ("6", "3+3=6;#6", ok),
    ("6", "##### 6", ok),
    ("6", r"#### \boxed{6}", ok),
    ("6", r"\boxed{6} and that is all.", ok),
    ("6", r"## Steps" + "\n" + r"\boxed{6}" + "\n### Check: 3+3", ok),  # a heading is no marker where a box is
    ("6", r"\boxed{5}, no: \boxed{6}", ok),  # several: the last one
    ("6", r"\boxed{6}, no: \boxed{5}", no),
    ("6", "#### 5\n#### 6", ok),
    ("6", "#### 6\n#### 5", no),
    ("6", r"\boxed{5} #### 6", ok),
    ("6", r"#### 5 \boxed{6}", ok),
    ("6", r"\boxed{6} #### 5", no),
    ("6", r"\boxed{\boxed{6}}", ok),
    ("6", r"\boxed{x = \boxed{6}}", ok),
    ("6", r"\boxed{6", no),
    ("6", r"\boxed{6\}", no),
    ("6", r"\boxed{}", no),
    ("6", r"\boxed", no),
    ("6", "6", no),  # a number without marker
    ("6", "The answer is 6.", no),
    ("6", "answer: 6", no),
    ("6", "", no),
    ("6", " \n\t ", no),
    ("6", "#", no),
    ("6", "####", no),
    ("6", "####   \n", no),
    ("6", "#### 6\nor maybe 7", no),  # nothing may follow
    ("1234", "#### 1\n234", no),
    ("6", "#### 1\n#### not 6", no),
]

NUMBERS = [
    ("1234", "#### 1,234", ok),
    ("1234", r"\boxed{1{,}234}", ok),
    ("1234", r"\boxed{1\,234}", ok),
    ("1234", "#### 1 234", ok),
    ("235", "#### 1 234", no),  # math-verify alone: 1 + 234
    ("1234", "#### 1,23", no),
    ("1234", "#### 12,34", no),
    ("1.234", "#### 1,234", no),
    ("1234.5", "#### 1,234.50", ok),
    ("6", "#### 6.", ok),
    ("6", "#### 6.0", ok),
    ("6", "#### 06", ok),
    ("6", "#### +6", ok),
    ("6", "#### -6", no),
    ("-6", "#### -6", ok),
    ("-6", "#### \u22126", ok),  # minus sign
    ("-6", "#### --6", no),
    ("6", "#### --6", no),
    ("6", "#### \uff16", ok),  # full-width six
    ("6", "#### \u0666", ok),  # Arabic-Indic six
    ("600", "#### 6e2", ok),
    ("600", r"\boxed{6\times10^{2}}", ok),
    ("0.006", r"\boxed{6 \cdot 10^{-3}}", ok),
    ("6", "#### 0x6", no),
    ("6", "#### nan", no),
    ("6", "#### inf", no),
    (r"\infty", "#### inf", ok),
    (r"-\infty", r"\boxed{\infty}", no),
    ("0.0000001", "#### 0.0000002", no),  # math-verify alone rounds both to 0
    ("0.0000001", "#### 1e-7", ok),
    ("6", "#### 5.9999999", no),
    ("6", "#### " + "6" * 400, no),
    ("6", "#### 6" + "0" * 450, no),
    ("1" * 30, "#### " + "1" * 30, ok),
    ("1" * 30, "#### " + "1" * 29 + "2", no),
]

FRACTIONS = [
    ("1/2", r"\boxed{\frac{1}{2}}", ok),
    ("1/2", r"\boxed{\dfrac12}", ok),
    (r"\frac{1}{2}", "#### 0.5", ok),
    (r"\frac{1}{2}", "#### .5", ok),
    ("0.5", "#### 2/4", ok),
    ("1/2", r"\boxed{\frac{-1}{2}}", no),
    ("-1/2", r"\boxed{-\frac{1}{2}}", ok),
    ("-1/2", r"\boxed{\frac{-1}{2}}", ok),
    ("1/2", "#### 2/1", no),
    ("3/2", r"\boxed{1\frac{1}{2}}", ok),
    ("3/2", "#### 1 1/2", ok),
    ("1", "#### 1 1/2", no),  # math-verify alone reads 1
    ("11/2", "#### 1 1/2", no),
    ("3/2", "#### 1\u00bd", ok),
    ("-3/2", r"\boxed{-1\frac{1}{2}}", ok),
    ("1/3", "#### 0.333333", ok),  # six places, as math-verify has it
    ("1/3", "#### 0.33", no),
    ("1/3", r"\boxed{0.\overline{3}}", ok),
    ("1/3", r"\boxed{0.\overline{03}}", no),
    ("6", r"\boxed{\frac{6}{0}}", no),
    ("0", "#### 0/5", ok),
    ("6", "#### 6/", no),
]

UNITS = [
    ("42", "#### 42 km", ok),
    ("42", r"\boxed{42\text{ cm}^2}", ok),
    ("42", r"\boxed{42\,\mathrm{cm}}", ok),
    ("42", "#### $42", ok),
    ("42", r"\boxed{\$42}", ok),
    ("42", "#### 42 dollars", ok),
    ("42 dollars", "#### $42", ok),
    ("42", r"\boxed{42^\circ}", ok),
    ("42", "#### 42 miles per hour", ok),
    ("42 m", "#### 42", ok),
    ("42 m", "#### 42 metres", ok),
    ("42 m", "#### 42 km", no),  # math-verify alone drops both units
    ("42 m", r"\boxed{42\text{ m}^2}", no),
    ("42", "#### 42 million", no),
    ("42", "#### 42 dozen", no),
    ("42", "#### 42x", no),
    ("42x", "#### 42", no),
    ("2m", "#### 2", no),  # a product; math-verify alone takes m for a unit
    ("2m", r"\boxed{2m}", ok),
    ("42", "#### 41 km", no),
    (r"2\sqrt{3}", r"\boxed{2\sqrt{3}\text{ cm}}", ok),
    (r"2\sqrt{3}\text{ m}", r"\boxed{2\sqrt{3}\text{ cm}}", no),
    ("0.42", "#### 42%", ok),
    ("42%", "#### 0.42", ok),
    ("42", r"\boxed{42\%}", ok),  # asked for a percentage
    ("42%", "#### 42 percent", ok),
    ("42%", "#### 4.2%", no),
    ("0.42", "#### 0.0042%", no),
    ("4200", "#### 42%", no),
    ("10_2", r"\boxed{10_3}", no),  # math-verify alone drops the base
    ("10_2", r"\boxed{10_{2}}", ok),
]

SEVERAL = [  # more than one value, chains, work left undone
    ("6", "#### 6 or 7", no),
    ("6", r"\boxed{6 \text{ or } 7}", no),
    ("6", "#### 6, 7", no),
    ("7", "#### 6, 7", no),
    ("6", "#### 6 apples and 7 pears", no),
    ("6", r"\boxed{\{6, 7\}}", no),
    ("6", r"\boxed{\{6\}}", ok),
    ("6", "#### x=6", ok),
    ("6", r"\boxed{x_1 = \frac{12}{2} = 6}", ok),
    ("6", "#### x=7=6", no),  # math-verify alone takes the last side
    ("6", "#### 7=6", no),
    ("6", "#### 2x=12", no),
    ("6", "#### 3+3", no),
    ("6", "#### 3+3=6", no),
    ("6", r"\boxed{2\cdot 3}", no),
    ("6", "#### 3!", no),
    ("6", r"\boxed{\sqrt{36}}", no),
    ("6", r"\boxed{\int_0^1 6\,dx}", no),
    ("6", r"\boxed{\sum_{k=1}^{3} k}", no),
    ("6", "#### 6 < 7", no),
    ("6", r"\boxed{6 \neq 7}", no),
    ("6", "#### not 6", no),
    ("6", "#### six", no),
    ("1,2", r"\boxed{2, 1}", ok),
    ("1,2", r"\boxed{1 \text{ and } 2}", ok),
    ("1,2", r"\boxed{1, 2, 3}", no),
    ("1,2", "#### 1", no),
]

SETS = [  # intervals, tuples, sets
    ("(0,1]", r"\boxed{(0, 1]}", ok),
    ("(0,1]", r"\boxed{\left(0,1\right]}", ok),
    ("(0,1]", r"\boxed{[0,1]}", no),
    ("(0,1]", r"\boxed{(0,1)}", no),
    (r"(-\infty,3)", r"\boxed{(-\infty, 3)}", ok),
    (r"(-\infty,3)", r"\boxed{(-\infty, 3]}", no),
    (r"(-\infty,3)", r"\boxed{x<3}", ok),
    (r"(-\infty,3)", r"\boxed{x\le 3}", no),
    ("x<3", r"\boxed{(-\infty,3)}", ok),
    (r"[0,1)\cup(2,3]", r"\boxed{(2,3]\cup[0,1)}", ok),
    ("(1,2)", r"\boxed{(1, 2)}", ok),
    ("(1,2)", r"\boxed{(2, 1)}", no),
    ("(1,2)", r"\boxed{\{1,2\}}", no),  # math-verify alone: equal
    (r"\{1,2\}", r"\boxed{\{2,1\}}", ok),
    (r"\{1,2\}", r"\boxed{(1,2)}", no),  # math-verify alone: equal
    (r"\{1,2\}", r"\boxed{2, 1}", ok),
    (r"\emptyset", r"\boxed{\{\}}", ok),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}", ok),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}2\\1\end{pmatrix}}", no),
]

LATEX = [
    (r"\sqrt{2}", r"\boxed{\sqrt2}", ok),
    (r"\sqrt{2}", r"\boxed{2^{1/2}}", ok),
    (r"\sqrt{2}", r"\boxed{\frac{2}{\sqrt{2}}}", ok),
    (r"\sqrt{2}", r"\boxed{\sqrt{3}}", no),
    (r"\sqrt{2}", r"\boxed{\int_0^1 \sqrt{2}\,dx}", no),
    (r"\int_0^1 f(x)\,dx", r"\boxed{\int_0^1 f(x)\,dx}", ok),
    (r"\sqrt{2}", "#### 1.41", no),
    (r"\sqrt{2}", r"\boxed{7=\sqrt{2}}", no),
    (r"\sqrt{2}", r"\boxed{x=\sqrt{2}}", ok),
    (r"\frac{2\sqrt{3}}{3}", r"\boxed{2\sqrt{3}/3}", ok),
    (r"\frac{2\sqrt{3}}{3}", r"$\boxed{\frac{2}{\sqrt3}}$", ok),
    (r"\frac{\pi}{4}", r"\boxed{\pi/4}", ok),
    (r"\frac{\pi}{4}", r"\boxed{\frac{\pi}{2}}", no),
    (r"\pi", "#### 3.14", no),
    (r"\pi", r"#### $\pi$", ok),
    (r"\pi", "#### \u03c0", ok),
    ("x^2+2x+1", r"\boxed{(x+1)^2}", ok),
    ("x^2+2x+1", r"\boxed{(x-1)^2}", no),
    ("y=2x+1", r"\boxed{y = 1 + 2x}", ok),
    ("5x+2m", r"\boxed{5x+2}", no),
    ("1+i", r"\boxed{i+1}", ok),
    ("x=6", "#### 6", ok),
    ("6", r"#### \(6\)", ok),
    ("6", "#### **6**", ok),
    ("6", r"\boxed{\text{6}}", ok),
    ("6", r"\boxed{\displaystyle 6}", ok),
    ("6", r"#### \[6\]", ok),
    ("6", r"\boxed{\frac{}{}}", no),
    ("6", r"#### \frac{6", no),
    ("6", "#### 6}", no),
]

WORDS = [
    ("yes", r"\boxed{\text{Yes}}", ok),
    ("Monday", "#### monday", ok),
    ("stop", "#### post", no),  # math-verify alone reads a product of letters
    (r"\text{live}", r"\boxed{\text{evil}}", no),
    ("A", r"\boxed{\text{(A)}}", ok),
    ("A", r"\boxed{B}", no),
    ("xy", r"\boxed{yx}", ok),
    ("3:00", "#### 3:00", ok),  # math-verify alone raises: three divided by zero
    ("3:00", "#### 3:30", no),
    ("12:30", "#### 2:05", no),
    ("6", "#### __import__('os').system('true')", no),
    ("6", "#### def f(): return 6", no),
]

GARBAGE = [
    ("6", "#### 6\x00", no),
    ("6", "#### 6\ud800", no),
    ("1234", "#### 1\x1c234", no),
    ("x^2", "#### x^2\ud800", no),
    ("x^2", "#### x^2}", no),
    ("6", "\ud800\x00#### 6", ok),  # only the answer has to be readable
    ("6", "x" * 100_000, no),
    ("6", "#" * 100_000, no),
    ("6", r"\boxed{" * 15_000, no),
    ("6", r"\boxed{" + "{" * 100_000, no),
    ("6", r"\boxed{" + "{" * 50_000 + "6" + "}" * 50_001, no),
    ("6", "#### " + "6" * 100_000, no),
    ("6", "\x00\ud800\uffff" * 33_000, no),
    ("6", "$" * 100_000, no),
    ("6", "\\" * 100_000 + "boxed{6}", no),
    ("6", "junk " * 20_000 + r"\boxed{6}", ok),
    (r"\sqrt{2}", r"\boxed{" + "(" * 200 + "}", no),
    (r"\sqrt{2}", r"\boxed{" + r"\frac" * 50 + "}", no),
    (r"\sqrt{2}", r"\boxed{\undefinedcommand{2}}", no),
    (r"\sqrt{2}", r"\boxed{x^}", no),
]

TABLE = [*WHERE, *NUMBERS, *FRACTIONS, *UNITS, *SEVERAL, *SETS, *LATEX, *WORDS, *GARBAGE]


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    verifier = Verifier(limit_s=30.0)
    yield verifier
    verifier.close()


@pytest.mark.parametrize(("reference", "response", "outcome"), TABLE, ids=lambda value: ascii(value)[:60])
def test_right_verdict(verifier: Verifier, reference: str, response: str, outcome: str) -> None:
    assert verifier.verdict(response, reference, ended=True, form="math").outcome == outcome
    assert (verifier.failures, verifier.timeouts) == ({}, 0)
    assert not verifier.verdict(response, reference, ended=False, form="math").correct


def test_the_number_form_is_strict_and_knows_no_box(verifier: Verifier) -> None:
    for response in (r"\boxed{6}", "#$6", "#6 km", "#6.", "#x=6", "#\uff16", "#1,000", "6"):
        assert verifier.verdict(response, 6, ended=True).outcome == no
    assert verifier.failures == {}
    assert verifier.verdict("#### 6", 6, ended=True).correct


def test_a_longer_answer_than_the_limit_is_none() -> None:
    assert answer_span(rf"\boxed{{{'1' * MAX_SPAN}}}", "math") == "1" * MAX_SPAN
    assert answer_span(rf"\boxed{{{'1' * (MAX_SPAN + 1)}}}", "math") is None


@given(text=st.text(alphabet="\\{}#$box edf16,./=%^_-\x00\ud800\n", max_size=60), number=st.integers(-99, 99))
@settings(max_examples=300, deadline=None)
def test_a_number_is_judged_without_failure_whatever_is_written(text: str, number: int) -> None:
    verifier = Verifier()
    for response in (text, f"#### {text}", rf"\boxed{{{text}}}"):
        assert verifier.verdict(response, number, ended=True, form="math").outcome in (ok, no)
        assert verifier.verdict(response, number, ended=True).outcome in (ok, no)
    assert verifier.judge.pid is None or verifier.failures == {}
    verifier.close()
    assert verifier.verdict(rf"{text} \boxed{{{number}}}", number, ended=True, form="math").correct
