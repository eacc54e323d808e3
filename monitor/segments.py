"""The segments on disk: which runs there are below a root, which files belong to a run, and the new lines of a file.

`find_runs(root)` and `list_segments(run_dir)` look, `read_chunk(path, offset)` reads. A reader elsewhere (NFS) sees
short or NUL-padded tails: a line counts from its newline on, a NUL byte means that the rest has not arrived yet.
What is not followed or cannot be read is named with its reason, for silence would look like an empty folder. Nothing
here knows what a line says. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

CHUNK_BYTES = 4 << 20
"Most that one tick reads of a file."
MAX_LINE_BYTES = 16 << 20
"A longer line is refused."
MAX_DEPTH = 4
"Levels of folders below the root in which runs are looked for."
SETTLED_S = 60.0
"NUL bytes in a file that nobody wrote to for that long are there to stay; also where CHUNK_BYTES follow them."

LINK = "a link, which is not followed; record into the folder itself, or serve the folder that it points to"
NO_FILE = "no regular file; segments are files that one process appends to, so move it out of segments/"

_START = 200
"Bytes of a skipped line that are kept."
_TRACE_BYTES = 1024
_TOO_LONG = f"over {MAX_LINE_BYTES >> 20} MiB in one line"
_NUL = "NUL bytes where a line should be: it was never written"

_NAME = re.compile(r"(?:r(?P<rank>\d+)|(?P<monitor>monitor))-(?P<ns>\d+)-(?P<pid>\d+)-(?P<part>\d+)\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """A file of `segments/`, with what its name says."""

    name: str
    folder: Path
    "Where it lies: the run's `segments/`, or beside the index where that cannot be written."
    size: int
    mtime: float
    "Unix seconds of the file system."
    stamp: tuple[int, int] = (0, 0)
    "Inode and time of the last change in ns: with the same size another stamp means that it was touched otherwise."
    order: tuple[int, int, int, int, int]
    "Files are read in this order: trainers before monitors, who speak of them; start of the launch, rank, pid, part."

    @property
    def series(self) -> str:
        """Parts of one writer share it."""
        return series_of(self.name)

    @property
    def is_monitor(self) -> bool:
        """Written by a monitor: no sign of life of the trainer."""
        return self.name.startswith("monitor-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A line that is passed over unread."""

    reason: str
    start: bytes
    "Its first bytes."


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """New lines of a file."""

    lines: list[bytes] = field(default_factory=list)
    "Complete lines, without their newline."
    offset: int
    "Just behind the last newline consumed."
    more: bool = False
    "The limit was reached: there is more to read at once."
    skipped: Skipped | None = None
    "One line that began at the offset asked for and is not worth reading; `lines` is empty then."
    scanned: int = 0
    "A line over MAX_LINE_BYTES has no end before this offset: the next call need not look there again."
    replaced: bool = False
    "What was read already is no longer in the file: it is shorter, or says something else."
    trace: str = ""
    "Of what has been read, up to `offset`: for the next call."


def find_runs(root: Path, unread: dict[str, str] | None = None) -> list[str]:
    """Paths below the root, with `/`, of all folders that have `segments/`; the root itself is ".". Links and hidden
    folders are not followed. `unread`: takes the path and reason of what looks like a run and is not looked into.
    """
    return sorted(_runs_in(os.fspath(root), "", MAX_DEPTH, {} if unread is None else unread))


def _runs_in(folder: str, path: str, depth: int, unread: dict[str, str]) -> Iterator[str]:
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                elif entry.is_symlink() and _looks_like_run(entry):
                    unread[f"{path}/{entry.name}" if path else entry.name] = LINK
    except FileNotFoundError:  # vanished
        return
    except OSError as error:  # not ours to read
        unread[path or "."] = f"{error.strerror}; give this user read permission"
        return
    if "segments" in names:
        yield path or "."
    elif depth > 0:
        for name in names:
            yield from _runs_in(os.path.join(folder, name), f"{path}/{name}" if path else name, depth - 1, unread)


def _looks_like_run(link: os.DirEntry[str]) -> bool:
    return os.path.isdir(link.path) and (link.name == "segments" or os.path.isdir(os.path.join(link.path, "segments")))


def list_segments(run_dir: Path, unread: dict[str, str] | None = None, spare: Path | None = None) -> list[SegmentFile]:
    """The segment files of a run in reading order; empty when the folder is gone. `unread`: as in `find_runs`, by the
    path below the run folder. `spare`: folder of those that the run's own could not take.
    """
    said = {} if unread is None else unread
    found = _files_in(run_dir / "segments", said)
    if spare is not None and found:
        found += _files_in(spare, {})
    return sorted(found, key=lambda f: (f.order, f.name))


