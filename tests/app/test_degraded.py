"""A full disk under the index of a real server: routes and doctor say `store degraded` and why, and stop saying so when
there is space again. And what routes and pages make of an instance that is closed under them.

The test with a disk mounts a small tmpfs, which only root may do: it is skipped elsewhere.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from regimescope.monitor import query
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store, index_path
from regimescope.monitor.ui import context, header, routes

MAIN = Path(header.__file__).parent / "main.py"
TOKEN = {"x-regimescope-token": "t"}
PATIENCE_S = 60.0


def wait_for(what, said):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {said}"
        time.sleep(0.05)
    return found


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a tmpfs cannot be mounted here (root may): {error}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path):
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        while True:
            os.write(descriptor, b"x" * 4096)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def test_a_full_disk_under_the_index_is_told_until_there_is_space(serve, small_disk, tmp_path, record, write_step):
    root = tmp_path / "runs"
    recorder = record(root / "demo")
    for step in range(20):
        write_step(recorder, step)
    server = serve(root, REGIMESCOPE_CACHE=str(small_disk))

    def health():
        return json.loads(server.request("/api/health")[2])

    sound = wait_for(lambda: (told := health())["unread_bytes"] == 0 and told["runs"] and told, "the first look")
    assert sound["degraded"] is None and [run["path"] for run in sound["runs"]] == ["demo"]
    fill(small_disk / "ballast")
    started, steps = time.time(), iter(range(20, 10_000))

    def write_until(what):
        for step in steps:
            write_step(recorder, step)
            if step % 20 == 0 and what():
                return

    write_until(lambda: health()["degraded"])
    told = wait_for(lambda: (told := health())["lag_s"] > 1 and told, "a lag")
    assert "No space left" in told["degraded"]["reason"] and started - 1 < told["degraded"]["since"] <= time.time()
    assert told["unread_bytes"] > 0 and told["runs"][0]["unread_bytes"] == told["unread_bytes"]
    status, _, body = server.request("/api/series?run=demo&metrics=accuracy")
    assert status == 200 or (status, "degraded" in json.loads(body)) == (503, True)
    report = doctor(root, small_disk)
    (finding,) = [f for f in report if f["topic"] == "store"]
    assert finding["level"] == "warning" and "store degraded for" in finding["text"]
    assert "No space left" in finding["text"] and "free space" in finding["advice"]

    (small_disk / "ballast").unlink()
    wait_for(lambda: (told := health())["degraded"] is None and told["unread_bytes"] == 0, "the end of the trouble")
    last = next(steps)
    write_step(recorder, last)
    wait_for(lambda: server.series("demo", "accuracy", since=-1)["last"] == last, "the newest step")
    assert [f for f in doctor(root, small_disk) if f["topic"] == "store"] == []


def doctor(root, cache):
    command = [sys.executable, "-m", "regimescope.cli", "doctor", str(root), "--json"]
    env = {**os.environ, "REGIMESCOPE_CACHE": str(cache)}
    return json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout)


@pytest.fixture
def monitor(tmp_path, record, write_step):
    """A monitor of one run whose instance the test closes under its readers."""
    root = tmp_path / "runs"
    recorder = record(root / "demo", can=("set_bounds", "pause"))
    for step in range(5):
        write_step(recorder, step)
    found = Monitor(root, actor="ana", store=Store.open(root, path=tmp_path / "index.duckdb"))
    found.tick()
    given = {"read_token": "t", "read_only": False, "actor": "ana", "control_token": None, "address": "http://test"}
    context.install(context.Context(monitor=found, **given))
    yield found
    context.install(None)
    found.stop()


def test_routes_of_an_instance_that_cannot_be_used_answer_503_with_the_reason(monitor):
    client = TestClient(Starlette(routes=routes.ROUTES))
    ask = {"run": "demo", "metrics": "accuracy"}
    pause = {"run": "demo", "kind": "pause", "args": {}, "expect": None, "why": "", "by": "ana"}
    assert client.get("/api/series", params=ask, headers=TOKEN).status_code == 200
    monitor.store.close()
    for answer in (
        client.get("/api/series", params=ask, headers=TOKEN),
        client.post("/api/commands", json=pause, headers=TOKEN),
    ):
        assert answer.status_code == 503 and answer.headers["retry-after"] == "5"
        assert answer.json()["error"].startswith("store degraded: ") and answer.json()["degraded"]["reason"]
    assert client.get("/api/health", headers=TOKEN).json()["degraded"] is None  # no tick has found out yet
    with pytest.raises(duckdb.Error):
        monitor.tick()
    monitor._degrade(duckdb.Error("No space left"))  # what the thread does next
    told = client.get("/api/health", headers=TOKEN)
    assert told.status_code == 200 and told.json()["degraded"]["reason"] == "No space left"
    assert client.get("/api/series", params=ask, headers=TOKEN).json()["degraded"] == told.json()["degraded"]
    assert monitor._recover(damaged=False)
    monitor.tick()
    assert client.get("/api/series", params=ask, headers=TOKEN).status_code == 200


def test_a_reader_that_meets_a_fatal_error_makes_the_monitor_open_the_index_again(
    small_disk, tmp_path, record, write_step
):
    """A checkpoint on a full disk makes the whole instance unusable, for readers too; a monitor without news would not
    notice.
    """
    root = tmp_path / "runs"
    recorder = record(root / "demo")
    for step in range(300):
        write_step(recorder, step)
    found = Monitor(root, actor="ana", store=Store.open(root, path=small_disk / "index.duckdb"))
    found.tick()
    given = {"read_token": "t", "read_only": False, "actor": "ana", "control_token": None, "address": "http://test"}
    context.install(context.Context(monitor=found, **given))
    client = TestClient(Starlette(routes=routes.ROUTES))
    try:
        fill(small_disk / "ballast")
        with found.store.cursor() as con, pytest.raises(duckdb.FatalException):
            con.execute("CHECKPOINT").fetchall()
        found.tick()  # nothing new: nothing was asked of the index
        answer = client.get("/api/series", params={"run": "demo", "metrics": "accuracy"}, headers=TOKEN)
        assert answer.status_code == 503 and "invalidated" in answer.json()["degraded"]["reason"]
        with pytest.raises(duckdb.FatalException):
            found.tick()
        (small_disk / "ballast").unlink()
        assert found._recover(damaged=False) and not found.store.rebuilt
        found.tick()
        answer = client.get("/api/series", params={"run": "demo", "metrics": "accuracy"}, headers=TOKEN)
        assert answer.status_code == 200 and answer.json()["last"] == 299
    finally:
        context.install(None)
        found.stop()


def test_a_mistake_of_ours_is_not_taken_for_a_full_disk(monitor, monkeypatch):
    monkeypatch.setattr(query, "run_key_of", lambda con, path: con.execute("SELECT nonsense").fetchall())
    client = TestClient(Starlette(routes=routes.ROUTES))
    with pytest.raises(duckdb.BinderException):
        client.get("/api/series", params={"run": "demo", "metrics": "accuracy"}, headers=TOKEN)


def test_a_page_that_could_not_be_read_says_why_and_is_drawn_again_afterwards(monitor):
    monitor.store.close()
    monitor._degrade(duckdb.Error("No space left"))
    at = AppTest.from_file(str(MAIN), default_timeout=30).run()
    shown = [error.value for error in at.error]
    assert any("store degraded" in text and "since" in text for text in shown)
    assert any("The list of runs could not be read" in text for text in shown)
    assert "No space left" in [code.value for code in at.code] and not at.exception
    assert monitor._recover(damaged=False)
    monitor.tick()
    monitor.degraded = monitor.degraded_since = None
    at.run()
    assert not at.error and not at.exception


def test_a_server_says_why_it_makes_a_new_index(launch, tmp_path):
    root, cache = tmp_path / "runs", tmp_path / "cache"
    root.mkdir()
    path = cache / index_path(root).relative_to(index_path(root).parents[1])
    path.parent.mkdir(parents=True)
    path.write_bytes(b"SQLite format 3\0" + bytes(1000))
    out = first_lines(launch, root, cache)
    assert out[0].startswith(f"regimescope: {path} was no index of regimescope: it is now monitor.duckdb.foreign-")
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE meta SET schema_hash = 'old', app_version = '0.0.7'").fetchall()
    out = first_lines(launch, root, cache)
    assert out[0] == (
        "regimescope: the index was made by regimescope 0.0.7 with other tables: it is rebuilt from the segments"
    )
    assert "runs below" in first_lines(launch, root, cache)[0]  # an index that fits needs no word


def first_lines(launch, root, cache):
    """What `serve` prints until it says its address."""
    process = launch(["-m", "regimescope.cli", "serve"], root, REGIMESCOPE_PORT="0", REGIMESCOPE_CACHE=str(cache))
    lines = []
    while not lines or "runs below" not in lines[-1]:
        line = process.stdout.readline()
        assert line, lines
        lines.append(line.rstrip("\n"))
    process.terminate()
    process.wait(20)
    return lines
