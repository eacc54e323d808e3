"""What the pages know about one run, read once per redraw: liveness, alerts, commands, bounds, verdict, proposal."""

from __future__ import annotations

from dataclasses import dataclass

from regimescope.monitor import query
from regimescope.monitor.service import Liveness
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.texts import BOUNDS
from regimescope.monitor.ui.verdict import LINT, Verdict, open_alerts, verdict


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
    verdict: Verdict
    remedy: Proposal | None
    "Change that the worst open alert proposes; None: none, or already in force."
    lint_remedy: Proposal | None
    "Change that the bounds lint proposes."


def load_facts(ctx: Context, path: str) -> RunFacts | None:
    """Read the state of the run at this path below the root; None when it is gone. Raises StoreError."""
    with ctx.monitor.store.cursor() as con:
        run = query.run_by_path(con, path)
        if run is None:
            return None
        alerts, commands = query.alerts(con, run.run_key), query.commands(con, run.run_key)
        bounds = query.bounds_in_force(con, run.run_key)
        checkpoints = query.checkpoints(con, run.run_key)
    live = ctx.monitor.liveness(run.run_key)
    active = open_alerts(alerts, live.last_step)
    return RunFacts(
        run=run,
        live=live,
        alerts=alerts,
        open_alerts=active,
        commands=commands,
        checkpoints=checkpoints,
        bounds=bounds,
        verdict=verdict(run, live, alerts, ctx.monitor.warming(run.run_key)),
        remedy=_first(active, bounds),
        lint_remedy=_first([alert for alert in alerts if alert.signature == LINT and alert.open], bounds),
    )


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
