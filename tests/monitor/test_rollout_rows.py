"""Rollouts, asked for: conditions and order, the group of one, its texts and tokens, and a file that has gone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regimescope.monitor import query
from regimescope.monitor.errors import RolloutError
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.rollout_reader import rollout_contents, rollout_tokens
from regimescope.monitor.rollouts import Rollout, RolloutOptions
from regimescope.monitor.store import Store

DOCS = Path(__file__).parents[2] / "docs" / "queries.md"


@pytest.fixture
def store(root: Path):
    made = Store.in_memory(root)
    yield made
    made.close()


def name_of(step: int, rank: int = 0, ns: int = 100) -> str:
    return f"rollouts/s{step:08d}-r{rank:05d}-{ns}.parquet"


def segment(
    run: Path, steps: dict[int, int], *, rank: int = 0, launch: str = "a", ns: int = 100, first: int = 0
) -> None:
    """Lines of the files of these steps, with their number of rows."""
    folder = run / "segments"
    folder.mkdir(parents=True, exist_ok=True)
    header = {
        "k": "header", "run": "r", "launch": launch, "start": "fresh", "role": "trainer", "rank": rank, "ranks": 2,
        "part": 0, "first_step": first,
    }  # fmt: skip
    lines = [{"k": "rollouts", "s": s, "file": name_of(s, rank, ns), "rows": n} for s, n in steps.items()]
    text = "".join(json.dumps({"v": 1, "q": q, **line}) + "\n" for q, line in enumerate([header, *lines]))
    (folder / f"r{rank:05d}-{ns}-1-0000.jsonl").write_text(text)


@pytest.fixture
def asked(root: Path, store: Store, rollout_file: Callable) -> Callable[..., list[query.RolloutRow]]:
    """Two steps of two ranks, and how they are asked for."""
    run = root / "run"
    rollout_file(run, name_of(0), 3, reward=[0.5, math.nan, None], length=[4, 9, 1], correct=[True, False, None],
                 group_id=[1, 1, 2], pick=["best", "worst", "random"])  # fmt: skip
    rollout_file(run, name_of(0, 1), 1, reward=[0.75], group_id=[1], env=["code"], finish_reason=["length"])
    rollout_file(run, name_of(5), 2, reward=[-math.inf, 0.0], repetition=[None, 0.5], group_id=[1, None])
    segment(run, {0: 3, 5: 2})
    segment(run, {0: 1}, rank=1)
    Ingester(store).catch_up()

    def ask(**conditions: object) -> list[query.RolloutRow]:
        with store.cursor() as con:
            return query.rollouts(con, 1, **conditions)  # type: ignore[arg-type]

    return ask


def places(rows: list[query.RolloutRow]) -> list[tuple[int, int, int]]:
    return [(r.step, r.rank, r.row_in_file) for r in rows]


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({}, [(5, 0, 0), (5, 0, 1), (0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)]),
        ({"steps": (1, None)}, [(5, 0, 0), (5, 0, 1)]),
        ({"steps": (None, 4), "env": "math"}, [(0, 0, 0), (0, 0, 1), (0, 0, 2)]),
        ({"steps": (6, 2)}, []),
        ({"env": "code"}, [(0, 1, 0)]),
        ({"env": "x' OR true --"}, []),
        ({"correct": False}, [(0, 0, 1)]),
        ({"pick": "best"}, [(0, 0, 0)]),
        ({"finish_reason": "length"}, [(0, 1, 0)]),
        ({"min_length": 5}, [(0, 0, 1)]),
        ({"sort": "-reward"}, [(0, 0, 1), (0, 1, 0), (0, 0, 0), (5, 0, 1), (5, 0, 0), (0, 0, 2)]),
        ({"sort": "reward", "limit": 2}, [(5, 0, 0), (5, 0, 1)]),
        ({"sort": "length", "steps": (0, 0), "limit": 1}, [(0, 0, 2)]),
        ({"sort": "-repetition", "limit": 1}, [(5, 0, 1)]),
        ({"limit": 0}, []),
    ],
)
def test_conditions_and_order(asked: Callable, conditions: dict[str, object], found: list[object]) -> None:
    assert places(asked(**conditions)) == found


@pytest.mark.parametrize("wrong", [{"sort": "file"}, {"sort": "--step"}, {"sort": ""}, {"limit": -1}])
def test_another_order_is_refused(asked: Callable, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="want one of step"):
        asked(**wrong)


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({}, [(5, 0, 0), (5, 0, 1), (0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)]),
        ({"judged": False}, [(0, 0, 2)]),
        ({"judged": True, "steps": (0, 0)}, [(0, 0, 0), (0, 0, 1), (0, 1, 0)]),
        ({"sign": 1, "steps": (0, 0)}, [(0, 0, 0), (0, 1, 0)]),
        ({"sign": -1}, [(5, 0, 0)]),
        ({"sign": 0}, [(5, 0, 1)]),
        ({"max_length": 4, "min_length": 2, "steps": (0, 0)}, [(0, 0, 0), (0, 1, 0)]),
        ({"min_repetition": 0.5}, [(5, 0, 1)]),
        ({"rank": 1}, [(0, 1, 0)]),
        ({"sample_id": 1, "rank": 0}, [(5, 0, 1), (0, 0, 1)]),
    ],
)
def test_filters_and_their_count(
    root: Path, store: Store, rollout_file: Callable, conditions: dict[str, object], found: list[object]
) -> None:
    run = root / "run"
    rollout_file(run, name_of(0), 3, length=[4, 9, 1], correct=[True, False, None], advantage=[0.5, math.nan, None])
    rollout_file(run, name_of(0, 1), 1)
    rollout_file(run, name_of(5), 2, repetition=[None, 0.5], advantage=[-0.5, 0.0])
    segment(run, {0: 3, 5: 2})
    segment(run, {0: 1}, rank=1)
    Ingester(store).catch_up()
    wanted = query.RolloutFilter(**conditions)  # type: ignore[arg-type]
    with store.cursor() as con:
        assert places(query.rollouts_where(con, 1, wanted)) == found
        assert query.rollout_count(con, 1, wanted) == len(found)


def test_what_the_filters_can_choose_from(asked: Callable, store: Store) -> None:
    with store.cursor() as con:
        facets = query.rollout_facets(con, 1)
        none = query.rollout_facets(con, 7)
    assert (facets.count, facets.steps, facets.envs, facets.longest) == (6, (0, 5), ("code", "math"), 9)
    assert facets.finish_reasons == ("eos", "length")
    assert none == query.RolloutFacets(count=0, steps=(), envs=(), finish_reasons=(), longest=0)


def test_contents_of_several_rows_cost_one_look(root: Path, store: Store, rollout_file: Callable) -> None:
    run = root / "run"
    rollout_file(run, name_of(0), 3, response=["a", "b", "c"])
    segment(run, {0: 3})
    Ingester(store).catch_up()
    with store.cursor() as con:
        rows = query.rollouts(con, 1)
    assert [c.response for c in rollout_contents(run, rows[::2], ("response",))] == ["a", "c"]
    assert rollout_contents(run, rows, ("weight",))[0].weight == (1.0,) * 4
    assert rollout_contents(run, rows, ("tokens",))[0].tokens is None, "an older file has no such column"
    with pytest.raises(RolloutError, match="another one"):
        rollout_contents(run, [replace(rows[0], sample_id=7)], ("response",))
    with pytest.raises(RolloutError, match="another one"):
        rollout_contents(run, [replace(rows[0], row_in_file=7)], ("response",))


def test_a_group_is_of_one_step_and_all_ranks(asked: Callable, store: Store) -> None:
    rows = {(r.step, r.rank, r.row_in_file): r for r in asked()}
    with store.cursor() as con:
        assert places(query.rollout_group(con, 1, rows[0, 0, 0])) == [
            (0, 0, 1),
            (0, 1, 0),
            (0, 0, 0),
        ]  # NaN is shown first
        assert places(query.rollout_group(con, 1, rows[5, 0, 0])) == [(5, 0, 0)]
        assert query.rollout_group(con, 1, rows[5, 0, 1]) == [rows[5, 0, 1]]  # no group


def test_what_a_later_launch_repeated_is_left_out(asked: Callable, root: Path, store: Store, rollout_file) -> None:
    rollout_file(root / "run", name_of(5, ns=200), 1, reward=[1.0])
    segment(root / "run", {5: 1}, launch="b", ns=200, first=3)
    Ingester(store).catch_up()
    assert [(r.step, r.launch_no, r.reward) for r in asked(steps=(3, None))] == [(5, 1, 1.0)]
    assert len(asked()) == 5


def test_texts_and_tokens_come_from_the_file(root: Path, store: Store, rollout_table) -> None:
    run = root / "run"
    odd = [math.nan, math.inf, -math.inf, 0.5]
    table = rollout_table(
        5, prompt=[f"p{i}" for i in range(5)], response=[None, "<b>\x1b[31m", "", "ü", "4"], logp_new=[odd] * 5,
        entropy=[None] * 5, token_ids=[[i, 2, 3, 4] for i in range(5)],
    )  # fmt: skip
    (run / "rollouts").mkdir(parents=True)
    pq.write_table(table, run / name_of(0), row_group_size=2, compression="zstd")
    segment(run, {0: 5})
    Ingester(store).catch_up()
    with store.cursor() as con:
        rows = sorted(query.rollouts(con, 1), key=lambda r: r.row_in_file)
    found = [rollout_tokens(run, row) for row in rows]
    assert [t.prompt for t in found] == [f"p{i}" for i in range(5)]
    assert [t.response for t in found] == [None, "<b>\x1b[31m", "", "ü", "4"]
    assert [t.token_ids[0] for t in found] == [0, 1, 2, 3, 4]
    assert [str(x) for x in found[4].logp_new] == ["nan", "inf", "-inf", "0.5"] and found[4].entropy is None
    assert found[0].bucket == (0, 1, 4, 6) and found[0].weight == (1.0,) * 4 and found[0].logp_old == (-0.5,) * 4


def gone(run: Path, table: pa.Table) -> str:
    (run / name_of(0)).unlink()
    return "is not there"


def link(run: Path, table: pa.Table) -> str:
    (run / name_of(0)).rename(run / "other.parquet")
    (run / name_of(0)).symlink_to(run / "other.parquet")
    return "is a link"


def others(run: Path, table: pa.Table) -> str:
    pq.write_table(table.set_column(0, "sample_id", pa.array([7, 8])), run / name_of(0))
    return "no longer the file that was read: row 1"


def fewer(run: Path, table: pa.Table) -> str:
    pq.write_table(table.slice(0, 1), run / name_of(0))
    return "no longer the file that was read: row 1"


def no_arrays(run: Path, table: pa.Table) -> str:
    pq.write_table(table.drop_columns(["bucket"]), run / name_of(0))
    return "no column 'bucket'"


def uneven(run: Path, table: pa.Table) -> str:
    at = table.schema.get_field_index("weight")
    pq.write_table(table.set_column(at, "weight", pa.array([[1.0]] * 2, pa.list_(pa.float32()))), run / name_of(0))
    return "arrays of different lengths"


def no_bucket(run: Path, table: pa.Table) -> str:
    at = table.schema.get_field_index("bucket")
    pq.write_table(table.set_column(at, "bucket", pa.array([[0, 1, 2, 7]] * 2, pa.list_(pa.uint8()))), run / name_of(0))
    return "a bucket beyond the 7"


def torn(run: Path, table: pa.Table) -> str:
    (run / name_of(0)).write_bytes((run / name_of(0)).read_bytes()[:-9])
    return "no Parquet file that can be read"


@pytest.mark.parametrize(
    "damage", [gone, link, others, fewer, no_arrays, uneven, no_bucket, torn], ids=lambda f: f.__name__
)
def test_what_is_no_longer_what_was_read_is_said(damage: Callable, root: Path, store: Store, rollout_file) -> None:
    table = rollout_file(root / "run", name_of(0), 2)
    segment(root / "run", {0: 2})
    Ingester(store).catch_up()
    with store.cursor() as con:
        row = query.rollouts(con, 1)[1]
    assert rollout_tokens(root / "run", row).prompt == "2+2="
    said = damage(root / "run", table)
    with pytest.raises(RolloutError, match=said):
        rollout_tokens(root / "run", row)


def test_what_a_recorder_kept_comes_back(trainer, store: Store) -> None:
    given = [
        Rollout(
            sample_id=i, length=2 + i, group_id=i // 2, env="math", prompt=f"p{i}", response="r", reward=0.25 * i,
            correct=i > 1, finish_reason="eos", token_ids=tuple(range(2 + i)), logp_old=(-0.5,) * (2 + i),
            weight=(math.inf,) * (2 + i), bucket=(6,) * (2 + i),
        )
        for i in range(4)
    ]  # fmt: skip
    with trainer.open(rollouts=RolloutOptions(every=1, limit=4)) as recorder:
        recorder.rollouts(7, given, update=1)
        trainer.step(recorder, 7)
    Ingester(store).catch_up()
    with store.cursor() as con:
        rows = sorted(query.rollouts(con, 1), key=lambda r: r.sample_id)
        assert query.events(con, 1) == []
    assert [(r.sample_id, r.length, r.group_id, r.reward, r.correct) for r in rows] == [
        (g.sample_id, g.length, g.group_id, g.reward, g.correct) for g in given
    ]
    assert {r.pick for r in rows} == {"worst", "best", "random"} and {(r.step, r.update) for r in rows} == {(7, 1)}
    for row, rollout in zip(rows, given, strict=True):
        tokens = rollout_tokens(trainer.run_dir, row)
        assert (tokens.prompt, tokens.response, tokens.token_ids) == (rollout.prompt, "r", rollout.token_ids)
        assert (tokens.logp_old, tokens.weight, tokens.bucket) == (rollout.logp_old, rollout.weight, rollout.bucket)
        assert tokens.logp_new is None and tokens.entropy is None


def test_the_python_of_the_docs_runs(trainer, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    trainer.run_dir = root / "runs" / "my-run"
    answers = [Rollout(sample_id=i, length=1, group_id=3, response="4", correct=i == 1) for i in range(2)]
    with trainer.open(edges={"len": [1.0, 2.0]}, rollouts=RolloutOptions()) as recorder:
        recorder.rollouts(100, answers)
        for step in range(100, 103):
            recorder.hist(step, "response_length", [1, 2, 3], "len")
            trainer.step(recorder, step)
    monkeypatch.chdir(root)
    found: dict[str, object] = {}
    exec(code, found)
    assert found["length"].counts == (3, 6, 9) and found["tokens"].response == "4"  # type: ignore[attr-defined]
    assert len(found["seven"]) == 21 and len(found["group"]) == 2  # type: ignore[arg-type]
