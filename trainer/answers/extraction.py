r"""Where in a response the answer stands: `answer_span(r"so \boxed{6}", "math") == "6"`. One pass, no backtracking.

Form "number" (the chain task): the text after the last `#`. Form "math" (JSONL): the content of the last balanced
`\boxed{...}` or `\fbox{...}`, or the rest after the last `####`, whichever comes later; lacking both, the rest after
the last `#`. Several answers: only the last one counts. A number without box or marker is no answer. What the span
means is for `notation.py` and the verifier.
"""

from __future__ import annotations

import re

from regimescope.trainer.task import MARKER, AnswerForm

LONG_MARKER = "####"
"GSM8K's marker (Cobbe et al. 2021, https://github.com/openai/grade-school-math)."
MAX_SPAN = 500
"Characters of a form-math answer; a longer one is incorrect and never parsed."

_TOKEN = re.compile(r"\\\\|\\[{}]|\\f?box(?:ed)?\s*\{|[{}]")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


def answer_span(text: str, form: AnswerForm, marker: str = MARKER) -> str | None:
    """The text taken for the answer, stripped; None where there is none.

    A form-math answer after a marker must be one line of at most 500 characters: nothing may follow it.
    """
    if form == "number":
        return text.rpartition(marker)[2].strip() if marker in text else None
    box, long_at = _last_box(text), text.rfind(LONG_MARKER)
    if box is not None and box[0] > long_at:
        span = text[box[0] : box[1]].strip()
    else:
        used = LONG_MARKER if long_at >= 0 else marker
        if used not in text:
            return None
        span = text.rpartition(used)[2].strip()
        if "\n" in span or "\r" in span:
            return None
    return span if len(span) <= MAX_SPAN else None


def balanced(text: str) -> bool:
    """Whether every brace that groups (not `\\{`, not `\\}`) has its partner."""
    depth = 0
    for match in _TOKEN.finditer(text):
        depth += match[0].endswith("{") and match[0] != r"\{"
        depth -= match[0] == "}"
        if depth < 0:
            return False
    return depth == 0


def _last_box(text: str) -> tuple[int, int] | None:
    """[start, end) of the content of the box that opens last among those that close; one pass over the text."""
    open_braces: list[int | None] = []  # where the content of a box starts; None for any other brace
    last: tuple[int, int] | None = None
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "}":
            start = open_braces.pop() if open_braces else None
            if start is not None and (last is None or start > last[0]):
                last = start, match.start()
        elif token.endswith("{") and token != r"\{":
            open_braces.append(match.end() if _BOX.fullmatch(token) else None)
    return last
