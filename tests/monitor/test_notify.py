"""Notices through a real webhook and a real mail server on loopback: up, slow, silent, refusing, back; and restarts."""

from __future__ import annotations

import json
import shutil
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regimescope.monitor import live, query, replay
from regimescope.monitor.errors import ControlError
from regimescope.monitor.notify import notifier
from regimescope.monitor.notify.notifier import Notifier
from regimescope.monitor.notify.post import post
from regimescope.monitor.notify.targets import Plan, Target
from regimescope.monitor.service import Monitor

SECRET = "s3cret-part"
FAST = (0.05, 0.05, 0.2)


class Hook:
    """A webhook that answers, is slow, says 500, or hangs."""

    def __init__(self) -> None:
        self.received: list[dict[str, str]] = []
        self.tries = 0
        self.status, self.wait_s = 200, 0.0
        self.release = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                hook.tries += 1
                hook.release.wait(hook.wait_s)
                if hook.status == 200:
                    hook.received.append(body)
                try:
                    self.send_response(hook.status)
                    self.end_headers()
                except OSError:  # the sender waited no longer
                    pass

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.server.server_port}/{SECRET}?cto=0.5&rto=0.5"

    def titles(self) -> list[str]:
        return [body["title"] for body in self.received]

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


class Mail:
    """A small SMTP server."""

    def __init__(self, port: int = 0) -> None:
        self.letters: list[str] = []
        mail = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.say("220 here")
                while line := self.rfile.readline().decode().strip():
                    if line.upper().startswith("EHLO"):
                        self.say("250 here")
                    elif line.upper() == "DATA":
                        self.say("354 go on")
                        text = []
                        while (part := self.rfile.readline().decode()).strip() != ".":
                            text.append(part)
                        mail.letters.append("".join(text))
                        self.say("250 taken")
                    elif line.upper() == "QUIT":
                        return self.say("221 bye")
                    else:
                        self.say("250 fine")

            def say(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"mailto://127.0.0.1:{self.port}/?from=lab@b.example&to=ana@b.example&mode=insecure&cto=1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def hooks() -> Iterator[Callable[[], Hook]]:
    made: list[Hook] = []

    def make() -> Hook:
        made.append(Hook())
        return made[-1]

    yield make
    for hook in made:
        hook.close()


def until(what: Callable[[], object], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def settle(monitor: Monitor, rounds: int = 6) -> None:
    """What was written down is read back, and decided upon once more."""
    for _ in range(rounds):
        monitor.tick()
        time.sleep(0.05)


def told(monitor: Monitor) -> list[tuple[str, str, str, str]]:
    """(rule, kind, target, state) of the lines in the index."""
    with monitor.store.cursor() as con:
        found = [event.data for event in query.events(con, 1, ["notice"])]
    return [(str(d["rule"]), str(d["kind"]), str(d["target"]), str(d["state"])) for d in found]


@pytest.fixture
def tell(watch) -> Callable[..., Monitor]:
    """A monitor over the root that tells these targets, after its first tick."""

    def make(*targets: Target, **options: object) -> Monitor:
        monitor = watch(**options)
        monitor.notifier = Notifier(monitor, Plan(targets=targets), link="http://127.0.0.1:8501", pauses_s=FAST)
        monitor.tick()
        return monitor

    return make


@pytest.fixture
def sick(trainer) -> Iterator[Callable[[int, int], None]]:
    """sick(first, end): steps of a run whose length collapses from step 20 on; it stays open."""
    with trainer.open(name="<!channel> @everyone") as recorder:

        def write(first: int, end: int) -> None:
            for step in range(first, end):
                trainer.step(recorder, step, **trainer.collapsing(step))

        yield write


def critical(url: str, name: str = "hook", **options: object) -> Target:
    return Target(name=name, url=url, severity="critical", **options)  # type: ignore[arg-type]


def test_an_alert_is_told_once_with_what_a_person_needs_and_across_restarts(hooks, tell, sick, root) -> None:
    hook = hooks()
    target = Target(name="hook", url=hook.url)
    monitor = tell(target)
    sick(0, 28)
    monitor.tick()
    until(lambda: any("length collapse" in title for title in hook.titles()))
    settle(monitor)
    body = next(b for b in hook.received if "length collapse" in b["title"].lower())["message"]
    with monitor.store.cursor() as con:
        alert = next(a for a in query.alerts(con, 1) if a.signature == "length_collapse")
    assert f"Onset step {alert.step_onset}, detected step {alert.step_detected}" in body
    assert f"/alerts?run=run&alert={alert.alert_id}" in body and "Verdict: COLLAPSING" in body
    before = len(hook.received)
    monitor.stop()
    again = tell(target)
    sick(28, 30)
    settle(again)
    assert len(hook.received) == before, hook.titles()
    lines = "".join(path.read_text() for path in root.rglob("monitor-*.jsonl"))
    assert SECRET not in lines and '"state":"sent"' in lines


def test_what_was_not_delivered_goes_out_after_a_restart(hooks, tell, sick) -> None:
    hook = hooks()
    hook.status = 500
    target = critical(hook.url)
    monitor = tell(target)
    sick(0, 30)
    monitor.tick()
    until(lambda: hook.tries >= 4)
    settle(monitor)
    assert ("failed" in {state for *_, state in told(monitor)}) and not hook.received
    assert monitor.notifier is not None and monitor.notifier.states()[0].delivery.why == "it answered 500"
    monitor.stop()
    hook.status = 200
    again = tell(target)
    settle(again)
    until(lambda: hook.received)
    settle(again)
    titles = hook.titles()
    assert len(titles) == len(set(titles)) and all(title.startswith("CRITICAL") for title in titles)


def test_a_target_that_hangs_holds_up_no_other_and_no_tick(hooks, tell, sick) -> None:
    stuck, well = hooks(), hooks()
    stuck.wait_s = 30.0
    monitor = tell(critical(stuck.url, "stuck"), critical(well.url, "well"))
    sick(0, 30)
    started = time.monotonic()
    monitor.tick()
    assert time.monotonic() - started < 5.0
    until(lambda: well.received and stuck.tries)
    stuck.wait_s = 0.0
    stuck.release.set()
    until(lambda: stuck.received)


def test_mail_goes_out_when_the_server_is_back(tell, sick) -> None:
    first = Mail()
    first.close()
    monitor = tell(critical(first.url, "mail"))
    sick(0, 30)
    monitor.tick()
    states = monitor.notifier.states
    until(lambda: states()[0].delivery.why)
    assert "no connection" in states()[0].delivery.why and states()[0].shown == f"mailto://127.0.0.1:{first.port}/…"
    mail = Mail(first.port)
    try:
        until(lambda: mail.letters)
        assert "Subject: " in mail.letters[0] and "ana@b.example" in mail.letters[0]
    finally:
        mail.close()


def test_runs_that_are_old_at_the_start_are_not_told_until_they_grow(hooks, tell, sick, monkeypatch) -> None:
    hook = hooks()
    monkeypatch.setattr(notifier, "RECENT_S", 0.0)  # its last line is old
    sick(0, 30)
    monitor = tell(critical(hook.url))
    settle(monitor)
    assert not hook.tries and not told(monitor)
    time.sleep(1.2)
    sick(30, 31)  # it lives after all
    settle(monitor)
    until(lambda: hook.received)


def test_copies_of_old_runs_send_nothing(hooks, tell, collapsed, root) -> None:
    hook = hooks()
    for i in range(4):
        shutil.copytree(collapsed.run_dir, root / f"copy-{i}")
    for path in root.rglob("*.jsonl"):  # written yesterday, copied now
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({**line, "t": line["t"] - 86_400}) + "\n" for line in lines))
    monitor = tell(critical(hook.url))
    settle(monitor)
    assert not hook.tries and not told(monitor)


