"""Repetition of token rows and texts: golden values, and agreement with the definitions written out naively."""

import itertools
import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.trainer import repetition
from regimescope.trainer.repetition import longest_run, seq_rep, tail_loops, token_rows
from regimescope.trainer.text_statistics import compression_ratios, text_units

GOLDEN = json.loads((Path(__file__).parent / "objectives_golden.json").read_text())["misc"]["repetition"]

FEW_IDS = st.lists(st.integers(0, 2), max_size=60)
ANY_IDS = st.lists(st.sampled_from([0, 1, -1, -(2**63), 2**63 - 1, 2**31, 2**32 + 1, 151_935]), max_size=40)
WIDE_IDS = st.lists(st.integers(0, 200_000), max_size=60)
LOOPING = st.builds(
    lambda head, unit, times, rest: [*head, *(unit * times), *unit[:rest]],
    FEW_IDS,
    st.lists(st.integers(0, 2), min_size=1, max_size=9),
    st.integers(1, 12),
    st.integers(0, 8),
)
LONG_LOOPS = st.builds(
    lambda head, period, cut: [*head, *(list(range(period)) * 4)[cut:]],
    FEW_IDS,
    st.integers(200, 300),
    st.integers(0, 400),
)
ROWS = st.lists(FEW_IDS | LOOPING | ANY_IDS | WIDE_IDS | LONG_LOOPS, max_size=8)


def naive_seq_rep(ids: Sequence[int], n: int) -> float:
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def naive_tail_loop(ids: Sequence[int]) -> tuple[int, int, int, int]:
    for period in range(1, 257):
        covered = period
        while covered < len(ids) and ids[-1 - covered] == ids[-1 - covered + period]:
            covered += 1
        if covered <= len(ids) and covered >= max(3 * period, 24):
            return period, covered, covered // period, len(ids) - covered
    return 0, 0, 0, 0


def naive_longest_run(flags: Sequence[bool]) -> int:
    longest = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        longest = max(longest, run)
    return longest


