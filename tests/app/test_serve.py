"""`regimescope serve`, `python app.py`, `streamlit run` as processes: one server a root, busy ports, clean end."""

import asyncio
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from regimescope import cli
from regimescope.monitor.endpoint import Endpoint, endpoint_path, is_alive, is_fresh, read_endpoint, write_endpoint
from regimescope.monitor.serve import main
from regimescope.monitor.ui import application


@pytest.fixture(scope="module")
def first(serve, tmp_path_factory):
    return serve(tmp_path_factory.mktemp("root") / "deep" / "runs")


@pytest.mark.parametrize("command", [("-m", "regimescope.cli", "serve"), ("app.py",)], ids=["serve", "app.py"])
def test_a_second_server_on_a_root_gives_the_address_of_the_first(launch, first, command):
    second = launch(command, first.root, REGIMESCOPE_PORT="0")
    out, _ = second.communicate(timeout=30)
    assert second.returncode == 0
    assert out.count("\n") == 1 and first.address in out
    assert first.request("/_stcore/health")[0] == 200


def test_of_two_servers_that_start_at_the_same_moment_one_serves_and_one_names_it(launch, tmp_path):
    command = ("-m", "regimescope.cli", "serve")
    both = [launch(command, tmp_path / "runs", REGIMESCOPE_PORT="0") for _ in range(2)]
    deadline = time.monotonic() + 60
    while not (ended := [p for p in both if p.poll() is not None]):
        assert time.monotonic() < deadline, "both serve one root"
        time.sleep(0.05)
    (loser,) = ended
    (winner,) = [p for p in both if p is not loser]
    said, _ = loser.communicate(timeout=30)
    known = read_endpoint(tmp_path / "runs")
    assert loser.returncode == 0 and said.count("\n") == 1
    assert known.pid == winner.pid and known.address in said and is_alive(known)


def test_the_endpoint_stays_young_while_the_server_lives(tmp_path, monkeypatch):
    path = write_endpoint(tmp_path, Endpoint(host="127.0.0.1", port=1, pid=1, started=0.0, token="t"))
    os.utime(path, (0, 0))
    monkeypatch.setattr(application, "_TOUCH_S", 0.01)

    async def live() -> None:
        await asyncio.wait_for(application._keep_fresh(tmp_path), 0.3)

    with ThreadPoolExecutor(1) as aside, pytest.raises(TimeoutError):  # the thread of a browser test has a loop already
        aside.submit(asyncio.run, live()).result()
    assert is_fresh(tmp_path)


@pytest.mark.parametrize("command", [("-m", "regimescope.cli", "serve"), ("app.py",)], ids=["serve", "app.py"])
def test_a_busy_port_is_one_line_and_says_how_to_choose_another(launch, tmp_path, command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = launch(command, tmp_path / "runs", REGIMESCOPE_PORT=str(port))
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert out.count("\n") == 1 and str(port) in out and "--port" in out


def test_ctrl_c_ends_cleanly_and_the_endpoint_goes(serve, tmp_path):
    server = serve(tmp_path / "runs")
    assert endpoint_path(server.root).exists()
    server.process.send_signal(signal.SIGINT)
    out, _ = server.process.communicate(timeout=20)
    assert server.process.returncode in (0, 130)
    assert f"regimescope: {server.address}" in out, "the address is printed when the server is healthy"
    assert "Traceback" not in out and "leak" not in out.lower()
    assert not endpoint_path(server.root).exists()


def test_a_killed_server_can_be_started_again_at_once(serve, tmp_path):
    killed = serve(tmp_path / "runs")
    killed.process.kill()
    killed.process.wait(10)
    again = serve(tmp_path / "runs")
    assert again.request("/_stcore/health")[0] == 200


def test_a_server_on_another_machine_is_respected_while_it_lives(launch, serve, tmp_path):
    """On shared storage the lock of the index is not seen: a young endpoint file is."""
    root = tmp_path / "runs"
    elsewhere = Endpoint(host="127.0.0.1", port=1, pid=1, started=0.0, token="t", machine="node7")
    path = write_endpoint(root, elsewhere)
    out, _ = launch(["app.py"], root).communicate(timeout=30)
    assert out.count("\n") == 1 and "node7" in out
    os.utime(path, (0, 0))
    assert serve(root).request("/_stcore/health")[0] == 200


def test_streamlit_run_finds_the_app(serve, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = serve(tmp_path / "runs", f"--server.port={port}", command=("-m", "streamlit", "run", "app.py"), port=port)
    assert server.request("/api/series?run=x&metrics=accuracy")[0] == 404, "our routes are there"
    assert endpoint_path(server.root).exists()


def test_flags_beat_the_environment(serve, tmp_path):
    root = tmp_path / "by flag"
    server = serve(
        root, str(root), "--actor", "ana", REGIMESCOPE_ROOT=str(tmp_path / "by environment"), REGIMESCOPE_READ_ONLY="1"
    )
    assert root.is_dir() and not (tmp_path / "by environment").exists()
    assert server.request("/api/commands", data={})[0] == 403, "the environment made it read-only"


@pytest.mark.parametrize(
    ("argv", "environment", "word"),
    [
        (["--port", "banana"], {}, "--port 'banana'"),
        ([], {"REGIMESCOPE_PORT": "banana"}, "REGIMESCOPE_PORT 'banana'"),
        ([], {"REGIMESCOPE_READ_ONLY": "perhaps"}, "REGIMESCOPE_READ_ONLY 'perhaps'"),
        (["--host", "0.0.0.0"], {}, "--read-only"),
        (["--control-token-file", "missing"], {}, "missing"),
        ([str(__file__)], {}, "root"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(monkeypatch, capsys, argv, environment, word):
    for name in [n for n in os.environ if n.startswith("REGIMESCOPE_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    try:
        code = cli.main(["serve", *argv])
    except SystemExit as end:
        code = end.code
    out = capsys.readouterr()
    assert code == 2
    assert out.out == "" and out.err.count("\n") == 1 and word in out.err


def test_a_host_that_is_not_ours_is_one_line(launch, tmp_path):
    process = launch(["-m", "regimescope.cli", "serve", "--host", "203.0.113.9", "--read-only"], tmp_path / "runs")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert out.count("\n") == 1 and "cannot listen on 203.0.113.9" in out


def test_help_names_every_variable(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    for name in ("ROOT", "HOST", "PORT", "READ_ONLY", "CONTROL_TOKEN", "ACTOR"):
        assert f"REGIMESCOPE_{name}" in out
