"""What goes into the detectors beside metrics (Event) and what comes out (Finding, Remedy, Blind).

Frozen records; nothing here computes. Words as in docs/detectors.md: a rule finds, a signature names, an episode is
one firing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["info", "warning", "critical"]
State = Literal["pending", "firing", "resolved"]
Direction = Literal["raise", "lower"]
Sight = Literal["ok", "warming", "degraded", "blind"]
Evidence = Mapping[str, float | str | bool | None]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
"Rising order."
REGIMES: tuple[str, ...] = ("R1", "R2", "R3", "R4")
BUCKETS: tuple[str, ...] = (*REGIMES, "pos_eq1", "neg_eq1", "zero_adv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something dated that changes what the metrics mean."""

    kind: str
    "start, resume, rollback, bounds_changed, curriculum, length_limit, sampling, sync, checkpoint; others are ignored."
    step: int
    "The first step it applies to."
    data: Mapping[str, object] = field(default_factory=dict)
    "start, bounds_changed: objective, ratio_source, bounds (pos.w_min ...), pos.base, neg.base, revision; optional."


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to change; a bound only where the evidence shows that it binds."""

    bound: str | None = None
    "pos.w_min, pos.w_max, neg.w_min or neg.w_max; None: no bound is proposed."
    direction: Direction | None = None
    "Which way to move the bound."
    target: float | None = None
    "Absolute weight to move it to."
    checkpoint: int | None = None
    "Step of the checkpoint to go back to, under the bound above; None: no rollback is needed, or none is left."
    text: str = ""
    "One or two sentences for a person."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The current picture of one episode of one rule."""

    signature: str
    "Kind of failure: length_collapse, accuracy_collapse, bounds_lint, ..."
    rule: str
    "Rule that found it, a name of rules.toml."
    severity: Severity
    "Highest so far; it never falls within an episode."
    state: State
    "pending (condition holds, not long enough), firing, resolved."
    ordinal: int
    "Episode of this rule, from 0."
    step_onset: int
    "Where the change began."
    step_detected: int
    "Where the episode opened."
    step_last: int
    "Last step at which its condition held."
    score: float | None
    "Evidence over its threshold, >= 1 when firing; None for rules without one."
    direction: str | None
    "up, down or unclear, where the rule knows one."
    slice: str | None
    "Value of the env slice that the suite watches; None: everything."
    driver: str | None
    "R1 .. R4, where the buckets tell; else None."
    evidence: Evidence
    "Numbers behind it, by name; at most about twenty."
    remedy: Remedy
    "What to do."
    title: str
    "Few words."
    text: str
    "One sentence: what is seen."
    incident: int
    "Findings with the same number belong together."
    inhibited_by: str | None
    "Rule whose alert explains this one; shown dimmed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Blind:
    """What one rule can see of this log."""

    rule: str
    "Name of the rule."
    status: Sight
    "ok; warming; degraded: an optional input is missing; blind: a required one."
    reason: str
    "Which input, or how far the warm-up is; empty when ok."
    help: str
    "What to log; empty when ok."
