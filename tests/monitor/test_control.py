"""The trainer's end of the control channel: what it obeys, what it refuses and in which words.

And that no file can hurt it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor.bounds import Bounds, Limits, SignBounds
from regimescope.monitor.control import (
    Ack,
    Command,
    ControlFolder,
    ControlState,
    bounds_problems,
    read_control_state,
    write_control_state,
)
from regimescope.monitor.errors import ControlError
from regimescope.monitor.ids import is_uuid, uuid7

NOW = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
CAN = ("set_bounds", "pause", "resume")


def command(**changes: Any) -> Command:
    base = Command(
        id=str(uuid7()),
        launch="one",
        kind="set_bounds",
        args={"pos": [0.8, 5.0], "neg": [0.0, 101.0]},
        expect=3,
        not_after=2000.0,
        by="ana",
        why="entropy rises",
        t=1700.0,
    )
    return replace(base, **changes)


def folder(run_dir: Path, **options: Any) -> ControlFolder:
    return ControlFolder(run_dir, **{"launch": "one", "can": CAN, "limits": Limits(), **options})


def write(run_dir: Path, asked: Command) -> Path:
    path = run_dir / "control" / f"{asked.id}.json"
    path.write_text(json.dumps(asked.to_wire()))
    return path


def refusal(asked: Command, **options: Any) -> tuple[str, str] | None:
    here = options.pop("folder")
    result: tuple[str, str] | None = here.refusal(asked, **{"revision": 3, "bounds": NOW, "now": 1900.0, **options})
    return result


# -- ids --


def test_uuid7_sorts_by_time_and_is_one() -> None:
    before = time.time_ns() // 1_000_000
    ids = [uuid7() for _ in range(5000)]
    assert ids == sorted(set(ids))
    assert {(one.version, one.variant) for one in ids} == {(7, "specified in RFC 4122")}
    assert before <= ids[0].int >> 80 <= ids[-1].int >> 80 <= time.time_ns() // 1_000_000
    assert all(is_uuid(str(one)) for one in ids[:10])
    assert not any(
        is_uuid(text) for text in ("", "x", str(ids[0]).upper(), f"{{{ids[0]}}}", "../../etc/passwd", ids[0].hex)
    )


# -- values on the wire --


@given(
    st.builds(
        Command,
        id=st.uuids().map(str),
        launch=st.text(),
        kind=st.text(),
        by=st.text(),
        why=st.text(),
        alert=st.none() | st.text(),
        args=st.just({"pos": [0.0, 1.0], "neg": [0.0, 2.0]}) | st.just({}),
        expect=st.none() | st.integers(0, 99),
        not_after=st.floats(0, 2e9),
        t=st.floats(0, 2e9),
    )
)
def test_commands_round_trip(asked: Command) -> None:
    assert Command.from_wire(json.loads(json.dumps(asked.to_wire()))) == asked


bounds = st.builds(
    Bounds,
    pos=st.builds(SignBounds, w_min=st.floats(0, 1), w_max=st.floats(1, 9)),
    neg=st.just(SignBounds(w_min=0.0, w_max=math.inf)),
)


@given(
    st.builds(
        Ack,
        id=st.uuids().map(str),
        step=st.none() | st.integers(0, 99),
        revision=st.none() | st.integers(0, 9),
        message=st.text(),
        status=st.sampled_from(["received", "applied", "rejected", "expired"]),
        applied=st.none() | bounds,
    )
)
def test_acks_round_trip(ack: Ack) -> None:
    assert Ack.from_wire(ack.to_wire()) == ack


@pytest.mark.parametrize(
    "wire", [{}, {"id": "x"}, {"id": "x", "status": "done"}, {"id": "x", "status": "applied", "applied": {"pos": 1}}]
)
def test_acks_that_are_none(wire: dict[str, Any]) -> None:
    with pytest.raises(ControlError):
        Ack.from_wire(wire)


# -- the state that survives --


def test_control_state_round_trips_and_is_replaced_as_a_whole(tmp_path: Path) -> None:
    assert read_control_state(tmp_path) is None
    for revision, w_max in ((1, math.inf), (2, 5.0)):
        state = ControlState(revision=revision, bounds=NOW.with_values({"neg.w_max": w_max}), step=40 + revision)
        write_control_state(tmp_path, state)
        assert read_control_state(tmp_path) == state
    assert os.listdir(tmp_path) == ["control_state.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"revision":1,"bounds":{"pos":[1,0],"neg":[0,1]},"step":2}', "\x00"]
)
def test_a_broken_control_state_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "control_state.json").write_text(text)
    with pytest.raises(ControlError, match="delete it"):
        read_control_state(tmp_path)


def test_a_control_state_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="cannot write"):
        write_control_state(tmp_path / "gone", ControlState(revision=1, bounds=NOW, step=0))


# -- the folder --


def test_the_folder_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "open" / "control").mkdir(parents=True, mode=0o777)
    for name in ("new", "open"):
        made = folder(tmp_path / name)
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o700


def test_set_bounds_needs_limits(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="must declare limits"):
        folder(tmp_path, limits=None)
    folder(tmp_path, limits=None, can=["pause"])


def test_commands_come_once_in_the_order_of_issue(tmp_path: Path) -> None:
    here = folder(tmp_path)
    asked = [command(why=str(n)) for n in range(5)]
    for one in (asked[3], asked[0], asked[2]):
        write(tmp_path, one)
    (here.path / f".{asked[1].id}.json.tmp").write_text("half")
    assert here.poll() == [asked[0], asked[2], asked[3]]
    assert here.poll() == []
    write(tmp_path, asked[1])
    write(tmp_path, asked[0])  # again: it was seen
    assert here.poll() == [asked[1]]
    assert here.broken == []


def test_broken_files_are_reported_once_and_never_raise(tmp_path: Path) -> None:
    here = folder(tmp_path)
    good = command()
    names = [str(uuid7()) for _ in range(10)]
    contents: list[str | bytes] = ["", "{", "[]", "null", b"\xff\xfe", "[" * 100_000, "9" * 5000]
    for name, content in zip(names, contents, strict=False):
        (here.path / f"{name}.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    shutil.copy(write(tmp_path, good), here.path / f"{names[7]}.json")
    os.mkfifo(here.path / f"{names[8]}.json")
    (here.path / f"{names[9]}.json").symlink_to("/etc/passwd")
    (here.path / "notes.txt").write_text("not for us")
    assert here.poll() == [good]
    assert sorted(ack.id for ack in here.broken) == names
    assert {ack.status for ack in here.broken} == {"rejected"}
    assert all(ack.message and ack.step is None for ack in here.broken)
    assert "a copied file is no command" in next(ack.message for ack in here.broken if ack.id == names[7])
    assert here.poll() == []
    assert here.broken == []


KEYS = ("id", "launch", "kind", "args", "expect", "not_after", "by", "why", "alert")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [None, 3.5, "x", [1], {"a": 1}, True])
def test_no_value_of_a_key_makes_the_trainer_fall(tmp_path: Path, key: str, value: object) -> None:
    here, asked = folder(tmp_path), command()
    path = write(tmp_path, asked)
    path.write_text(json.dumps({**asked.to_wire(), key: value}))
    for found in here.poll():
        refusal(found, folder=here)
    assert len(here.broken) <= 1


def test_a_folder_that_vanishes_gives_no_commands(tmp_path: Path) -> None:
    here = folder(tmp_path)
    here.path.rmdir()
    assert here.poll() == []


# -- what is obeyed --


def test_a_good_command_is_obeyed(tmp_path: Path) -> None:
    here = folder(tmp_path)
    assert refusal(command(), folder=here) is None
    assert refusal(command(expect=None), folder=here) is None
    assert refusal(command(kind="pause", args={}, expect=None), folder=here) is None


REFUSALS = [
    ({"launch": "two"}, "expired", "launch two, this is one"),
    ({"not_after": 1899.0}, "expired", "1 s after its end"),
    ({"kind": "rollback"}, "rejected", "does not accept 'rollback'; it accepts: set_bounds, pause, resume"),
    ({"expect": 2}, "rejected", "revision 3 is in force, the command expected 2"),
    ({"kind": "pause", "args": {}, "expect": 4}, "rejected", "revision 3 is in force"),
    ({"args": {}}, "rejected", "want {'pos': [w_min, w_max]"),
    ({"args": {"pos": [2.0, 1.0], "neg": [0.0, 101.0]}}, "rejected", "w_min must be finite"),
    ({"args": {"pos": [0.8, "NaN"], "neg": [0.0, 101.0]}}, "rejected", "w_min must be finite"),
]


@pytest.mark.parametrize("changes, status, words", REFUSALS)
def test_refusals(tmp_path: Path, changes: dict[str, Any], status: str, words: str) -> None:
    answer = refusal(command(**changes), folder=folder(tmp_path))
    assert answer is not None
    assert answer[0] == status
    assert words in answer[1]


def test_outside_the_limits_the_words_are_those_of_the_limits(tmp_path: Path) -> None:
    wire: dict[str, object] = {"pos": [0.8, 200.0], "neg": [1.5, "Infinity"]}
    answer = refusal(command(args=wire), folder=folder(tmp_path))
    assert answer == ("rejected", "; ".join(Limits().problems(Bounds.from_wire(wire))))
    assert "neg.w_max = inf is outside the limits [1, 101]" in answer[1]


def test_of_two_commands_that_expect_the_same_revision_one_is_applied(tmp_path: Path) -> None:
    here, revision, answers = folder(tmp_path), 3, []
    for asked in (command(), command()):
        write(tmp_path, asked)
    for asked in here.poll():
        answers.append(refusal(asked, folder=here, revision=revision))
        revision += answers[-1] is None
    assert answers[0] is None
    assert answers[1] is not None
    assert answers[1][0] == "rejected"


def test_a_sign_without_bounds_cannot_be_moved(tmp_path: Path) -> None:
    limits = Limits(pos=None)
    here = folder(tmp_path, limits=limits)
    assert refusal(command(args=NOW.with_values({"neg.w_max": 5}).to_wire()), folder=here) is None
    answer = refusal(command(), folder=here)
    assert answer is not None
    assert "pos: the weight of this sign is constant" in answer[1]
    assert bounds_problems(NOW, None, NOW) != []


def test_guard_is_limited_on_the_positive_pair_only(tmp_path: Path) -> None:
    here = folder(tmp_path)

    def guard(step: int | None, **values: float) -> tuple[str, str] | None:
        named = {key.replace("_", ".", 1): value for key, value in values.items()}
        return refusal(command(by="guard", args=NOW.with_values(named).to_wire()), folder=here, step=step)

    assert guard(20, pos_w_max=5.0) is not None  # 11 -> 5 is more than a factor of 2
    assert guard(None, pos_w_max=6.0) is not None  # fails closed: without a step nothing is counted
    assert guard(20, pos_w_max=6.0) is None
    assert guard(29, pos_w_max=6.0) is not None  # 9 steps later
    assert guard(29, neg_w_max=2.0) is None  # the negative pair moves freely
    assert guard(30, pos_w_max=6.0, neg_w_max=1.0) is None
    assert (
        refusal(command(args=NOW.with_values({"pos.w_max": 1.0}).to_wire()), folder=here, step=31) is None
    )  # a person
