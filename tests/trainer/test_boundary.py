"""Commands at the step boundary: real command files, a real Recorder, the answers read back from the segment."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regimescope.monitor.bounds import Bounds, Limits, SignBounds, WeightRule
from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.control import ControlFolder, ControlState, read_control_state
from regimescope.monitor.record import Recorder
from regimescope.trainer.boundary import CAN, ControlBoundary, Wanted
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.policy import Policy, new_tiny_policy
from regimescope.trainer.resume import StartPoint, rollback_start

START = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=1.0, w_max=101.0))
RELAXED = {"pos": [0.8, 11.0], "neg": [0.0, 101.0]}


class Bench:
    """A boundary with everything around it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.recorder = Recorder(run_dir, rule=WeightRule.capped(START), limits=Limits(), can=CAN, sync=True)
        self.interrupted = threading.Event()
        self.saved: Path | None = None
        self.boundary = ControlBoundary(
            ControlFolder(run_dir, launch=self.recorder.launch, can=CAN, limits=Limits()),
            self.recorder,
            bounds=START,
            revision=0,
            interrupted=self.interrupted,
            checkpoint=lambda: self.saved,
            rollback=self.roll_back,
        )
        self.monitor = MonitorSegment(run_dir)

    def roll_back(self, wanted: Wanted, before: ControlState) -> tuple[StartPoint, Policy]:
        """A run whose checkpoints are all gone; the runs of test_rollback.py have some."""
        return rollback_start(
            self.run_dir, TrainConfig(), step=wanted.checkpoint, bounds=wanted.bounds, revision=before.revision + 1
        ), new_tiny_policy(0)

    def ask(
        self,
        kind: str,
        args: dict[str, Any] | None = None,
        *,
        expect: int | None = None,
        launch: str | None = None,
        ttl_s: float = 300,
    ) -> str:
        return issue(
            self.run_dir,
            self.monitor,
            kind=kind,
            args=args or {},
            launch=launch or self.recorder.launch,
            expect=expect,
            by="ana",
            why="test",
            ttl_s=ttl_s,
        ).id

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for text in self.recorder.path.read_text().splitlines() if (line := json.loads(text))["k"] == kind]

    def states(self) -> list[str]:
        return [line["data"]["state"] for line in self.lines("event") if line["kind"] == "state"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "run")
    yield made
    made.recorder.close()
    made.monitor.close()


def test_bounds_are_kept_then_acked_under_a_new_revision(bench: Bench) -> None:
    command = bench.ask("set_bounds", RELAXED, expect=0)
    assert bench.boundary.visit(5)
    assert bench.boundary.revision == 1 and bench.boundary.bounds.to_wire() == RELAXED
    (ack,) = bench.lines("ack")
    assert {key: ack[key] for key in ("id", "s", "status", "rev", "applied")} == {
        "id": command, "s": 5, "status": "applied", "rev": 1, "applied": RELAXED,
    }  # fmt: skip
    state = read_control_state(bench.run_dir)
    assert state is not None and (state.revision, state.bounds, state.step) == (1, bench.boundary.bounds, 5)
    assert bench.boundary.visit(6)
    assert len(bench.lines("ack")) == 1  # each command once


@pytest.mark.parametrize(
    ("args", "expect", "message"),
    [
        ({"pos": [0.8, 11.0], "neg": [0.0, 500.0]}, None, "outside the limits"),
        ({"pos": [0.8, 11.0]}, None, "bounds"),
        (RELAXED, 3, "revision 0 is in force"),
    ],
)
def test_what_is_outside_is_rejected_and_changes_nothing(
    bench: Bench, args: dict[str, Any], expect: int | None, message: str
) -> None:
    bench.ask("set_bounds", args, expect=expect)
    assert bench.boundary.visit(2)
    (ack,) = bench.lines("ack")
    assert ack["status"] == "rejected" and message in ack["msg"]
    assert (bench.boundary.bounds, bench.boundary.revision) == (START, 0)
    assert read_control_state(bench.run_dir) is None


