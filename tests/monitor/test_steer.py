"""`regimescope bounds|pause|resume|checkpoint|stop` against a real loop in its own process.

With a server, and without one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from regimescope.cli import main
from regimescope.monitor import Bounds, Limits, Recorder, SignBounds, WeightRule
from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.control import ControlFolder, ControlState, read_control_state, write_control_state
from regimescope.monitor.endpoint import Endpoint, write_endpoint

TRAINER = """
import sys, time
from regimescope.monitor import Bounds, Limits, Recorder, SignBounds, WeightRule
from regimescope.monitor.control import Ack, ControlFolder, ControlState, write_control_state
run_dir, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
says, does = sys.argv[4].split(","), sys.argv[5].split(",")
bounds = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
limits = Limits() if "set_bounds" in says else None
options = dict(rule=WeightRule.capped(bounds), limits=limits, can=says, launch="one")
with Recorder(run_dir, rank=rank, ranks=ranks, sync=True, **options) as recorder:
    folder = ControlFolder(run_dir, launch="one", can=does, limits=Limits())
    revision, step, stop = 0, 0, False
    while not stop:
        time.sleep(0.02)
        for command in folder.poll():
            refused = folder.refusal(command, revision=revision, bounds=bounds, now=time.time(), step=step)
            if refused:
                recorder.ack(Ack(id=command.id, step=step, status=refused[0], revision=revision, message=refused[1]))
                continue
            applied, stop = None, command.kind == "stop"
            if command.kind == "set_bounds":
                bounds, revision = Bounds.from_wire(command.args), revision + 1
                applied = bounds
                write_control_state(run_dir, ControlState(revision=revision, bounds=bounds, step=step))
            recorder.ack(Ack(id=command.id, step=step, status="applied", revision=revision, applied=applied))
        recorder.step(step, {"reward_mean": 0.5})
        step += 1
    recorder.end("stopped")
