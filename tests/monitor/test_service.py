"""The monitor of a root: commands and marks go out, answers come back, and nobody is asked who cannot answer."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from regimescope.monitor import query, replay
from regimescope.monitor.bounds import Bounds, Limits, SignBounds
from regimescope.monitor.control import Ack, ControlFolder
from regimescope.monitor.errors import ControlError
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store

NEW = {"pos": [0.8, 5.0], "neg": [0.0, 101.0]}


@pytest.fixture
def running(trainer):
    """A run of three steps that is still open, with its control folder."""
    with trainer.open() as recorder:
        for step in range(3):
            trainer.step(recorder, step)
        folder = ControlFolder(trainer.run_dir, launch="launch-a", can=("set_bounds", "pause"), limits=Limits())
        yield trainer, recorder, folder


def commands(monitor: Monitor) -> list[query.CommandRow]:
    with monitor.store.cursor() as con:
        return query.commands(con, 1)


def test_a_command_goes_out_and_its_ack_comes_back(running, watch) -> None:
    _, recorder, folder = running
    monitor = watch(actor="ana")
    monitor.tick()
    sent = monitor.requests.submit(1, kind="set_bounds", args=NEW, expect=0, by=None, why="entropy rises")
    monitor.tick()
    assert [(c.status, c.by, c.why) for c in commands(monitor)] == [("pending", "ana", "entropy rises")]
    (read,) = folder.poll()
    assert (
        read == sent
        and read.args == NEW
        and folder.refusal(read, revision=0, bounds=running[0].bounds, now=time.time()) is None
    )
    recorder.ack(Ack(id=read.id, step=3, status="applied", revision=1))
    monitor.tick()
    assert [(c.status, c.applied_step, c.revision) for c in commands(monitor)] == [("applied", 3, 1)]
    assert list(folder.path.iterdir()) == []  # retracted after the last ack


def test_a_rejected_command_carries_the_trainers_words(running, watch) -> None:
    _, recorder, _ = running
    monitor = watch()
    monitor.tick()
    sent = monitor.requests.submit(1, kind="pause", args={}, expect=None, by="bob", why="look")
    recorder.ack(Ack(id=sent.id, step=None, status="rejected", revision=0, message="not now"))
    monitor.tick()
    assert [(c.status, c.message, c.by) for c in commands(monitor)] == [("rejected", "not now", "bob")]


def test_the_file_of_a_command_that_nobody_read_goes_with_its_end(
    running, watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, folder = running
    monitor = watch()
    monitor.tick()
    monitor.requests.submit(1, kind="pause", args={}, expect=None, by="bob", why="look")
    monitor.tick()
    monitor.tick()
    assert len(list(folder.path.iterdir())) == 1
    later = time.time() + 3600
    monkeypatch.setattr("regimescope.monitor.service.time.time", lambda: later)
    with monitor.store.cursor() as con:  # the index has a clock of its own
        con.execute("UPDATE command SET not_after = now() - INTERVAL 1 SECOND").fetchall()
    monitor.tick()  # no news: it is looked at because its time has come
    assert list(folder.path.iterdir()) == []
    assert [c.status for c in commands(monitor)] == ["expired"]


def test_what_is_not_even_asked(running, watch, root: Path) -> None:
    _, recorder, folder = running
    monitor = watch()
    monitor.tick()
    ask = {"expect": 0, "by": "ana", "why": "x"}
    with pytest.raises(ControlError, match=r"neg\.w_max = 200 is outside the limits"):
        monitor.requests.submit(1, kind="set_bounds", args={"pos": [0.8, 5.0], "neg": [0.0, 200.0]}, **ask)
    with pytest.raises(ControlError, match="want"):
        monitor.requests.submit(1, kind="set_bounds", args={"pos": [0.8]}, **ask)
    with pytest.raises(ControlError, match="does not take 'rollback'"):
        monitor.requests.submit(1, kind="rollback", args={}, **ask)
    with pytest.raises(ControlError, match="no run with key 9"):
        monitor.requests.submit(9, kind="pause", args={}, **ask)
    with pytest.raises(ControlError, match="read-only"):
        watch(read_only=True).requests.submit(1, kind="pause", args={}, **ask)
    recorder.end("finished")
    monitor.tick()
    with pytest.raises(ControlError, match=r"has ended \(finished\)"):
        monitor.requests.submit(1, kind="pause", args={}, **ask)
    assert list(folder.path.iterdir()) == []


def test_a_silent_run_is_stale_and_takes_no_command(running, watch, root: Path) -> None:
    for path in (root / "run" / "segments").iterdir():
        os.utime(path, (time.time() - 120, time.time() - 120))
    monitor = watch()
    monitor.tick()
    live = monitor.liveness(1)
    assert live.stale and not live.ended and 110 < live.silent_s < 200 and live.last_step == 2
    with pytest.raises(ControlError, match=r"silent for 1\d\d s"):
        monitor.requests.submit(1, kind="pause", args={}, expect=None, by="ana", why="x")


def test_a_paused_trainer_is_alive_and_named_so(running, watch) -> None:
    _, recorder, _ = running
    recorder.state("paused", step=3)
    monitor = watch()
    monitor.tick()
    live = monitor.liveness(1)
    assert (live.state, live.stale, live.ended) == ("paused", False, False)
    assert live.state_since is not None and live.median_step_s is not None


def test_a_snooze_is_of_a_signature_and_holds_for_later_alerts_of_that_name(collapsed, watch) -> None:
    monitor = watch(actor="ana")
    monitor.tick()
    with monitor.store.cursor() as con:
        known = query.alerts(con, 1)
        one = next(a for a in known if a.signature == "length_collapse")
        con.execute(
            "INSERT INTO alert SELECT * REPLACE (uuid() AS alert_id, 7 AS ordinal) FROM alert WHERE alert_id = ?",
            [one.alert_id],
        ).fetchall()
        later = next(a for a in query.alerts(con, 1) if a.ordinal == 7)

    def said(alert: query.AlertRow) -> tuple[str | None, int | None]:
        monitor.tick()
        with monitor.store.cursor() as con:
            return next((a.mark, a.until_step) for a in query.alerts(con, 1) if a.alert_id == alert.alert_id)

    monitor.requests.mark(1, kind="acknowledge", alert_id=later.alert_id, by=None)
    monitor.requests.mark(1, kind="snooze", alert_id=one.alert_id, by=None, until_step=60)
    assert said(later) == said(one) == ("snooze", 60)
    others = [a for a in known if a.signature != "length_collapse"]
    assert others and all(said(a) == (None, None) for a in others)
    monitor.requests.mark(1, kind="reopen", alert_id=later.alert_id, by=None)
    assert said(later) == said(one) == ("reopen", None)


def test_a_mark_goes_through_the_segment_to_the_alert(collapsed, watch, root: Path) -> None:
    monitor = watch(actor="ana")
    monitor.tick()
    with monitor.store.cursor() as con:
        alert = query.alerts(con, 1)[0]
    monitor.requests.mark(1, kind="snooze", alert_id=alert.alert_id, by=None, text="eval running", until_step=60)
    monitor.tick()
    with monitor.store.cursor() as con:
        marked = next(a for a in query.alerts(con, 1) if a.alert_id == alert.alert_id)
    assert (marked.mark, marked.mark_actor, marked.mark_text, marked.until_step) == (
        "snooze",
        "ana",
        "eval running",
        60,
    )
    (path,) = (root / "run" / "segments").glob("monitor-*.jsonl")
    line = json.loads(path.read_text().splitlines()[1])
    assert (line["k"], line["signature"]) == ("mark", alert.signature)
    again = watch()
    again.catch_up()  # another process, or a rebuilt index: the mark is where it was
    with again.store.cursor() as con:
        assert next(a for a in query.alerts(con, 1) if a.alert_id == alert.alert_id) == marked


def test_marks_that_make_no_sense_are_refused(collapsed, watch) -> None:
    monitor = watch()
    monitor.tick()
    with pytest.raises(ControlError, match="no such mark"):
        monitor.requests.mark(1, kind="like", alert_id=None, by="ana")
    with pytest.raises(ControlError, match="has no alert"):
        monitor.requests.mark(1, kind="note", alert_id="5b3f0c1e-8d0b-5f0e-9c5a-000000000001", by="ana")
    with pytest.raises(ControlError, match="read-only"):
        watch(read_only=True).requests.mark(1, kind="note", alert_id=None, by="ana")


def test_the_thread_keeps_up_and_stops(trainer, root: Path) -> None:
    monitor = Monitor(root, tick_s=0.02)
    monitor.start()
    with trainer.open() as recorder:
        for step in range(5):
            trainer.step(recorder, step)
        deadline = time.monotonic() + 20
        while monitor.head(1).last < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert monitor.head(1).last == 4
    monitor.stop()
    Store.open(root).close()


def test_a_broken_instance_is_opened_again_and_goes_on(trainer, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regimescope.monitor.service.BACK_OFF_S", 0.05)
    monitor = Monitor(root, tick_s=0.02)
    with trainer.open() as recorder:
        trainer.step(recorder, 0)
        monitor.tick()
        monitor.store.close()  # what a full disk does: every further use of the instance fails
        with pytest.raises(duckdb.Error):
            monitor.tick()
        trainer.step(recorder, 1)
        monitor.start()
        deadline = time.monotonic() + 20
        while monitor.head(1).last < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        with monitor.store.cursor() as con:
            assert con.execute("SELECT step FROM step_done ORDER BY step").fetchall() == [(0,), (1,)]
    monitor.stop()


def test_what_was_found_stays_while_the_index_is_opened_again(collapsed, root: Path) -> None:
    """Else a full disk would empty the pages for as long as it lasts."""
    monitor = Monitor(root)
    monitor.tick()
    with monitor.store.cursor() as con:
        before = query.alerts(con, 1)
    head = monitor.head(1)
    monitor.store.close()
    with pytest.raises(duckdb.Error):
        monitor.tick()
    assert monitor._recover(False) and not monitor.store.rebuilt
    assert monitor.head(1).last == head.last == 39 and monitor.head(1).epoch != head.epoch
    with monitor.store.cursor() as con:
        con.execute("DELETE FROM alert").fetchall()  # not there yet when the disk was full, say
    monitor.tick()
    with monitor.store.cursor() as con:
        assert query.alerts(con, 1) == before != []
    assert monitor.head(1).last == 39
    monitor.stop()


def test_a_block_that_only_a_reader_finds_damaged_ends_in_a_new_index(
    trainer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regimescope.monitor.service.BACK_OFF_S", 0.05)
    with trainer.open() as recorder:
        for step in range(3):
            trainer.step(recorder, step)
    monitor = Monitor(root, tick_s=0.02)
    monitor.tick()
    first = monitor.store.instance
    monitor.doubt(duckdb.Error("Corrupt database file: computed checksum 1 does not match stored checksum 2 in block"))
    monitor.start()
    deadline = time.monotonic() + 20
    while (monitor.store.instance == first or monitor.degraded) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert monitor.degraded is None and monitor.store.rebuilt
    with monitor.store.cursor() as con:
        assert con.execute("SELECT count(*) FROM step_done").fetchall() == [(3,)]
    monitor.stop()


def test_how_far_the_tail_is_can_be_told_without_the_index(trainer, root: Path) -> None:
    monitor = Monitor(root, tick_s=0.02)
    assert monitor.progress.runs(root) == []
    with trainer.open() as recorder:
        trainer.step(recorder, 0)
        (waiting,) = monitor.progress.runs(root)
        assert waiting.path == "run" and waiting.unread_bytes > 500 and waiting.lag_s > 0
        monitor.tick()
        (read,) = monitor.progress.runs(root)
        assert (read.unread_bytes, read.lag_s, read.lost, read.bad_lines, read.refused) == (0, 0.0, 0, 0, 0)
        monitor.store.close()
        trainer.step(recorder, 1)
        with pytest.raises(duckdb.Error):
            monitor.tick()
        time.sleep(0.05)
        (late,) = monitor.progress.runs(root)
        assert late.unread_bytes > 500 and late.lag_s >= 0.05 and monitor.progress.tick_age_s >= 0.05
    monitor.stop()


def test_the_losses_of_a_run_are_told(root: Path, trainer, watch) -> None:
    with trainer.open() as recorder:
        trainer.step(recorder, 0)
    (path,) = (root / "run" / "segments").iterdir()
    with path.open("a") as file:
        file.write('no line\n{"v":1,"k":"event","q":90,"t":1.0,"kind":"dropped","data":{"records":12}}\n')
    monitor = watch()
    monitor.tick()
    (told,) = monitor.progress.runs(root)
    assert told.bad_lines == 1 and told.lost > 50 and told.dropped == 12
    shutil.rmtree(root / "run")
    monitor._ingester._walk_again = 0.0
    monitor.tick()
    assert monitor.progress.runs(root) == []


def test_lines_that_wait_for_many_ticks_grow_old(root: Path, trainer, watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regimescope.monitor.segments.CHUNK_BYTES", 4000)
    with trainer.open() as recorder:
        for step in range(50):
            trainer.step(recorder, step)
    monitor = watch()
    monitor.tick()
    ages = []
    while (told := monitor.progress.runs(root)[0]).unread_bytes:
        ages.append(told.lag_s)
        time.sleep(0.01)
        monitor.tick()
    assert ages == sorted(ages)


def test_a_version_moves_with_what_came(running, watch) -> None:
    trainer, recorder, _ = running
    monitor = watch()
    monitor.tick()

    def moved(act: Callable[[], object]) -> tuple[bool, bool, bool]:
        old = monitor.version(1)
        act()
        monitor.tick()
        new = monitor.version(1)
        return new.rows > old.rows, new.said > old.said, new.alerts > old.alerts

    tighter = Bounds(pos=SignBounds(w_min=0.8, w_max=5.0), neg=SignBounds(w_min=0.0, w_max=101.0))
    assert moved(lambda: None) == (False, False, False)
    assert moved(lambda: trainer.step(recorder, 3)) == (True, False, False)
    assert moved(lambda: recorder.event("checkpoint", {"path": "c"}, step=3)) == (True, True, False)
    assert moved(lambda: recorder.state("paused", step=3)) == (True, True, False)
    assert moved(lambda: monitor.requests.submit(1, kind="pause", args={}, expect=None, by="bob", why="look")) == (
        True,
        True,
        False,
    )
    assert moved(lambda: monitor.requests.mark(1, kind="note", alert_id=None, by="ana", text="x")) == (
        True,
        True,
        False,
    )
    assert moved(lambda: recorder.buckets(4, 0, trainer.stats(), revision=1, bounds=tighter))[:2] == (True, True)
    assert moved(lambda: recorder.scalars(4, {"accuracy": 0.5}, slice=("env", "math")))[:2] == (True, True)
    assert moved(lambda: recorder.end("finished"))[:2] == (True, True)


def test_alerts_that_are_written_anew_move_the_version(trainer, watch) -> None:
    monitor = watch()
    with trainer.open() as recorder:
        for step in range(19):
            trainer.step(recorder, step, **trainer.collapsing(step))
        monitor.tick()
        before = monitor.version(1)
        for step in range(19, 40):
            trainer.step(recorder, step, **trainer.collapsing(step))
        monitor.tick()
        assert monitor.version(1).alerts > before.alerts and monitor.version(1).said == before.said


def test_a_command_that_runs_out_moves_the_version(running, watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = watch()
    monitor.tick()
    monitor.requests.submit(1, kind="pause", args={}, expect=None, by="bob", why="look")
    monitor.tick()
    before, later = monitor.version(1), time.time() + 3600
    monkeypatch.setattr("regimescope.monitor.service.time.time", lambda: later)
    monitor.tick()
    assert monitor.version(1).said > before.said


def test_the_last_steps_from_memory_are_those_of_the_index(running, watch) -> None:
    trainer, recorder, _ = running
    monitor = watch()
    monitor.tick()
    assert monitor.recent(1) is None  # a replay keeps nothing
    for step in range(3, 6):
        trainer.step(recorder, step, accuracy=0.1 * step, **({"kl_step": math.nan} if step == 4 else {}))
        monitor.tick()
    recent = monitor.recent(1)
    assert recent is not None and (recent.after, recent.last) == (2, 5)
    names = ["accuracy", "kl_step", "R1.clip_high_frac", "R4.token_frac", "reward_mean"]
    with monitor.store.cursor() as con:
        stored = query.news(con, 1, 0, names, 3)
    found = query.news_of(recent.points, names, 3)
    assert {n: (s.steps, s.nonfinite) for n, s in found.items()} == {
        n: (s.steps, s.nonfinite) for n, s in stored.items()
    }
    for name in names:
        finite = [(a, b) for a, b in zip(found[name].values, stored[name].values, strict=True) if b is not None]
        assert all(a == pytest.approx(b, rel=1e-11) for a, b in finite), name


def test_memory_holds_the_last_steps_only(running, watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "KEPT", 4)
    trainer, recorder, _ = running
    monitor = watch()
    monitor.tick()
    for step in range(3, 12):
        trainer.step(recorder, step)
        monitor.tick()
    recent = monitor.recent(1)
    assert recent is not None
    assert (recent.after, recent.last, [step for step, _ in recent.points]) == (7, 11, [8, 9, 10, 11])
    recorder.end("finished")
    monitor.tick()
    assert monitor.recent(1) is None


def test_a_silent_run_says_for_how_long(running, watch, root: Path) -> None:
    monitor = watch()
    monitor.tick()
    assert monitor.stale_s(1) is None
    long_ago = time.time() - 3600
    for path in (root / "run" / "segments").iterdir():
        os.utime(path, (long_ago, long_ago))
    again = watch()
    again.tick()
    silent = again.stale_s(1)
    assert silent is not None and 3500 < silent < 3700
