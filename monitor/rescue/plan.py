"""The rescue plan as a record, and the pure function that makes it from what was read of a run.

    plan(Situation(...)) -> RescuePlan

It reads no file and no clock. What is proposed as a bound is the remedy's (detectors/advice.py); where that names none,
neither does the plan, and it says why.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regimescope.detectors.advice import HOLDS
from regimescope.detectors.incidents import EARLY, LINT
from regimescope.monitor.bounds import Bounds
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.query import BOUND_NAMES, AlertRow, BoundsInForce, EventRow, RunRow, named_bounds
from regimescope.monitor.rescue.ways import Way, way_of
from regimescope.monitor.rescue.words import lab
from regimescope.monitor.way_back import OURS, way_back

State = Literal["ready", "none", "deleted", "after"]
Relax = Literal["none", "repair", "held", "over", "closed", "in_force", "early", "late", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a plan is made from."""

    alert: AlertRow
    onset: int
    "The earliest one of its incident."
    run: RunRow
    folder: Path
    "Of the run."
    bounds: BoundsInForce | None
    told: Sequence[EventRow]
    "All checkpoints that the run told of on the stretch that counts."
    kept: Sequence[EventRow]
    "Those that were not told to be deleted."
    gone: Collection[int] = ()
    "Steps whose folder is not there, where that can be seen."
    last_step: int | None
    alive: bool
    "The trainer goes on."
    held: bool
    "Rollouts fail or the engine disagrees, so that no bound is moved."
    accuracy: bool
    "It is logged."
    hours: Callable[[int], float | None]
    "Hours of training after this step (-1: of all); None = not known."


@dataclass(frozen=True, slots=True, kw_only=True)
class RescuePlan:
    """What a person needs at 2 a.m. to save a run."""

    alert_id: str
    onset: int
    "The earliest one of the incident."
    state: State
    "ready | none: no checkpoint is known | deleted: the good one was | after: those kept are from after the onset."
    checkpoint: int | None
    "ready: the last good one; deleted: the one that was; after: the earliest that is kept."
    path: str | None
    "Of the checkpoint, as the run or its log told it."
    bounds: Bounds | None
    "To resume with; None = no bound is proposed, or not all four are known."
    bound: str | None
    '"neg.w_min": the one that moves.'
    old: float | None
    new: float | None
    why: str
    "Key of texts.toml [bounds]: what is said of the bounds, or why none is proposed."
    candidates: str
    "Regimes between which the evidence does not decide."
    lost_steps: int | None
    "Steps that are done again; without a checkpoint all."
    good_steps: int
    "Those of them from before the onset."
    lost_hours: float | None
    last_step: int | None
    relax: Relax
    "Whether relaxing now, without going back, can still work."
    since_onset: int | None
    since_step: int | None
    "Step since which the bounds are in force."
    takes_bounds: bool
    "The trainer takes commands."
    sees_accuracy: bool
    imported: bool
    live_command: str
    "For a living trainer that can roll back itself; it is also one click on the card. Empty = it cannot."
    commands: tuple[str, ...]
    "To copy: of our own trainer, or the settings and the way to resume of another one."
    way: Way | None
    "Of another trainer's framework, where that is known."
    framework: str | None
    ours: bool
    "Of our own trainer."
    drops: bool
    "The run drops tokens beyond a bound."


def needs_plan(alert: AlertRow) -> bool:
    """Critical, of the run itself and not over."""
    return alert.severity == "critical" and alert.open and alert.signature != LINT


def onset_of(alert: AlertRow, alerts: Sequence[AlertRow]) -> int:
    """The earliest onset of its incident, by the rule of the detectors (suite.py)."""
    together = [
        a.step_onset
        for a in alerts
        if a.open and a.incident_id == alert.incident_id and a.severity != "info" and a.signature != "early_r4"
        if a.inhibited_by is None or a.signature in EARLY
    ]
    return min(together, default=alert.step_onset)