def loops_of(rows: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    loops = tail_loops(rows)
    return list(zip(*(a.tolist() for a in (loops.period, loops.covered, loops.count, loops.start)), strict=True))


def test_golden() -> None:
    rows = token_rows([GOLDEN["tokens"], range(200)])
    for n, expected in GOLDEN["seq_rep_by_n"].items():
        assert seq_rep(rows, int(n)) == pytest.approx([expected, 0.0], abs=1e-12)
    loop = GOLDEN["tail_loop"]
    assert loops_of([GOLDEN["tokens"], range(200)]) == [(loop["period"], loop["covered"], 10, 10), (0, 0, 0, 0)]
    assert longest_run([np.log(GOLDEN["token_probs"])]).tolist() == [GOLDEN["longest_run_above_0.99"]]


def test_seq_rep_by_hand() -> None:
    rows = [[1, 2, 3, 4, 1, 2, 3, 4], [1] * 23, [1, 2, 3], [], [-7, -7, -7, 8, 9]]
    assert seq_rep(rows, 4) == pytest.approx([1 - 4 / 5, 0.95, 0.0, 0.0, 0.0])
    assert seq_rep(rows, 1)[4] == pytest.approx(1 - 3 / 5)
    assert seq_rep([], 4).shape == (0,)


def test_tail_loop_by_hand() -> None:
    rows = {
        (5,) * 24: (1, 24, 24, 0),
        (5,) * 23: (0, 0, 0, 0),
        (9, 9, *(1, 2) * 12): (2, 24, 12, 2),
        (9, 2, *(1, 2) * 12): (2, 25, 12, 1),
        (*range(100, 110), *(*range(10),) * 3): (10, 30, 3, 10),
        (*range(100, 110), *(*range(10),) * 2): (0, 0, 0, 0),
        (*(5,) * 100, 6): (0, 0, 0, 0),
        (*range(256),) * 3: (256, 768, 3, 0),
        (*range(257),) * 3: (0, 0, 0, 0),
        (): (0, 0, 0, 0),
        (3,): (0, 0, 0, 0),
    }
    assert loops_of(list(rows)) == list(rows.values())
    assert loops_of([]) == []


@given(rows=ROWS, n=st.integers(1, 20))
def test_seq_rep_is_its_definition(rows: list[list[int]], n: int) -> None:
    assert seq_rep(rows, n) == pytest.approx([naive_seq_rep(row, n) for row in rows], abs=1e-12)


@pytest.mark.parametrize("vocabulary", [50, 1000, 10**9])
def test_seq_rep_of_phrases_that_come_back(vocabulary: int) -> None:
    """Every n tells the repetition of n tokens from that of n - 1, by packed and by hashed keys."""
    rng = np.random.default_rng(vocabulary)
    phrases = [rng.integers(0, vocabulary, size).tolist() for size in range(2, 30)]
    rows = [[id_ for place in rng.integers(0, 28, 40) for id_ in phrases[place]] for _ in range(3)]
    shares = [seq_rep(rows, n) for n in range(1, 26)]
    for n, share in enumerate(shares, start=1):
        assert share == pytest.approx([naive_seq_rep(row, n) for row in rows], abs=1e-12)
    assert all((a > b).all() for a, b in itertools.pairwise(shares[3:]))


@given(rows=ROWS)
def test_tail_loop_is_its_definition(rows: list[list[int]]) -> None:
    assert loops_of(rows) == [naive_tail_loop(row) for row in rows]


@given(rows=st.lists(st.lists(st.sampled_from([0.5, 0.98, 0.991, 1.0]), max_size=30), max_size=8))
def test_longest_run_is_its_definition(rows: list[list[float]]) -> None:
    logps = [np.log(np.array(row, np.float32)) for row in rows]
    assert longest_run(logps).tolist() == [naive_longest_run([p > 0.99 for p in row]) for row in rows]
    assert longest_run(rows, 0.985).tolist() == longest_run(logps).tolist()


def test_nan_ends_a_run() -> None:
    assert longest_run([[0.0, 0.0, math.nan, 0.0], [-math.inf, 0.0]]).tolist() == [2, 1]
    assert longest_run([[True, True, False], []], 0.5).tolist() == [2, 0]


@pytest.mark.parametrize("items", [1, 64, 1000])
def test_rows_do_not_influence_each_other(items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any company, in any order, in blocks of any size; also ids that no table numbers."""
    rng = np.random.default_rng(items)
    rows = [rng.integers(0, 3, size).tolist() for size in rng.integers(0, 300, 40)]
    rows += [[*row[:5], *row[:7] * 9] for row in rows] + [(rng.integers(0, 2**40, 90)).tolist()]
    rows += [[0] * 30, [0] * 20, [0, 1] * 13]  # would go on into a padding of zeros
    alone = [(seq_rep([row], 4)[0], seq_rep([row], 20)[0], *loops_of([row])[0]) for row in rows]
    assert sum(values[2] > 0 for values in alone) > 20
    monkeypatch.setattr(repetition, "BLOCK_ITEMS", items)
    monkeypatch.setattr(repetition, "RAGGED_SLACK", items % 100)
    order = rng.permutation(len(rows))
    mixed = [rows[i] for i in order]
    together = zip(seq_rep(mixed, 4), seq_rep(mixed, 20), loops_of(mixed), strict=True)
    assert [(a, b, *loop) for a, b, loop in together] == [alone[i] for i in order]
    flags = [[id_ > 0 for id_ in row] for row in mixed]
    assert longest_run(flags, 0.5).tolist() == [naive_longest_run(row) for row in flags]


def test_no_block_is_larger_than_it_says() -> None:
    lengths = [0, 1, 3, 5000, 70_000, 2000, 2000, *[400] * 300]
    blocks = list(token_rows([[1] * length for length in lengths]).blocks())
    assert all(len(block.index) == 1 or block.items.size <= repetition.BLOCK_ITEMS for block in blocks)
    assert sorted(np.concatenate([block.index for block in blocks]).tolist()) == list(range(len(lengths)))
    assert sum(block.items.size for block in blocks) < 2.5 * sum(lengths)
    uneven = list(token_rows([[1]] * 12 + [[1] * 2000]).blocks())
    assert sum(block.items.size for block in uneven) == 12 + 2000


@given(rows=ROWS)
def test_loops_are_exact_whatever_the_hash_says(rows: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repetition, "_mixed", lambda ids: np.zeros(ids.shape, np.uint64))
        assert loops_of(rows) == [naive_tail_loop(row) for row in rows]


def test_a_long_row() -> None:
    rng = np.random.default_rng(0)
    row = rng.integers(-(2**62), 2**62, 60_000).tolist() + rng.integers(0, 9, 100).tolist() * 400
    head = [value for value in row[:60_000] if value > 8]
    row = [*head, *row[60_000:]]
    assert len(row) > 65_536
    assert seq_rep([row, [1]], 20)[0] == pytest.approx(naive_seq_rep(row, 20), abs=1e-12)
    assert loops_of([[1], row]) == [(0, 0, 0, 0), (100, 40_000, 400, len(head))]


def test_arrays_and_lists_give_the_same() -> None:
    rows = [[1, 2, 3, 4] * 10, [5, 6]]
    arrays = [np.array(row) for row in rows]
    assert seq_rep(arrays, 4).tolist() == seq_rep(rows, 4).tolist()
    assert loops_of(arrays) == loops_of(rows)
    assert seq_rep(np.full((2, 30), 7, np.int32), 1).tolist() == [1 - 1 / 30] * 2


WORDS = "the cat sat on the mat\n"


def test_text_units() -> None:
    assert text_units(WORDS).tolist() == [0, 1, 2, 3, 0, 4]
    assert text_units("").tolist() == []
    assert text_units("haha").tolist() == [0]
    assert text_units("笑" * 30).tolist() == [0x7B11] * 30
    assert text_units("😀\ud800" * 15).tolist() == [0x1F600, 0xD800] * 15
    assert text_units(" " * 3).tolist() == [32] * 3


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=60))
def test_text_units_are_equal_where_the_text_is(text: str) -> None:
    units = text_units(text).tolist()
    pieces = text.split() if len(units) == len(text.split()) else list(text)
    assert len(units) == len(pieces)
    for i, piece in enumerate(pieces):
        assert units.index(units[i]) == pieces.index(piece)


def test_measures_run_on_text() -> None:
    units = [text_units(WORDS + "so it goes and " * 8), text_units("哈哈笑" * 12)]
    assert loops_of(units) == [(4, 32, 8, 6), (3, 36, 12, 0)]
    assert seq_rep(units, 4) == pytest.approx([naive_seq_rep(row.tolist(), 4) for row in units])


def test_compression() -> None:
    texts = ["ab" * 10_000, "x" * 50 + "é" * 10_000, "three short words", "\ud800" * 500, ""]
    ratios = compression_ratios(texts)
    assert ratios[0] == 10_000 / len(zlib.compress(b"ab" * 5_000, 9)) > 10
    assert ratios[1] == 20_000 / len(zlib.compress("é".encode() * 10_000, 9))
    assert ratios[2] == 17 / len(zlib.compress(texts[2].encode(), 9)) < 1
    assert ratios[3] > 10
    assert math.isnan(ratios[4])
