"""Envelopes read from the table are those of the views, to the last bit, whatever a run logged."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.monitor import envelopes, query
from regimescope.monitor.compaction import Piece, _sort
from regimescope.monitor.envelopes import _from_view
from regimescope.monitor.store import Store

AGGREGATES = {1: "mean", 2: "sum", 3: "min", 4: "max", 5: "last"}
NAMES = [f"m_{agg}" for agg in AGGREGATES.values()]

numbers = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, None, 0.0, 1e300, 5e-324]),
    st.floats(-1e3, 1e3, allow_nan=False),
)
rows = st.fixed_dictionaries({
    "launch": st.integers(0, 2), "rank": st.integers(0, 1), "step": st.integers(0, 40),
    "update": st.sampled_from([None, None, None, 0, 1]), "slice": st.sampled_from([0, 0, 0, 1]),
    "ts": st.sampled_from([None, 1.0, 2.0, 3.0]), "metric": st.sampled_from(sorted(AGGREGATES)), "value": numbers,
    "weight": st.sampled_from([1.0, 1.0, 3.0, 0.1, 0.0, 256.0]),
})  # fmt: skip
COLUMNS = ("launch", "rank", "step", "update", "slice", "ts", "metric", "value", "weight")
KEY = ("launch", "step", "slice", "metric")


@st.composite
def logs(draw) -> tuple[list[dict[str, object]], dict[int, tuple[int, int | None]]]:
    """Rows, and (ranks, superseded_from) of each launch; half of the logs are of one rank with a row a step."""
    found = draw(st.lists(rows, max_size=120))
    single = draw(st.booleans())
    if single:
        found = list({tuple(row[k] for k in KEY): {**row, "rank": 0} for row in found}.values())
    ranks = 1 if single else draw(st.integers(1, 2))
    return found, {n: (ranks, draw(st.sampled_from([None, None, 0, 7, 20]))) for n in range(3)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store.in_memory(tmp_path_factory.mktemp("root"))
    with made.cursor() as con:
        for number, agg in AGGREGATES.items():
            con.execute("INSERT INTO metric VALUES (?, ?, ?, NULL, NULL)", [number, f"m_{agg}", agg]).fetchall()
    yield made
    made.close()


def fill(con: query.Connection, found: list[dict[str, object]], launches: dict[int, tuple[int, int | None]]) -> None:
    for table in ("scalar", "launch", "compaction"):
        con.execute(f"DELETE FROM {table}").fetchall()
    for number, (ranks, superseded) in launches.items():
        con.execute(
            "INSERT INTO launch (run_key, launch_no, launch_id, first_step, superseded_from, ranks) "
            "VALUES (1, ?, 'x', 0, ?, ?)",
            [number, superseded, ranks],
        ).fetchall()
    columns = [[row[k] for row in found] for k in COLUMNS]
    kinds = ("INT", "INT", "INT", "INT", "INT", "DOUBLE", "INT", "DOUBLE", "DOUBLE")
    given = ", ".join(f"unnest(?::{kind}[]) AS c{i}" for i, kind in enumerate(kinds))
    con.execute(
        f"INSERT INTO scalar SELECT 1, c0, c1, c2, c3, c4, to_timestamp(c5), c6, c7, c8 FROM (SELECT {given})", columns
    ).fetchall()


@settings(max_examples=40, deadline=None)
@given(logs(), st.sampled_from([None, 0, 5, 50]), st.sampled_from([None, -1, 0, 20, 39]), st.integers(2, 30))
def test_an_envelope_is_that_of_the_view(store: Store, log, x0: int | None, x1: int | None, n: int) -> None:
    found, launches = log
    with store.cursor() as con:
        fill(con, found, launches)
        for slice_id in {0, *(int(str(row["slice"])) for row in found[:1])}:
            together = query.envelopes(con, 1, slice_id, [*NAMES, "unknown", "R4.tokens", "pos.w_min"], x0, x1, n)
            assert list(together) == [*NAMES, "unknown", "R4.tokens", "pos.w_min"]
            for name in NAMES:
                expected = repr(_from_view(con, 1, slice_id, name, x0, x1, n))
                assert repr(together[name]) == expected
                assert repr(query.envelope(con, 1, slice_id, name, x0, x1, n)) == expected
            assert together["unknown"].steps == together["R4.tokens"].steps == []


@settings(max_examples=15, deadline=None)
@given(logs())
def test_compaction_changes_no_envelope(store: Store, log) -> None:
    found, launches = log
    with store.cursor() as con:
        fill(con, found, launches)
        before = repr(query.envelopes(con, 1, 0, NAMES, None, None, 10))
        for number in launches:
            _sort(con, Piece(run_key=1, launch_no=number, first=0, end=41))
        assert con.execute("SELECT count(*) FROM scalar").fetchall() == [(len(found),)]
        assert repr(query.envelopes(con, 1, 0, NAMES, None, None, 10)) == before


def test_one_row_a_step_is_read_from_the_table(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the two tests above would compare the view with itself."""
    row = {"launch": 0, "rank": 0, "update": None, "slice": 0, "ts": 1.0, "metric": 1, "value": 2.0, "weight": 3.0}
    plain = [{**row, "step": step} for step in range(40)]
    monkeypatch.setattr(envelopes, "_from_view", lambda *_: pytest.fail("the view was asked"))
    with store.cursor() as con:
        fill(con, plain, {0: (1, None)})
        assert query.envelope(con, 1, 0, "m_mean", None, None, 10).values == [2.0] * 5
        assert query.envelope(con, 1, 0, "m_mean", None, None, 50).steps == list(range(40))
        monkeypatch.setattr(envelopes, "_from_view", lambda *_: "view")
        fill(con, plain, {0: (2, None)})
        assert query.envelope(con, 1, 0, "m_mean", None, None, 10) == "view"
        fill(con, [*plain, plain[7]], {0: (1, None)})
        assert query.envelope(con, 1, 0, "m_mean", None, None, 10) == "view"
        fill(con, [*plain[:7], *plain[8:], plain[9]], {0: (1, None)})  # as many rows as steps, one of them twice
        assert query.envelope(con, 1, 0, "m_mean", None, None, 10) == "view"


def test_more_metrics_than_are_read_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "METRICS_AT_ONCE", 2)
    row = {"launch": 0, "rank": 0, "update": None, "slice": 0, "ts": 1.0, "weight": 1.0}
    found = [{**row, "step": step, "metric": m, "value": m * 0.5} for step in range(0, 40, 3) for m in AGGREGATES]
    with store.cursor() as con:
        fill(con, found, {0: (1, None)})
        got = query.envelopes(con, 1, 0, NAMES, None, None, 8)
        assert [series.values[0] for series in got.values()] == [0.5, 1.0, 1.5, 2.0, 2.5]
