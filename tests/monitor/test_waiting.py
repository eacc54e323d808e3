"""A page that waits for the next step is told when it comes, and never holds the server up."""

import threading

import pytest

from regimescope.monitor import Recorder, query
from regimescope.monitor.service import MOST_WAITING, Monitor
from regimescope.monitor.store import Store


@pytest.fixture
def monitor(tmp_path):
    found = Monitor(tmp_path, store=Store.in_memory(tmp_path))
    yield found
    found.stop()


def begun(monitor, root):
    """A run with one step, seen; and its recorder."""
    recorder = Recorder(root / "x", sync=True)
    recorder.step(0, {"loss": 1.0})
    monitor.start()
    while True:
        with monitor.store.cursor() as con:
            key = query.run_key_of(con, "x")
        if key is not None and monitor.head(key).last == 0:
            return key, recorder


def test_who_waits_is_told_of_the_next_step(monitor, tmp_path):
    key, recorder = begun(monitor, tmp_path)
    seen, found = monitor.head(key), []
    waiting = threading.Thread(target=lambda: found.append(monitor.wait_for_news(key, seen, 60.0)))
    waiting.start()
    recorder.step(1, {"loss": 0.5})
    waiting.join(30)
    assert [head.last for head in found] == [1]
    recorder.end("finished")


def test_without_news_the_wait_ends(monitor, tmp_path):
    key, recorder = begun(monitor, tmp_path)
    seen = monitor.head(key)
    assert monitor.wait_for_news(key, seen, 0.05) == seen
    recorder.end("finished")


def test_what_is_news_already_is_told_at_once_and_too_many_do_not_wait(monitor, tmp_path):
    key, recorder = begun(monitor, tmp_path)
    seen = monitor.head(key)
    older = type(seen)(epoch=seen.epoch, last=-1)
    assert monitor.wait_for_news(key, older, 60.0) == seen
    threads = [threading.Thread(target=monitor.wait_for_news, args=(key, seen, 60.0)) for _ in range(MOST_WAITING)]
    for thread in threads:
        thread.start()
    while monitor._waiting.acquire(blocking=False):
        monitor._waiting.release()
    assert monitor.wait_for_news(key, seen, 60.0) == seen  # else this test would take a minute
    monitor.stop()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    recorder.end("finished")