def plan(s: Situation) -> RescuePlan:
    """The plan."""
    state, step = _checkpoint(s)
    at = step if state == "ready" else None
    event = None if step is None else next((e for e in reversed(s.told) if e.step == step), None)
    path = event.data.get("path") if event is not None else None
    bound, new, why = _bound(s)
    old = None if s.bounds is None or bound is None else named_bounds(s.bounds.bounds)[bound]
    then = _moved(s.bounds, bound, new)
    way = None if _ours(s.run) else way_of(s.run.framework, then, at, path if isinstance(path, str) else None)
    after = -1 if at is None else at
    return RescuePlan(
        alert_id=s.alert.alert_id, onset=s.onset, state=state, checkpoint=step,
        path=path if isinstance(path, str) else None, bounds=then, bound=bound, old=old, new=new, why=why,
        candidates=str(s.alert.evidence.get("candidates") or ""),
        lost_steps=None if s.last_step is None else max(0, s.last_step - after),
        good_steps=0 if at is None else max(0, s.onset - at - 1), lost_hours=s.hours(after), last_step=s.last_step,
        relax=_relax(s, bound, why), since_onset=None if s.last_step is None else max(0, s.last_step - s.onset),
        since_step=None if s.bounds is None else s.bounds.since_step, takes_bounds="set_bounds" in s.run.capabilities,
        sees_accuracy=s.accuracy, imported=s.run.imported_from is not None, live_command=_live(s, at, bound, new),
        commands=_commands(s, at, way), way=way, framework=s.run.framework, ours=_ours(s.run), drops=_drops(s.run),
    )  # fmt: skip


def _checkpoint(s: Situation) -> tuple[State, int | None]:
    """The last good one; once only a rollback helps, not later than the detectors say."""
    kept = sorted({e.step for e in s.kept if e.step is not None} - set(s.gone))
    told = {e.step for e in s.told if e.step is not None}
    named = s.alert.remedy.get("checkpoint")
    limit = s.onset - 1
    if s.alert.evidence.get("window") == "closed" and not s.held:
        limit = named if isinstance(named, int) else -1
    good = [step for step in kept if step <= limit]
    deleted = [step for step in told.difference(kept) if step < s.onset]
    if good:
        return "ready", good[-1]
    if deleted:
        return "deleted", max(deleted)
    return ("after", kept[0]) if kept else ("none", None)


def _bound(s: Situation) -> tuple[str | None, float | None, str]:
    """The bound to move, its new value, and what is said of it."""
    bound, target, evidence = s.alert.remedy.get("bound"), s.alert.remedy.get("target"), s.alert.evidence
    if s.alert.signature in HOLDS:
        return None, None, "repair"
    if bound in BOUND_NAMES and isinstance(target, int | float):
        if s.bounds is None:
            return str(bound), float(target), "unknown"
        same = named_bounds(s.bounds.bounds)[str(bound)] == float(target)
        return str(bound), float(target), "in_force" if same else "move"
    if s.held:
        return None, None, "held"
    how = str(evidence.get("attribution") or "").replace(" ", "_")
    if s.alert.driver is None and how in ("no_buckets", "unclear", "ratios_proximal", "no_regime_stands_out"):
        return None, None, how
    return None, None, "other"


def _moved(bounds: BoundsInForce | None, bound: str | None, new: float | None) -> Bounds | None:
    if bounds is None or bound is None or new is None:
        return None
    try:
        return bounds.bounds.with_values({bound: new})
    except BoundsError:
        return None  # a person moved the other one past it since


def _relax(s: Situation, bound: str | None, why: str) -> Relax:
    since = 0 if s.last_step is None else s.last_step - s.onset
    if bound is None:
        return "repair" if why == "repair" else "held" if why == "held" else "none"
    if s.alert.evidence.get("window") == "closed":
        return "closed"
    if not s.alive:
        return "over"
    if why == "in_force":
        return "in_force"
    if since <= lab("saved_within"):
        return "early"
    return "late" if since < lab("lost_after") else "lost"


def _live(s: Situation, step: int | None, bound: str | None, new: float | None) -> str:
    """The command by which a living trainer goes back itself."""
    if step is None or not s.alive or "rollback" not in s.run.capabilities:
        return ""
    moved = [] if bound is None or new is None else ["--" + bound.replace(".w_", "-"), f"{new:g}"]
    words = ["regimescope", "rollback", str(s.folder), "--to", str(step), *moved, "--why", s.alert.signature]
    return shlex.join(words)


def _commands(s: Situation, step: int | None, way: Way | None) -> tuple[str, ...]:
    if _ours(s.run):
        remedy: Mapping[str, object] = {**s.alert.remedy, "checkpoint": step}
        return () if step is None else tuple(way_back(s.folder, s.run, remedy, s.bounds)[1])
    return () if way is None else (*way.settings, *([way.resume] if way.resume else []))


def _drops(run: RunRow) -> bool:
    rule = run.weight_rule
    return rule is not None and any(
        side.drop_above is not None or side.drop_below is not None for side in (rule.pos, rule.neg)
    )


def _ours(run: RunRow) -> bool:
    return (run.framework or "").startswith(OURS.strip())
