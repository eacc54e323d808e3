"""Several ranks whose clocks, starts and ends differ: the detectors get each step once, in step order, complete where
it can be, and nothing depends on what a clock says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from regimescope.detectors import Suite
from regimescope.monitor import query
from regimescope.monitor.replay import LATE_S
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store

HOUR = 3600.0
CLOCKS = (0.0, 5 * HOUR, -3 * HOUR, 100 * HOUR)
"What the clock of each rank's host is off, seconds."


@dataclass
class Rank:
    """Writes the segment of one rank with a clock of its own."""

    root: Path
    rank: int
    ranks: int = 4
    launch: str = "a"
    first_step: int = 0
    ns: int = 100
    clocks: tuple[float, ...] = CLOCKS
    q: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        declared = {"run": "r", "launch": self.launch, "rank": self.rank, "ranks": self.ranks, "part": 0}
        self.write("header", 0.0, role="trainer", first_step=self.first_step, start="resume", **declared)

    def write(self, kind: str, now: float, /, **fields: object) -> None:
        path = self.root / f"run/segments/r{self.rank:05d}-{self.ns}-{self.rank + 1}-0000.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        t = 1790000000.0 + now + self.clocks[self.rank % len(self.clocks)]
        with path.open("a") as file:
            file.write(json.dumps({"v": 1, "k": kind, "q": self.q, "t": t, **fields}) + "\n")
        self.q += 1

    def step(self, step: int, accuracy: float = 0.5) -> None:
        """10 s a step."""
        self.write("step", 10.0 * step, s=step, m={"accuracy": [accuracy, 8 * (self.rank + 1)], "tokens": 100.0})


class Recording(Suite):
    """The real suite, which also keeps what it was given."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.given: list[tuple[int, dict[str, float]]] = []
        suites.append(self)

    def update(self, step, metrics, events=()):
        self.given.append((step, dict(metrics)))
        return super().update(step, metrics, events)

    def steps(self) -> list[int]:
        return [step for step, _ in self.given]


suites: list[Recording] = []


