"""Which notices an alert calls for, pure: from the alert as it is and what was told before.

    due(alert, target, history, is_open=True)            # "open", "escalate", "resolve" or ""

A notice is known by its alert (run, launch, rule with slice, ordinal: `alert_id`), its kind and its target. A replay
may move an onset, and with it the ordinal: a notice of the same rule with an onset within NEAR steps counts as told,
unless the alert is now more severe than what was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regimescope.monitor.alerts import GAP_RULE
from regimescope.monitor.notify.targets import SEVERITIES, Target
from regimescope.monitor.query import AlertRow, EventRow

NEAR = 30
"Steps."
EVENT = "notice"
"Kind of the lines in the monitor's segment."
WAITING, FAILED, SENT = "waiting", "failed", "sent"
_FINALITY = {WAITING: 0, FAILED: 1, SENT: 2}

Key = tuple[str, str, str]
"alert_id, kind (an escalation with its severity), name of the target."


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice and how far it got: a line in the monitor's segment of the run."""

    alert: str
    kind: str
    "open | escalate | resolve"
    target: str
    state: str
    "waiting | failed (tried, and tried again later) | sent"
    rule: str
    slice: str | None
    severity: str
    "Of the alert when it fell due."
    onset: int
    why: str = ""
    "Of a failure."

    @property
    def key(self) -> Key:
        kind = f"escalate {self.severity}" if self.kind == "escalate" else self.kind
        return self.alert, kind, self.target

    def to_data(self) -> dict[str, object]:
        """The `data` of its line."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def of_alert(cls, alert: AlertRow, kind: str, target: str, state: str = WAITING) -> Notice:
        """Of an alert as it is now."""
        return cls(
            alert=alert.alert_id,
            kind=kind,
            target=target,
            state=state,
            rule=alert.rule,
            slice=alert.slice,
            severity=alert.severity,
            onset=alert.step_onset,
        )


def merge(notices: Iterable[Notice]) -> dict[Key, Notice]:
    """The latest state of each: by finality, never by a clock."""
    found: dict[Key, Notice] = {}
    for notice in notices:
        known = found.get(notice.key)
        if known is None or _FINALITY[notice.state] >= _FINALITY[known.state]:
            found[notice.key] = notice
    return found


def read(events: Iterable[EventRow]) -> list[Notice]:
    """The notices among the events of a run; lines that are none are left out."""
    found = []
    for event in events:
        data = event.data
        onset, part = data.get("onset"), data.get("slice")
        texts = {name: data.get(name) for name in ("alert", "kind", "target", "state", "rule", "severity")}
        if event.kind != EVENT or not isinstance(onset, int) or not all(isinstance(x, str) for x in texts.values()):
            continue
        if texts["state"] in _FINALITY and texts["severity"] in SEVERITIES:
            named = {name: str(text) for name, text in texts.items()}
            why = str(data.get("why", ""))
            found.append(Notice(onset=onset, slice=None if part is None else str(part), why=why, **named))
    return found


def due(alert: AlertRow, target: Target, history: Mapping[Key, Notice], *, is_open: bool) -> str:
    """The kind of notice that this target is to get now, or "". `history`: of the run, as `merge` gives it. `is_open`:
    the alert counts (not inhibited, snoozed or called false, no note of the lint).
    """
    told = [n for n in history.values() if n.target == target.name and n.kind != "resolve"]
    own = [n for n in told if n.alert == alert.alert_id]
    if is_open:
        return _rise(alert, target, own, [n for n in told if _near(n, alert)])
    over = alert.state == "resolved" or alert.superseded
    quieted = alert.mark in ("false_alarm", "snooze") or alert.inhibited_by is not None
    if not own or not over or quieted or "resolve" not in target.on:
        return ""
    return "" if (alert.alert_id, "resolve", target.name) in history else "resolve"


def _rise(alert: AlertRow, target: Target, own: list[Notice], near: list[Notice]) -> str:
    rank = SEVERITIES.index(alert.severity)
    if rank < SEVERITIES.index(target.severity):
        return ""
    known = max((SEVERITIES.index(n.severity) for n in own + near), default=-1)
    if known < 0:
        if "open" in target.on:
            return "open"
        return "escalate" if alert.severity == "critical" and "escalate" in target.on else ""
    return "escalate" if rank > known and "escalate" in target.on else ""


def _near(notice: Notice, alert: AlertRow) -> bool:
    same = notice.rule == alert.rule and notice.slice == alert.slice
    same = same and alert.rule != GAP_RULE  # of the monitor's clock: no replay moves it, and each silence is a new one
    return same and abs(notice.onset - alert.step_onset) <= NEAR
