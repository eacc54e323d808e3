"""A text in words, or in characters where it is not written in words, and how much of it says again what was said.

    units_of("so it goes so it goes")     ['so', 'it', 'goes', 'so', 'it', 'goes']
    repeated_share(units, 4)              0 = no n-gram comes twice

What the trainer measures over token ids and whole batches is in `regimescope.trainer.repetition`; a test holds both
together. Standard library.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_WORD = 20
"White space is worth the name where words have at most this many characters in the mean."


def units_of(text: str) -> Sequence[str]:
    """What white space separates; the characters, where those would be more than 20 per word (Chinese, Japanese, one
    endless word).
    """
    words = text.split()
    return text if len(text) > LONGEST_WORD * len(words) else words


def repeated_share(units: Sequence[str], n: int) -> float:
    """1 - unique n-grams / n-grams, in [0, 1); 0 for fewer than n units (seq-rep-n, arXiv 1908.04319).

    >>> repeated_share("abababab", 4)
    0.6
    """
    count = len(units) - n + 1
    if count < 1:
        return 0.0
    return 1.0 - len(set(zip(*(units[i:] for i in range(n)), strict=False))) / count
