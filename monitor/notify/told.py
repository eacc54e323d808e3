"""How far the notices of an alert got, and the targets of a server, in words. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from regimescope.monitor.notify.due import FAILED, SENT, Notice, merge

if TYPE_CHECKING:
    from regimescope.monitor.notify.notifier import State

_KINDS = {"open": "opened", "escalate": "escalated", "resolve": "resolved"}


def told_line(notices: Iterable[Notice], alert_id: str) -> str:
    """ "Notices: oncall opened (sent), mail opened (not delivered yet: it answered 500)"; empty where none fell due."""
    found = [notice for notice in merge(notices).values() if notice.alert == alert_id]
    words = [f"{n.target} {_KINDS.get(n.kind, n.kind)} ({_state(n)})" for n in found]
    return f"Notices: {', '.join(words)}" if words else ""


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
            "last failure": _failure(state),
        }
        for state in states
    ]


def quiet_text(quiet: tuple[int, int] | None) -> str:
    """ "22:00-07:00", or empty."""
    return "" if quiet is None else "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in quiet)


def _state(notice: Notice) -> str:
    if notice.state == SENT:
        return "sent"
    return f"not delivered yet: {notice.why}" if notice.state == FAILED and notice.why else "waiting"


def _failure(state: State) -> str:
    why = state.delivery.why
    return f"{_clock(state.delivery.failed_at)}: {why}" if why else ""


def _clock(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
