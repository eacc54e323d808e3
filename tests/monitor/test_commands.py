"""The monitor's end of the control channel: its segment, command files that arrive whole, and withdrawal."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from regimescope.monitor import Limits, Recorder
from regimescope.monitor.commands import MonitorSegment, issue, retract_finished
from regimescope.monitor.control import Command, ControlFolder
from regimescope.monitor.errors import ControlError
from regimescope.monitor.launch import SegmentName

ARGS = {"pos": [0.8, 5.0], "neg": [0.0, 101.0]}


def trainer(run_dir: Path) -> ControlFolder:
    return ControlFolder(run_dir, launch="one", can=["set_bounds", "pause"], limits=Limits())


def ask(run_dir: Path, segment: MonitorSegment, **changes: Any) -> Command:
    options = {
        "kind": "set_bounds",
        "args": ARGS,
        "launch": "one",
        "expect": 0,
        "by": "ana",
        "why": "a test",
        **changes,
    }
    return issue(run_dir, segment, **options)


def monitor_lines(run_dir: Path) -> list[dict[str, Any]]:
    (path,) = (run_dir / "segments").glob("monitor-*")
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def test_a_command_is_a_line_and_the_same_object_as_a_file(tmp_path: Path) -> None:
    with Recorder(tmp_path, name="abc"):
        pass
    here = trainer(tmp_path)
    with MonitorSegment(tmp_path) as segment:
        command = ask(tmp_path, segment, alert="5b3f0c1e-8d0b-5f0e-9c5a-000000000001", ttl_s=60)
        assert here.poll() == [command]
    header, line, end = monitor_lines(tmp_path)
    assert header["run"].startswith("abc-")
    assert {key: header[key] for key in ("v", "k", "q", "role", "part")} == {
        "v": 1,
        "k": "header",
        "q": 0,
        "role": "monitor",
        "part": 0,
    }
    assert (line.pop("q"), end["k"], end["q"]) == (1, "end", 2)
    assert (
        line == json.loads((here.path / f"{command.id}.json").read_text()) == json.loads(json.dumps(command.to_wire()))
    )
    assert command.not_after - command.t == pytest.approx(60)
    assert abs(command.t - time.time()) < 60
    assert os.listdir(here.path) == [f"{command.id}.json"]


def test_the_segment_begins_with_its_first_line_and_numbers_them(tmp_path: Path) -> None:
    segment = MonitorSegment(tmp_path)
    assert not (tmp_path / "segments").exists()
    for n in range(3):
        segment.write("mark", {"id": str(n), "kind": "note", "text": "ü\n"})
    lines = monitor_lines(tmp_path)
    assert [(line["k"], line["q"]) for line in lines] == [("header", 0), ("mark", 1), ("mark", 2), ("mark", 3)]
    assert lines[1]["text"] == "ü\n"
    segment.close()
    segment.close()
    (path,) = (tmp_path / "segments").iterdir()
    name = SegmentName.parse(path.name)
    assert name is not None
    assert name.is_monitor
    assert str(name) == path.name


def test_a_segment_beside_the_database(tmp_path: Path) -> None:
    with MonitorSegment(tmp_path / "run", folder=tmp_path / "cache" / "segments") as segment:
        segment.write("event", {"kind": "notice", "data": {}})
    assert not (tmp_path / "run").exists()
    assert len(list((tmp_path / "cache" / "segments").iterdir())) == 1


def test_threads_share_a_segment(tmp_path: Path) -> None:
    with MonitorSegment(tmp_path) as segment:

        def work() -> None:
            for _ in range(200):
                segment.write("event", {"kind": "notice", "data": {}})

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [line["q"] for line in monitor_lines(tmp_path)] == list(range(802))


def test_a_run_that_does_not_listen(tmp_path: Path) -> None:
    segment = MonitorSegment(tmp_path)
    with pytest.raises(ControlError, match="no control folder"):
        ask(tmp_path, segment)
    assert not (tmp_path / "segments").exists()  # nothing was said that nobody can hear


@pytest.mark.parametrize(
    "changes, words", [({"kind": "retreat"}, "no such command"), ({"ttl_s": float("inf")}, "must end")]
)
def test_commands_that_make_no_sense(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    trainer(tmp_path)
    with pytest.raises(ControlError, match=words):
        ask(tmp_path, MonitorSegment(tmp_path), **changes)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ControlError, match="cannot write to"):
        MonitorSegment(tmp_path / "file").write("mark", {})
    with pytest.raises(ControlError, match="cannot be written as JSON"):
        MonitorSegment(tmp_path).write("mark", {"x": object()})


def test_a_reader_never_sees_half_a_command(tmp_path: Path) -> None:
    here, seen = trainer(tmp_path), 0
    with MonitorSegment(tmp_path) as segment:

        def work() -> None:
            for _ in range(150):
                ask(tmp_path, segment, why="w" * 20_000)

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive() or seen < 150:
            seen += len(here.poll())
            assert here.broken == []
        thread.join()
    assert seen == 150


def test_finished_commands_are_withdrawn(tmp_path: Path) -> None:
    here = trainer(tmp_path)
    (tmp_path / "keep.json").write_text("")
    with MonitorSegment(tmp_path) as segment:
        first, second = ask(tmp_path, segment), ask(tmp_path, segment)
    retract_finished(tmp_path, [first.id, first.id, "../keep", "", "0199a3c4-7d1e-7000-8000-0000000000a1"])
    assert os.listdir(here.path) == [f"{second.id}.json"]
    assert (tmp_path / "keep.json").exists()
    retract_finished(tmp_path / "gone", [second.id])
