"""The append-only file at the edge of a full disk, with the kernel's own limit on file sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from regimescope.monitor.appender import Appender
from regimescope.monitor.launch import SegmentName

FULL = """
import json, os, resource, sys
from pathlib import Path
from regimescope.monitor.appender import Appender
from regimescope.monitor.launch import SegmentName
name = SegmentName(start_ns=1, rank=0, pid=2, part=0)
appender = Appender(Path(sys.argv[1]), name, lambda part, q: b'h' * 99 + b'\\n')
line = b'x' * 99 + b'\\n'
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
told = []
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
def append(count):
    kept = appender.append(line * count, 0)
    told.append([kept, os.path.getsize(appender.path)])
limit(550)
append(10)      # four lines fit, and half a fifth
append(1)       # none
limit(660)
append(1)       # somebody made room for one
append(1)
limit(hard)
append(3)
print(json.dumps(told))
"""


def test_a_full_disk_keeps_whole_lines_and_takes_none_back(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == [[400, 500], [0, 500], [100, 600], [0, 600], [300, 900]]
    (path,) = tmp_path.iterdir()
    assert {len(line) for line in path.read_bytes().splitlines()} == {99}


def test_parts(tmp_path: Path) -> None:
    name = SegmentName(start_ns=1, rank=0, pid=2, part=0)
    appender = Appender(tmp_path, name, lambda part, q: f"part {part} after {q}\n".encode(), part_bytes=100)
    for n in range(20):
        assert appender.append(f"line {n:06d}\n".encode(), n) == 12
    assert appender.path == tmp_path / "r00000-1-2-0002.jsonl"
    appender.close()
    parts = [path.read_text().splitlines() for path in sorted(tmp_path.iterdir())]
    assert [part[0] for part in parts] == ["part 0 after 0", "part 1 after 7", "part 2 after 14"]
    assert [line for part in parts for line in part[1:]] == [f"line {n:06d}" for n in range(20)]


def test_where_no_new_part_can_be_made_the_old_one_goes_on(tmp_path: Path) -> None:
    name = SegmentName(start_ns=1, rank=0, pid=2, part=0)
    (tmp_path / "r00000-1-2-0001.jsonl").write_text("somebody else's\n")
    appender = Appender(tmp_path, name, lambda part, q: b"header\n", part_bytes=20)
    for _ in range(4):
        assert appender.append(b"0123456789\n", 0) == 11
    appender.close()
    assert (tmp_path / str(name)).stat().st_size == 7 + 44
    assert (tmp_path / "r00000-1-2-0001.jsonl").read_text() == "somebody else's\n"


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    name = SegmentName(start_ns=1, rank=0, pid=2, part=0)
    appender = Appender(tmp_path, name, lambda part, q: b"header\n")
    appender.close()
    appender.close()
    assert appender.append(b"x\n", 0) == 0
    assert isinstance(appender.error, OSError)
    with pytest.raises(FileExistsError):
        Appender(tmp_path, name, lambda part, q: b"header\n")
