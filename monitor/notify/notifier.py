"""Tells people about alerts: a thread that looks at runs with news and decides what is due, and a `Courier` per target.

    notifier = Notifier(monitor, load_plan(root), link="http://127.0.0.1:8501")
    notifier.changed({3})                 # the monitor's tick; costs nothing there

Every notice is a line `event`/`notice` in the monitor's own segment of the run, first `waiting`, then `sent` or
`failed`: after a restart nothing is told twice and what was not delivered goes out. Told are the alerts of runs that
live: see `_followed`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import duckdb

from regimescope.monitor import query
from regimescope.monitor.alerts import GAP_RULE
from regimescope.monitor.errors import ControlError, NotifyFileError, RegimescopeError
from regimescope.monitor.live import Liveness
from regimescope.monitor.notify import due
from regimescope.monitor.notify.courier import PAUSES_S, Courier, Delivery
from regimescope.monitor.notify.message import Circumstances, Message, message, test_message
from regimescope.monitor.notify.post import masked
from regimescope.monitor.notify.targets import KINDS, Plan, Target
from regimescope.monitor.ui.facts import last_good_step, proposal
from regimescope.monitor.ui.verdict import is_snoozed, open_alerts, verdict

if TYPE_CHECKING:
    from regimescope.monitor.service import Monitor

log = logging.getLogger(__name__)

RECENT_S = 600.0
"A run that ended, or fell silent, so long before the server looked is still told about."
_AGAIN_S = 20.0
"Between two tries of what could not be written, or found no room."
_STOP_S = 10.0
_TEST_S = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A target as people may see it."""

    target: Target
    shown: str
    "Its URL, masked."
    delivery: Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    """A run at one moment."""

    run: query.RunRow
    live: Liveness
    alerts: Sequence[query.AlertRow]
    history: dict[due.Key, due.Notice]
    checkpoints: Sequence[query.EventRow]
    bounds: query.BoundsInForce | None