"""
ALL = "set_bounds,pause,resume,stop,checkpoint"


@contextmanager
def training(
    run_dir: Path, *, says: str = ALL, does: str = ALL, ranks: int = 1, started: int | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A loop of another make, one process per rank, running until the block ends."""
    command = [sys.executable, "-W", "error", "-c", TRAINER, str(run_dir)]
    processes = [subprocess.Popen([*command, str(rank), str(ranks), says, does]) for rank in range(started or ranks)]
    try:
        wait_for(lambda: len(list(run_dir.glob("segments/r*"))) == ranks and (run_dir / "control").is_dir())
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def serving(root: Path, *, refuse: str | None = None) -> Iterator[list[dict[str, Any]]]:
    """A server with the routes that the command line uses; yields the requests that it took."""
    taken: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200 if self.path == "/_stcore/health" else 404, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path != "/api/commands" or self.headers["x-regimescope-token"] != "secret":
                return self.answer(401, {"error": "read token missing or wrong"})
            if refuse is not None:
                return self.answer(409, {"error": refuse})
            taken.append(body)
            run_dir = root / body.pop("run")
            with MonitorSegment(run_dir) as segment:
                command = issue(run_dir, segment, launch="one", **body)
            return self.answer(202, {"id": command.id})

        def answer(self, status: int, body: dict[str, str]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    write_endpoint(
        root, Endpoint(host="127.0.0.1", port=server.server_port, pid=1, started=time.time(), token="secret")
    )
    try:
        yield taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def lines(path: Path, kind: str) -> list[dict[str, Any]]:
    return [record for record in map(json.loads, path.read_bytes().splitlines()) if record["k"] == kind]


def monitor_segments(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("segments/monitor-*"))


def observed(run_dir: Path, **options: Any) -> Recorder:
    """A recorder in this process, as a trainer that does not look into its control folder."""
    bounds = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
    base = {"rule": WeightRule.capped(bounds), "limits": Limits(), "can": ALL.split(","), "launch": "one", "sync": True}
    ControlFolder(run_dir, launch="one", can=["pause"])
    return Recorder(run_dir, **{**base, **options})


def fails(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """The one line of a command that exits 2."""
    assert main([str(arg) for arg in argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


# -- without a server --


def test_bounds_and_kinds_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "a" / "run"
    with training(run_dir) as (process,):
        assert (
            main(["bounds", str(run_dir), "--neg-max", "5", "--pos-min", "0", "--why", "R3 runs off", "--by", "ana"])
            == 0
        )
        out = capsys.readouterr().out
        assert out.startswith("applied at step ")
        assert out.endswith(", revision 1\n")
        step = int(out.split()[3].rstrip(","))
        assert main(["bounds", "run", "--root", str(tmp_path / "a"), "--pos-max", "9", "--why", "again"]) == 0
        assert capsys.readouterr().out.endswith(", revision 2\n")
        state = read_control_state(run_dir)
        assert state is not None
        assert state.bounds.to_wire() == {"pos": [0.0, 9.0], "neg": [0.0, 5.0]}  # what was not given stayed as acked
        for kind in ("pause", "resume", "checkpoint", "stop"):
            assert main([kind, str(run_dir)]) == 0
            assert capsys.readouterr().out.startswith("applied at step ")
        assert process.wait(20) == 0
    (command,) = lines(monitor_segments(run_dir)[0], "command")
    assert (command["by"], command["why"], command["expect"]) == ("ana", "R3 runs off", 0)
    assert command["args"] == {"pos": [0.0, 11.0], "neg": [0.0, 5.0]}
    (trainer,) = run_dir.glob("segments/r*")
    assert lines(trainer, "ack")[0]["s"] == step
    assert len(monitor_segments(run_dir)) == 6
    assert "has ended (stopped)" in fails(capsys, "pause", run_dir)


def test_the_command_as_a_process(tmp_path: Path) -> None:
    with training(tmp_path / "run"):
        command = [
            sys.executable,
            "-W",
            "error",
            "-m",
            "regimescope.cli",
            "bounds",
            str(tmp_path / "run"),
            "--neg-min",
            "0.5",
            "--why",
            "x",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "revision 1" in done.stdout


def test_a_rejection_gives_the_reason_and_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with training(tmp_path, does="set_bounds"):
        assert main(["pause", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "rejected: this trainer does not accept 'pause'; it accepts: set_bounds\n"


def test_all_ranks_must_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with training(tmp_path, ranks=2):
        assert main(["pause", str(tmp_path)]) == 0
        assert capsys.readouterr().out.startswith("applied at step")
        acks = [ack for path in tmp_path.glob("segments/r*") for ack in lines(path, "ack")]
        assert len({ack["id"] for ack in acks}) == 1
        assert len(acks) == 2


def test_one_rank_of_two_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with observed(tmp_path, rank=1, ranks=2), training(tmp_path, ranks=2, started=1):
        assert main(["pause", str(tmp_path), "--wait", "0.5"]) == 0
        assert capsys.readouterr().out.startswith("no answer yet")
        assert any(lines(path, "ack") for path in tmp_path.glob("segments/r00000*"))


def test_no_answer_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with observed(tmp_path):
        assert main(["bounds", str(tmp_path), "--neg-max", "7", "--why", "x", "--wait", "0.1"]) == 0
    assert capsys.readouterr().out.startswith("no answer yet; the command stays until ")
    assert len(list((tmp_path / "control").glob("*.json"))) == 1


def test_a_trainer_that_ends_without_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = observed(tmp_path)
    timer = threading.Timer(0.3, recorder.end, ["finished"])
    timer.start()
    assert main(["stop", str(tmp_path)]) == 1
    timer.join()
    assert capsys.readouterr().out == "no answer: the trainer has ended (finished)\n"


def test_a_resumed_launch_is_asked_about_its_own_bounds(tmp_path: Path) -> None:
    """The higher revision of what was acked and what the newest launch began with is in force."""
    older = Bounds.from_wire({"pos": [0.5, 5.0], "neg": [0.0, 50.0]})
    for revision, wanted, w_max in ((1, 2, 101.0), (4, 4, 50.0)):
        run_dir = tmp_path / str(revision)
        write_control_state(run_dir_made(run_dir), ControlState(revision=revision, bounds=older, step=3))
        with observed(run_dir, revision=2, start="resume", first_step=4):
            main(["bounds", str(run_dir), "--pos-max", "4", "--why", "x", "--wait", "0"])
        (command,) = lines(monitor_segments(run_dir)[0], "command")
        assert (command["expect"], command["args"]["neg"][1]) == (wanted, w_max)


def run_dir_made(path: Path) -> Path:
    path.mkdir()
    return path


# -- a user's mistakes --


def test_outside_the_limits_nothing_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with observed(tmp_path):
        err = fails(capsys, "bounds", tmp_path, "--neg-max", "1000", "--neg-min", "1.5", "--why", "x")
        problems = "neg.w_min = 1.5 is outside the limits [0, 1]; neg.w_max = 1000 is outside the limits [1, 101]"
        assert err == f"regimescope: {problems}\n"
        assert "w_min must be finite" in fails(capsys, "bounds", tmp_path, "--neg-max", "nan", "--why", "x")
        assert "no bound given" in fails(capsys, "bounds", tmp_path, "--why", "x")
    assert monitor_segments(tmp_path) == []
    assert list((tmp_path / "control").iterdir()) == []


def test_no_such_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGIMESCOPE_ROOT", str(tmp_path))
    (tmp_path / "empty").mkdir()
    (tmp_path / "said" / "segments").mkdir(parents=True)
    (tmp_path / "said" / "segments" / "monitor-1-2-0000.jsonl").write_text("{}\n")
    (tmp_path / "broken" / "segments").mkdir(parents=True)
    (tmp_path / "broken" / "segments" / "r00000-1-2-0000.jsonl").write_text("{}\n")
    assert "no run folder 'nowhere'" in fails(capsys, "pause", "nowhere")
    assert "holds no segments" in fails(capsys, "pause", "empty")
    assert "holds no segments" in fails(capsys, "pause", tmp_path / "said")
    assert "no header can be read" in fails(capsys, "stop", "broken")


def test_a_run_that_takes_no_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with observed(tmp_path, can=["pause"], limits=None):
        assert "does not take 'stop'; it takes: pause" in fails(capsys, "stop", tmp_path)
        assert "declares no limits" in fails(capsys, "bounds", tmp_path, "--neg-max", "5", "--why", "x")
        (tmp_path / "control").rmdir()
        assert "has no control folder" in fails(capsys, "pause", tmp_path)


@pytest.mark.parametrize(
    "argv", [["bounds", "x"], ["bounds", "x", "--neg-max", "5", "--why", "  "], ["bounds", "x", "--neg-max", "y"]]
)
def test_wrong_arguments(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: regimescope bounds" in capsys.readouterr().err


# -- through a server --


def test_bounds_through_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "team" / "run"
    with training(run_dir), serving(tmp_path) as taken:
        assert main(["bounds", str(run_dir), "--neg-max", "5", "--why", "R3", "--by", "ana"]) == 0
        assert capsys.readouterr().out.endswith(", revision 1\n")
        assert main(["pause", "team/run", "--root", str(tmp_path)]) == 0
    assert taken[0] == {
        "kind": "set_bounds",
        "args": {"pos": [0.8, 11.0], "neg": [0.0, 5.0]},
        "expect": 0,
        "why": "R3",
        "by": "ana",
    }
    assert (taken[1]["kind"], taken[1]["args"], taken[1]["expect"]) == ("pause", {}, None)
    assert len(monitor_segments(run_dir)) == 2  # the server's, not ours


def test_a_server_that_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with observed(tmp_path / "run"), serving(tmp_path, refuse="this server is read-only"):
        assert "refused: this server is read-only" in fails(capsys, "pause", tmp_path / "run")
        write_endpoint_token(tmp_path, "wrong")
        assert "refused: read token missing or wrong" in fails(capsys, "pause", tmp_path / "run")
    assert monitor_segments(tmp_path / "run") == []


def write_endpoint_token(root: Path, token: str) -> None:
    path = root / ".regimescope" / "endpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "token": token}))


def test_an_endpoint_of_a_dead_server_does_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path):
        pass
    with training(tmp_path / "run"):
        assert main(["pause", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.startswith("applied")
    assert len(monitor_segments(tmp_path / "run")) == 1
