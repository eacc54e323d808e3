"""Histograms over steps: they equal the plain sum over the segment lines, and everything that may be added adds up."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regimescope.monitor import query
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store

EDGES = [-0.5, 0.0, 0.5]
BINS = len(EDGES) + 1


def segment(
    run: Path,
    lines: list[dict[str, object]],
    *,
    rank: int = 0,
    launch: str = "a",
    ns: int = 100,
    first: int = 0,
    edges: dict[str, list[float]] | None = None,
) -> None:
    """A segment of one rank of one launch, with these lines behind its header."""
    folder = run / "segments"
    folder.mkdir(parents=True, exist_ok=True)
    header = {
        "k": "header", "t": 1.0, "run": "r", "launch": launch, "start": "fresh", "role": "trainer", "rank": rank,
        "ranks": 2, "part": 0, "first_step": first, "edges": edges or {"e": EDGES},
    }  # fmt: skip
    numbered = ({"v": 1, "q": q, **line} for q, line in enumerate([header, *lines]))
    text = "".join(json.dumps(line) + "\n" for line in numbered)
    (folder / f"r{rank:05d}-{ns}-1-0000.jsonl").write_text(text)


def side(counts: dict[int, int], scale: float = 1.0, **more: list[object]) -> dict[str, object]:
    index = sorted(counts)
    sums = {c: [scale * counts[i] * f for i in index] for c, f in (("r", 1.5), ("a", 0.5), ("ra", 0.75))}
    return {"i": index, "n": [counts[i] for i in index], **sums, **more}


def ratio_line(step: int, pos: dict[str, object], neg: dict[str, object], **more: object) -> dict[str, object]:
    return {"k": "ratio_hist", "s": step, "edges": "e", "pos": pos, "neg": neg, **more}


@pytest.fixture
def store(root: Path):
    made = Store.in_memory(root)
    yield made
    made.close()


COUNTS = st.dictionaries(st.integers(0, BINS - 1), st.integers(1, 9), max_size=BINS)
PLACES = st.tuples(st.integers(0, 1), st.integers(0, 6), st.sampled_from(["", "math", "code"]))
HOW = st.sampled_from([(None,), (0,), (0, 1), (0, 1, None)])
"Updates of a line's place: the whole step, one, two, or two and then the whole as well."


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.dictionaries(
        PLACES, st.tuples(HOW, st.lists(st.tuples(COUNTS, COUNTS), min_size=3, max_size=3)), min_size=1
    ),
    again=st.integers(0, 7),
    ends=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_a_range_is_the_plain_sum_over_the_lines(places, again: int, ends, tmp_path_factory, root: Path) -> None:
    run = tmp_path_factory.mktemp("root") / "run"
    lines: dict[tuple[str, int], list[dict[str, object]]] = {}
    for (rank, step, env), (updates, counts) in places.items():
        for launch in ("a", "b") if step >= again else ("a",):
            for update, (pos, neg) in zip(updates, counts, strict=False):
                more = ({} if update is None else {"u": update}) | ({"sl": {"env": env}} if env else {})
                both = ratio_line(step, side(pos), side(neg), **more)
                one = {"k": "hist", "s": step, "name": "length", "edges": "e", "i": sorted(pos), **more}
                lines.setdefault((launch, rank), []).extend([both, {**one, "n": [pos[i] for i in sorted(pos)]}])
    for (launch, rank), said in lines.items():
        segment(run, said, rank=rank, launch=launch, ns=100 if launch == "a" else 200, first=again * (launch == "b"))
    low, high = min(ends), max(ends)
    resumed = any(launch == "b" for launch, _ in lines)
    kept = [
        (rank, line)
        for (launch, rank), said in lines.items()
        for line in said
        if low <= line["s"] <= high and (launch == "b" or not resumed or line["s"] < again)
    ]
    store = Store.in_memory(run.parent)
    Ingester(store).catch_up()
    with store.cursor() as con:
        slices = {s.value: s.slice_id for s in query.slices(con, 1)}
        for env, slice_id in slices.items():
            mine = [(rank, line) for rank, line in kept if line.get("sl", {}).get("env", "") == env]
            whole = {(rank, line["s"]) for rank, line in mine if "u" not in line}
            mine = [(rank, line) for rank, line in mine if "u" not in line or (rank, line["s"]) not in whole]
            ratio = [line for _, line in mine if line["k"] == "ratio_hist"]
            other = [line for _, line in mine if line["k"] == "hist"]
            for sign, key in ((1, "pos"), (-1, "neg")):
                found = query.ratio_histogram(con, 1, sign=sign, steps=(low, high), slice_id=slice_id)
                assert (found is None) == (not ratio)
                if found is None:
                    continue
                assert found.counts == plain(ratio, key, "n") and found.left_out == 0
                assert found.ratio_sum == pytest.approx(plain(ratio, key, "r"))
                assert found.abs_adv_sum == pytest.approx(plain(ratio, key, "a"))
                assert found.abs_adv_ratio_sum == pytest.approx(plain(ratio, key, "ra"))
                steps = sorted({line["s"] for line in ratio})
                assert (found.steps, found.first, found.last) == (len(steps), steps[0], steps[-1])
                for n in (1, 2, 400):
                    heat = query.ratio_heatmap(con, 1, sign=sign, steps=(low, high), slice_id=slice_id, n=n)
                    assert len(heat.steps) <= n and tuple(map(sum, zip(*heat.counts, strict=True))) == found.counts
                assert heat.steps == tuple(steps) and heat.width == 1
            found = query.histogram(con, 1, "length", steps=(low, high), slice_id=slice_id)
            assert (found is None) == (not other)
            assert found is None or found.counts == plain([{"x": line} for line in other], "x", "n")
    store.close()


def plain(lines: list[dict[str, object]], key: str, column: str) -> tuple[float, ...]:
    total: Counter[int] = Counter()
    for line in lines:
        for i, value in zip(line[key]["i"], line[key][column], strict=True):
            total[i] += value
    return tuple(total[i] for i in range(BINS))


def test_slices_of_a_kind_add_up_to_everything(root: Path, store: Store) -> None:
    parts = {"math": {0: 3, 2: 5}, "code": {2: 1, 3: 7}}
    lines = [ratio_line(0, side({0: 3, 2: 6, 3: 7}), side({}))]
    lines += [ratio_line(0, side(counts), side({}), sl={"env": env}) for env, counts in parts.items()]
    segment(root / "run", lines)
    Ingester(store).catch_up()
    with store.cursor() as con:
        whole = query.ratio_histogram(con, 1, sign=1)
        each = [query.ratio_histogram(con, 1, sign=1, slice_id=s.slice_id) for s in query.slices(con, 1) if s.slice_id]
    assert tuple(map(sum, zip(*(h.counts for h in each), strict=True))) == whole.counts == (3, 0, 6, 7)
    assert tuple(map(sum, zip(*(h.ratio_sum for h in each), strict=True))) == pytest.approx(whole.ratio_sum)


def test_the_function_and_the_view_say_the_same(root: Path, store: Store) -> None:
    lines = [ratio_line(s, side({s: 2}), side({1: s + 1}), u=u) for s in range(4) for u in (0, 1)]
    segment(root / "run", [*lines, ratio_line(0, side({}), side({0: 9}))])  # step 0 has its own beside its updates'
    Ingester(store).catch_up()
    with store.cursor() as con:
        found = query.ratio_histogram(con, 1, sign=-1)
        view = con.execute(
            "SELECT bin, lo, hi, sum(tokens)::BIGINT FROM v_ratio_bin WHERE sign = -1 GROUP BY ALL ORDER BY bin"
        ).fetchall()
    assert [row[3] for row in view] == list(found.counts) == [9, 18, 0, 0]
    assert [row[2] for row in view] == [*found.edges, math.inf] and found.edges == tuple(EDGES)


def test_a_sum_that_is_not_finite_is_shown(root: Path, store: Store) -> None:
    odd = side({0: 1, 2: 1}, r=["NaN", "Infinity"])
    segment(root / "run", [ratio_line(0, odd, side({})), ratio_line(1, side({1: 4}), side({}))])
    Ingester(store).catch_up()
    with store.cursor() as con:
        found = query.ratio_histogram(con, 1, sign=1)
        later = query.ratio_histogram(con, 1, sign=1, steps=(1, None))
    assert math.isnan(found.ratio_sum[0]) and found.ratio_sum[1:] == (6.0, math.inf, 0.0)
    assert found.counts == (1, 4, 1, 0) and later.ratio_sum == (0.0, 6.0, 0.0, 0.0)


def test_a_column_that_a_row_does_not_have_is_none_and_no_partial_sum(root: Path, store: Store) -> None:
    without = side({0: 1})
    del without["ra"]
    segment(root / "run", [ratio_line(0, side({0: 2}), side({})), ratio_line(1, without, side({}))])
    Ingester(store).catch_up()
    with store.cursor() as con:
        assert query.ratio_histogram(con, 1, sign=1).abs_adv_ratio_sum is None
        assert query.ratio_histogram(con, 1, sign=1).abs_adv_sum == (1.5, 0.0, 0.0, 0.0)
        assert query.ratio_histogram(con, 1, sign=1, steps=(0, 0)).abs_adv_ratio_sum == (1.5, 0.0, 0.0, 0.0)


def test_other_edges_are_not_added_but_counted(root: Path, store: Store) -> None:
    segment(root / "run", [ratio_line(s, side({0: 1}), side({})) for s in range(3)])
    fine = {"e": [-1.0, -0.5, 0.0, 0.5, 1.0]}
    segment(root / "run", [ratio_line(3, side({5: 2}), side({}))], launch="b", ns=200, first=3, edges=fine)
    Ingester(store).catch_up()
    with store.cursor() as con:
        found = query.ratio_histogram(con, 1, sign=1)
        heat = query.ratio_heatmap(con, 1, sign=1)
        older = query.ratio_histogram(con, 1, sign=1, steps=(None, 2))
    assert (found.edges, found.counts, found.left_out, found.steps) == (tuple(fine["e"]), (0, 0, 0, 0, 0, 2), 3, 1)
    assert (heat.steps, heat.left_out) == ((3,), 3)
    assert (older.edges, older.counts, older.left_out) == (tuple(EDGES), (3, 0, 0, 0), 0)


def test_a_heatmap_leaves_a_stretch_without_steps_empty(root: Path, store: Store) -> None:
    segment(root / "run", [ratio_line(s, side({0: 1}), side({})) for s in (10, 11, 12, 1000)])
    Ingester(store).catch_up()
    with store.cursor() as con:
        heat = query.ratio_heatmap(con, 1, sign=1, n=100)
    assert (heat.width, heat.steps) == (10, (10, 1000)) and [column[0] for column in heat.counts] == [3, 1]


def test_what_is_not_there_and_what_makes_no_sense(root: Path, store: Store) -> None:
    segment(root / "run", [{"k": "hist", "s": 0, "name": "length", "edges": "e", "i": [1], "n": [2]}])
    Ingester(store).catch_up()
    with store.cursor() as con:
        assert query.histogram_names(con, 1) == ["length"] and query.histogram_names(con, 2) == []
        assert query.histogram(con, 1, "length").counts == (0, 2, 0, 0)
        assert query.histogram(con, 1, "other") is None and query.ratio_histogram(con, 1, sign=1) is None
        assert query.histogram(con, 1, "length", steps=(1, None)) is None
        assert query.histogram(con, 1, "length", steps=(None, -1)) is None
        assert query.ratio_heatmap(con, 2, sign=-1) is None
        with pytest.raises(ValueError, match="sign=0"):
            query.ratio_histogram(con, 1, sign=0)
        with pytest.raises(ValueError, match="n=0"):
            query.ratio_heatmap(con, 1, sign=1, n=0)
