"""Runs written by the real Recorder, for the tests of the store: short, synthetic, with a collapse on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regimescope.monitor.bounds import Bounds, Limits, SignBounds, WeightRule
from regimescope.monitor.record import Recorder
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.token_stats import TokenStats

DISPO = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
CAN = ("set_bounds", "pause", "resume", "stop", "checkpoint")


def stats(scale: int = 1, *, r4_clipped: int = 0) -> TokenStats:
    """Seven buckets of plain numbers; R4 holds 400 tokens, of which some are clipped low."""
    tokens = tuple(scale * n for n in (300, 280, 500, 400, 40, 60, 120))
    sums = tuple(float(n) for n in tokens)
    zero = (0.0,) * 7
    return TokenStats(
        tokens=tokens,
        clip_high=(scale * 6, 0, 0, 0, 0, 0, 0),
        clip_low=(0, 0, 0, scale * r4_clipped, 0, 0, 0),
        clamped=(0,) * 7,
        ratio_sum=sums,
        weight_sum=sums,
        abs_adv_weight_sum=(*sums[:6], 0.0),
        signed_adv_weight_sum=zero,
        entropy_sum=sums,
        logp_sum=tuple(-x for x in sums),
        log_ratio_sum=zero,
        log_ratio_sq_sum=zero,
    )


def collapsing(step: int) -> dict[str, float]:
    """Metrics of a run whose responses shrink to nothing from step 20 on."""
    if step < 20:
        return {"length": 35.0 + (step % 3), "accuracy": 0.5 + 0.01 * (step % 4)}
    return {"length": max(1.0, 35.0 - 6.0 * (step - 19)), "accuracy": max(0.0, 0.5 - 0.1 * (step - 19))}


@dataclass
class Trainer:
    """Writes the rows of a run as a trainer would, without training."""

    run_dir: Path
    bounds: Bounds = DISPO
    revision: int = 0
    options: dict[str, object] = field(default_factory=dict)

    stats = staticmethod(stats)
    collapsing = staticmethod(collapsing)

    def open(self, **options: object) -> Recorder:
        """A recorder for one launch of one rank."""
        given: dict[str, object] = {
            "name": "test", "objective": "dispo", "framework": "regimescope", "rule": WeightRule.capped(self.bounds),
            "limits": Limits(), "can": CAN, "sync": True, "launch": "launch-a", "revision": self.revision,
            **self.options, **options,
        }  # fmt: skip
        return Recorder(self.run_dir, **given)  # type: ignore[arg-type]

    def step(self, recorder: Recorder, step: int, **metrics: float) -> None:
        """One step with one update. A collapse at step c: length falls to 3 tokens, accuracy to nothing."""
        recorder.buckets(step, 0, stats(), revision=self.revision, bounds=self.bounds)
        length, accuracy = metrics.pop("length", 35.0), metrics.pop("accuracy", 0.5)
        values: dict[str, float | tuple[float, float]] = {
            "accuracy": (accuracy, 256.0),
            "reward_mean": (2 * accuracy - 1, 256.0),
            "response_length_mean": (length, 256.0),
            "entropy_mean": (0.8, 2000.0),
            "lag_mean": (0.0, 2000.0),
            **metrics,
        }
        recorder.step(step, values)


Differing = Callable[[Store, Store], dict[str, tuple[int, int, list[str]]]]

_NAMED = {
    "run_key": "(SELECT r.path FROM run r WHERE r.run_key = {t}.run_key)",
    "metric_id": "(SELECT m.name FROM metric m WHERE m.metric_id = {t}.metric_id)",
    "edges_id": "(SELECT e.name || e.edges::VARCHAR FROM hist_edges e WHERE e.edges_id = {t}.edges_id)",
    "slice_id": """(SELECT s.kind || '=' || s.value FROM slice s
                    WHERE s.run_key = {t}.run_key AND s.slice_id = {t}.slice_id)""",
}
"Numbers that the index gives in order of arrival, and what they name."


def _contents(store: Store) -> dict[str, Counter[str]]:
    """Every table of the index as a bag of rows, so that a new table cannot be forgotten."""
    found = {}
    with store.cursor() as con:
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall():
            columns = con.execute(
                """SELECT column_name, data_type FROM duckdb_columns()
                   WHERE table_name = ? AND column_name <> 'created_at'""",
                [table],
            ).fetchall()
            wanted = [
                _NAMED.get(name, f"epoch_us({name})" if kind == "TIMESTAMP WITH TIME ZONE" else f'"{name}"').format(
                    t=table
                )
                for name, kind in columns
            ]
            found[table] = Counter(map(repr, con.execute(f"SELECT {', '.join(wanted)} FROM {table}").fetchall()))
    return found


@pytest.fixture
def differing() -> Differing:
    """Tables of two indexes that are not the same row by row: rows here, rows there, some that only one of them has."""

    def compare(one: Store, other: Store) -> dict[str, tuple[int, int, list[str]]]:
        a, b = _contents(one), _contents(other)
        assert a.keys() == b.keys() and len(a) > 15
        return {t: (a[t].total(), b[t].total(), list((a[t] - b[t]) + (b[t] - a[t]))[:4]) for t in a if a[t] != b[t]}

    return compare


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty root, with a cache folder of its own."""
    monkeypatch.setenv("REGIMESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("REGIMESCOPE_ROOT", raising=False)
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def trainer(root: Path) -> Trainer:
    """The trainer of root/run."""
    return Trainer(root / "run")


@pytest.fixture
def collapsed(trainer: Trainer) -> Trainer:
    """40 steps, dead from step 20 on, finished."""
    with trainer.open() as recorder:
        for step in range(40):
            trainer.step(recorder, step, **collapsing(step))
        recorder.end("finished")
    return trainer


@pytest.fixture
def watch(root: Path) -> Iterator[Callable[..., Monitor]]:
    """Makes monitors over the root with a private index, stopped at the end of the test."""
    made: list[Monitor] = []

    def make(**options: object) -> Monitor:
        monitor = Monitor(root, **{"store": Store.in_memory(root), **options})  # type: ignore[arg-type]
        made.append(monitor)
        return monitor

    yield make
    for monitor in made:
        monitor.stop()


_LISTS = {
    "token_ids": pa.int32(), "logp_old": pa.float32(), "logp_new": pa.float32(), "entropy": pa.float32(),
    "weight": pa.float32(), "bucket": pa.uint8(),
}  # fmt: skip
_ROLLOUTS = pa.schema(
    [
        ("sample_id", pa.int64()), ("group_id", pa.int64()), ("env", pa.string()), ("prompt", pa.string()),
        ("response", pa.string()), ("reward", pa.float64()), ("advantage", pa.float64()), ("correct", pa.bool_()),
        ("length", pa.int32()), ("finish_reason", pa.string()), ("repetition", pa.float64()), ("update", pa.int16()),
        ("revision", pa.int64()), ("weight_version", pa.int64()), ("lag", pa.int32()), ("pick", pa.string()),
        *((name, pa.list_(kind)) for name, kind in _LISTS.items()),
    ]
)  # fmt: skip


def _rollout_table(count: int, **columns: list[object]) -> pa.Table:
    """Rows of four tokens as the format has them, some columns as given."""
    row = {
        "sample_id": 0, "group_id": 0, "env": "math", "prompt": "2+2=", "response": "4", "reward": 1.0,
        "advantage": 0.5, "correct": True, "length": 4, "finish_reason": "eos", "repetition": 0.0, "update": 0,
        "revision": 1, "weight_version": 40, "lag": 2, "pick": "random", "token_ids": [1, 2, 3, 4],
        "logp_old": [-0.5] * 4, "logp_new": [-0.25] * 4, "entropy": [0.5] * 4, "weight": [1.0] * 4,
        "bucket": [0, 1, 4, 6],
    }  # fmt: skip
    made: dict[str, list[object]] = {name: [value] * count for name, value in row.items()}
    made["sample_id"] = list(range(count))
    return pa.table({**made, **columns}, schema=_ROLLOUTS)


@pytest.fixture(scope="session")
def rollout_table() -> Callable[..., pa.Table]:
    """Makes the table of a rollouts file."""
    return _rollout_table


@pytest.fixture
def rollout_file() -> Callable[..., pa.Table]:
    """Writes a rollouts file below a run folder and returns its table."""

    def write(run: Path, name: str, count: int, **columns: list[object]) -> pa.Table:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        table = _rollout_table(count, **columns)
        pq.write_table(table, run / name, compression="zstd")
        return table

    return write