@pytest.fixture(autouse=True)
def recording(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    """Suites that are made from now on, in order."""
    suites.clear()
    monkeypatch.setattr("regimescope.monitor.replay.Suite", Recording)
    return suites


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monitor's own clock; set its one value."""
    clock = [1000.0]
    monkeypatch.setattr("regimescope.monitor.replay.time.monotonic", lambda: clock[0])
    return clock


def test_clocks_that_are_hours_apart_change_nothing(root: Path, tmp_path: Path, watch: Callable[..., Monitor]) -> None:
    given, ends = [], []
    for clocks in ((0.0,), CLOCKS):
        folder = tmp_path / f"root{len(clocks)}"
        live = Monitor(folder, store=Store.in_memory(folder))
        ranks = [Rank(folder, rank, clocks=clocks) for rank in range(4)]
        for step in range(12):
            for rank in (*ranks[2:], *ranks[:2]):
                rank.step(step, 0.1 * rank.rank)
            live.tick()
        given.append(suites[-1].given)
        ends.append(live._replayer.median_step_s(1))
        live.stop()
    assert given[0] == given[1] and suites[-1].steps() == list(range(12))
    assert given[0][0][1]["tokens"] == 400.0 and given[0][0][1]["accuracy.n"] == 80.0
    assert ends == [10.0, 10.0]


def test_a_resume_on_a_host_whose_clock_is_behind_supersedes_all_the_same(trainer, root: Path, monkeypatch) -> None:
    """The names of the files are in the order of the starts, whatever the clocks say, for the Recorder sees to it."""
    with trainer.open() as recorder:
        for step in range(6):
            trainer.step(recorder, step, accuracy=0.1)
    monkeypatch.setattr("regimescope.monitor.rivals.time.time_ns", lambda: 1_000_000_000)
    with trainer.open(launch="b", start="resume", first_step=3) as recorder:
        for step in range(3, 5):
            trainer.step(recorder, step, accuracy=0.9)
    monitor = Monitor(root, store=Store.in_memory(root))
    monitor.catch_up()
    with monitor.store.cursor() as con:
        found = con.execute("SELECT step, value FROM v_metric WHERE name = 'accuracy' ORDER BY step").fetchall()
        assert [run.launch_id for run in query.list_runs(con)] == ["b"]
    assert found == [(0, 0.1), (1, 0.1), (2, 0.1), (3, 0.9), (4, 0.9)]
    monitor.stop()


def test_a_rank_that_dies_holds_the_others_up_for_two_steps_at_most(root: Path, watch, now: list[float]) -> None:
    live = watch()
    ranks = [Rank(root, rank) for rank in range(4)]
    heads = []
    for step in range(10):
        for rank in ranks:
            if rank.rank != 1 or step < 3:
                rank.step(step)
        live.tick()
        heads.append(live.head(1).last)
    assert heads == [0, 1, 2, 2, 2, 3, 4, 5, 6, 7]
    now[0] += LATE_S + 1
    live.tick()
    assert live.head(1).last == 9
    assert suites[-1].steps() == list(range(10))
    assert [m["tokens"] for _, m in suites[-1].given] == [400.0] * 3 + [300.0] * 7


def test_a_rank_that_comes_five_steps_late_changes_the_tables_and_no_step_twice(root: Path, watch) -> None:
    live = watch()
    fast, slow = Rank(root, 0, 2), Rank(root, 1, 2)
    for step in range(12):
        fast.step(step)
        if step >= 5:
            slow.step(step - 5)
        live.tick()
    epoch = live.head(1).epoch
    for step in range(7, 12):
        slow.step(step)
        live.tick()
    live.tick()
    assert live.head(1).epoch != epoch  # a browser that has those steps reads them again
    assert suites[-1].steps() == list(range(12)) and len(suites) == 1
    assert [m["tokens"] for _, m in suites[-1].given] == [100.0] * 10 + [200.0] * 2
    with live.store.cursor() as con:
        found = con.execute("SELECT step, value FROM v_metric WHERE name = 'tokens' ORDER BY step").fetchall()
        assert found == [(step, 200.0) for step in range(12)]
        assert con.execute("SELECT count(*) FROM v_step WHERE NOT complete").fetchall() == [(0,)]
    again = watch()
    again.catch_up()
    assert suites[-1].steps() == list(range(12))


def test_a_backlog_is_told_when_all_its_files_are_read(root: Path, watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that starts late reads a part of each file a tick, and the files are not equally long."""
    monkeypatch.setattr("regimescope.monitor.segments.CHUNK_BYTES", 2_000)
    talkative, brief = Rank(root, 0, 2), Rank(root, 1, 2)
    later = [Rank(root, rank, 2, launch="b", first_step=30, ns=900) for rank in range(2)]
    for step in range(40):
        talkative.write("scalars", 0.0, s=step, m={f"m{i}": 1.0 for i in range(30)})
        talkative.step(step)
        brief.step(step)
    for step in range(30, 50):
        for rank in later:
            rank.step(step)
    live = watch()
    ticks = 0
    while live.tick():
        ticks += 1
    assert ticks > 5 and suites[-1].steps() == list(range(50))
    assert {m["tokens"] for _, m in suites[-1].given} == {200.0} and live.head(1).last == 49
    given = suites[-1].given
    again = watch()
    again.catch_up()
    assert suites[-1].given == given


def test_ranks_may_start_long_after_one_another(root: Path, watch) -> None:
    live = watch()
    first = Rank(root, 2, 3, ns=100)
    first.step(0)
    live.tick()
    assert live.head(1).last == -1  # the header says three ranks
    others = [Rank(root, 0, 3, ns=900), Rank(root, 1, 3, ns=50)]
    for rank in others:
        rank.step(0)
    live.tick()
    assert live.head(1).last == 0 and suites[-1].given[0][1]["tokens"] == 300.0
    with live.store.cursor() as con:
        assert con.execute("SELECT launch_no, ranks FROM launch").fetchall() == [(0, 3)]


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (1, 4), (4, 1)])
def test_a_resume_with_another_number_of_ranks(root: Path, watch, before: int, after: int) -> None:
    live = watch()
    for rank in range(before):
        writer = Rank(root, rank, before)
        for step in range(6):
            writer.step(step)
        live.tick()
    resumed = [Rank(root, rank, after, launch="b", first_step=4, ns=200) for rank in range(after)]
    for step in range(4, 9):
        for writer in resumed:
            writer.step(step)
        live.tick()
    expected = [100.0 * before] * 4 + [100.0 * after] * 5
    with live.store.cursor() as con:
        found = con.execute("SELECT value FROM v_metric WHERE name = 'tokens' ORDER BY step").fetchall()
        assert [value for (value,) in found] == expected
        assert con.execute("SELECT count(*), bool_and(complete) FROM v_step").fetchall() == [(9, True)]
    assert [m["tokens"] for _, m in suites[-1].given] == expected and suites[-1].steps() == list(range(9))


def test_a_late_number_that_comes_with_a_new_step_changes_the_epoch(root: Path, watch) -> None:
    live, rank = watch(), Rank(root, 0, 1)
    for step in range(3):
        rank.step(step)
        live.tick()
    epoch = live.head(1).epoch
    rank.step(3)
    live.tick()
    assert live.head(1).epoch == epoch
    rank.write("scalars", 40.0, s=1, m={"eval.accuracy": 0.4})
    rank.step(4)
    live.tick()
    assert live.head(1).epoch != epoch and live.head(1).last == 4
