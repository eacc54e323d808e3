"""Rescue plans of a run, from the index and its folder: `plans(con, run, alerts, ...)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from regimescope.detectors.advice import HOLDS
from regimescope.monitor import query
from regimescope.monitor.query import AlertRow, Connection, RunRow
from regimescope.monitor.rescue.plan import RescuePlan, Situation, needs_plan, onset_of, plan
from regimescope.monitor.way_back import FOLDER

_KNOWN_STEPS = 0.8
"Share of the steps since the onset whose time must be known."


def plans(
    con: Connection, run: RunRow, folder: Path, alerts: Sequence[AlertRow], *, alive: bool
) -> dict[str, RescuePlan]:
    """Alert id -> plan, of all that need one."""
    found = [a for a in alerts if needs_plan(a)]
    return _plans(con, run, folder, found, alerts, alive) if found else {}


def plan_of(
    con: Connection, run: RunRow, folder: Path, alert: AlertRow, alerts: Sequence[AlertRow], *, alive: bool
) -> RescuePlan | None:
    """Of one alert; None = it needs none."""
    found = [alert] if needs_plan(alert) else []
    return _plans(con, run, folder, found, alerts, alive)[alert.alert_id] if found else None


def _plans(
    con: Connection, run: RunRow, folder: Path, found: Sequence[AlertRow], alerts: Sequence[AlertRow], alive: bool
) -> dict[str, RescuePlan]:
    key, last = run.run_key, run.last_step
    kept, bounds = query.checkpoints(con, key), query.bounds_in_force(con, key)
    told = [e for e in query.events(con, key, ["checkpoint"]) if not e.superseded]
    gone = _gone(folder, [e.step for e in kept if e.step is not None])
    held = any(a.open and a.severity != "info" and a.signature in HOLDS for a in alerts)
    accuracy = "accuracy" in query.metric_names(con, key)
    hours = cache(lambda step: hours_since(con, key, step, last))
    return {
        a.alert_id: plan(
            Situation(
                alert=a, onset=onset_of(a, alerts), run=run, folder=folder, bounds=bounds, told=told, kept=kept,
                gone=gone, last_step=last, alive=alive, held=held, accuracy=accuracy, hours=hours,
            )
        )
        for a in found
    }  # fmt: skip


def _gone(folder: Path, steps: Sequence[int]) -> set[int]:
    """Steps of our own trainer's checkpoints whose folder was deleted by hand; none where it keeps no folder here."""
    kept = folder / FOLDER
    return {step for step in steps if not (kept / f"step-{step:08d}").is_dir()} if kept.is_dir() else set()


def hours_since(con: Connection, run_key: int, onset: int | None, last: int | None) -> float | None:
    """Hours of training after the onset, by the seconds that each step took; None where too few are known."""
    if onset is None or last is None or last <= onset:
        return None
    found = query.history(con, run_key, 0, ["step_seconds"], (onset + 1, last))["step_seconds"]
    known = [float(v) for v in found.values if math.isfinite(v)]
    if not known or len(known) < _KNOWN_STEPS * query.step_count(con, run_key) * (last - onset) / max(1, last + 1):
        return None
    return sum(known) / 3600
