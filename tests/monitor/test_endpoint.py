"""Where the server listens: written for the user alone, read without trust."""

from __future__ import annotations

import http.server
import os
import threading
import time
from pathlib import Path

import pytest

from regimescope.monitor.endpoint import (
    Endpoint,
    endpoint_path,
    is_alive,
    is_fresh,
    read_endpoint,
    remove_endpoint,
    touch_endpoint,
    write_endpoint,
)

HERE = Endpoint(host="127.0.0.1", port=8501, pid=42, started=1790000000.0, token="abc")


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/_stcore/health" else 404)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


def test_what_is_written_is_read_and_for_the_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = write_endpoint(tmp_path, HERE)
    finally:
        os.umask(old)
    assert path == endpoint_path(tmp_path) and path.stat().st_mode & 0o777 == 0o600
    assert read_endpoint(tmp_path) == HERE
    assert [p.name for p in path.parent.iterdir()] == ["endpoint.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"host": "x"}', '{"host":"x","port":"no","pid":1,"started":0,"token":""}', "\xff"]
)
def test_a_broken_file_is_no_endpoint(tmp_path: Path, text: str) -> None:
    endpoint_path(tmp_path).parent.mkdir()
    endpoint_path(tmp_path).write_text(text, encoding="latin-1")
    assert read_endpoint(tmp_path) is None


def test_no_file_is_no_endpoint(tmp_path: Path) -> None:
    assert read_endpoint(tmp_path) is None and not is_fresh(tmp_path)
    touch_endpoint(tmp_path)
    assert not endpoint_path(tmp_path).exists()


def test_the_address_is_a_url() -> None:
    assert HERE.address == "http://127.0.0.1:8501"
    assert Endpoint(host="::1", port=1, pid=1, started=0.0, token="").address == "http://[::1]:1"


def test_alive_means_that_the_health_route_answers() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    here = Endpoint(host="127.0.0.1", port=server.server_address[1], pid=1, started=0.0, token="")
    assert is_alive(here)
    server.shutdown()
    thread.join()
    server.server_close()
    assert not is_alive(here)


def test_an_endpoint_ages_and_is_touched(tmp_path: Path) -> None:
    path = write_endpoint(tmp_path, HERE)
    assert is_fresh(tmp_path)
    os.utime(path, (time.time() - 60, time.time() - 60))
    assert not is_fresh(tmp_path)
    touch_endpoint(tmp_path)
    assert is_fresh(tmp_path)


def test_a_server_takes_away_its_own_file_only(tmp_path: Path) -> None:
    write_endpoint(tmp_path, HERE)
    remove_endpoint(tmp_path, Endpoint(host="127.0.0.1", port=8501, pid=43, started=0.0, token="other"))
    assert read_endpoint(tmp_path) == HERE
    remove_endpoint(tmp_path, HERE)
    assert read_endpoint(tmp_path) is None
