"""How far the notices of an alert got, and the targets of a server, in words. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from regimescope.monitor.notify.due import FAILED, SENT, Notice, merge

if TYPE_CHECKING:
    from regimescope.monitor.notify.notifier import State


def told_line(notices: Iterable[Notice], alert_id: str) -> str:
    """ "Notices: open to oncall sent; open to mail not delivered yet (it answered 500)"; empty where none fell due."""
    found = [notice for notice in merge(notices).values() if notice.alert == alert_id]
    words = [f"{n.kind} to {n.target} {_state(n)}" for n in found]
    return f"Notices: {'; '.join(words)}" if words else ""


def target_rows(states: Sequence[State]) -> list[dict[str, object]]:
    """A row per target, its URL masked."""
    return [
        {
            "target": state.target.name,
            "URL": state.shown,
            "from": state.target.severity,
            "on": ", ".join(state.target.on),
            "quiet hours": quiet_text(state.target.quiet),
            "interval, s": state.target.interval_s,
            "waiting": state.delivery.waiting,
            "last delivery": _clock(state.delivery.sent_at),
        }
        for state in states
    ]


def failures(states: Sequence[State]) -> list[str]:
    """A line per target whose last message was not taken."""
    return [
        f"{s.target.name}: {s.delivery.why}; last try {_clock(s.delivery.failed_at)}" for s in states if s.delivery.why
    ]


def quiet_text(quiet: tuple[int, int] | None) -> str:
    """ "22:00-07:00", or empty."""
    return "" if quiet is None else "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in quiet)


def _state(notice: Notice) -> str:
    if notice.state == SENT:
        return "sent"
    return f"not delivered yet ({notice.why})" if notice.state == FAILED and notice.why else "waits"


def _clock(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
