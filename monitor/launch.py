"""Segment files of a run folder: their names, their headers, and the newest launch.

For the Recorder and the command line; standard library only. `r00003-1790000000125000000-4242-0000.jsonl`: rank, start
of the process in ns, process id, part. `monitor-<ns>-<pid>-<part>.jsonl`: the monitor's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from regimescope.monitor.bounds import Bounds, Limits
from regimescope.monitor.errors import BoundsError, RunError, WireError
from regimescope.monitor.wire import decode

_NAME = re.compile(r"(?:r(\d{5,})|monitor)-(\d+)-(\d+)-(\d{4,})\.jsonl")
_MAX_HEADER = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SegmentName:
    """What the name of a segment says. Sorts by start, then rank (the monitor's own before), process, part."""

    start_ns: int
    "Start of the recording, nanoseconds since 1970, on the writer's clock."
    rank: int
    "Rank of a trainer's process; -1 = the monitor's own segment."
    pid: int
    "Process id of the writer."
    part: int
    "0, 1, ...: a new part begins at 64 MiB."

    @property
    def is_monitor(self) -> bool:
        return self.rank < 0

    def __str__(self) -> str:
        who = "monitor" if self.is_monitor else f"r{self.rank:05d}"
        return f"{who}-{self.start_ns}-{self.pid}-{self.part:04d}.jsonl"

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """From a file name; None for a file that is no segment.

        >>> SegmentName.parse("r00003-1790000000125000000-4242-0000.jsonl").rank
        3
        """
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        rank, start, pid, part = match.groups()
        return cls(start_ns=int(start), rank=-1 if rank is None else int(rank), pid=int(pid), part=int(part))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The newest launch of a run, from the header of its lowest rank."""

    run: str
    "Run id of the header."
    launch: str
    "Id of the launch."
    ranks: int
    "Ranks that write segments."
    can: tuple[str, ...]
    "Kinds of commands it accepts, and other capabilities."
    revision: int
    "Of the bounds at its start."
    bounds: Bounds | None
    "At its start; None = no weight rule declared."
    limits: Limits | None
    "None = only observed."
    start_ns: int
    "Start of its lowest rank, nanoseconds since 1970."
    segment: Path
    "First part of its lowest rank."


def list_segments(run_dir: str | os.PathLike[str]) -> list[tuple[SegmentName, Path]]:
    """The segments of a run, oldest first; empty where there is no such folder."""
    folder = Path(run_dir, "segments")
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RunError(f"cannot read {folder}: {error.strerror}") from None
    return sorted((parsed, folder / name) for name in names if (parsed := SegmentName.parse(name)) is not None)


def read_header(path: Path) -> dict[str, object]:
    """First line of a segment, as decoded. Raises WireError when it is not there (yet) or no header."""
    try:
        with open(path, "rb") as file:
            line = file.readline(_MAX_HEADER)
    except OSError as error:
        raise WireError(f"cannot read {path}: {error.strerror}") from None
    if not line.endswith(b"\n"):
        raise WireError(f"{path}: the header is not complete")
    record = decode(line)
    if record["k"] != "header":
        raise WireError(f"{path}: the first line is no header but {record['k']!r}")
    return record


def newest_launch(run_dir: str | os.PathLike[str]) -> Launch:
    """The launch that started last.

    Raises RunError for a folder that is missing, holds no segments or none that can be read.
    """
    if not Path(run_dir).is_dir():
        raise RunError(f"no run folder {os.fspath(run_dir)!r}: give a run folder, or its path below the root (--root)")
    segments = [(name, path) for name, path in list_segments(run_dir) if not name.is_monitor]
    if not segments:
        raise RunError(f"{os.fspath(run_dir)} holds no segments: nothing has been recorded there")
    reason = ""
    for name, path in reversed([(name, path) for name, path in segments if name.part == 0] or segments):
        try:
            header = read_header(path)
            newest = _launch(header, name, path)
        except (WireError, BoundsError) as error:
            reason = reason or str(error)
            continue
        return _lowest_rank(newest, segments)
    raise RunError(f"{os.fspath(run_dir)}: no header can be read ({reason})")


def _lowest_rank(newest: Launch, segments: list[tuple[SegmentName, Path]]) -> Launch:
    """The same launch as its lowest rank tells it: ranks start within a moment, rank 0 answers commands."""
    found, rank = newest, None
    for name, path in segments:
        if name.part != 0 or (rank is not None and name.rank >= rank):
            continue
        try:
            header = read_header(path)
            if header.get("launch") == newest.launch:
                found, rank = _launch(header, name, path), name.rank
        except (WireError, BoundsError):
            continue
    return found


def _launch(header: Mapping[str, object], name: SegmentName, path: Path) -> Launch:
    bounds, limits, can = header.get("bounds"), header.get("limits"), header.get("can")
    ranks, revision = header.get("ranks", 1), header.get("revision", 0)
    if not isinstance(header.get("launch"), str) or not isinstance(ranks, int) or not isinstance(revision, int):
        raise WireError(f"{path}: the header names no launch, or ranks or revision are no whole numbers")
    return Launch(
        run=str(header.get("run", "")),
        launch=cast(str, header["launch"]),
        ranks=ranks,
        can=tuple(str(item) for item in can) if isinstance(can, list) else (),
        revision=revision,
        bounds=Bounds.from_wire(bounds) if isinstance(bounds, Mapping) else None,
        limits=Limits.from_wire(limits) if isinstance(limits, Mapping) else None,
        start_ns=name.start_ns,
        segment=path,
    )
