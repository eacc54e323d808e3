"""An index that grew while the files did is the same as one made from the finished files, table by table: whatever the
chunks, the restarts and the order in which files appear.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.monitor import segments
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store

SEVEN = [3, 2, 5, 4, 1, 1, 2]
SUMS = (
    "ratio_sum", "weight_sum", "abs_adv_weight_sum", "signed_adv_weight_sum", "entropy_sum", "logp_sum",
    "log_ratio_sum", "log_ratio_sq_sum",
)  # fmt: skip
COUNTS = dict.fromkeys(("tokens", "clip_high", "clip_low", "clamped"), SEVEN)
BOUNDS = {"pos": [0.8, 11.0], "neg": [0.0, "Infinity"]}
ID = "0199a3c4-7d1e-7000-8000-0000000000{:02x}"


@dataclass
class File:
    """A segment in the making: its name below the root, its bytes, and how many of them have arrived."""

    name: str
    data: bytes = b""
    arrived: int = 0
    q: int = 0
    before: File | None = field(default=None, repr=False)
    "The part before it: a writer begins the next one when this one is complete."

    def line(self, kind: str, /, **fields: object) -> None:
        self.q += 1
        self.raw(json.dumps({"v": 1, "k": kind, "q": self.q, "t": 1000.0 + self.q, **fields}).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        self.data += data


def trainer(run: str, rank: int, ns: int, launch: str, **more: object) -> File:
    file = File(f"{run}/segments/r{rank:05d}-{ns}-{10 + rank}-0000.jsonl")
    header(file, rank=rank, launch=launch, **more)
    return file


def header(file: File, **more: object) -> None:
    declared = {
        "run": "r", "name": f"name {more['launch']} {more['rank']}", "role": "trainer", "ranks": 2, "part": 0,
        "first_step": 0, "start": "fresh", "objective": "dispo", "ratio_source": "behaviour", "bounds": BOUNDS,
        "edges": {"demo": [-0.1, 0.1]}, "config": {"rank": more["rank"]}, **more,
    }  # fmt: skip
    line = {"v": 1, "k": "header", "q": file.q, "t": 900.0 + 10 * file.q, **declared}
    file.raw(json.dumps(line).encode() + b"\n")


def next_part(file: File, **more: object) -> File:
    """The file that goes on where this one ends."""
    part = File(file.name.replace("-0000.jsonl", "-0001.jsonl"), q=file.q, before=file)
    header(part, part=1, **more)
    return part


def step(file: File, s: int, rank: int) -> None:
    """All lines of a step."""
    env = ("math", "code", "chess")[s % 3]
    file.line("scalars", s=s, u=0, m={"grad_norm": 0.5 + s, "kl_ref": "NaN"})
    file.line("buckets", s=s, u=0, rev=0, bounds=BOUNDS, **COUNTS, **dict.fromkeys(SUMS, [1.5] * 7))
    file.line("scalars", s=s, sl={"env": env}, m={f"only_{env}": [0.5, 8]})
    side = {"i": [0, 2], "n": [4, 6], "r": [1.0, 9.0], "a": [1.0, 2.0], "ra": [1.0, 3.0]}
    file.line("ratio_hist", s=s, edges="demo", pos=side)
    file.line("hist", s=s, name="response_length", edges="demo", i=[rank % 3], n=[16])
    if s == 1:
        file.line("event", s=s, kind="state", data={"state": "paused"})
        file.line("event", s=s, kind="state", data={"state": "paused"})
        file.line("event", s=s, kind="state", data={"state": "running"})
        file.line("event", s=s, kind="checkpoint", data={"path": "c1"})
        file.line("ack", id=ID.format(rank), s=s, status="applied", rev=1, applied=BOUNDS, msg="")
    file.line("step", s=s, m={"accuracy": [0.5, 16], "reward_mean": -0.1 * s})


def history(run: str) -> list[File]:
    """Everything that can happen to a run: two ranks, parts, losses told and untold, bad lines of all kinds, a kind of
    tomorrow, a resume, a launch id taken twice, a file of a newer version, people.
    """
    a0, a1 = trainer(run, 0, 100, "a"), trainer(run, 1, 99, "a", ranks=2, objective="other", first_step=3)
    for s in range(4):
        step(a0, s, 0)
        if s == 2:
            a1.q += 4  # a hole that is announced, with the line behind it
            a1.line("event", kind="dropped", data={"records": 4, "reason": "queue full"})
        step(a1, s, 1)
    a0.raw(b"no json\n\xff\xfe\n")
    a0.q += 3  # two bad lines took numbers up, one record is missing
    a0.line("weather", wind="Infinity", s=3)
    a0.raw(b"".join(b"garbage %d\n" % i for i in range(15)))
    a0.raw(b'{"v":1,"k":"step","q":999,"s":9,"m":{"x":"' + b"y" * 5000 + b'"}}\n')
    a0p = next_part(a0, rank=0, launch="a")
    step(a0p, 4, 0)
    a0p.line("end", reason="error")
    a1.line("end", reason="stopped")
    b0, b1 = (trainer(run, r, 200 + r, "b", start="resume", first_step=3) for r in (0, 1))
    for s in range(3, 6):
        step(b0, s, 0)
        step(b1, s, 1)
    b0.line("event", s=4, kind="second_writer", data={"rank": 0, "other": "x"})
    b0.line("rollouts", s=5, file="rollouts/missing.parquet", rows=3)
    b0.line("rollouts", s=5, file="rollouts/r.parquet", rows=3)
    again = trainer(run, 0, 300, "b", first_step=5)
    step(again, 5, 0)
    again.line("step", s=6, m={})
    again.raw(b'{"v":1,"k":"step","q":')  # torn
    newer = trainer(run, 1, 301, "b", first_step=5)
    newer.raw(b'{"v":2,"k":"step"}\n')
    step(newer, 5, 1)
    people = File(f"{run}/segments/monitor-150-9-0000.jsonl")
    people.raw(b'{"v":1,"k":"header","q":0,"t":1.0,"run":"r","role":"monitor","part":0}\n')
    wanted = {"launch": "a", "by": "ana", "expect": 0, "not_after": 9.0, "why": "", "args": BOUNDS}
    people.line("command", id=ID.format(0), kind="set_bounds", **wanted)
    people.line("mark", id=ID.format(9), by="ana", kind="note", text="hm")
    return [a0, a1, a0p, b0, b1, again, newer, people]


def arrive(root: Path, file: File, count: int) -> None:
    """The next bytes of a file."""
    path = root / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as out:
        out.write(file.data[file.arrived : file.arrived + count])
    file.arrived += count


def rebuilt(root: Path) -> Store:
    store = Store.in_memory(root)
    Ingester(store).catch_up()
    return store


@pytest.fixture
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and longest lines of some kB, so that a short history has many and too long ones."""
    monkeypatch.setattr(segments, "CHUNK_BYTES", 1500)
    monkeypatch.setattr(segments, "MAX_LINE_BYTES", 3000)