def _files_in(folder: Path, said: dict[str, str]) -> list[SegmentFile]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(".jsonl"):
                    continue
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    said[f"segments/{entry.name}"] = LINK if stat.S_ISLNK(status.st_mode) else NO_FILE
                    continue
                found.append(
                    SegmentFile(
                        name=entry.name,
                        folder=folder,
                        size=status.st_size,
                        mtime=status.st_mtime,
                        stamp=(status.st_ino, status.st_mtime_ns),
                        order=order_of(entry.name),
                    )
                )
    except FileNotFoundError:
        return []
    except OSError as error:
        said["segments"] = f"{error.strerror}; give this user read permission"
        return []
    return found


def series_of(name: str) -> str:
    """What the parts of one writer share."""
    return name.rpartition("-")[0] if _NAME.fullmatch(name) else name


def order_of(name: str) -> tuple[int, int, int, int, int]:
    """Where a file comes among the others (`SegmentFile.order`)."""
    match = _NAME.fullmatch(name)
    if match is None:
        return (0, 0, 0, 0, 0)
    rank = int(match["rank"] or 0)
    return (int(bool(match["monitor"])), int(match["ns"]), rank, int(match["pid"]), int(match["part"]))


def read_chunk(path: Path, offset: int, limit: int | None = None, *, trace: str = "", scanned: int = 0) -> Chunk:
    """Complete lines from the offset on, at most `limit` bytes of them (one line may be longer; None = CHUNK_BYTES), or
    one line that is skipped. `trace`, `scanned`: of the chunk that ended at the offset. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        chunk = _read(descriptor, offset, CHUNK_BYTES if limit is None else limit, trace, scanned)
        if chunk.offset == offset:
            return replace(chunk, trace=trace)
        return replace(chunk, trace=_trace(descriptor, chunk.offset))
    finally:
        os.close(descriptor)


def is_unchanged(path: Path, offset: int, trace: str) -> bool:
    """Whether the file still begins with what was read of it, as far as its ends tell: an edit in the middle that keeps
    the length goes unnoticed. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.fstat(descriptor).st_size >= offset and trace in ("", _trace(descriptor, offset))
    finally:
        os.close(descriptor)


def _trace(descriptor: int, offset: int) -> str:
    """Of the first and the last KiB before the offset."""
    size = min(_TRACE_BYTES, offset)
    ends = os.pread(descriptor, size, 0) + os.pread(descriptor, size, offset - size)
    return hashlib.blake2b(ends, digest_size=8).hexdigest()


def _read(descriptor: int, offset: int, limit: int, trace: str, scanned: int) -> Chunk:
    status = os.fstat(descriptor)
    if status.st_size < offset or (trace and _trace(descriptor, offset) != trace):
        return Chunk(offset=offset, replaced=True)
    if scanned > offset:
        return _skip_line(descriptor, offset, scanned, status)
    data = os.pread(descriptor, limit, offset)
    if len(data) == limit and b"\n" not in data:
        data = os.pread(descriptor, MAX_LINE_BYTES + 1, offset)
    nul = data.find(b"\0")
    end = (data if nul < 0 else data[:nul]).rfind(b"\n") + 1
    if end == 0 and (nul >= 0 or len(data) > MAX_LINE_BYTES):
        return _skip_line(descriptor, offset, offset + max(0, nul), status)
    lines = data[: end - 1].split(b"\n") if end else []
    more = end > 0 and (nul >= 0 or offset + len(data) < status.st_size)
    return Chunk(lines=lines, offset=offset + end, more=more)


def _skip_line(descriptor: int, offset: int, at: int, status: os.stat_result) -> Chunk:
    """Past a line that is too long, or that NUL bytes stand in for good, looking for its end from `at` on; where it has
    none yet, wait.
    """
    settled = time.time() - status.st_mtime > SETTLED_S
    while data := os.pread(descriptor, CHUNK_BYTES, at):
        found = data.find(b"\n")
        nul = data.find(b"\0", 0, found if found >= 0 else len(data))
        if nul >= 0 and not settled and status.st_size - at - nul <= CHUNK_BYTES:
            return Chunk(offset=offset)
        if found >= 0:
            size = at + found - offset
            reason = _TOO_LONG if size > MAX_LINE_BYTES else _NUL
            start = os.pread(descriptor, min(_START, size), offset)
            return Chunk(offset=at + found + 1, more=True, skipped=Skipped(reason=reason, start=start))
        at += len(data)
    return Chunk(offset=offset, scanned=at)
