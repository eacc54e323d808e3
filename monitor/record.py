"""The Recorder: what a training process holds to write its numbers into a segment of the run folder. docs/embedding.md shows its use.

A call costs a microsecond or two: it puts the record into a bounded queue that a daemon thread empties (`sync=True` writes in the call). It raises
only when it cannot start. After that nothing raises and nothing blocks: what cannot be kept is counted in `dropped` and announced by a `dropped`
event. Non-finite numbers are stored. In a forked child the recorder is off. Standard library only.
"""

from __future__ import annotations

import atexit
import functools
import math
import operator
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Concatenate, Literal, ParamSpec

from regimescope.monitor.appender import Appender
from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.control import Ack
from regimescope.monitor.edges import LR1
from regimescope.monitor.errors import RecorderError, WireError
from regimescope.monitor.header import Header
from regimescope.monitor.token_stats import RatioHist, TokenStats
from regimescope.monitor.wire import WIRE_VERSION, encode, plain

Metrics = Mapping[str, float | tuple[float, float]]
"Metric -> number, or (mean, weight) where items stand behind a mean: then ranks add exactly."
Slice = tuple[str, str]
"Kind and value, ('env', 'math')."
State = Literal["running", "waiting_rollouts", "paused", "evaluating", "checkpointing"]
Reason = Literal["finished", "stopped", "rollback", "error"]
P = ParamSpec("P")