@pytest.mark.usefixtures("small_reads")
@pytest.mark.parametrize("seed", range(8))
def test_however_the_files_grow_the_index_is_that_of_the_finished_files(
    seed: int, root: Path, differing, rollout_file: Callable[..., object]
) -> None:
    chance = random.Random(seed)
    files = [*history("one"), *history("group/two")]
    for run in ("one", "group/two"):
        rollout_file(root / run, "rollouts/r.parquet", 3)
    store = Store.in_memory(root)
    ingester = Ingester(store)
    growing = files[:]
    while growing:
        # Half of the time the oldest file that still grows, so that orders near the usual one come up as well.
        file = growing[0] if chance.random() < 0.5 else chance.choice(growing)
        if file.before is not None and file.before in growing:
            file = file.before
        arrive(root, file, chance.choice([1, 40, 700, 5000]))
        if file.arrived >= len(file.data):
            growing.remove(file)
        if chance.random() < 0.5:
            ingester.tick()
        if chance.random() < 0.1:
            ingester = Ingester(store)  # the monitor was killed: what it knew is what stands in the index
    ingester.catch_up()
    ingester.catch_up()
    once = rebuilt(root)
    assert differing(store, once) == {}
    with once.cursor() as con:  # or equal for want of content
        sql = "SELECT table_name FROM duckdb_tables() WHERE estimated_size = 0"
        empty = {name for (name,) in con.execute(sql).fetchall()}
        assert empty <= {"alert", "metric_source", "compaction"}  # of the detectors, of imports, of an idle monitor
        kinds = {k for (k,) in con.execute("SELECT DISTINCT kind FROM event").fetchall()}
        assert kinds >= {
            "bad_line", "lost", "dropped", "duplicate_rank", "second_writer", "segment_refused", "rollouts_unreadable",
            "wire:weather", "state", "checkpoint",
        }  # fmt: skip
        assert con.execute("SELECT launch_id FROM launch WHERE run_key = 1 ORDER BY launch_no").fetchall() == [
            ("a",), ("b",), ("b",),
        ]  # fmt: skip
    once.close()
    store.close()