def test_warnings_wait_for_the_end_of_quiet_hours_and_a_resolution_is_told(hooks, tell, trainer) -> None:
    hook = hooks()
    monitor = tell(Target(name="hook", url=hook.url, quiet=all_day_but_a_minute()))
    with trainer.open() as recorder:
        for step in range(30):
            trainer.step(recorder, step, **trainer.collapsing(step))
        monitor.tick()
        until(lambda: hook.received)
        settle(monitor)
        assert {title.partition(":")[0] for title in hook.titles()} == {"CRITICAL"}
        for step in range(30, 110):
            trainer.step(recorder, step)
        settle(monitor)
    with monitor.store.cursor() as con:
        states = {(a.signature, a.state) for a in query.alerts(con, 1) if a.severity == "critical"}
    assert ("length_collapse", "resolved") in states
    until(lambda: "RESOLVED: length collapse in run" in hook.titles())


def test_what_a_person_called_false_is_not_told(hooks, tell, sick) -> None:
    hook = hooks()
    hook.status = 500
    monitor = tell(critical(hook.url))
    sick(0, 30)
    monitor.tick()
    until(lambda: hook.tries >= 3)
    with monitor.store.cursor() as con:
        alerts = query.alerts(con, 1)
    for alert in alerts:
        monitor.requests.mark(1, kind="false_alarm", alert_id=alert.alert_id, by="ana")
    settle(monitor)
    hook.status = 200
    time.sleep(0.5)
    settle(monitor)
    assert not hook.received


