"""What people ask of a run and say about it: commands to its trainer, marks on its alerts. `monitor.requests` takes
them.

Both are written to the monitor's own segment of the run and come back through the ingester like any line; a command is
a file in the run's control folder as well, which goes when it has been answered.
"""

from __future__ import annotations

import getpass
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping

from regimescope.monitor import commands, query
from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import Command, bounds_problems, rollback_of
from regimescope.monitor.errors import BoundsError, ControlError
from regimescope.monitor.live import Liveness
from regimescope.monitor.places import spare_segments
from regimescope.monitor.store import Store

MARK_KINDS = ("acknowledge", "snooze", "false_alarm", "confirmed", "reopen", "note")


class Requests:
    """Of all runs below the root of a store; thread-safe."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | None,
        read_only: bool,
        run_of: Callable[[int], query.RunRow | None],
        liveness_of: Callable[[int], Liveness],
    ) -> None:
        """`actor`: who commands are by that bring no name; None = the OS user. `read_only`: takes none."""
        self.actor = actor or _os_user()
        self.read_only = read_only
        self._store = store
        self._run_of, self._liveness_of = run_of, liveness_of
        self._segments: dict[int, commands.MonitorSegment] = {}
        self._lock = threading.Lock()
        self._look_again: dict[int, float] = {}  # run key -> unix time at which its next command expires

    def close(self) -> None:
        """Give the segments back."""
        for segment in self._segments.values():
            segment.close()

    def submit(
        self,
        run_key: int,
        *,
        kind: str,
        args: Mapping[str, object],
        expect: int | None,
        by: str | None,
        why: str,
        alert: str | None = None,
    ) -> Command:
        """Ask the trainer for something. Raises ControlError: read-only, silent or ended run, kind not offered, bounds
        outside the limits.
        """
        run = self._writable(run_key)
        if kind not in run.capabilities:
            raise ControlError(
                f"{run.path} does not take {kind!r}; it takes: {', '.join(run.capabilities) or 'no commands'}"
            )
        if kind == "set_bounds":
            _check_bounds(run, args)
        if kind == "rollback":
            self._check_rollback(run, args)
        live = self._liveness_of(run_key)
        if live.ended:
            raise ControlError(f"{run.path} has ended ({run.end_reason or 'no end line'}): nobody reads a command")
        if live.stale:
            raise ControlError(
                f"{run.path} has been silent for {live.silent_s:.0f} s: see whether its process lives before you ask it"
            )
        launch = run.launch_id or ""
        return commands.issue(
            self._store.root / run.path,
            self._segment(run_key, run),
            kind=kind,
            args=args,
            launch=launch,
            expect=expect,
            by=by or self.actor,
            why=why,
            alert=alert,
            ttl_s=max(300.0, 3 * (live.median_step_s or 0.0)),
        )

    def mark(
        self,
        run_key: int,
        *,
        kind: str,
        alert_id: str | None,
        by: str | None,
        text: str = "",
        until_step: int | None = None,
    ) -> None:
        """What a person says about an alert: acknowledge, snooze (with until_step), false_alarm, confirmed, reopen,
        note. Raises ControlError.
        """
        if kind not in MARK_KINDS:
            raise ControlError(f"no such mark {kind!r}; want one of {', '.join(MARK_KINDS)}")
        run = self._writable(run_key)
        with self._store.cursor() as con:
            signatures = {a.alert_id: a.signature for a in query.alerts(con, run_key)}
        if alert_id is not None and alert_id not in signatures:
            raise ControlError(f"{run.path} has no alert {alert_id}")
        line = {
            "id": str(uuid.uuid4()),
            "by": by or self.actor,
            "kind": kind,
            "alert": alert_id,
            "text": text,
            "until": until_step,
        }
        self._segment(run_key, run).write("mark", {**line, "signature": signatures.get(alert_id or "")})

    def announce(self, run_key: int, kind: str, data: Mapping[str, object]) -> None:
        """An event of the monitor's own, in its segment of the run. Raises ControlError."""
        self._segment(run_key, self._writable(run_key)).write("event", {"kind": kind, "data": data})

    def _check_rollback(self, run: query.RunRow, args: Mapping[str, object]) -> None:
        """The step is one of the run's own checkpoints, the bounds lie within its limits or stay as they are."""
        try:
            step, bounds = rollback_of(args)
        except BoundsError as error:
            raise ControlError(str(error)) from None
        with self._store.cursor() as con:
            known = sorted({e.step for e in query.checkpoints(con, run.run_key) if e.step is not None})
            now = query.bounds_in_force(con, run.run_key)
        if step not in known:
            has = ", ".join(map(str, known[-10:])) or "none"
            raise ControlError(f"{run.path} has no checkpoint of step {step}; it has {has}")
        in_force = None if now is None else now.bounds
        problems = [] if bounds == in_force else bounds_problems(bounds, run.limits, in_force)
        if problems:
            raise ControlError("; ".join(problems))

    def _writable(self, run_key: int) -> query.RunRow:
        if self.read_only:
            raise ControlError("this server is read-only: start it without --read-only to steer or to mark")
        run = self._run_of(run_key)
        if run is None:
            raise ControlError(f"no run with key {run_key} in this index")
        return run

    def _segment(self, run_key: int, run: query.RunRow) -> commands.MonitorSegment:
        with self._lock:
            if run_key not in self._segments:
                folder = self._store.root / run.path / "segments"
                may_write = os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
                spare = None if may_write else spare_segments(self._store.root, run.path)
                self._segments[run_key] = commands.MonitorSegment(self._store.root / run.path, folder=spare)
            return self._segments[run_key]

    def expired(self) -> set[int]:
        """Runs with a command whose time has run out since it was looked at."""
        now = time.time()
        return {key for key, at in self._look_again.items() if at < now}

    def unseen(self, run_keys: set[int]) -> set[int]:
        """Those of these runs whose commands were never looked at."""
        return run_keys - self._look_again.keys()

    def retract(self, run_key: int) -> None:
        """Command files that every rank has answered, or that nobody will read any more, are deleted."""
        with self._store.cursor() as con:
            run = query.run_by_key(con, run_key)
            known = query.commands(con, run_key) if run is not None else []
        done = [c.command_id for c in known if c.status in ("applied", "rejected", "expired")]
        waiting = [c.not_after for c in known if c.status in ("pending", "applying")]
        self._look_again[run_key] = min(waiting, default=math.inf)
        if run is not None and done and not self.read_only:
            commands.retract_finished(self._store.root / run.path, done)


def _check_bounds(run: query.RunRow, args: Mapping[str, object]) -> None:
    try:
        bounds = Bounds.from_wire(args)
    except BoundsError as error:
        raise ControlError(str(error)) from None
    problems = run.limits.problems(bounds) if run.limits else [f"{run.path} declares no limits: it is only observed"]
    if problems:
        raise ControlError("; ".join(problems))


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