class Notifier:
    """Of one monitor; `close` before the monitor's segments are closed."""

    def __init__(self, monitor: Monitor, plan: Plan, *, link: str, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        """`link`: address of the pages where the plan names none. `pauses_s`: see `courier.PAUSES_S`."""
        self._monitor, self._link = monitor, plan.link or link.rstrip("/")
        self._couriers = {t.name: Courier(t, self._told, pauses_s=pauses_s) for t in plan.targets}
        self._lock = threading.Lock()
        self._notices: dict[int, list[due.Notice]] = {}
        self._unsaved: list[tuple[int, due.Notice]] = []
        self._first_seen: dict[int, float] = {}
        self._lives: set[int] = set()
        self._gaps: dict[int, query.AlertRow] = {}
        self._wake = threading.Condition()
        self._changed: set[int] = set()
        self._again: set[int] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="regimescope-notifier", daemon=True)
        self._thread.start()

    def changed(self, run_keys: set[int]) -> None:
        """These runs have other alerts, or marks on them."""
        if run_keys and self._couriers:
            with self._wake:
                self._changed |= run_keys
                self._wake.notify()

    def close(self) -> None:
        """Wait for the letters that are on their way; what waits goes out after the next start."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        deadline = time.monotonic() + _STOP_S
        for courier in self._couriers.values():
            courier.close()
        self._thread.join(_STOP_S)
        for courier in self._couriers.values():
            courier.join(deadline - time.monotonic())
        self._save()

    def states(self) -> list[State]:
        """Of every target."""
        return [State(target=c.target, shown=masked(c.target), delivery=c.delivery) for c in self._couriers.values()]

    def test(self, name: str) -> str:
        """Let the target's own thread send a test; "" when it was taken, else why not. Raises NotifyFileError for an
        unknown name.
        """
        if name not in self._couriers:
            raise NotifyFileError(f"no target {name!r}; there is {', '.join(self._couriers) or 'none'}")
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._couriers[name].test(test_message(self._link), answer.put)
        try:
            return answer.get(timeout=_TEST_S)
        except queue.Empty:
            return f"nothing after {_TEST_S:.0f} s; another message may hold the line"

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._changed and not self._closing:
                    self._wake.wait(_AGAIN_S)
                if self._closing:
                    return
                keys, self._changed, self._again = self._changed | self._again, set(), set()
            self._save()
            for run_key in keys:
                try:
                    self._look(run_key)
                except duckdb.Error as error:
                    self._monitor.doubt(error)
                    self._again.add(run_key)
                except (OSError, RegimescopeError) as error:
                    log.warning("notices of run %d: %s", run_key, error)
                    self._again.add(run_key)

    def _look(self, run_key: int) -> None:
        with self._lock:
            picture = self._picture(run_key)
            if picture is None:
                return
            followed = self._followed(picture)
            active = {alert.alert_id for alert in open_alerts(picture.alerts, picture.live.last_step)}
            for courier in self._couriers.values():
                for alert in picture.alerts:
                    kind = due.due(alert, courier.target, picture.history, is_open=alert.alert_id in active)
                    if kind and (followed or kind == "resolve"):
                        notice = due.Notice.of_alert(alert, kind, courier.target.name)
                        picture.history[notice.key] = notice
                        self._write(run_key, [notice])
            if not self._send(run_key, picture):
                self._again.add(run_key)

    def _picture(self, run_key: int) -> _Picture | None:
        with self._monitor.store.cursor() as con:
            run = query.run_by_key(con, run_key)
            if run is None:
                return None
            told = due.read(query.events(con, run_key, [due.EVENT]))
            return _Picture(
                run=run,
                live=self._monitor.liveness(run_key),
                alerts=self._with_gap(run_key, query.alerts(con, run_key)),
                history=due.merge([*told, *self._notices.get(run_key, ())]),
                checkpoints=query.checkpoints(con, run_key),
                bounds=query.bounds_in_force(con, run_key),
            )

    def _with_gap(self, run_key: int, alerts: list[query.AlertRow]) -> list[query.AlertRow]:
        """A telemetry gap that ended is no alert any more; who was told of it hears that too."""
        if gap := next((alert for alert in alerts if alert.rule == GAP_RULE), None):
            self._gaps[run_key] = gap
        elif over := self._gaps.get(run_key):
            return [*alerts, replace(over, state="resolved")]
        return alerts

    def _followed(self, picture: _Picture) -> bool:
        """Whether people are told of new alerts of this run: it grew while this server looked, or its last line is
        younger than RECENT_S by the file and by its own clock. A fresh index over old runs, copies among them, tells
        nobody anything; nor does an imported log.
        """
        run, silent_s = picture.run, self._monitor.silent_s(picture.run.run_key)
        seen = self._first_seen.setdefault(run.run_key, time.monotonic())
        if run.run_key in self._lives:
            return True
        if run.status == "imported" or silent_s is None:
            return False
        grew = silent_s < time.monotonic() - seen - 1.0
        young = run.last_row_at is not None and abs(time.time() - run.last_row_at) < RECENT_S
        if grew or (young and silent_s < RECENT_S):
            self._lives.add(run.run_key)
        return run.run_key in self._lives

    def _send(self, run_key: int, picture: _Picture) -> bool:
        """Hand over what is owed, each alert's notices in order; False where there was no room for some."""
        alerts = {alert.alert_id: alert for alert in picture.alerts}
        owed = [n for n in picture.history.values() if n.state != due.SENT and n.target in self._couriers]
        room = True
        for notice in sorted(owed, key=lambda n: KINDS.index(n.kind)):
            alert, courier = alerts.get(notice.alert), self._couriers[notice.target]
            if alert is None or _quieted(alert, picture.live.last_step):
                courier.drop(notice.alert)
            else:
                room &= courier.put(run_key, notice, self._message(notice.kind, alert, picture))
        return room

    def _message(self, kind: str, alert: query.AlertRow, picture: _Picture) -> Message:
        run = picture.run
        word = verdict(
            run,
            picture.live,
            picture.alerts,
            self._monitor.warming(run.run_key),
            degraded=self._monitor.degraded is not None,
        ).word
        move = proposal(alert, picture.bounds)
        around = Circumstances(
            run=run.path,
            verdict=word,
            bound=None if move is None else (move.bound, move.old, move.new),
            checkpoint=last_good_step(picture.checkpoints, [alert]),
            link=self._link,
        )
        return message(kind, alert, around)

    def _told(self, run_key: int, notices: list[due.Notice], state: str, why: str) -> None:
        """A courier's word, in its thread."""
        with self._lock:
            self._write(run_key, [replace(notice, state=state, why=why) for notice in notices])

    def _write(self, run_key: int, notices: list[due.Notice]) -> None:
        """Known to this process at once, and to the next one by the lines."""
        known = self._notices.setdefault(run_key, [])
        known[:] = due.merge([*known, *notices]).values()
        self._unsaved += [(run_key, notice) for notice in notices]
        self._flush()

    def _save(self) -> None:
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        while self._unsaved:
            run_key, notice = self._unsaved[0]
            try:
                self._monitor.requests.announce(run_key, due.EVENT, notice.to_data())
            except ControlError as error:
                log.warning("a notice that is %s is not written down yet: %s", notice.state, error)
                return
            del self._unsaved[0]


def _quieted(alert: query.AlertRow, last_step: int | None) -> bool:
    return alert.mark == "false_alarm" or is_snoozed(alert, last_step) or alert.inhibited_by is not None
