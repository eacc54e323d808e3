"""The segments on disk: which runs there are below a root, which files belong to a run, and the new lines of a file.

`find_runs(root)` and `list_segments(run_dir)` look, `read_chunk(path, offset)` reads. A reader elsewhere (NFS) sees
short or NUL-padded tails: a line counts from its newline on, a NUL byte means that the rest has not arrived yet.
Nothing here knows what a line says. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 4 << 20
"Most that one tick reads of a file."
MAX_LINE_BYTES = 16 << 20
"A longer line is refused."
MAX_DEPTH = 4
"Levels of folders below the root in which runs are looked for."

_NAME = re.compile(r"(?:r(?P<rank>\d+)|(?P<monitor>monitor))-(?P<ns>\d+)-(?P<pid>\d+)-(?P<part>\d+)\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """A file of `segments/`, with what its name says."""

    name: str
    size: int
    mtime: float
    "Unix seconds of the file system."
    order: tuple[int, int, int, int, int]
    "Files are read in this order: trainers before monitors, who speak of them; start of the launch, rank, pid, part."

    @property
    def series(self) -> tuple[int, int, int, int]:
        """Parts of one writer share it."""
        return self.order[:4]

    @property
    def is_monitor(self) -> bool:
        """Written by a monitor: no sign of life of the trainer."""
        return self.name.startswith("monitor-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """New lines of a file."""

    lines: list[bytes]
    "Complete lines, without their newline."
    offset: int
    "Just behind the last newline consumed."
    more: bool = False
    "The limit was reached: there is more to read at once."
    too_long: int = 0
    "Lines over MAX_LINE_BYTES, skipped."
    shrunk: bool = False
    "The file is shorter than what was read already."


def find_runs(root: Path) -> list[str]:
    """Paths below the root, with `/`, of all folders that have `segments/`; the root itself is ".". Links and hidden
    folders are not followed.
    """
    return sorted(_runs_in(os.fspath(root), "", MAX_DEPTH))


def _runs_in(folder: str, path: str, depth: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except OSError:  # vanished, or not ours to read
        return
    if "segments" in names:
        yield path or "."
    elif depth > 0:
        for name in names:
            yield from _runs_in(os.path.join(folder, name), f"{path}/{name}" if path else name, depth - 1)


def list_segments(run_dir: Path) -> list[SegmentFile]:
    """The segment files of a run in reading order; empty when the folder is gone."""
    found = []
    try:
        with os.scandir(run_dir / "segments") as entries:
            for entry in entries:
                if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found.append(
                        SegmentFile(
                            name=entry.name, size=status.st_size, mtime=status.st_mtime, order=_order(entry.name)
                        )
                    )
    except OSError:
        return []
    return sorted(found, key=lambda f: (f.order, f.name))


def _order(name: str) -> tuple[int, int, int, int, int]:
    match = _NAME.fullmatch(name)
    if match is None:
        return (0, 0, 0, 0, 0)
    rank = int(match["rank"] or 0)
    return (int(bool(match["monitor"])), int(match["ns"]), rank, int(match["pid"]), int(match["part"]))


def read_chunk(path: Path, offset: int, limit: int = CHUNK_BYTES) -> Chunk:
    """Complete lines from the offset on, at most `limit` bytes of them (one line may be longer). Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size < offset:
            return Chunk(lines=[], offset=offset, shrunk=True)
        data = os.pread(descriptor, limit, offset)
        if len(data) == limit and b"\n" not in data:
            data = os.pread(descriptor, MAX_LINE_BYTES + 1, offset)
            if len(data) > MAX_LINE_BYTES and b"\n" not in data:
                return _skip_line(descriptor, offset)
    finally:
        os.close(descriptor)
    nul = data.find(b"\0")
    end = (data if nul < 0 else data[:nul]).rfind(b"\n") + 1
    lines = data[: end - 1].split(b"\n") if end else []
    return Chunk(lines=lines, offset=offset + end, more=bool(end) and nul < 0 and offset + len(data) < size)


def _skip_line(descriptor: int, offset: int) -> Chunk:
    """Past a line that is too long; where it has no end yet, wait."""
    at = offset
    while data := os.pread(descriptor, CHUNK_BYTES, at):
        found = data.find(b"\n")
        if found >= 0:
            return Chunk(lines=[], offset=at + found + 1, more=True, too_long=1)
        at += len(data)
    return Chunk(lines=[], offset=offset)
