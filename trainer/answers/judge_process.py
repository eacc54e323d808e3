"""math-verify in a process of its own, so that a time limit really ends it: `JudgeProcess().equal("x+1", "1+x")`.

A thread cannot be killed, and one answer such as `9^{9^{9^9}}` would take the trainer with it. The worker (`judge.py`)
is started at the first question and started again after a failure. Threads take turns; a forked child, or a process
that got a pickled copy, starts a worker of its own. The worker ends with its owner, however that one ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

WORKER = (sys.executable, "-P", "-m", "regimescope.trainer.answers.judge")
START_S = 60.0
"Longest start of the worker; it imports sympy, one or two seconds."
LINE_BYTES = 4096
"Longest reply; the worker's are below 100 bytes."


class JudgeFailed(Exception):
    """The judge gave no verdict; `kind`, to count it under: an exception's name, `start`, `died`, or `nonsense`."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class JudgeProcess:
    """One worker at most, safe to share between threads. `limit_s`: seconds for a question, its start not counted."""

    def __init__(self, *, limit_s: float = 5.0, command: Sequence[str] = WORKER, start_s: float = START_S) -> None:
        self.limit_s = limit_s
        self._command = tuple(command)
        self._start_s = start_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._asked = 0
        forget_after_fork(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.limit_s, self._command, self._start_s)

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None while there is none."""
        return self._process.pid if self._process is not None else None

    def equal(self, answer: str, span: str) -> bool:
        """Whether the two are equal. Raises TimeoutError, and JudgeFailed for any other failure."""
        return self._ask({"answer": answer, "span": span})

    def readable(self, answer: str) -> bool:
        """Whether math-verify can read a reference answer. Raises as `equal` does."""
        return self._ask({"answer": answer, "span": None})

    def close(self) -> None:
        """End the worker; the next question starts another."""
        with self._lock:
            self._end()

    def _ask(self, question: dict[str, str | None]) -> bool:
        with self._lock:
            try:
                process = self._running()
                self._asked += 1
                reply = _exchange(process, {"id": self._asked} | question, self.limit_s)
            except OSError as error:  # TimeoutError too; the worker is of no use any more
                self._end()
                if isinstance(error, TimeoutError):
                    raise
                raise JudgeFailed("died" if isinstance(error, BrokenPipeError) else type(error).__name__) from None
            except JudgeFailed:
                self._end()
                raise
            if reply.get("id") == self._asked and isinstance(reply.get("equal"), bool):
                return bool(reply["equal"])
            if reply.get("id") == self._asked and isinstance(reply.get("error"), str):
                if reply["error"] == "MemoryError":
                    self._end()
                raise JudgeFailed(reply["error"])
            self._end()
            raise JudgeFailed("nonsense")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # nothing is left in a buffer that a forked child would write again
            start_new_session=True,  # Ctrl-C is for the trainer, which then finishes its step
        )
        self._finalizer = weakref.finalize(self, _finish, self._process)
        try:
            reply = _exchange(self._process, {"limit_s": self.limit_s}, self._start_s)
        except TimeoutError:
            raise JudgeFailed("start") from None
        if reply != {"ready": True}:
            raise JudgeFailed("nonsense")
        return self._process

    def _end(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None

    def forget(self) -> None:
        """In a forked child: the worker and the lock are the parent's; let go of both."""
        self._lock = threading.Lock()
        if self._process is not None and self._finalizer is not None:
            self._finalizer.detach()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()  # else the worker would not see the end of its input
            self._process.returncode = 0  # ours to wait for no more
        self._process = self._finalizer = None


def _exchange(process: subprocess.Popen[bytes], question: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Send one line and read one. Raises TimeoutError, OSError, JudgeFailed."""
    assert process.stdin is not None and process.stdout is not None
    turn, over = threading.Lock(), threading.Event()
    late = threading.Event()

    def kill() -> None:
        with turn:
            if not over.is_set():
                late.set()
                process.kill()

    timer = threading.Timer(limit_s, kill)
    timer.daemon = True
    timer.start()
    try:
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline(LINE_BYTES)
    finally:
        timer.cancel()
        with turn:  # from here on the timer kills nobody
            over.set()
        if late.is_set():
            raise TimeoutError(f"no verdict within {limit_s:g} s")
    if not line:
        raise JudgeFailed("died")
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        raise JudgeFailed("nonsense")
    return reply


def _finish(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _again(limit_s: float, command: tuple[str, ...], start_s: float) -> JudgeProcess:
    return JudgeProcess(limit_s=limit_s, command=command, start_s=start_s)


class Forgetful(Protocol):
    """What holds something that a forked child must let go of."""

    def forget(self) -> None:
        """Called in the child, before it goes on."""


_FORGETFUL: weakref.WeakSet[Forgetful] = weakref.WeakSet()


def forget_after_fork(thing: Forgetful) -> None:
    """Have `thing.forget()` called in every forked child, as long as the thing lives."""
    _FORGETFUL.add(thing)


def _forget_all() -> None:
    for thing in list(_FORGETFUL):
        thing.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