def all_day_but_a_minute() -> tuple[int, int]:
    """Quiet hours that hold now and do not end during a test."""
    now = time.localtime()
    minute = 60 * now.tm_hour + now.tm_min
    return (minute - 1) % 1440, (minute - 2) % 1440


def test_a_silence_is_told_and_that_it_ended(hooks, tell, trainer, monkeypatch) -> None:
    hook = hooks()
    monitor = tell(Target(name="hook", url=hook.url))
    monkeypatch.setattr(replay, "GAP_FLOOR_S", 0.3)
    monkeypatch.setattr(live, "GAP_FLOOR_S", 0.3)
    with trainer.open() as recorder:
        for step in range(4):
            trainer.step(recorder, step)
        until(lambda: (monitor.tick(), "WARNING: telemetry gap in run" in hook.titles())[1])
        trainer.step(recorder, 4)
        settle(monitor, 3)
        until(lambda: "RESOLVED: telemetry gap in run" in hook.titles())


def test_a_line_that_cannot_be_written_is_written_later_and_nothing_is_told_twice(
    hooks, tell, sick, monkeypatch
) -> None:
    hook = hooks()
    monitor = tell(critical(hook.url))
    whole = monitor.requests.announce

    def full(*args: object) -> None:
        raise ControlError("no space left")

    monkeypatch.setattr(monitor.requests, "announce", full)
    sick(0, 28)
    monitor.tick()
    until(lambda: hook.received)
    sick(28, 29)
    settle(monitor)
    assert not told(monitor) and len(hook.received) == 1
    monkeypatch.setattr(monitor.requests, "announce", whole)
    sick(29, 30)
    settle(monitor)
    until(lambda: (monitor.tick(), len(told(monitor)) == 2)[1])
    assert {state for *_, state in told(monitor)} == {"waiting", "sent"} and len(hook.received) == 1


def test_send_test_says_why_not(hooks, tell) -> None:
    hook = hooks()
    monitor = tell(Target(name="hook", url=hook.url))
    assert monitor.notifier.test("hook") == "" and hook.titles() == ["regimescope: test"]
    hook.status = 503
    assert monitor.notifier.test("hook") == "it answered 503"
    assert "apprise does not take" in post("bogus://" + SECRET, "t", "b")


def test_nothing_waits_for_the_clock_of_the_wall(hooks, tell, sick, monkeypatch) -> None:
    hook = hooks()
    hook.status = 500
    monitor = tell(critical(hook.url))
    sick(0, 30)
    monitor.tick()
    until(lambda: hook.tries)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 86_400)
    hook.status = 200
    until(lambda: hook.received)