@pytest.mark.usefixtures("small_reads")
def test_the_size_of_the_chunks_does_not_matter(root: Path, differing, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in history("run"):
        arrive(root, file, len(file.data))
    small = rebuilt(root)
    monkeypatch.setattr(segments, "CHUNK_BYTES", 4 << 20)
    large = rebuilt(root)
    assert differing(small, large) == {}
    small.close()
    large.close()


def test_alerts_and_all_else_of_a_watched_run_are_those_of_a_rebuild(root: Path, trainer, differing) -> None:
    live = Monitor(root, store=Store.in_memory(root))
    with trainer.open() as recorder:
        for s in range(40):
            trainer.step(recorder, s, **trainer.collapsing(s))
            recorder.scalars(s, {"accuracy": 0.25}, slice=("env", "math"))
            if s % 4 == 0:
                live.tick()
    with trainer.open(launch="b", start="resume", first_step=25) as recorder:
        for s in range(25, 40):
            trainer.step(recorder, s)
            live.tick()
    live.catch_up()
    again = Monitor(root, store=Store.in_memory(root))
    again.catch_up()
    assert differing(live.store, again.store) == {}
    with again.store.cursor() as con:
        assert con.execute("SELECT count(*) > 1 FROM alert").fetchall() == [(True,)]
    live.stop()
    again.stop()


STARTS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(starts=STARTS)
def test_of_any_resumes_and_rollbacks_one_launch_counts_at_each_step(
    tmp_path_factory: pytest.TempPathFactory, starts: list[tuple[int, int]]
) -> None:
    """starts: first step of each launch (no later than the one after the last that was done), and its length."""
    root = tmp_path_factory.mktemp("launches")
    counts: dict[int, int] = {}
    done = 0
    for number, (wanted, length) in enumerate(starts):
        first = min(wanted, done) if number else 0
        file = File(f"run/segments/r00000-{100 + number}-1-0000.jsonl")
        # A rollback does not always name its launch anew: every other start has the id of the one before.
        header(file, rank=0, ranks=1, launch=f"l{number // 2}", first_step=first, start="rollback")
        for s in range(first, first + length):
            file.line("step", s=s, m={"launch": number})
        arrive(root, file, len(file.data))
        counts = {s: n for s, n in counts.items() if s < first} | dict.fromkeys(range(first, first + length), number)
        done = first + length
    store = rebuilt(root)
    with store.cursor() as con:
        found = con.execute("SELECT step, value FROM v_metric WHERE name = 'launch' ORDER BY step").fetchall()
        per_rank = con.execute("SELECT step, count(*) FROM v_scalar GROUP BY step").fetchall()
    assert found == sorted(counts.items())
    assert all(count == 1 for _, count in per_rank)
    store.close()


@pytest.mark.usefixtures("small_reads")
@pytest.mark.parametrize("seed", range(6))
def test_files_with_a_broken_header_or_a_strange_name_end_no_differently(seed: int, root: Path, differing) -> None:
    """A header that comes late, in a later part only, or in a file that has no place in the order."""
    chance = random.Random(seed)
    broken = File("run/segments/r00000-100-1-0000.jsonl", b'{"v":1,"k":"header","q":0,"role":"trainer"}\n')
    for s in range(20):
        step(broken, s, 0)
    part = next_part(broken, rank=0, ranks=1, launch="a")
    step(part, 20, 0)
    later = trainer("run", 0, 200, "b", ranks=1, first_step=5)
    for s in range(5, 9):
        step(later, s, 0)
    strange = [File(f"run/segments/{name}.jsonl") for name in ("notes", "segment", "r1-2")]
    for number, file in enumerate(strange):
        header(file, rank=0, ranks=1, launch=f"s{number}", first_step=8)
        step(file, 8, 0)
    store = Store.in_memory(root)
    ingester = Ingester(store)
    growing = [broken, part, later, *strange]
    while growing:
        file = chance.choice(growing)
        if file.before in growing:
            file = broken
        arrive(root, file, chance.choice([200, 3000]))
        if file.arrived >= len(file.data):
            growing.remove(file)
        ingester.tick()
    ingester.catch_up()
    once = rebuilt(root)
    assert differing(store, once) == {}
    with once.cursor() as con:
        assert con.execute("SELECT count(*) FROM launch").fetchall() == [(5,)]
        assert con.execute("SELECT sum(bad_lines) >= 100 FROM segment").fetchall() == [(True,)]
    once.close()
    store.close()
