"""Whatever stands in a segment, the tail goes on: no line stops it, and what is good around it arrives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regimescope.monitor import rows as rows_module
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store

HEADER = {
    "v": 1, "k": "header", "q": 0, "t": 1.0, "run": "r", "launch": "a", "start": "fresh", "role": "trainer", "rank": 0,
    "ranks": 1, "part": 0, "first_step": 0, "edges": {"demo": [-0.1, 0.1]},
    "bounds": {"pos": [0.8, 11.0], "neg": [0.0, "Infinity"]},
}  # fmt: skip
SEVEN = [1, 2, 3, 4, 5, 6, 7]
BUCKETS = dict.fromkeys(
    (
        "tokens", "clip_high", "clip_low", "clamped", "ratio_sum", "weight_sum", "abs_adv_weight_sum",
        "signed_adv_weight_sum", "entropy_sum", "logp_sum", "log_ratio_sum", "log_ratio_sq_sum", "entropy_effect_sum",
        "entropy_effect_tokens",
    ),
    SEVEN,
)  # fmt: skip
ID = "0199a3c4-7d1e-7000-8000-0000000000a1"
GOOD = [
    {"k": "scalars", "s": 1, "u": 0, "sl": {"env": "math"}, "m": {"x": 1.0, "y": [0.5, 8]}},
    {"k": "step", "s": 1, "m": {"x": "NaN"}},
    {"k": "buckets", "s": 1, "u": 0, "rev": 0, "bounds": HEADER["bounds"], **BUCKETS},
    {"k": "ratio_hist", "s": 1, "edges": "demo", "pos": {"i": [0], "n": [1], "r": [1.0], "a": [1.0], "ra": [1.0]}},
    {"k": "hist", "s": 1, "name": "length", "edges": "demo", "i": [2], "n": [1]},
    {"k": "event", "s": 1, "kind": "state", "data": {"state": "paused"}},
    {"k": "event", "kind": "checkpoint", "data": {"path": "x"}},
    {"k": "ack", "id": ID, "s": 1, "status": "applied", "rev": 1, "applied": HEADER["bounds"], "msg": ""},
    {"k": "end", "reason": "finished"},
    {"k": "command", "id": ID, "launch": "a", "by": "ana", "kind": "pause", "args": {}, "expect": 0,
     "not_after": 9.0, "why": ""},
    {"k": "mark", "id": ID, "by": "ana", "kind": "note", "alert": ID, "text": "hm", "until": 5},
]  # fmt: skip
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["NaN", "\ud800", "\0"]),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, object]:
    """A good line in which some values are something else."""
    line = {"v": 1, "q": 1, "t": 2.0, **draw(st.sampled_from(GOOD))}
    for key in draw(st.lists(st.sampled_from(sorted(line)), max_size=3)):
        line[key] = draw(JSON)
    return line


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(damaged(), max_size=6), role=st.sampled_from(["trainer", "monitor"]))
def test_no_line_stops_the_tail(shared: Store, lines, role: str) -> None:
    _tail(shared, [{**HEADER, "role": role}, *lines], [{"v": 1, "k": "event", "q": 9, "kind": "last"}], role)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(sorted(HEADER)), JSON, max_size=3))
def test_no_header_stops_the_tail(shared: Store, changes: dict[str, object]) -> None:
    _tail(
        shared,
        [{**HEADER, **changes}],
        [{"v": 1, "k": "header", "q": 1, "role": "monitor"}, {"v": 1, "k": "event", "q": 9, "kind": "last"}],
        "x",
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    """One index for all examples: opening one takes longer than an example."""
    store = Store.in_memory(tmp_path_factory.mktemp("fuzz"))
    yield store
    store.close()


def _tail(store: Store, lines: list[dict[str, object]], last: list[dict[str, object]], role: str) -> None:
    refused = any(isinstance(line.get("v"), int) and line["v"] > 1 for line in lines)
    folder = store.root / "run" / "segments"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    name = f"{'monitor' if role == 'monitor' else 'r00000'}-1-1-0000.jsonl"
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in [*lines, *last]))
    with store.cursor() as con:  # the run of the example before
        for table in ("run", "launch", "slice", "segment", "event", "mark", "command"):
            con.execute(f"DELETE FROM {table}").fetchall()
    Ingester(store, only=["run"]).catch_up()
    with store.cursor() as con:
        ((offset, why),) = con.execute("SELECT byte_offset, refused FROM segment").fetchall()
        arrived = con.execute("SELECT count(*) FROM event WHERE kind = 'last'").fetchall()[0][0]
    if refused and why:  # nothing behind the line that is too new is read
        assert offset <= (folder / name).stat().st_size
    else:
        assert offset == (folder / name).stat().st_size and arrived == 1 and why is None


@pytest.mark.parametrize("limit", [0, 1_000_000])
def test_few_and_many_rows_go_in_alike(root: Path, trainer, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    for name in ("ARROW_ROWS", "ARROW_IMPORT_ROWS", "ARROW_LISTS"):
        monkeypatch.setattr(rows_module, name, limit)  # 0: all through Arrow
    folder = root / "run" / "segments"
    folder.mkdir(parents=True)
    (folder / "r00000-1-1-0000.jsonl").write_text(
        "".join(json.dumps({"v": 1, "q": i, "t": 2.5, **line}) + "\n" for i, line in enumerate([HEADER, *GOOD[:-2]]))
    )
    store = Store.in_memory(root)
    Ingester(store).catch_up()
    with store.cursor() as con:
        assert con.execute(
            "SELECT name, update, value, weight, epoch(ts) FROM v_scalar WHERE isfinite(value) ORDER BY name"
        ).fetchall() == [
            ("x", 0, 1.0, 1.0, 2.5), ("y", 0, 0.5, 8.0, 2.5),
        ]  # fmt: skip
        assert con.execute("SELECT counts, abs_adv_ratio_sum FROM ratio_hist").fetchall() == [
            ([1, 0, 0], [1.0, 0.0, 0.0])
        ]
        assert con.execute("SELECT edges FROM hist_edges").fetchall() == [([-0.1, 0.1],)]
        assert con.execute("SELECT w_max FROM bucket_step WHERE bucket = 'R3'").fetchall() == [(float("inf"),)]
        assert con.execute("SELECT applied->>'$.neg[1]', revision FROM ack").fetchall() == [("Infinity", 1)]
        assert con.execute("SELECT kind FROM event ORDER BY kind").fetchall() == [("checkpoint",), ("state",)]
    store.close()
