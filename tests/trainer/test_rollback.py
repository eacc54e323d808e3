"""A rollback by the living trainer: real runs in this process, asked by a thread through real command files."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from regimescope.cli import main as cli
from regimescope.monitor import steer
from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.control import read_control_state
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.launch import list_segments, newest_launch
from regimescope.monitor.store import Store
from regimescope.trainer import launches
from regimescope.trainer.checkpoint import CheckpointFolder
from regimescope.trainer.errors import CheckpointError

KEYS = {
    "model.path": "warm:B",
    "rollout.prompts": 6,
    "rollout.group": 4,
    "rollout.max_tokens": 32,
    "update.batch": 8,
    "evaluation.every": 0,
}
FAST = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}")]
START = {"pos": [0.8, 11.0], "neg": [1.0, 101.0]}
RELAXED = {"pos": [0.8, 11.0], "neg": [0.0, 101.0]}
T = TypeVar("T")


class Killed(BaseException):
    """Stands for kill -9: nothing that looks for an Exception sees it."""


class Run:
    """A run of length-collapse, as the thread that asks things of it sees it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def lines(self, launch: int, kind: str = "") -> list[dict[str, Any]]:
        """Complete lines of the launch at this position."""
        paths = [path for name, path in list_segments(self.run_dir) if not name.is_monitor]
        if launch >= len(paths) or -launch > len(paths):
            return []
        texts = [text for text in paths[launch].read_text().splitlines(keepends=True) if text.endswith("\n")]
        return [line for line in map(json.loads, texts) if kind in ("", line["k"])]

    def launches(self) -> int:
        return sum(not name.is_monitor for name, _ in list_segments(self.run_dir))

    def steps(self, launch: int) -> list[int]:
        return [line["s"] for line in self.lines(launch, "step")]

    def ask(self, kind: str, args: dict[str, Any] | None = None, expect: int | None = None) -> dict[str, Any]:
        """Send a command and wait for its ack, in whichever launch it comes."""
        with MonitorSegment(self.run_dir) as segment:
            command = issue(
                self.run_dir, segment, kind=kind, args=args or {}, launch=newest_launch(self.run_dir).launch,
                expect=expect, by="ana", why="test",
            )  # fmt: skip
        return wait_for(lambda: next((a for a in self.lines(-1, "ack") if a["id"] == command.id), None))

    def back(self, checkpoint: int, bounds: dict[str, list[float]], expect: int | None = None) -> dict[str, Any]:
        return self.ask("rollback", {"checkpoint": checkpoint, "bounds": bounds}, expect)

    def train(self, act: Callable[[], object], *, resume: Sequence[str] = ()) -> int:
        """Run the trainer here while `act` runs in a thread; what that raises is raised."""
        failed: list[BaseException] = []

        def guarded() -> None:
            try:
                act()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        options = resume or ["--scenario", "length-collapse", *FAST]
        try:
            code = cli(["train", "--run-dir", str(self.run_dir), "--steps", "60", "--pace", "0.1", *options])
        finally:
            thread.join()
        if failed:
            raise failed[0]
        return code


def wait_for(found: Callable[[], T | None], limit_s: float = 60.0) -> T:
    end = time.monotonic() + limit_s
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return value


def disk_full(*_: object) -> None:
    raise CheckpointError("cannot move them: No space left on device")


def rows(root: Path, sql: str) -> list[tuple[Any, ...]]:
    store = Store.in_memory(root)
    try:
        Ingester(store).catch_up()
        with store.cursor() as con:
            return con.execute(sql).fetchall()
    finally:
        store.close()


def kept(run_dir: Path) -> list[str]:
    return sorted(str(path.relative_to(run_dir / "checkpoints")) for path in run_dir.glob("checkpoints/**/step-*"))