BEAT_S = 5.0
"A state other than `running` is repeated this often: the heartbeat of a trainer that waits."
FLUSH_S = 5.0
"Longest wait of `close` (and of the end of the process) for the queue."
_BATCH = 1000
_IDLE_S = 1.0
_STOP: dict[str, object] = {}
_Loss = tuple[int, str]  # how many records, and why
_Item = tuple[_Loss | None, dict[str, object]]  # what was dropped before the record, and the record
_alive: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _never_raise(method: Callable[Concatenate[Recorder, P], None]) -> Callable[Concatenate[Recorder, P], None]:
    """The promise to the training loop: whatever goes wrong in here is one dropped record, counted."""

    @functools.wraps(method)
    def call(self: Recorder, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._off:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._lose(1, f"{method.__name__}: {type(error).__name__}: {error}")

    return call


class Recorder:
    """Writes one rank's segment of one launch. Use it as a context manager, or call `end` at the end.

    >>> import tempfile
    >>> with Recorder(tempfile.mkdtemp()) as recorder:
    ...     recorder.step(0, {"reward_mean": (0.42, 16), "kl_ref": float("nan")})
    >>> recorder.dropped
    0
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        name: str | None = None,
        objective: str | None = None,
        framework: str | None = None,
        ratio_source: Literal["behaviour", "proximal", "infer"] = "behaviour",
        eq_tol: float = 0.0,
        rule: WeightRule | None = None,
        limits: Limits | None = None,
        revision: int = 0,
        launch: str | None = None,
        start: Literal["fresh", "resume", "rollback"] = "fresh",
        first_step: int = 0,
        rank: int = 0,
        ranks: int = 1,
        effect: tuple[int, int] | None = None,
        can: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
        edges: Mapping[str, Sequence[float]] | None = None,
        sync: bool = False,
        queue_size: int = 10_000,
    ) -> None:
        """Creates the run folder and the segment. Raises RecorderError.

        run_dir: folder of the run. name: shown to people. rule: how weights are made, with the bounds at the start. limits: range of bounds that a
        command may set; only of a run that accepts set_bounds. revision: number of the bounds at the start. launch: id of this start of the job,
        the same on all ranks (needed when ranks > 1). first_step: first step of this launch; older launches are superseded from it on.
        effect: (every, seed) of the entropy effect's sampling. can: commands and other capabilities. edges: named bin edges for `hist`.
        sync: write in the call, so that a killed process loses nothing. queue_size: records that may wait; more are dropped and counted.
        """
        header = Header(
            run_dir=Path(run_dir), name=name, objective=objective, framework=framework, ratio_source=ratio_source, eq_tol=eq_tol,
            rule=rule, limits=limits, revision=revision, launch=launch, start=start, first_step=first_step, rank=rank, ranks=ranks,
            effect=effect, can=tuple(can), config=config, edges=edges,
        )  # fmt: skip
        if queue_size < 1:
            raise RecorderError(f"queue_size={queue_size}: at least 1 record must be able to wait")
        self.run_dir = header.run_dir
        "Folder of the run."
        self.launch = header.launch_id
        "Id of this launch."
        self.dropped = 0
        "Records that were handed over and are not in the segment."
        self._appender: Appender = header.create()
        self._sync, self._queue_size = sync, queue_size
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._inbox = queue.SimpleQueue[_Item]() if sync else self._queue  # the thread's: records; in sync mode only the stop
        self._lock = threading.RLock()  # re-entrant: a signal handler may record while its own thread is in here
        self._loss: _Loss | None = None  # dropped before the next record that is queued; under the lock
        self._state: dict[str, object] | None = None
        self._beat_at = math.inf
        self._off = False
        self._writing = False
        self._q = 0  # the last sequence number used; the writer's alone, like the next one
        self._unkept: _Loss | None = None  # records that have a number, are not in the file and are not announced yet
        self._thread = threading.Thread(target=self._loop, name=f"regimescope-recorder-{rank}", daemon=True)
        self._thread.start()
        _alive.add(self)
        atexit.register(self.close)

    @property
    def path(self) -> Path:
        """The segment file, its current part."""
        return self._appender.path

    # -- what the training loop calls --

    @_never_raise
    def scalars(self, step: int, metrics: Metrics, *, update: int | None = None, slice: Slice | None = None) -> None:
        """Numbers of one gradient update, of a slice, or late ones of a step."""
        self._put({**_where("scalars", step, update, slice), "m": dict(metrics)})

    @_never_raise
    def step(self, step: int, metrics: Metrics, *, slice: Slice | None = None) -> None:
        """The LAST line of a step: this rank is through with it. With `slice` it is a `scalars` line of that slice, which ends nothing."""
        self._put({**_where("step" if slice is None else "scalars", step, None, slice), "m": dict(metrics)})

    @_never_raise
    def buckets(
        self, step: int, update: int, stats: TokenStats, *, revision: int, bounds: Bounds, slice: Slice | None = None
    ) -> None:
        """The seven buckets of one gradient update, with the bounds that were in force for it and their revision."""
        head = _where("buckets", step, update, slice)
        self._put({**head, "rev": revision, "bounds": bounds.to_wire(), **stats.bucket_columns()})

    @_never_raise
    def ratio_hist(self, step: int, stats: TokenStats, *, update: int | None = None, slice: Slice | None = None) -> None:
        """The log-ratio histograms of `stats` over the edges `lr1`; nothing where they were not measured."""
        if stats.hist_pos is None or stats.hist_neg is None:
            return
        sides = {"pos": _sparse(stats.hist_pos), "neg": _sparse(stats.hist_neg)}
        self._put({**_where("ratio_hist", step, update, slice), "edges": "lr1", **sides})

    @_never_raise
    def hist(self, step: int, name: str, counts: Sequence[int], edges: str, *, slice: Slice | None = None) -> None:
        """Any other histogram: counts per bin over a named edge set, one more than there are edges."""
        filled = [i for i, n in enumerate(counts) if n]
        sparse = {"i": filled, "n": [counts[i] for i in filled]}
        self._put({**_where("hist", step, None, slice), "name": name, "edges": edges, **sparse})

    @_never_raise
    def event(self, kind: str, data: Mapping[str, object] | None = None, *, step: int | None = None) -> None:
        """Anything dated: `checkpoint`, `sync`, `curriculum`, `length_limit`, `sampling`, `dead_step`."""
        self._put({**_where("event", step, None, None), "kind": kind, "data": plain(data or {})})

    @_never_raise
    def state(self, state: State, *, step: int | None = None) -> None:
        """What the trainer is doing now. The recorder repeats it every 5 s while it is not `running`."""
        record = {**_where("event", step, None, None), "kind": "state", "data": {"state": state}}
        self._state = record if state != "running" else None
        self._beat_at = time.monotonic() + BEAT_S
        self._put(record)

    @_never_raise
    def ack(self, answer: Ack) -> None:
        """The answer to a command; write `control_state.json` before an `applied` one."""
        self._put(answer.to_wire())

    @_never_raise
    def end(self, reason: Reason) -> None:
        """The clean end of this launch, then `close`. A second call does nothing."""
        self._state = None
        self._put({"k": "end", "reason": reason})
        self.close()

    @_never_raise
    def close(self) -> None:
        """Write what is queued, for 5 s at most, and give the file back. Without `end` before it the launch counts as broken off."""
        atexit.unregister(self.close)
        self._state = None
        self._inbox.put((None, _STOP))
        self._thread.join(FLUSH_S)
        self._off = True

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.end("finished" if kind is None else "stopped" if interrupted else "error")

    # -- the queue --

    def _put(self, record: dict[str, object]) -> None:
        record.setdefault("t", time.time())
        if not self._sync and self._queue.qsize() >= self._queue_size:
            self._lose(1, "queue full")
            return
        self._queue.put((self._take_loss(), record))
        if self._sync:
            self._write_queued()

    def _lose(self, count: int, reason: str) -> None:
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
        """Thread mode: write as soon as a record is there, batch what piled up meanwhile. Both modes: repeat the state, announce losses."""
        stop = False
        while not stop:
            batch: list[_Item] = []
            try:
                batch.append(self._inbox.get(timeout=_IDLE_S))
                batch += [] if self._sync else self._waiting()
            except queue.Empty:
                self._idle()
            stop = any(record is _STOP for _, record in batch)
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
            self._put({**state, "t": time.time()})

    # -- the writer: the thread, or in sync mode whoever holds the lock --

    def _write(self, batch: list[_Item]) -> None:
        """Number the records and append them in one go."""
        if batch:
            self._announce(None)
        lines: list[bytes] = []
        before = self._q
        for loss, record in batch:
            if loss is not None:
                self._append(lines, before)
                self._announce(loss)
                lines, before = [], self._q
            self._q += 1
            try:
                lines.append(encode({"v": WIRE_VERSION, "k": record["k"], "q": self._q, **record}))
            except WireError as error:
                self._count_unkept(1, str(error))
        self._append(lines, before)

    def _append(self, lines: list[bytes], before: int) -> None:
        data = b"".join(lines)
        kept = self._appender.append(data, before)
        if kept < len(data):
            self._count_unkept(data.count(b"\n", kept), f"cannot write: {self._appender.error}")

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
        line = encode({"v": WIRE_VERSION, "k": "event", "q": self._q + 1, "t": time.time(), "kind": "dropped", "data": data})
        if self._appender.append(line, self._q) == len(line):
            self._q, self._unkept = self._q + 1, None


def _where(kind: str, step: int | None, update: int | None, slice: Slice | None) -> dict[str, object]:
    head: dict[str, object] = {"k": kind, "t": time.time()}
    if step is not None:
        head["s"] = operator.index(step)
    if update is not None:
        head["u"] = operator.index(update)
    if slice is not None:
        head["sl"] = {slice[0]: slice[1]}
    return head


def _sparse(hist: RatioHist) -> dict[str, object]:
    """Filled bins as columns, sums rounded to 7 digits."""
    if len(hist.counts) != len(LR1) + 1:
        raise ValueError(f"{len(hist.counts)} bins, where the edges lr1 make {len(LR1) + 1}")
    filled = [i for i, n in enumerate(hist.counts) if n]
    columns = {"r": hist.ratio_sum, "a": hist.abs_adv_sum, "ra": hist.abs_adv_ratio_sum}
    sums = {key: [float(f"{values[i]:.7g}") for i in filled] for key, values in columns.items()}
    return {"i": filled, "n": [hist.counts[i] for i in filled], **sums}


def _switch_off_in_child() -> None:
    """After a fork the child has no writer thread and must not write into its parent's file."""
    for recorder in list(_alive):
        recorder._off, recorder._lock = True, threading.RLock()
        recorder._appender.close()


os.register_at_fork(after_in_child=_switch_off_in_child)
