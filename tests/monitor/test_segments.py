"""The files below a root: which are found, in which order, and which lines of them count."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor.segments import MAX_LINE_BYTES, find_runs, list_segments, read_chunk


def test_runs_are_folders_with_segments_at_any_depth(tmp_path: Path) -> None:
    for path in ("a/segments", "group/b/segments", ".hidden/c/segments", "empty", "a/rollouts/segments"):
        (tmp_path / path).mkdir(parents=True)
    os.symlink(tmp_path / "a", tmp_path / "link")
    assert find_runs(tmp_path) == ["a", "group/b"]
    assert find_runs(tmp_path / "a") == ["."]
    assert find_runs(tmp_path / "missing") == []


def test_segments_come_in_order_of_launch_rank_and_part(tmp_path: Path) -> None:
    folder = tmp_path / "segments"
    folder.mkdir()
    names = [
        "r00000-100-7-0000.jsonl",
        "r00000-100-7-0001.jsonl",
        "r00001-100-8-0000.jsonl",
        "r00000-200-7-0000.jsonl",
        "monitor-150-9-0000.jsonl",
    ]
    for name in [*reversed(names), "r00000-300-7-0000.jsonl.tmp"]:
        (folder / name).write_text("x\n")
    found = list_segments(tmp_path)
    assert [file.name for file in found] == names
    assert [file.is_monitor for file in found] == [False, False, False, False, True]
    assert found[0].series == found[1].series != found[2].series


def test_a_torn_tail_waits_for_its_newline(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":')
    chunk = read_chunk(path, 0)
    assert (chunk.lines, chunk.offset, chunk.more) == ([b'{"a":1}'], 8, False)
    with path.open("ab") as file:
        file.write(b"2}\n")
    assert read_chunk(path, chunk.offset).lines == [b'{"b":2}']


def test_nul_bytes_have_not_arrived_yet(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\n\0\0\0\n")
    chunk = read_chunk(path, 0)
    assert (chunk.lines, chunk.offset) == ([b"one"], 4)
    path.write_bytes(b"one\ntwo\n")
    assert read_chunk(path, 4).lines == [b"two"]


def test_a_chunk_is_limited_and_says_that_there_is_more(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"12345\n" * 10)
    chunk = read_chunk(path, 0, limit=20)
    assert (len(chunk.lines), chunk.offset, chunk.more) == (3, 18, True)


def test_a_line_longer_than_the_chunk_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"x" * 100 + b"\nnext\n")
    assert read_chunk(path, 0, limit=20).lines == [b"x" * 100, b"next"]


def test_a_line_over_the_limit_is_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"x" * (MAX_LINE_BYTES + 10))
    assert read_chunk(path, 0).offset == 0  # no end in sight: wait
    with path.open("ab") as file:
        file.write(b"\nnext\n")
    chunk = read_chunk(path, 0)
    assert (chunk.lines, chunk.offset) == ([], MAX_LINE_BYTES + 11)
    assert chunk.skipped is not None and chunk.skipped.reason == "over 16 MiB in one line"
    assert chunk.skipped.start == b"x" * 200
    assert read_chunk(path, chunk.offset).lines == [b"next"]


def test_a_file_that_became_shorter_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\n")
    assert read_chunk(path, 100).replaced


@given(
    st.lists(st.binary(min_size=1, max_size=12).filter(lambda b: b"\n" not in b and b"\0" not in b), max_size=8),
    st.data(),
)
def test_however_the_bytes_arrive_every_line_comes_once(tmp_path_factory, lines, data) -> None:
    path = tmp_path_factory.mktemp("tail") / "s.jsonl"
    content = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=5)))
    got, offset = [], 0
    for end in [*cuts, len(content)]:
        path.write_bytes(content[:end])
        chunk = read_chunk(path, offset, limit=16)
        while True:
            got += chunk.lines
            offset = chunk.offset
            if not chunk.more:
                break
            chunk = read_chunk(path, offset, limit=16)
    assert got == lines