def test_a_command_for_another_launch_or_too_late_expires(bench: Bench) -> None:
    bench.ask("set_bounds", RELAXED, launch="before.0")
    bench.ask("set_bounds", RELAXED, ttl_s=0.01)
    time.sleep(0.05)
    bench.boundary.visit(1)
    assert [ack["status"] for ack in bench.lines("ack")] == ["expired", "expired"]
    assert bench.boundary.bounds == START


def test_a_broken_file_is_answered_and_the_run_goes_on(bench: Bench) -> None:
    (bench.run_dir / "control" / "0199a3c4-7d1e-7000-8000-0000000000a1.json").write_text("{")
    assert bench.boundary.visit(1)
    (ack,) = bench.lines("ack")
    assert ack["status"] == "rejected" and "broken" in ack["msg"]


def test_a_full_disk_rejects_the_change_and_keeps_the_old_bounds(bench: Bench) -> None:
    (bench.run_dir / "control_state.json").mkdir()  # the rename onto it fails
    bench.ask("set_bounds", RELAXED)
    assert bench.boundary.visit(1)
    (ack,) = bench.lines("ack")
    assert ack["status"] == "rejected" and "control_state.json" in ack["msg"]
    assert bench.boundary.bounds == START


def test_pause_holds_the_run_until_resume_and_bounds_can_change_meanwhile(bench: Bench) -> None:
    bench.ask("pause")
    went_on = threading.Event()
    thread = threading.Thread(target=lambda: (bench.boundary.visit(3), went_on.set()), daemon=True)
    thread.start()
    _until(lambda: bench.states() == ["paused"])
    bench.ask("set_bounds", RELAXED)
    _until(lambda: len(bench.lines("ack")) == 2)
    assert not went_on.is_set()
    bench.ask("resume")
    assert went_on.wait(5)
    thread.join()
    assert bench.states() == ["paused", "running"]
    assert [(ack["status"], ack["s"]) for ack in bench.lines("ack")] == [("applied", 3)] * 3
    assert bench.boundary.revision == 1


def test_a_signal_ends_a_pause(bench: Bench) -> None:
    bench.ask("pause")
    threading.Timer(0.2, bench.interrupted.set).start()
    assert bench.boundary.visit(3) is False


def test_stop_resume_and_checkpoint(bench: Bench) -> None:
    bench.ask("resume")
    bench.ask("checkpoint")
    assert bench.boundary.visit(0)
    bench.saved = Path("checkpoints/step-00000000")
    bench.ask("checkpoint")
    assert bench.boundary.visit(1)
    bench.ask("stop")
    assert bench.boundary.visit(2) is False
    told = [(ack["status"], ack["msg"]) for ack in bench.lines("ack")]
    assert told == [
        ("applied", "was not paused"),
        ("rejected", "no step is finished yet, so there is nothing to save"),
        ("applied", "saved step-00000000"),
        ("applied", ""),
    ]


def test_a_rollback_that_cannot_be_is_refused_and_what_came_with_it_is_obeyed(bench: Bench) -> None:
    bench.ask("rollback", {"checkpoint": 7, "bounds": START.to_wire()})
    bench.ask("set_bounds", RELAXED)
    bench.ask("rollback", {"checkpoint": True, "bounds": START.to_wire()})
    bench.ask("rollback", {"checkpoint": 1})
    bench.ask("rollback", {"checkpoint": 1, "bounds": {"pos": [0.8, 11.0], "neg": [0.0, 500.0]}})
    bench.ask("rollback", {"checkpoint": 1, "bounds": START.to_wire()}, expect=7)
    assert bench.boundary.visit(3) and bench.boundary.visit(4)
    told = [(ack["status"], ack["msg"]) for ack in bench.lines("ack")]
    assert [status for status, _ in told] == ["rejected", "applied", *["rejected"] * 4]
    wanted = (
        "has no checkpoint of step 7; it has none",
        "",
        "want the step",
        "without `bounds`",
        "limits",
        "revision 1",
    )
    assert all(part in message for part, (_, message) in zip(wanted, told, strict=True)), told
    assert bench.boundary.back is None
    bench.ask("stop")
    bench.ask("rollback", {"checkpoint": 1, "bounds": START.to_wire()})
    assert bench.boundary.visit(5) is False
    assert "is stopping" in bench.lines("ack")[-1]["msg"]


def _until(true: Any) -> None:
    end = time.monotonic() + 5
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
