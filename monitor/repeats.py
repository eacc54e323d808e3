"""Repetition inside one response, token by token, for the token viewer: where its loop starts, and which tokens say
again what was said.

    loop_of([9, 5, 6, 5, 6, ...])     Loop(start=1, period=2, covered=24, at_end=True)
    repeated_tokens(ids)              [False, ..., True]: part of a 4-gram that came before

The trainer's own measure over whole batches is in `regimescope.trainer.repetition`; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LONGEST_PERIOD = 256
SHORTEST_LOOP = 24
"A loop covers at least this many tokens, and three rounds."
GRAM = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A stretch that repeats exactly."""

    start: int
    "Position of its first token, from 0."
    period: int
    "Tokens of one round."
    covered: int
    "Tokens from its start to its end."
    at_end: bool
    "Nothing but an end token comes after it."

    @property
    def rounds(self) -> int:
        """Whole ones."""
        return self.covered // self.period


def loop_of(token_ids: Sequence[int | None], *, ended: bool = False) -> Loop | None:
    """The longest loop, one at the end before all others, the shortest period of equal ones; None: no period up to 256
    covers 3 rounds and 24 tokens. `ended`: the last token is an end token, which is no part of it.
    """
    ids = _numbers(token_ids[: len(token_ids) - ended])
    best: Loop | None = None
    for period in range(1, min(LONGEST_PERIOD, len(ids) // 3) + 1):
        for start, run in _runs(ids[period:] == ids[:-period]):
            covered = run + period
            found = Loop(start=start, period=period, covered=covered, at_end=start + covered == len(ids))
            if covered >= max(3 * period, SHORTEST_LOOP) and (best is None or _weight(found) > _weight(best)):
                best = found
    return best


def _weight(loop: Loop) -> tuple[bool, int]:
    return loop.at_end, loop.covered


def repeated_tokens(token_ids: Sequence[int | None], n: int = GRAM) -> list[bool]:
    """For each token whether it is part of n tokens that came in this order before."""
    seen: set[tuple[int | None, ...]] = set()
    repeated = [False] * len(token_ids)
    for at, gram in enumerate(zip(*(token_ids[k:] for k in range(n)), strict=False)):
        if gram in seen:
            repeated[at : at + n] = [True] * n
        seen.add(gram)
    return repeated


def _numbers(token_ids: Sequence[int | None]) -> NDArray[np.int64]:
    return np.array([-1 if i is None else i for i in token_ids], np.int64)


def _runs(alike: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and length of the longest run of True, the first of several, and of the run at the end."""
    breaks = np.concatenate([[-1], np.flatnonzero(~alike), [len(alike)]])
    gaps = np.diff(breaks) - 1
    return [(int(breaks[at]) + 1, int(gaps[at])) for at in {int(gaps.argmax()), len(gaps) - 1}]
