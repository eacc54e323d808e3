"""Repetition of plain text, for logs and dumps that have no token ids.

`text_units(text)` makes ids of a text that every function of `repetition.py` takes; `compression_ratios(texts)` says
how far zlib squeezes the end of each.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regimescope.monitor.text_units import units_of

TAIL_CHARACTERS = 10_000
COMPRESSIBLE = 10.0
"slime counts a text of more than 10,000 characters as repetitive above this ratio (slime/utils/metric_utils.py)."
ZLIB_LEVEL = 9
"As slime, so that the ratios compare."


def text_units(text: str) -> NDArray[np.int64]:
    """[units] an id for each word of the text, or for each character where it is not written in words.

    Words are what white space separates; their ids count from 0 in the order of first appearance and mean nothing
    beyond this text. A text of more than 20 characters per word (Chinese, Japanese, one endless word) is taken by its
    characters, and their ids are the code points.
    """
    words = units_of(text)
    if isinstance(words, str):
        return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
    known = dict.fromkeys(words)
    ids = dict(zip(known, range(len(known)), strict=True))
    return np.fromiter(map(ids.__getitem__, words), np.int64, len(words))


def compression_ratios(texts: Sequence[str]) -> NDArray[np.float64]:
    """[texts] UTF-8 bytes of the last 10,000 characters over their size under zlib; NaN for an empty text.

    About 2 to 3 for prose, above 10 for text that repeats itself. Texts under some 100 bytes cannot reach 10, because
    zlib needs about 10 bytes in any case. Unpaired surrogates count as three bytes.
    """
    raw = [text[-TAIL_CHARACTERS:].encode("utf-8", "surrogatepass") for text in texts]
    return np.array([len(data) / len(zlib.compress(data, ZLIB_LEVEL)) if data else np.nan for data in raw], float)
