"""Notices of a real server that is killed and started again; what Settings and the card of an alert say of them."""

import json
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from regimescope.monitor import query
from regimescope.monitor.notify.notifier import Notifier
from regimescope.monitor.notify.targets import Plan, Target
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.ui import context, header

MAIN = Path(header.__file__).parent / "main.py"
SECRET = "s3cret-part"
PATIENCE_S = 60.0


def until(what):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s"
        time.sleep(0.02)
    return found


class Hook:
    """A webhook that answers `status`."""

    def __init__(self):
        self.status, self.tries, self.taken = 200, 0, []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                hook.tries += 1
                if hook.status == 200:
                    hook.taken.append(body["title"])
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.server.server_port}/{SECRET}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def hook():
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


def write(recorder, first, end):
    """Length and accuracy fall from step 20 on."""
    for step in range(first, end):
        ill = max(0, step - 19)
        length, accuracy = max(1.0, 35.0 + step % 3 - 6.0 * ill), max(0.0, 0.5 + 0.01 * (step % 4) - 0.1 * ill)
        recorder.step(step, {"response_length_mean": (length, 256.0), "accuracy": (accuracy, 256.0)})


def lines(root):
    return "".join(path.read_text() for path in root.rglob("monitor-*.jsonl"))


def test_a_server_killed_at_any_moment_tells_once_and_loses_nothing(serve, record, hook, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "notify.toml").write_text(f'[[target]]\nname = "hook"\nurl = "{hook.url}"\nseverity = "critical"\n')
    recorder = record(root / "run")
    hook.status = 500
    first = serve(root)
    write(recorder, 0, 30)
    until(lambda: hook.tries)
    os.kill(first.process.pid, signal.SIGKILL)  # owed, and written down as waiting
    first.process.wait()
    hook.status = 200
    second = serve(root)
    until(lambda: '"state":"sent"' in lines(root))
    told = list(hook.taken)
    assert len(told) == len(set(told)) == 1 and told[0].startswith("CRITICAL")
    os.kill(second.process.pid, signal.SIGKILL)  # told, and written down
    second.process.wait()
    third = serve(root)
    write(recorder, 30, 33)
    until(lambda: third.series("run", "accuracy")["last"] == 32)
    time.sleep(1.5)
    assert hook.taken == told
    said = third.stop()
    assert SECRET not in said + lines(root) and SECRET not in first.process.stdout.read()


def test_a_target_that_cannot_be_used_stops_the_start_in_one_line(launch, tmp_path):
    (tmp_path / "notify.toml").write_text(f'[[target]]\nname = "chat"\nurl = "slack://{SECRET}"\n')
    process = launch(["-m", "regimescope.cli", "serve", str(tmp_path), "--port", "0"], tmp_path)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2 and "target chat: apprise does not take its URL" in said
    assert SECRET not in said and len(said.strip().splitlines()) == 1, said


@pytest.fixture
def desk(tmp_path, record):
    """desk(*targets, read_only=False) -> (monitor, open a page)."""
    st.cache_data.clear()
    st.cache_resource.clear()
    made = []

    def start(*targets, read_only=False):
        write(record(tmp_path / "run"), 0, 30)
        monitor = Monitor(tmp_path, store=Store.in_memory(tmp_path), actor="ana", read_only=read_only)
        made.append(monitor)
        if targets:
            monitor.notifier = Notifier(monitor, Plan(targets=targets), link="http://127.0.0.1:1", pauses_s=(0.05,))
        given = {"read_token": "t", "actor": "ana", "address": "http://127.0.0.1:1", "read_only": read_only}
        context.install(context.Context(monitor=monitor, control_token=None, **given))
        while monitor.tick():
            pass
        return monitor

    yield start
    context.install(None)
    for monitor in made:
        monitor.stop()


def page(name, **asked):
    at = AppTest.from_file(str(MAIN), default_timeout=60)
    at.query_params.update(asked)
    at.user = {}
    at.run()
    at._page_hash = calc_hash(name)
    at.run()
    assert not at.exception, at.exception
    return at


def words(at):
    kinds = (at.text, at.markdown, at.caption, at.error, at.info, at.success)
    cells = [str(cell) for frame in at.dataframe for cell in frame.value.to_numpy().ravel()]
    return "\n".join([str(element.value) for kind in kinds for element in kind] + cells)


def test_settings_shows_targets_masked_and_sends_a_test(desk, hook):
    desk(Target(name="hook", url=hook.url, severity="critical", quiet=(0, 420)))
    at = page("settings")
    text = words(at)
    assert "json://127.0.0.1:" in text and "00:00-07:00" in text and SECRET not in text
    at.button(key="notice-test").click().run()
    assert "Delivered." in words(at) and "regimescope: test" in hook.taken
    hook.status = 503
    at.button(key="notice-test").click().run()
    assert "Not delivered." in words(at) and "hook: it answered 503" in words(at)


def test_a_read_only_server_has_no_button_and_sends_nothing(desk):
    desk(read_only=True)
    at = page("settings")
    assert "read-only: it sends no notices" in words(at)
    assert not [button for button in at.button if button.label == "Send test"]


def test_the_card_says_who_was_told(desk, hook):
    monitor = desk(Target(name="hook", url=hook.url, severity="critical"))
    until(lambda: hook.taken)
    until(lambda: '"state":"sent"' in lines(monitor.root))
    monitor.tick()
    with monitor.store.cursor() as con:
        alert = next(a for a in query.alerts(con, 1) if a.signature == "length_collapse")
    text = words(page("alerts", alert=alert.alert_id))
    assert "Notices: open to hook sent" in text and SECRET not in text
