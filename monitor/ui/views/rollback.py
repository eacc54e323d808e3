"""Roll back: the checkpoints that a living trainer can go back to, and the button that opens the review.

A link with `?rollback=STEP` chooses one; the step is looked up among the run's own.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import streamlit as st

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.query import EventRow, named_bounds
from regimescope.monitor.ui.facts import RunFacts, last_good_step
from regimescope.monitor.ui.texts import ago, bound_label, weight
from regimescope.monitor.ui.views.review import Request, ask, change_under_way


def rollback(facts: RunFacts, new: Bounds | None, allowed: bool) -> None:
    """Draw it. `new`: what the editor shows; None = this run has no bounds, and then no rollback by command."""
    st.subheader("Roll back")
    if "rollback" not in facts.run.capabilities or new is None or facts.bounds is None:
        st.caption("This trainer takes no rollback: resume it from a checkpoint by its own command.")
        return
    known = {event.step: event for event in facts.checkpoints if event.step is not None}
    if not known:
        st.caption("No checkpoint yet.")
        return
    steps = sorted(known, reverse=True)
    good, wanted = last_good_step(facts.checkpoints, facts.open_alerts), st.query_params.get("rollback")
    asked = next((step for step in steps if str(step) == wanted), None)
    if wanted is not None and asked is None:
        st.warning("The checkpoint of this address is not there (any more): pick another.", icon=":material/link_off:")
    onset = min((a.step_onset for a in facts.open_alerts if a.severity != "info"), default=None)
    first = asked if asked is not None else good if good in known else steps[0]
    step = st.selectbox(
        "To the checkpoint of",
        steps,
        index=steps.index(first),
        key=f"rollback-{facts.run.launch_id}-{first}-{onset}",  # the labels must stay as they are
        format_func=lambda step: checkpoint_label(known[step], onset, good),
        disabled=not allowed,
    )
    if onset is not None and steps[-1] >= onset:
        st.caption(f"No checkpoint that is kept is from before the onset at step {onset}.")
    saved = known[step].t
    age = f"Saved {ago(time.time() - saved)} ago. " if saved is not None else ""
    st.caption(f"{age}The run goes on at step {step + 1}, {under(facts.bounds.bounds, new)}.")
    disabled = not allowed or change_under_way(facts)
    if st.button("Review rollback", icon=":material/history:", disabled=disabled, key="run-rollback"):
        alert = next((a.alert_id for a in facts.alerts if a.alert_id == st.query_params.get("alert")), None)
        ask(Request.of(facts, "rollback", new=new, alert_id=alert, checkpoint=step))


def checkpoint_label(event: EventRow, onset: int | None, good: int | None) -> str:
    """ "step 20, 14:12:31, before the onset at step 24 (last good)"; the time of day, for an age would not stay."""
    parts = [f"step {event.step}"]
    if event.t is not None:
        parts.append(f"{datetime.fromtimestamp(event.t, UTC).astimezone():%H:%M:%S}")
    if onset is not None and event.step is not None:
        parts.append(f"{'before' if event.step < onset else 'after'} the onset at step {onset}")
    return ", ".join(parts) + (" (last good)" if event.step == good and onset is not None else "")


def under(now: Bounds, new: Bounds) -> str:
    """ "under the bounds in force", or what the editor changes in them."""
    old = named_bounds(now)
    moves = [f"{bound_label(n)} {weight(old[n])} → {weight(v)}" for n, v in named_bounds(new).items() if v != old[n]]
    return f"under the bounds of the editor: {', '.join(moves)}" if moves else "under the bounds in force"
