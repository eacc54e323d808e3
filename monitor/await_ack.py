"""Waits for a trainer's answer to a command by reading its segments, without the index.

Used by the command line; standard library only.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from regimescope.monitor.control import Ack, Status
from regimescope.monitor.errors import ControlError, WireError
from regimescope.monitor.launch import Launch, SegmentName, list_segments, read_header
from regimescope.monitor.wire import decode, number

POLL_S = 0.05
_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer of all ranks together."""

    status: Status
    "applied by all of them, or rejected or expired on one."
    step: int | None
    "First step under it."
    revision: int | None
    "In force after it."
    message: str
    "Reason of a refusal, or a note."


class Answers:
    """Follows the segments of one launch from now on; parts that begin later are followed, too, and the launches that
    a rollback makes of it: they answer what this one was asked.
    """

    def __init__(self, run_dir: Path, launch: Launch) -> None:
        """Remembers where the segments end now: an answer can only come behind it."""
        self._run_dir, self._launch = run_dir, launch
        self._offsets: dict[Path, int] = {}
        self._foreign: set[Path] = set()
        self._acks: dict[str, dict[int, Ack]] = {}
        self.ended: str | None = None
        "Reason of the `end` line, once every rank's segment has one."
        self._ends: dict[int, str] = {}
        for name, path in self._segments():
            lines, self._offsets[path] = tail(path)
            self._take(name, lines)

    def wait(self, command_id: str, seconds: float) -> Outcome | None:
        """The outcome of a command, None when there is none within this time or the trainer ended without one."""
        deadline = time.monotonic() + seconds
        while (outcome := self._outcome(command_id)) is None and time.monotonic() < deadline:
            over = self.ended is not None
            if self._poll() == 0 and over:
                return None
            time.sleep(POLL_S)
        return outcome

    def _outcome(self, command_id: str) -> Outcome | None:
        acks = [ack for ack in self._acks.get(command_id, {}).values() if ack.status != "received"]
        refused = [ack for ack in acks if ack.status != "applied"]
        if not refused and len(acks) < self._launch.ranks:
            return None
        steps = [ack.step for ack in acks if ack.step is not None]
        best = refused[0] if refused else max(acks, key=lambda ack: ack.revision or 0)
        return Outcome(status=best.status, step=min(steps, default=None), revision=best.revision, message=best.message)

    def _poll(self) -> int:
        """Read what is new; how many lines there were."""
        count = 0
        for name, path in self._segments():
            lines, self._offsets[path] = read_lines(path, self._offsets.get(path, 0))
            count += len(lines)
            self._take(name, lines)
        return count

    def _segments(self) -> list[tuple[SegmentName, Path]]:
        """Segments of this launch: those with its id in their header, and of the rollbacks that came after it."""
        found = []
        for name, path in list_segments(self._run_dir):
            if name.is_monitor or path in self._foreign:
                continue
            if path not in self._offsets:
                try:
                    header = read_header(path)
                    later = header.get("start") == "rollback" and name.start_ns > self._launch.start_ns
                    if header.get("launch") != self._launch.launch and not later:
                        self._foreign.add(path)
                        continue
                except WireError:  # not written yet
                    continue
            found.append((name, path))
        return found

    def _take(self, name: SegmentName, lines: list[bytes]) -> None:
        for line in lines:
            if b'"ack"' not in line and b'"end"' not in line:
                continue
            try:
                record = decode(line)
                if record["k"] == "ack":
                    ack = Ack.from_wire(record)
                    self._acks.setdefault(ack.id, {})[name.rank] = ack
                elif record["k"] == "end" and record.get("reason") != "rollback":  # goes on in another launch
                    self._ends[name.rank] = str(record.get("reason"))
            except (WireError, ControlError):  # not for us to judge: the index counts bad lines
                continue
        if len(self._ends) >= self._launch.ranks:
            self.ended = self._ends[min(self._ends)]


def read_lines(path: Path, offset: int) -> tuple[list[bytes], int]:
    """Whole lines from `offset` on, and the offset behind them."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError:
        return [], offset
    end = data.rfind(b"\n") + 1
    return data[:end].splitlines(), offset + end


def tail(path: Path) -> tuple[list[bytes], int]:
    """The last lines of a file, about a megabyte, and the offset behind them."""
    try:
        start = max(0, os.stat(path).st_size - _TAIL_BYTES)
    except OSError:
        return [], 0
    lines, end = read_lines(path, start)
    return lines[1 if start else 0 :], end


def median_step_s(path: Path, last: int = 20) -> float:
    """Median time between the last `step` lines of a segment in seconds, 0 where there are fewer than two."""
    times: list[float] = []
    for line in tail(path)[0]:
        if b'"k":"step"' not in line:
            continue
        try:
            times.append(number(decode(line).get("t")))
        except WireError:
            continue
    times = times[-last:]
    return median(b - a for a, b in pairwise(times)) if len(times) > 1 else 0.0
