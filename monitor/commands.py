"""The monitor's end of the control channel: its own segment, and commands as files in `run_dir/control/`.

`issue` writes the command into the segment first and then as a file for the trainer; the trainer's answer is an ack in
its segment. There is no cancel: send the opposite. Standard library only; the trainer's end is `control.py`.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from regimescope.monitor.appender import Appender
from regimescope.monitor.control import KINDS, Command, replace_file
from regimescope.monitor.errors import ControlError, WireError
from regimescope.monitor.header_writer import run_id
from regimescope.monitor.ids import is_uuid, uuid7
from regimescope.monitor.launch import SegmentName
from regimescope.monitor.wire import WIRE_VERSION, encode


class MonitorSegment:
    """What people said and the monitor announced about one run: a segment of its own, made at the first line."""

    def __init__(self, run_dir: str | os.PathLike[str], *, folder: Path | None = None) -> None:
        """`folder`: where the file goes instead of `run_dir/segments`, for a root that cannot be written."""
        self.run_dir = Path(run_dir)
        self._folder = folder if folder is not None else self.run_dir / "segments"
        self._lock = threading.Lock()
        self._appender: Appender | None = None
        self._q = 0

    def write(self, kind: str, fields: Mapping[str, object]) -> None:
        """Append one line of this kind (`command`, `mark`, `event`), written when this returns. Raises ControlError."""
        with self._lock:
            try:
                if self._appender is None:
                    self._appender = self._create()
                line = encode({"v": WIRE_VERSION, "k": kind, "q": self._q + 1, "t": time.time(), **fields})
            except OSError as error:
                raise ControlError(f"cannot write to {self._folder}: {error.strerror}") from None
            except WireError as error:
                raise ControlError(str(error)) from None
            if self._appender.append(line, self._q) != len(line):
                raise ControlError(f"cannot write to {self._appender.path}: {self._appender.error}")
            self._q += 1

    def close(self) -> None:
        """The clean end; a later line begins a new file. Never raises."""
        with self._lock:
            if self._appender is not None:
                end = {"v": WIRE_VERSION, "k": "end", "q": self._q + 1, "t": time.time(), "reason": "finished"}
                self._appender.append(encode(end), self._q)
                self._appender.close()
            self._appender, self._q = None, 0

    def __enter__(self) -> MonitorSegment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _create(self) -> Appender:
        run = run_id(self.run_dir) or self.run_dir.resolve().name
        self._folder.mkdir(parents=True, exist_ok=True)

        def header(part: int, q: int) -> bytes:
            line = {
                "v": WIRE_VERSION,
                "k": "header",
                "q": q,
                "t": time.time(),
                "run": run,
                "role": "monitor",
                "part": part,
            }
            return encode(line)

        return Appender(self._folder, SegmentName(start_ns=time.time_ns(), rank=-1, pid=os.getpid(), part=0), header)


def issue(
    run_dir: str | os.PathLike[str],
    segment: MonitorSegment,
    *,
    kind: str,
    args: Mapping[str, object],
    launch: str,
    expect: int | None,
    by: str,
    why: str,
    alert: str | None = None,
    ttl_s: float = 300,
) -> Command:
    """Ask the trainer of `launch` for something: the line, then the file.

    Raises ControlError when there is nowhere to put it. `expect`: revision that the asker saw, None = any. `ttl_s`:
    seconds until the command is void.
    """
    folder = Path(run_dir, "control")
    if kind not in KINDS:
        raise ControlError(f"no such command {kind!r}; want one of {', '.join(KINDS)}")
    if not (math.isfinite(ttl_s) and ttl_s > 0):
        raise ControlError(f"a command must end some time: ttl_s={ttl_s}")
    if not folder.is_dir():
        raise ControlError(f"{os.fspath(run_dir)} has no control folder: its trainer takes no commands")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ControlError(f"{folder} cannot be written: commands are for the user who runs the trainer")
    now = time.time()
    command = Command(
        id=str(uuid7()),
        launch=launch,
        kind=kind,
        args=args,
        expect=expect,
        not_after=now + ttl_s,
        by=by,
        why=why,
        alert=alert,
        t=now,
    )
    wire = command.to_wire()
    segment.write("command", wire)
    try:
        replace_file(folder / f"{command.id}.json", encode(wire))
    except OSError as error:
        raise ControlError(f"cannot write a command to {folder}: {error.strerror}") from None
    return command


def retract_finished(run_dir: str | os.PathLike[str], ids: Iterable[str]) -> None:
    """Delete the files of commands that every rank has answered or that are past their end.

    Missing ones are fine; never raises.
    """
    folder = Path(run_dir, "control")
    for command_id in ids:
        if not is_uuid(command_id):  # it becomes a file name
            continue
        try:
            (folder / f"{command_id}.json").unlink(missing_ok=True)
        except OSError:  # a folder of another user: the trainer ignores what is past its end
            return
