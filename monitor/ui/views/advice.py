"""The parts of an alert's card that say who drives it and what to do: badges, the bound to move, the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import streamlit as st

from regimescope.monitor.errors import BoundsError
from regimescope.monitor.query import AlertRow
from regimescope.monitor.rescue import RescuePlan, plan_of, told
from regimescope.monitor.ui.answers import last_good_checkpoint
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import Proposal, RunFacts, last_good_step, proposal
from regimescope.monitor.ui.session import page_link
from regimescope.monitor.ui.texts import REGIME_OF, bound_label, driver_text, eps_label, weight
from regimescope.monitor.way_back import way_back
from regimescope.monitor.what_if import Prediction, predict, sentence

UNATTRIBUTED: Mapping[str, str] = {
    "unclear": "driver unclear: {names}",
    "no buckets": "no attribution: log buckets",
    "ratios proximal": "no attribution: proximal ratios",
    "no regime stands out": "no regime stands out",
}
"What stands in the place of the driver."


def driver_badges(alert: AlertRow) -> None:
    """The regime that was measured, or why there is none; beside it what the paper expects."""
    if alert.driver:
        color: Literal["blue", "orange"] = "blue" if alert.driver in ("R1", "R2") else "orange"
        st.badge(f"driven by {alert.driver}", icon=":material/bolt:", color=color)
    elif (how := str(alert.evidence.get("attribution") or "")) in UNATTRIBUTED:
        names = str(alert.evidence.get("candidates") or "")
        st.badge(UNATTRIBUTED[how].format(names=names), icon=":material/help:", color="gray")
    if paper := alert.evidence.get("paper_expects"):
        st.badge(f"paper expects {paper}", icon=":material/menu_book:", color="gray")


def what_to_do(ctx: Context, facts: RunFacts, alert: AlertRow) -> None:
    """The remedy: a bound to move, or words; once a bound alone comes too late, the checkpoint to go back to."""
    st.markdown("**What to do**")
    change, closed = proposal(alert, facts.bounds), alert.evidence.get("window") == "closed"
    _heading(facts, alert, change)
    if change is not None:
        _prediction(ctx, facts, change)
    if change is not None and not closed:
        _way_to_control(facts, alert)
    plan = _plan(ctx, facts, alert)
    if plan is None:
        _rollback(facts, alert)
    text = alert.remedy.get("text")
    if isinstance(text, str) and text:
        st.text(text)
    if plan is not None:
        _rescue(facts, alert, plan)
    elif closed:
        _way_back(ctx, facts, alert)
    elif good := last_good(facts, alert):
        st.text(good)


def _heading(facts: RunFacts, alert: AlertRow, change: Proposal | None) -> None:
    bound, target, checkpoint = (alert.remedy.get(name) for name in ("bound", "target", "checkpoint"))
    steps = [] if checkpoint is None else [f"Roll back to step {checkpoint}"]
    if change is not None:
        steps.append(f"{bound_label(change.bound)}: {weight(change.old)} → {weight(change.new)}")
    if steps:
        st.markdown(f"#### {', with '.join(steps)}")
    if change is not None:
        regime = REGIME_OF[change.bound]
        eps = f"{eps_label(change.bound, change.old)} → {eps_label(change.bound, change.new)}"
        st.caption(f"{regime}, {driver_text(regime)}. {eps}")
    elif isinstance(bound, str) and isinstance(target, int | float) and facts.bounds is not None:
        st.text(f"{bound_label(bound)} is at {weight(float(target))} already: the proposed change is in force.")


def _prediction(ctx: Context, facts: RunFacts, change: Proposal) -> None:
    """What the proposed bound would have done to the tokens of the last steps."""
    if facts.bounds is None:
        return
    now = facts.bounds.bounds
    with ctx.monitor.store.cursor() as con:
        try:
            found = predict(con, facts.run, now=now, then=now.with_values({change.bound: change.new}))
        except BoundsError as error:
            st.text(f"No prediction: {error}")
            return
    with st.container(gap=None, key="prose-prediction"):
        for line in prediction_lines(found):
            st.text(line)


def prediction_lines(found: Prediction) -> list[str]:
    """The prediction as lines: over which steps, what would change, and what it is not."""
    if found.obstacle:
        return [f"No prediction: {found.obstacle}"]
    over = f"step {found.first}" if found.first == found.last else f"steps {found.first} to {found.last}"
    head, *rest = sentence(found).split("\n")
    if not found.changed:
        return [f"Predicted over {over}: {head}. This bound does nothing there: do not expect help from it."]
    return [f"Predicted over {over}: {head}.", *rest, "The same batches one step ahead, not a forecast of the policy."]


def _rollback(facts: RunFacts, alert: AlertRow) -> None:
    """The way to the last good checkpoint, where the living trainer can take it."""
    step = last_good_step(facts.checkpoints, [alert])
    if step is None or alert.severity == "info" or facts.live.ended or facts.live.stale:
        return
    if "rollback" in facts.run.capabilities:
        with st.container(key="fix-rollback", width="content"):
            label = f"Roll back in Control, to the checkpoint of step {step}"
            page_link("control", label, icon=":material/history:", rollback=step, alert=alert.alert_id)


def _plan(ctx: Context, facts: RunFacts, alert: AlertRow) -> RescuePlan | None:
    """Of a critical alert that is open."""
    alive, folder = not (facts.live.ended or facts.live.stale), ctx.monitor.root / facts.run.path
    with ctx.monitor.store.cursor() as con:
        return plan_of(con, facts.run, folder, alert, facts.alerts, alive=alive)


def _rescue(facts: RunFacts, alert: AlertRow, plan: RescuePlan) -> None:
    """The rescue plan: one click where the living trainer can go back itself, else what to copy."""
    st.markdown("**Rescue plan**")
    if plan.live_command:
        with st.container(key="fix-rollback", width="content"):
            label = f"Roll back in Control, to the checkpoint of step {plan.checkpoint}"
            page_link("control", label, icon=":material/history:", rollback=plan.checkpoint, alert=alert.alert_id)
    with st.container(gap="xsmall", key="prose-rescue"):
        for label, words in told(plan):
            st.text(f"{label}: {words}")
    commands = [plan.live_command] if plan.live_command else list(plan.commands)
    if commands:
        st.code("\n".join(commands), language=None, wrap_lines=True)


def _way_to_control(facts: RunFacts, alert: AlertRow) -> None:
    if facts.live.ended or facts.live.stale:
        st.caption("The run cannot be steered now: it is silent or has ended.")
        return
    with st.container(key="fix-card", width="content"):
        page_link("control", "Review this change in Control", icon=":material/tune:", alert=alert.alert_id)


def _way_back(ctx: Context, facts: RunFacts, alert: AlertRow) -> None:
    """The commands to copy: the monitor starts no process."""
    obstacle, commands = way_back(ctx.monitor.root / facts.run.path, facts.run, alert.remedy, facts.bounds)
    if obstacle:
        st.text(f"But {obstacle}")
    if commands:
        st.code("\n".join(commands), language=None, wrap_lines=True)


def last_good(facts: RunFacts, alert: AlertRow) -> str:
    """The newest checkpoint before this onset, while a bound may still do."""
    return last_good_checkpoint(facts.checkpoints, [alert]) if alert.severity != "info" else ""
