"""The parts of an alert's card that say who drives it and what to do: badges, the bound to move, the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import streamlit as st

from regimescope.monitor.query import AlertRow
from regimescope.monitor.ui.answers import last_good_checkpoint
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import Proposal, RunFacts, proposal
from regimescope.monitor.ui.session import page_link
from regimescope.monitor.ui.texts import REGIME_OF, bound_label, driver_text, eps_label, weight
from regimescope.monitor.way_back import way_back

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
    if change is not None and not closed:
        _way_to_control(facts, alert)
    text = alert.remedy.get("text")
    if isinstance(text, str) and text:
        st.text(text)
    if closed:
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
