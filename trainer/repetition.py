"""Repetition in rows of token ids, batched over rows of any length: repeated n-grams, the loop at the end, the longest
run of a condition. numpy only.

    rows = token_rows([[5, 6] * 20, range(30)])
    seq_rep(rows, 4)              array([0.945..., 0.])
    tail_loops(rows).period       array([2, 0])

Every function takes plain sequences too. A row's result depends on that row alone; work goes block by block, so memory
stays at some ten arrays of 32,768 items, or of the longest row where that is longer. Text: `text_statistics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Keys = NDArray[np.uint64]

LONGEST_PERIOD = 256
SHORTEST_LOOP = 24
SURE_LOGP = math.log(0.99)
"A sampled token is sure above this log-probability in nats: MiniMax-M1 (arXiv 2506.13585) stops after 3,000 of them."

BLOCK_ITEMS = 1 << 15
"So that the arrays of a block (256 KiB) stay in the cache, and the allocator keeps their pages."
RAGGED_SLACK = 64
"A block holds rows of at most twice the length of its shortest, plus this many items: padding stays cheap."
TABLE_SPAN = 1 << 20
"Ids that span less than this (every vocabulary in use) are numbered through a table, others by sorting."
LAST_KEY = np.uint64(0xFFFFFFFFFFFFFFFF)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"Constants of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): its finaliser spreads nearby ids over 64 bits."


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows of similar length as one matrix, right-aligned: the last item of every row is in the last column."""

    index: NDArray[np.intp]
    "[R] which rows of the input these are."
    items: NDArray[Any]
    "[R, T]; 0 before a row begins, which nothing may rely on."
    lengths: NDArray[np.intp]
    "[R] items of each row, 0..T."

    @property
    def padding(self) -> NDArray[np.bool_]:
        """[R, T] True before a row begins."""
        width = self.items.shape[1]
        before: NDArray[np.bool_] = np.arange(width) < (width - self.lengths)[:, None]
        return before


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of different length, end to end: convert once, measure often."""

    flat: NDArray[Any]
    "[N] items of all rows: int64 numbers from 0 that stand for ids (`token_rows`), or float32."
    lengths: NDArray[np.intp]
    "[rows]"

    def blocks(self) -> Iterator[Block]:
        """Blocks of at most BLOCK_ITEMS items with their padding; a longer row is a block of its own."""
        ends = np.cumsum(self.lengths)
        order = np.argsort(self.lengths, kind="stable")
        sizes = self.lengths[order].tolist()
        first = 0
        while first < len(sizes):
            limit = min(2 * sizes[first] + RAGGED_SLACK, BLOCK_ITEMS)
            last = first + 1
            while last < len(sizes) and sizes[last] <= limit and sizes[last] * (last + 1 - first) <= BLOCK_ITEMS:
                last += 1
            index, width = order[first:last], sizes[last - 1]
            lengths = self.lengths[index]
            items = np.zeros((len(index), width), self.flat.dtype)
            for place, (end, length) in enumerate(zip(ends[index].tolist(), lengths.tolist(), strict=True)):
                items[place, width - length :] = self.flat[end - length : end]
            yield Block(index=index, items=items, lengths=lengths)
            first = last


@dataclass(frozen=True, slots=True, kw_only=True)
class TailLoops:
    """The loop at the end of each row, four int64 arrays [rows]; all 0 where there is none."""

    period: Ids
    "Tokens of one round, 1..256."
    covered: Ids
    "Tokens of the exactly periodic end, at least max(3 periods, 24)."
    count: Ids
    "Full rounds: covered // period."
    start: Ids
    "Index of the first token of the loop in its row: length - covered."


def token_rows(rows: Sequence[Sequence[int]] | Sequence[Ids]) -> Rows:
    """Rows of token ids, any int64. `flat` holds small numbers in place of the ids: only which are equal matters."""
    packed = _packed(rows, np.dtype(np.int64))
    return Rows(flat=_numbered(packed.flat), lengths=packed.lengths) if len(packed.flat) else packed


def seq_rep(rows: Rows | Sequence[Sequence[int]] | Sequence[Ids], n: int) -> NDArray[np.float64]:
    """[rows] 1 - unique n-grams / all n-grams, in [0, 1); 0 for a row shorter than n (n >= 1): seq-rep-n of Welleck et
    al., arXiv 1908.04319.

    An n-gram becomes one 64-bit key. The key is exact where n ids fit in 64 bits: n = 4 with up to 65,536 different ids
    among all rows. Otherwise it is a hash, and a row of T tokens comes out too high with probability below T² / 2^65:
    2e-12 for 8,192 tokens, 3e-10 for 100,000.
    """
    rows = rows if isinstance(rows, Rows) else token_rows(rows)
    result = np.zeros(len(rows.lengths))
    for block in rows.blocks():
        width = block.items.shape[1] - n + 1
        if width <= 0:
            continue
        keys = _gram_keys(block.items, n)
        np.copyto(keys, LAST_KEY, where=block.padding[:, :width])  # sorts behind the row's own, equal keys or not
        keys.sort(axis=1)
        counts = np.maximum(block.lengths - n + 1, 0)
        changes = keys[:, 1:] != keys[:, :-1]
        changes &= np.arange(1, width) < counts[:, None]
        unique = np.count_nonzero(changes, axis=1) + 1
        result[block.index] = np.where(counts > 0, 1.0 - unique / np.maximum(counts, 1), 0.0)
    return result


def tail_loops(rows: Rows | Sequence[Sequence[int]] | Sequence[Ids]) -> TailLoops:
    """The smallest period p <= 256 whose exact periodic suffix covers at least max(3p, 24) tokens, for each row.

    Exact: prefix hashes of the last 768 tokens only propose periods, the tokens themselves decide.
    """
    rows = rows if isinstance(rows, Rows) else token_rows(rows)
    period, covered = np.zeros(len(rows.lengths), np.int64), np.zeros(len(rows.lengths), np.int64)
    for block in rows.blocks():
        ids = block.items
        proposed = _proposed_periods(ids, block.lengths)
        open_rows = np.flatnonzero(proposed.any(axis=1))
        while len(open_rows):
            periods = proposed[open_rows].argmax(axis=1) + 1
            covers = _covered(ids[open_rows], block.lengths[open_rows], periods)
            holds = covers >= _least(periods)
            done = block.index[open_rows[holds]]
            period[done], covered[done] = periods[holds], covers[holds]
            open_rows, periods = open_rows[~holds], periods[~holds]  # two different ends had one hash
            proposed[open_rows, periods - 1] = False
            open_rows = open_rows[proposed[open_rows].any(axis=1)]
    return TailLoops(
        period=period,
        covered=covered,
        count=covered // np.maximum(period, 1),
        start=np.where(period > 0, rows.lengths - covered, 0),
    )


def longest_run(
    rows: Sequence[Sequence[float]] | Sequence[NDArray[np.floating]], threshold: float = SURE_LOGP
) -> NDArray[np.int64]:
    """[rows] longest run of consecutive items above `threshold`; NaN ends a run. The default counts sampled tokens with
    p > 0.99 in rows of log-probabilities."""
    packed = _packed(rows, np.dtype(np.float32))
    result = np.zeros(len(packed.lengths), np.int64)
    for block in packed.blocks():
        count, width = block.items.shape
        ends = np.ones((count, width + 1), bool)  # the last column ends a run at the end of its row
        np.logical_not(block.items > threshold, out=ends[:, :width])
        ends[:, :width] |= block.padding
        places = np.flatnonzero(ends)
        runs = np.diff(places, prepend=-1) - 1
        starts = np.cumsum(np.count_nonzero(ends, axis=1))[:-1]
        result[block.index] = np.maximum.reduceat(runs, np.concatenate([[0], starts]))
    return result


def _packed(rows: Sequence[Sequence[float]] | Sequence[NDArray[np.generic]], dtype: np.dtype[np.generic]) -> Rows:
    lengths = np.fromiter(map(len, rows), np.intp, len(rows))
    if len(rows) and all(isinstance(row, np.ndarray) for row in rows):
        flat = np.concatenate(rows).astype(dtype, copy=False)
    else:
        flat = np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum()))
    return Rows(flat=flat, lengths=lengths)


def _numbered(ids: Ids) -> Ids:
    """[N] any ids -> [N] numbers from 0, equal where the ids are: dense, or below 65,536 as four of them fit a key."""
    low = int(ids.min())
    span = int(ids.max()) - low
    if span < 1 << 16:
        return ids - low
    if span >= TABLE_SPAN:
        dense: Ids = np.unique(ids, return_inverse=True)[1]
        return dense
    ids = ids - low
    known = np.zeros(span + 1, bool)
    known[ids] = True
    numbers: Ids = (np.cumsum(known) - 1)[ids]
    return numbers


def _gram_keys(ids: Ids, n: int) -> Keys:
    """[R, T] numbers from 0 -> [R, T - n + 1] one key for the n of them from each place on."""
    width, bits = ids.shape[1] - n + 1, int(ids.max()).bit_length()
    if bits * n > 64:
        return _hashed_grams(_mixed(ids), n)
    keys = np.zeros((len(ids), width), np.uint64)
    small = ids.view(np.uint64)
    for offset in range(n):
        keys <<= np.uint64(bits)
        keys |= small[:, offset : offset + width]
    return keys


def _hashed_grams(hashes: Keys, n: int) -> Keys:
    """Hashes of single ids -> hashes of n-grams, by doubling: log2(n) steps, not n."""
    keys, done, power, size = hashes, 0, hashes, 1
    while True:
        if n & size:
            keys = power if done == 0 else _joined(keys, power, done)
            done += size
        if done == n:
            return keys
        power = _joined(power, power, size)
        size *= 2


def _joined(left: Keys, right: Keys, offset: int) -> Keys:
    """Hash of the gram `left` from each place on, followed by the gram `right` from `offset` further."""
    width = min(left.shape[1], right.shape[1] - offset)
    joined = left[:, :width] * GOLDEN
    joined += right[:, offset : offset + width]
    joined ^= joined >> np.uint64(29)  # without this the hash were linear, and equal sums would collide
    joined *= MIX_1
    return joined


def _mixed(ids: Ids) -> Keys:
    """One well spread 64-bit number per id."""
    mixed = ids.astype(np.uint64) + GOLDEN
    scratch = mixed >> np.uint64(30)
    mixed ^= scratch
    mixed *= MIX_1
    mixed ^= np.right_shift(mixed, np.uint64(27), out=scratch)
    mixed *= MIX_2
    mixed ^= np.right_shift(mixed, np.uint64(31), out=scratch)
    return mixed


def _least(periods: NDArray[np.intp]) -> NDArray[np.intp]:
    """Tokens that a loop of each period has to cover."""
    return np.maximum(3 * periods, SHORTEST_LOOP)


def _proposed_periods(ids: Ids, lengths: NDArray[np.intp]) -> NDArray[np.bool_]:
    """[R, periods] whether the last tokens equal those `period` earlier as far as a loop needs, by their hash; column 0
    is period 1. Never False where they are equal."""
    periods = np.arange(1, LONGEST_PERIOD + 1)
    width = min(ids.shape[1], int(_least(periods)[-1]))
    periods = periods[_least(periods) <= width]
    least = _least(periods)
    powers = np.cumprod(np.full(width + 1, GOLDEN))  # [k] = GOLDEN^(k + 1)
    prefix = np.zeros((len(ids), width + 1), np.uint64)  # [:, k] = hash of the last k tokens, backwards
    np.cumsum(_mixed(ids[:, ::-1][:, :width]) * powers[:-1], axis=1, out=prefix[:, 1:])
    earlier = prefix[:, least] - prefix[:, periods]
    alike: NDArray[np.bool_] = earlier == prefix[:, least - periods] * powers[periods - 1]
    return alike & (least <= lengths[:, None])


def _covered(ids: Ids, lengths: NDArray[np.intp], periods: NDArray[np.intp]) -> NDArray[np.intp]:
    """[R] tokens of the longest suffix with the period given for each row; `period` itself where nothing repeats."""
    width = ids.shape[1]
    back = np.arange(width - 1, -1, -1)  # backwards, so that the first difference is the nearest to the end
    earlier = back - periods[:, None]
    outside = earlier < (width - lengths)[:, None]
    differs = ids[:, ::-1] != np.take_along_axis(ids, np.maximum(earlier, 0), axis=1)
    covered: NDArray[np.intp] = (differs | outside).argmax(axis=1) + periods
    return covered
