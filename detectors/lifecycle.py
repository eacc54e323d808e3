"""From conditions to alerts: inactive -> pending -> firing -> resolved.

A detector answers each point with a Reading; `Lifecycle.update` turns readings into changes of state. Severity only
rises within one episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from regimescope.detectors.rules import Rule
from regimescope.detectors.types import SEVERITIES, Evidence, Severity

Change = Literal["opened", "escalated", "resolved"]
RANK: Mapping[Severity | None, int] = {None: 0, **{severity: i + 1 for i, severity in enumerate(SEVERITIES)}}


@dataclass(slots=True, kw_only=True)
class Reading:
    """What a detector says at one point."""

    level: Severity | None = None
    "Highest level whose condition has held long enough."
    pending: Severity | None = None
    "Highest level whose condition holds at this point."
    holds: bool = False
    "The alert must not end yet."
    onset: int = 0
    "Step at which the change began."
    score: float | None = None
    "Evidence over its threshold."
    size: float | None = None
    "Effect, for the verdict after a change of bounds."
    direction: str | None = None
    "up, down or unclear."
    evidence: Evidence = field(default_factory=dict)
    "Numbers behind it."
    row: Rule | None = None
    "The row of rules.toml whose texts apply; None: the detector's own."


QUIET = Reading()
"Shared answer of a quiet point."


class Streak:
    """True once its condition has held for `points` points in a row."""

    __slots__ = ("_points", "count", "since")

    def __init__(self, points: int) -> None:
        self._points = points
        self.count = 0
        self.since = 0  # step of the first point of the present streak

    def update(self, step: int, condition: bool) -> bool:
        if not condition:
            self.count = 0
            return False
        if self.count == 0:
            self.since = step
        self.count += 1
        return self.count >= self._points


class Streaks:
    """One streak per level of a rule: takes the highest level whose condition holds, gives the highest that held long
    enough."""

    __slots__ = ("_items", "active")

    def __init__(self, rule: Rule) -> None:
        self._items = [
            (RANK[name], name, Streak(rule.levels[name].points)) for name in SEVERITIES if name in rule.levels
        ]
        self.active = False  # a streak of any level runs

    def update(self, step: int, level: Severity | None) -> Severity | None:
        if level is None and not self.active:
            return None
        self.active = level is not None
        rank = RANK[level]
        reached: Severity | None = None
        for own, name, streak in self._items:
            if streak.update(step, rank >= own):
                reached = name
        return reached

    def since(self, step: int) -> int:
        """Step at which the present streak of the lowest level began; `step` without one."""
        streak = self._items[0][2]
        return streak.since if streak.count else step


class Lifecycle:
    """State of one rule. `grace` points after a resume hold back info and warning, never critical.

    >>> alert = Lifecycle(keep_firing=2)
    >>> warn = Reading(level="warning", pending="warning", holds=True)
    >>> worse = Reading(level="critical", pending="critical", holds=True)
    >>> [alert.update(reading) for reading in (warn, worse, QUIET, QUIET)]
    ['opened', 'escalated', None, 'resolved']
    """

    __slots__ = ("_keep_firing", "_quiet", "firing", "grace", "least", "ordinal", "pending", "severity")

    def __init__(self, keep_firing: int) -> None:
        self._keep_firing = keep_firing
        self._quiet = 0
        self.grace = 0
        self.least = 0  # rank below which a level counts as none
        self.firing = False
        self.ordinal = -1  # of the present or last episode
        self.pending: Severity | None = None
        self.severity: Severity | None = None  # of the present or last episode

    def update(self, reading: Reading) -> Change | None:
        level, pending = reading.level, reading.pending
        if self.least:
            level = level if RANK[level] >= self.least else None
            pending = pending if RANK[pending] >= self.least else None
        if self.grace:
            self.grace -= 1
            level = level if level == "critical" else None
            pending = pending if pending == "critical" else None
        if not self.firing:
            self.pending = pending if level is None else None
            if level is None:
                return None
            self.firing, self.severity, self._quiet = True, level, 0
            self.ordinal += 1
            return "opened"
        if RANK[level] > RANK[self.severity]:
            self.severity, self._quiet = level, 0
            return "escalated"
        if reading.holds or level is not None:
            self._quiet = 0
            return None
        self._quiet += 1
        if self._quiet < self._keep_firing:
            return None
        self.firing = False
        return "resolved"
