"""What the read functions of `query.py` return: frozen records, one per kind of row. Times are unix seconds of the
trainer's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from regimescope.monitor.bounds import Bounds, Limits, WeightRule


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run with its newest launch."""

    run_key: int
    path: str
    'Folder relative to the root: the identity. "." when the root is the run itself.'
    run_id: str
    name: str | None
    status: str
    "running | ended | crashed | imported"
    state: str | None
    "What the trainer says it is doing; None = it never said."
    state_since: float | None
    started_at: float | None
    last_row_at: float | None
    last_step: int | None
    "Newest step that any rank of the newest launch finished."
    launch_no: int | None
    launch_id: str | None
    objective: str | None
    framework: str | None
    ratio_source: str | None
    ranks: int
    capabilities: tuple[str, ...]
    limits: Limits | None
    "None: the run is only observed and accepts no bounds."
    weight_rule: WeightRule | None
    config: Mapping[str, object]
    end_reason: str | None
    "finished | stopped | rollback | error; None = no end line."
    imported_from: str | None = None
    "Format of the foreign log that it came from."


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSource:
    """Which key of a foreign log fed a metric."""

    name: str
    "Ours."
    source_key: str
    transform: str | None
    "diff | 1-x | 1-x/100; empty = as it is."
    trust: str | None
    "exact | proxy: related, not the same | user: mapped by hand."


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRow:
    """A part of the steps: kind `all` (slice 0), `env` or `lag`."""

    slice_id: int
    kind: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one metric in step order."""

    steps: list[int]
    values: list[float | None]
    "None where the value is not finite."
    nonfinite: list[int]
    "Steps with a NaN or infinity; of a thinned series the first in each bin."
    nonfinite_count: int = 0
    "All of them."
    thinned: bool = False
    "Each bin is shown by its minimum and maximum."


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest value of a metric, and the one some steps before."""

    step: int
    value: float
    before: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One episode of a rule, with what a person last said about it."""

    alert_id: str
    incident_id: str
    signature: str
    rule: str
    severity: str
    "info | warning | critical"
    state: str
    "pending | firing | resolved"
    driver: str | None
    "R1 … R4, where the evidence tells."
    step_onset: int
    step_detected: int
    step_last: int
    evidence: Mapping[str, object]
    remedy: Mapping[str, object]
    'bound ("neg.w_min" or None), direction, target, text.'
    inhibited_by: str | None
    "Rule that explains this one."
    title: str
    text: str
    "One sentence: what is seen."
    direction: str | None
    score: float | None
    launch_no: int
    ordinal: int
    superseded: bool
    "Found in a stretch that a later launch repeats."
    mark: str | None = None
    "acknowledge | snooze | false_alarm | confirmed | reopen"
    mark_actor: str | None = None
    mark_text: str | None = None
    until_step: int | None = None
    "End of a snooze."
    slice: str | None = None
    '"env=math"; None = everything.'

    @property
    def open(self) -> bool:
        """Firing now, on the stretch that counts."""
        return self.state == "firing" and not self.superseded


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """Alerts that belong together."""

    incident_id: str
    signature: str | None
    """The probable cause: of the earliest alert that names a failure and that no other explains; None = each of them is
    explained by another."""
    driver: str | None
    "R1 … R4: of that alert, else of the next one that has one."
    step_onset: int
    step_last: int
    firing: bool
    "One of its alerts is, on the stretch that counts."
    superseded: bool
    "All of them are history: found in a stretch that a later launch repeats."
    alerts: tuple[str, ...]
    "Their ids, by onset."


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRow:
    """A note that a person left; it changes nothing."""

    alert_id: str | None
    "None = about the run."
    actor: str | None
    t: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundChange:
    """One of the four bounds in a command."""

    name: str
    "pos.w_min, pos.w_max, neg.w_min or neg.w_max"
    old: float | None
    "At the revision that the command expects; None = not known."
    new: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """A command and how far it got."""

    command_id: str
    launch_id: str
    kind: str
    args: Mapping[str, object]
    expect: int | None
    issued_at: float
    not_after: float
    by: str | None
    why: str | None
    alert_id: str | None
    status: str
    "pending | applying | applied | rejected | expired"
    ranks: int | None
    applied_ranks: int
    applied_step: int | None
    "First step under the new bounds."
    revision: int | None
    applied: Bounds | None
    message: str | None
    "The trainer's words with its answer."
    applied_by: tuple[int, ...] = ()
    "Ranks that have applied it."
    changes: tuple[BoundChange, ...] = ()
    "The bounds that differ from those in force when it was issued."


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsInForce:
    """Bounds of the newest launch, by header, acks and bucket rows."""

    bounds: Bounds
    revision: int
    since_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """Anything dated."""

    kind: str
    step: int | None
    t: float | None
    data: Mapping[str, object]
    launch_no: int | None = None
    superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """A tailed file and its losses."""

    segment: str
    byte_offset: int
    lost: int
    "Records that the recorder dropped or that are missing from the file."
    bad_lines: int
    refused: str | None = None
    "Why nothing more of this file is read."
    dropped: int = 0
    "Of the lost: what the recorder says that it dropped."
