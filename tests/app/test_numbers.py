"""The numbers of the Overview: what is followed in memory is what a fresh look at the index gives."""

import math

import pytest

from regimescope.monitor.query import Latest
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.ui.numbers import BACK, Track, Tracker, numbers
from regimescope.monitor.ui.views.overview import env_rows


@pytest.fixture
def monitor(tmp_path):
    root = tmp_path / "runs"
    root.mkdir()
    found = Monitor(root, actor="ana", store=Store.in_memory(root))
    yield found
    found.stop()


def close(one, two):
    return one == two or (one is not None and two is not None and math.isclose(one, two, rel_tol=1e-9))


def assert_same(one, two):
    assert one.names == two.names and one.evaluations == two.evaluations
    assert one.latest.keys() == two.latest.keys()
    for name, latest in one.latest.items():
        other = two.latest[name]
        assert latest.step == other.step and close(latest.value, other.value), name
        assert close(latest.before, other.before), name


def test_following_gives_what_reading_gives(monitor, record, write_step):
    recorder = record(monitor.root / "run")
    tracker = Tracker(monitor, 1)
    for step in range(BACK + 30):
        extra = {"eval.accuracy": 0.4 + 0.1 * math.sin(step)} if step % 25 == 0 else {}
        write_step(recorder, step, **extra | ({"updates": 16.0} if step == 3 else {}))
        monitor.tick()
        if step in (0, 1, 7) or step % 13 == 0:
            assert_same(tracker.numbers(), Tracker(monitor, 1).numbers())
    assert tracker.numbers().latest["accuracy"].before is not None
    assert tracker.numbers().evaluations.count == 4


def test_following_asks_the_index_for_slices_only(monitor, record, write_step, monkeypatch):
    recorder = record(monitor.root / "run")
    write_step(recorder, 0)
    monitor.tick()
    tracker = Tracker(monitor, 1)
    tracker.numbers()
    monkeypatch.setattr(Tracker, "_read", lambda self, head: pytest.fail("read again"))
    write_step(recorder, 1, accuracy=0.75)
    monitor.tick()
    assert tracker.numbers().latest["accuracy"] == Latest(step=1, value=0.75, before=None)
    assert tracker.numbers() is tracker.numbers()


def test_another_launch_is_read_anew(monitor, record, write_step):
    recorder = record(monitor.root / "run")
    for step in range(6):
        write_step(recorder, step, accuracy=0.1 * step)
    monitor.tick()
    assert numbers(monitor, 1).latest["accuracy"].step == 5
    again = record(monitor.root / "run", launch="b", start="resume", first_step=3)
    write_step(again, 3, accuracy=0.9)
    monitor.tick()
    assert numbers(monitor, 1).latest["accuracy"] == Latest(step=3, value=0.9, before=None)


def test_environments_have_their_own_accuracy(monitor, record):
    recorder = record(monitor.root / "run")
    for step in range(BACK + 1):
        for name, value in (("math", 0.6 - 0.001 * step), ("code", 0.3)):
            recorder.scalars(step, {"accuracy": (value, 8)}, slice=("env", name))
        recorder.step(step, {"accuracy": 0.5})
    monitor.tick()
    found = [(row.value, latest.value, latest.before) for row, latest in numbers(monitor, 1).envs]
    assert found == [("math", 0.6 - 0.001 * BACK, 0.6), ("code", 0.3, 0.3)]


def test_an_environment_shows_reward_its_newest_evaluation_and_truncation(monitor, record):
    recorder = record(monitor.root / "run")
    for step in range(BACK + 30):
        for name, value in (("math", 0.6 - 0.004 * step), ("code", 0.3)):
            metrics = {"accuracy": (value, 8), "reward_mean": (2 * value, 8)}
            if step == 5:
                metrics["eval.accuracy"] = (0.25, 8)
            recorder.scalars(step, metrics, slice=("env", name))
        recorder.step(step, {"accuracy": 0.5})
    monitor.tick()
    assert env_rows(numbers(monitor, 1)) == [
        {
            "environment": "math",
            "accuracy": "▼ 28 %",
            "50 steps ago": "48 %",
            "reward": "0.568",
            "held out": "25 %",
            "truncated": "–",  # noqa: RUF001
        },
        {
            "environment": "code",
            "accuracy": "▲ 30 %",
            "50 steps ago": "30 %",
            "reward": "0.6",
            "held out": "25 %",
            "truncated": "–",  # noqa: RUF001
        },
    ]


def test_a_track_keeps_one_point_that_is_old_enough():
    track = Track()
    for step in range(0, 200, 7):
        track.add(step, float(step))
        top = track.latest
        assert top.before == max((s for s in range(0, step + 1, 7) if s <= step - BACK), default=None)
    assert len(track.points) <= BACK // 7 + 2
