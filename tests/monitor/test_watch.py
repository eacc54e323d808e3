"""`regimescope watch` as a process of its own, beside the job that writes the log."""

import contextlib
import subprocess
import sys
import time
import tracemalloc

import pytest

from regimescope.cli import main
from regimescope.monitor import Recorder
from regimescope.monitor.imports.formats import Options, open_log
from regimescope.monitor.imports.rows import Notes
from regimescope.monitor.private import read_run


def line(step):
    return f"step:{step} - actor/entropy:0.4 - critic/score/mean:0.{step % 10} - response_length/mean:200.0\n"


@contextlib.contextmanager
def watching(log, root):
    command = [sys.executable, "-m", "regimescope.cli", "watch", str(log), "--root", str(root), "--name", "x"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert "feeding" in process.stdout.readline()
        yield process
    finally:
        process.terminate()  # Ctrl-C is ignored by whoever was started in the background, and so by its children
        process.communicate(timeout=30)


def last_step(root):
    with contextlib.suppress(Exception), read_run("x", str(root)) as view:
        return view.run.last_step, view.run.launch_id, view.run.status
    return None, None, None


def wait_for(root, step, limit_s=40.0):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = last_step(root)
        if found[0] == step:
            return found
        time.sleep(0.3)
    pytest.fail(f"step {step} did not come within {limit_s} s, but {found}")


def test_a_growing_log_feeds_a_run_and_a_watch_that_begins_again_goes_on(tmp_path):
    log, root = tmp_path / "train.log", tmp_path / "root"
    log.write_text("starting\n" + "".join(map(line, range(1, 6))))
    with watching(log, root):
        wait_for(root, 5)
        with open(log, "a") as job:
            job.write("(vLLM pid=7) INFO\n" + line(6) + "step:7 - actor/entr")
        _, launch, status = wait_for(root, 6)
        assert status == "running"
    with open(log, "a") as job:
        job.write("opy:0.4 - critic/score/mean:0.7\n" + line(8))
    with watching(log, root):
        assert wait_for(root, 8)[1] == launch
    with read_run("x", str(root)) as view:
        assert view.run.imported_from == "verl console"


def test_a_watch_does_not_write_into_a_run_that_it_did_not_make(tmp_path, capsys):
    with Recorder(tmp_path / "x") as recorder:
        recorder.step(0, {"loss": 1.0})
    log = tmp_path / "train.log"
    log.write_text(line(1))
    assert main(["watch", str(log), "--root", str(tmp_path), "--name", "x"]) == 2
    assert "another run" in capsys.readouterr().err


def test_a_log_that_is_not_there_is_named_before_anything_is_made(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "none.log"), "--root", str(tmp_path / "root")]) == 2
    assert main(["check", str(tmp_path / "none.log")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "no log" in said.err and "no run folder and no log" in said.err
    assert not (tmp_path / "root").exists()


def test_memory_does_not_grow_with_the_text(tmp_path):
    log = tmp_path / "a.log"
    noise = "".join(f"(worker pid={i}) the model says step: {i} - and so on, at some length\n" for i in range(20_000))

    def peak(copies):
        with open(log, "w") as file:
            for i in range(copies):
                file.write(noise + line(i))
        tracemalloc.start()
        rows = sum(row is not None for row in open_log(log, Notes(), Options()))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert rows == copies
        return most

    assert peak(8) < 1.3 * peak(2)
