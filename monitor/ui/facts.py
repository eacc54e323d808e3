"""What the pages know about one run: liveness, alerts, commands, bounds, verdict, proposal.

Alerts, commands and the like are read again only when something was said, not with each step (`Monitor.version`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from regimescope.monitor import query
from regimescope.monitor.memo import Memo
from regimescope.monitor.service import Liveness, Monitor
from regimescope.monitor.troubles import troubles
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.texts import BOUNDS
from regimescope.monitor.ui.verdict import LINT, Verdict, open_alerts, skew_text, verdict

MAX_ASKED = 9
"Checkpoints asked for by people that a chart marks at most."


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One bound to move, as an alert's remedy proposes it."""

    bound: str
    '"neg.w_min", …'
    old: float
    "Weight in force."
    new: float
    "Weight proposed."
    alert_id: str
    "The alert that proposes it."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The state of a run at one moment."""

    run: query.RunRow
    live: Liveness
    alerts: list[query.AlertRow]
    "All of them, the inhibited and resolved ones too."
    open_alerts: list[query.AlertRow]
    "Those that count, worst first."
    commands: list[query.CommandRow]
    "Newest first."
    checkpoints: list[query.EventRow]
    "On the surviving stretch, oldest first."
    bounds: query.BoundsInForce | None
    "None: the run has no bounds, or they are not known yet."
    segments: list[query.SegmentRow]
    "The tailed files with what was lost in them."
    notes: list[query.NoteRow]
    "What people wrote about alerts, oldest first."
    verdict: Verdict
    remedy: Proposal | None
    "Change that the worst open alert proposes; None: none, or already in force."
    lint_remedy: Proposal | None
    "Change that the bounds lint proposes."
    troubles: tuple[str, ...] = ()
    "What is wrong with the files and makes numbers wrong or missing, in sentences."


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """All of a run but its numbers."""

    alerts: list[query.AlertRow]
    commands: list[query.CommandRow]
    checkpoints: list[query.EventRow]
    bounds: query.BoundsInForce | None
    segments: list[query.SegmentRow]
    notes: list[query.NoteRow]
    troubles: tuple[str, ...]
    repeated: list[tuple[int, int]]
    "Stretches that a later launch does again."


SHOWN = ("duplicate_rank", "second_writer", "segment_refused")
"Troubles that are told in full; losses and bad lines are counted in the first answer."

_alerts: Memo[list[query.AlertRow]] = Memo()
_rest: Memo[Said] = Memo()


def read_said(monitor: Monitor, run_key: int) -> Said:
    """Read once per version of the run. Raises duckdb.Error."""
    key, version = (monitor.store.instance, run_key), monitor.version(run_key)

    def alerts() -> list[query.AlertRow]:
        with monitor.store.cursor() as con:
            return query.alerts(con, run_key)

    def rest() -> Said:
        with monitor.store.cursor() as con:
            return Said(
                alerts=[],
                commands=query.commands(con, run_key),
                checkpoints=query.checkpoints(con, run_key),
                bounds=query.bounds_in_force(con, run_key),
                segments=query.segments(con, run_key),
                notes=query.notes(con, run_key),
                troubles=tuple(f"{t.text}: {t.advice}" for t in troubles(con, run_key) if t.kind in SHOWN),
                repeated=query.repeated_stretches(con, run_key),
            )

    found = _rest.get(key, version.said, rest)
    return replace(found, alerts=_alerts.get(key, (version.said, version.alerts), alerts))


def load_facts(ctx: Context, path: str) -> RunFacts | None:
    """The state of the run at this path below the root; None when it is gone. Raises StoreError."""
    return facts_of(ctx.monitor, path)


def facts_of(monitor: Monitor, path: str) -> RunFacts | None:
    """The same of a monitor without a server."""
    with monitor.store.cursor() as con:
        run_key = query.run_key_of(con, path)
    run = None if run_key is None else monitor.run(run_key)
    if run is None:
        return None
    said, live = read_said(monitor, run.run_key), monitor.liveness(run.run_key)
    active = open_alerts(said.alerts, live.last_step)
    return RunFacts(
        run=run,
        live=live,
        alerts=said.alerts,
        open_alerts=active,
        commands=said.commands,
        checkpoints=said.checkpoints,
        bounds=said.bounds,
        segments=said.segments,
        notes=said.notes,
        verdict=verdict(
            run,
            live,
            said.alerts,
            monitor.warming(run.run_key),
            degraded=monitor.degraded is not None,
            paused_by=_paused_by(said.commands),
        ),
        remedy=_first(active, said.bounds),
        lint_remedy=_first([alert for alert in said.alerts if alert.signature == LINT and alert.open], said.bounds),
        troubles=(*said.troubles, *_problems(monitor, run.path), *_skew(run, live)),
    )


def _paused_by(commands: Sequence[query.CommandRow]) -> str:
    """Who asked for the pause that is in force, if a command did."""
    last = next((c for c in commands if c.kind in ("pause", "resume") and c.status == "applied"), None)
    return last.by or "" if last is not None and last.kind == "pause" else ""


def _skew(run: query.RunRow, live: Liveness) -> list[str]:
    text = skew_text(run, live, time.time())
    return [text] if text else []


def _problems(monitor: Monitor, path: str) -> list[str]:
    """Files of this run that are not read, or were replaced."""
    mine = path if path == "." else f"{path}/"
    return [f"{name}: {why}" for name, why in monitor.problems.items() if f"{name}/".startswith(mine) or path == "."]


def last_good_step(checkpoints: Sequence[query.EventRow], active: Sequence[query.AlertRow]) -> int | None:
    """Step of the newest checkpoint before the earliest onset of these warnings and critical alerts; without any, of
    the newest. Once only a rollback helps, the one that the remedy names.
    """
    closed = [alert.remedy.get("checkpoint") for alert in active if alert.evidence.get("window") == "closed"]
    if closed:
        return min((step for step in closed if isinstance(step, int)), default=None)
    onsets = [alert.step_onset for alert in active if alert.severity != "info"]
    steps = [event.step for event in checkpoints if event.step is not None]
    return max((step for step in steps if not onsets or step < min(onsets)), default=None)


def shown_checkpoints(checkpoints: Sequence[query.EventRow], active: Sequence[query.AlertRow]) -> list[int]:
    """Steps of the checkpoints that a chart marks, ascending: the last good one, and the newest that a person asked
    for. A trainer may save at every step.
    """
    asked = [event.step for event in checkpoints if event.data.get("asked_for") and event.step is not None]
    good = last_good_step(checkpoints, active)
    return sorted({*asked[-MAX_ASKED:], *([] if good is None else [good])})


def _first(alerts: list[query.AlertRow], bounds: query.BoundsInForce | None) -> Proposal | None:
    return next((found for alert in alerts if (found := proposal(alert, bounds)) is not None), None)


def proposal(alert: query.AlertRow, bounds: query.BoundsInForce | None) -> Proposal | None:
    """The change that an alert's remedy proposes; None: it names no bound, or it is in force."""
    bound, target = alert.remedy.get("bound"), alert.remedy.get("target")
    if bounds is None or bound not in BOUNDS or not isinstance(target, int | float):
        return None
    sign, _, name = str(bound).partition(".")
    old = float(getattr(getattr(bounds.bounds, sign), name))
    return (
        None
        if old == float(target)
        else Proposal(bound=str(bound), old=old, new=float(target), alert_id=alert.alert_id)
    )
