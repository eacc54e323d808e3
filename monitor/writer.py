"""The writer behind the Recorder: a bounded queue, a daemon thread, numbering, and the `dropped` events.

Never raises, never blocks. Sequence numbers are given when a record is written. Records that were dropped before it
take up numbers as well, so that a hole in `q` is a loss, and are announced by an event behind the hole. In sync mode
the caller writes, under the lock. Standard library only.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable

from regimescope.monitor.appender import Appender
from regimescope.monitor.wire import WIRE_VERSION, encode

BEAT_S = 5.0
"A state other than `running` is repeated this often: the heartbeat of a trainer that waits."
FLUSH_S = 5.0
"Longest wait of `close` for the queue."
_IDLE_S = 1.0
_BATCH = 1000
_CHUNK_BYTES = 1 << 20
_Loss = tuple[int, str]  # how many records, and why
_Record = dict[str, object]
_Job = Callable[[_Record], _Record | None]  # makes the line when its turn comes; None = there is none
_Item = tuple[_Loss | None, _Record, _Job | None]  # what was dropped before the record, the record, what makes it whole
_STOP: _Record = {}
_alive: weakref.WeakSet[Writer] = weakref.WeakSet()


class Writer:
    """Takes the records of one segment. In a forked child, and after `close`, it is off and takes nothing."""

    def __init__(self, appender: Appender, *, sync: bool, queue_size: int, name: str) -> None:
        """Starts the thread, called `name`. sync: `put` writes before it returns. queue_size: records that may wait."""
        self.off = False
        self.dropped = 0
        "Records that were handed over and are not in the file."
        self._appender = appender
        self._sync, self._queue_size = sync, queue_size
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        # The thread's inbox: the records; in sync mode, where the callers write, only the stop.
        self._inbox = queue.SimpleQueue[_Item]() if sync else self._queue
        self._lock = threading.RLock()  # re-entrant: a signal handler may record while its own thread is in here
        self._loss: _Loss | None = None  # dropped before the next record that is queued; under the lock
        self._state: dict[str, object] | None = None
        self._beat_at = math.inf
        self._writing = False
        # The writer's alone, from here on:
        self._q = 0  # the last sequence number given
        self._kept_q = 0  # the last one in the file
        self._unkept: _Loss | None = None  # records that have a number, are not in the file and are not announced yet
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()
        _alive.add(self)

    def repeat(self, state: dict[str, object] | None) -> None:
        """Put this state event again every BEAT_S from now on; None = no more."""
        self._state, self._beat_at = state, time.monotonic() + BEAT_S

    def close(self) -> None:
        """Write what is queued, for FLUSH_S at most, and give the file back."""
        if not self.off:
            self._state = None
            self._inbox.put((None, _STOP, None))
            self._thread.join(FLUSH_S)
            self.off = True

    def put(self, record: _Record, *, always: bool = False, job: _Job | None = None) -> None:
        """Take one record: kind `k` and fields; the writer adds version and number. It must not change afterwards.

        always: also where the queue is full, for the few that somebody waits for. job: makes the line from the record
        when its turn comes, in the writer; what it raises is a dropped record, None is no record at all.
        """
        record.setdefault("t", time.time())
        if not self._sync and not always and self._queue.qsize() >= self._queue_size:
            self.lose(1, "queue full")
            return
        self._queue.put((self._take_loss(), record, job))
        if self._sync:
            self._write_queued()

    def lose(self, count: int, reason: str) -> None:
        """Count records that were handed over and cannot be kept; a `dropped` event follows."""
        with self._lock:
            self.dropped += count
            self._loss = (count + (self._loss[0] if self._loss else 0), reason)

    def _take_loss(self) -> _Loss | None:
        if self._loss is None:
            return None
        with self._lock:
            loss, self._loss = self._loss, None
        return loss

    def _write_queued(self) -> None:
        """Sync mode: write all that is queued, in the calling thread."""
        with self._lock:
            if self._writing:  # a signal handler inside a write: that write goes on to this record
                return
            self._writing = True
            try:
                while batch := self._waiting():
                    self._write(batch)
                self._announce(self._take_loss())
            finally:
                self._writing = False

    def _waiting(self) -> list[_Item]:
        batch: list[_Item] = []
        while len(batch) < _BATCH:
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return batch

    # -- the thread --

    def _loop(self) -> None:
        """Write what comes, at once; what piled up meanwhile in one go. In sync mode only the heartbeat and losses."""
        stop = False
        while not stop:
            batch: list[_Item] = []
            try:
                batch.append(self._inbox.get(timeout=_IDLE_S))
                batch += [] if self._sync else self._waiting()
            except queue.Empty:
                self._idle()
            stop = any(item[1] is _STOP for item in batch)
            self._write([item for item in batch if item[1] is not _STOP])
            self._beat()
        self._idle()
        with self._lock:
            self._appender.close()

    def _idle(self) -> None:
        if self._sync:
            self._write_queued()
        else:
            self._announce(self._take_loss())

    def _beat(self) -> None:
        state = self._state
        if state is not None and time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + BEAT_S
            self.put({**state, "t": time.time()})

    # -- the writer: the thread, or in sync mode whoever holds the lock --

    def _write(self, batch: list[_Item]) -> None:
        """Number the records and append them, in one go unless they are large."""
        if not batch:
            return
        self._announce(None)
        lines: list[tuple[int, bytes]] = []
        size = 0
        for loss, given, job in batch:
            if loss is not None or job is not None or size > _CHUNK_BYTES:  # a job takes long: first what is ready
                self._append(lines)
                self._announce(loss)
                lines, size = [], 0
            self._q += 1
            try:
                record = given if job is None else job(given)
                if record is None:  # nothing to say, and nothing lost
                    self._q -= 1
                    continue
                line = encode({"v": WIRE_VERSION, "k": record["k"], "q": self._q, **record})
            except Exception as error:  # __float__ of a foreign number may raise anything; the thread must live
                self._count_unkept(1, str(error))
            else:
                lines.append((self._q, line))
                size += len(line)
        self._append(lines)

    def _append(self, lines: list[tuple[int, bytes]]) -> None:
        """Append numbered lines; those that the file does not take are counted."""
        data = b"".join(line for _, line in lines)
        kept = data.count(b"\n", 0, self._appender.append(data, self._kept_q))
        if kept:
            self._kept_q = lines[kept - 1][0]
        if kept < len(lines):
            self._count_unkept(len(lines) - kept, f"cannot write: {self._appender.error}")

    def _count_unkept(self, count: int, reason: str) -> None:
        with self._lock:
            self.dropped += count
        self._unkept = (count + (self._unkept[0] if self._unkept else 0), reason)

    def _announce(self, loss: _Loss | None) -> None:
        """A `dropped` event for what is not announced yet; where it cannot be written either, it comes later."""
        if loss is not None:
            self._q += loss[0]
            self._unkept = (loss[0] + (self._unkept[0] if self._unkept else 0), loss[1])
        if self._unkept is None:
            return
        data = {"records": self._unkept[0], "reason": self._unkept[1]}
        event = {"v": WIRE_VERSION, "k": "event", "q": self._q + 1, "t": time.time(), "kind": "dropped", "data": data}
        line = encode(event)
        if self._appender.append(line, self._kept_q) == len(line):
            self._q = self._kept_q = self._q + 1
            self._unkept = None


def _switch_off_in_child() -> None:
    """After a fork the child has no writer thread and must not write into its parent's file."""
    for writer in list(_alive):
        writer.off, writer._lock = True, threading.RLock()
        writer._appender.close()


os.register_at_fork(after_in_child=_switch_off_in_child)