def test_a_living_run_goes_back_also_while_paused_and_repeats_its_steps(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    acks: list[dict[str, Any]] = []

    def act() -> None:
        wait_for(lambda: len(run.steps(0)) >= 4)
        acks.append(run.back(1, START, expect=0))
        wait_for(lambda: len(run.steps(1)) >= 3)
        acks.append(run.back(99, START))
        acks.append(run.ask("pause"))
        acks.append(run.back(2, RELAXED, expect=1))
        time.sleep(0.7)
        assert run.steps(2) == [] and run.lines(2)[-1]["data"] == {"state": "paused"}
        acks.append(run.ask("resume"))
        wait_for(lambda: run.steps(2))
        acks.append(run.ask("stop"))

    assert run.train(act) == 0
    told = [(ack["status"], ack["rev"], ack.get("applied")) for ack in acks]
    assert told == [
        ("applied", 1, START), ("rejected", 1, None), ("applied", 1, None), ("applied", 2, RELAXED),
        ("applied", 2, None), ("applied", 2, None),
    ]  # fmt: skip
    assert "no checkpoint of step 99; it has 0, 1" in acks[1]["msg"]
    assert (acks[0]["s"], acks[3]["s"], acks[3]["msg"]) == (2, 3, "back to the checkpoint of step 2")
    assert len({ack["id"] for i in range(3) for ack in run.lines(i, "ack")}) == len(acks)
    assert sum(len(run.lines(i, "ack")) for i in range(3)) == len(acks)  # each exactly once

    headers = [run.lines(i, "header")[0] for i in range(3)]
    assert [(h["start"], h["first_step"], h["revision"], h["bounds"]) for h in headers] == [
        ("fresh", 0, 0, START), ("rollback", 2, 1, START), ("rollback", 3, 2, RELAXED),
    ]  # fmt: skip
    assert len({header["launch"] for header in headers}) == 3
    assert [run.lines(i, "end")[0]["reason"] for i in range(3)] == ["rollback", "rollback", "stopped"]
    state = read_control_state(run.run_dir)
    assert state is not None and (state.revision, state.step, state.bounds.to_wire()) == (2, 3, RELAXED)
    for name in ("accuracy", "response_length_mean", "grad_norm", "entropy_mean"):  # under the same bounds: the same
        once, again = ({line["s"]: line["m"][name] for line in run.lines(i, "step")} for i in (0, 1))
        assert [once[step] for step in (2, 3)] == [again[step] for step in (2, 3)]
    assert {"superseded-1/step-00000002", "superseded-2/step-00000003"} <= set(kept(run.run_dir))

    launch = rows(tmp_path, "SELECT started_by, end_reason, superseded_from FROM launch ORDER BY launch_no")
    assert launch == [("fresh", "rollback", 2), ("rollback", "rollback", 3), ("rollback", "stopped", None)]
    found = rows(tmp_path, "SELECT kind, status, revision FROM v_command ORDER BY command_id")
    assert [(kind, status) for kind, status, _ in found] == [
        ("rollback", "applied"), ("rollback", "rejected"), ("pause", "applied"), ("rollback", "applied"),
        ("resume", "applied"), ("stop", "applied"),
    ]  # fmt: skip


@pytest.mark.parametrize("place", ["nothing written", "state written", "checkpoints aside", "no ack"])
def test_killed_in_a_rollback_it_happened_or_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The resumed run is in force under the new bounds from the checkpoint on, or nothing of the command is left."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    def after(method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **keys: object) -> None:
            method(*args, **keys)
            raise Killed

        return call

    run = Run(tmp_path / "run")
    with monkeypatch.context() as patched:
        if place == "nothing written":
            patched.setattr(launches, "keep_rollback", die)
        elif place == "state written":
            patched.setattr(CheckpointFolder, "supersede_after", die)
        elif place == "checkpoints aside":
            patched.setattr(CheckpointFolder, "supersede_after", after(CheckpointFolder.supersede_after))
        else:
            patched.setattr(launches, "_rolled_back", die)

        def act() -> None:
            wait_for(lambda: len(run.steps(0)) >= 4)
            args = {"checkpoint": 1, "bounds": RELAXED}
            with MonitorSegment(run.run_dir) as segment:
                issue(run.run_dir, segment, kind="rollback", args=args, launch=newest_launch(run.run_dir).launch,
                      expect=0, by="ana", why="test")  # fmt: skip

        with pytest.raises(Killed):
            run.train(act)
    done = place != "nothing written"
    last = run.steps(0)[-1]

    before = run.launches()

    def stop() -> None:
        wait_for(lambda: run.launches() > before and run.steps(-1))
        run.ask("stop")

    assert run.train(stop, resume=["--resume"]) == 0
    header = run.lines(-1, "header")[0]
    wanted = (2, 1, RELAXED) if done else (last + 1, 0, START)
    assert (header["first_step"], header["revision"], header["bounds"]) == wanted
    assert ("superseded-1/step-00000002" in kept(run.run_dir)) == done
    assert not (run.run_dir / "checkpoints" / "superseded-2").exists()
    expired, stopped = run.lines(-1, "ack")
    assert (expired["status"], stopped["status"]) == ("expired", "applied")  # for the launch that was killed


def test_a_checkpoint_that_cannot_be_read_or_set_aside_is_refused_and_nothing_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run")
    checkpoints = run.run_dir / "checkpoints"
    said: list[str] = []
    codes: list[int] = []

    def act() -> None:
        wait_for(lambda: len(run.steps(0)) >= 4)
        (checkpoints / "step-00000000" / "trainer.pt").write_bytes(b"not a checkpoint")
        (checkpoints / "step-00000001" / "model.safetensors").write_bytes(b"nor a model")
        said.extend(run.back(step, RELAXED)["msg"] for step in (0, 1))
        with monkeypatch.context() as full:
            full.setattr(CheckpointFolder, "supersede_after", disk_full)
            said.append(run.back(2, RELAXED)["msg"])
        state = read_control_state(run.run_dir)
        assert state is not None and (state.revision, state.bounds.to_wire()) == (0, START)
        codes.append(steer.main(["rollback", str(run.run_dir), "--to", "2", "--neg-min", "0", "--why", "R4"]))
        run.ask("stop")

    assert run.train(act) == 0
    assert "step-00000000 cannot be read" in said[0] and "step-00000001" in said[1]
    assert said[2] == "cannot move them: No space left on device"
    assert (
        codes == [0] and "applied at step 3, revision 1 (back to the checkpoint of step 2)" in capsys.readouterr().out
    )
    assert run.lines(1, "header")[0]["bounds"] == RELAXED and len(run.lines(0, "ack")) == 3
