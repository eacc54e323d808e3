"""Segment names and the newest launch of a run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor import Recorder
from regimescope.monitor.errors import RunError
from regimescope.monitor.launch import SegmentName, list_segments, newest_launch

whole = st.integers(0, 10**19)


@given(st.builds(SegmentName, start_ns=whole, rank=st.integers(-1, 200_000), pid=whole, part=st.integers(0, 20_000)))
def test_names_round_trip(name: SegmentName) -> None:
    assert SegmentName.parse(str(name)) == name


@pytest.mark.parametrize(
    "name", ["", "x.jsonl", "r0-1-2-0000.jsonl", "r00000-1-2-0000.jsonl.tmp", "monitor-1-2.jsonl", "r00000-1-2-0000"]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert SegmentName.parse(name) is None


def test_the_newest_launch_as_its_lowest_rank_tells_it(tmp_path: Path) -> None:
    for launch, ranks in (("old", (0, 1)), ("new", (2, 0, 1))):
        for rank in ranks:
            with Recorder(tmp_path, rank=rank, ranks=3, launch=launch, can=["pause"], revision=rank):
                pass
    newest = newest_launch(tmp_path)
    assert (newest.launch, newest.ranks, newest.revision, newest.can) == ("new", 3, 0, ("pause",))
    assert json.loads(newest.segment.read_bytes().splitlines()[0])["rank"] == 0


def test_a_header_that_is_not_written_yet_does_not_hide_the_run(tmp_path: Path) -> None:
    with Recorder(tmp_path, launch="good"):
        pass
    ((_, path),) = list_segments(tmp_path)
    data = path.read_bytes()
    for start, content in ((9, data[:40]), (8, b""), (7, b'{"v":1,"k":"step"}\n'), (6, b'{"v":2,"k":"header"}\n')):
        (tmp_path / "segments" / f"r00000-{start}999999999999999999-1-0000.jsonl").write_bytes(content)
    assert newest_launch(tmp_path).launch == "good"


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run folder"):
        newest_launch(tmp_path / "gone")
    with pytest.raises(RunError, match="holds no segments"):
        newest_launch(tmp_path)
    assert list_segments(tmp_path / "gone") == []
