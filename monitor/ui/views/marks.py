"""What people say about an alert: acknowledge, snooze, false alarm, note, reopen. Kept in the monitor's own segment."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from regimescope.monitor.errors import ControlError
from regimescope.monitor.query import AlertRow
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.session import actor
from regimescope.monitor.ui.verdict import is_snoozed

_SNOOZE_STEPS = 50


def mark_text(alert: AlertRow, last_step: int | None) -> str:
    """What a person last said about it."""
    if alert.mark is None:
        return ""
    by = f" by {alert.mark_actor}" if alert.mark_actor else ""
    text = f": {alert.mark_text}" if alert.mark_text else ""
    if alert.mark == "snooze":
        asleep = is_snoozed(alert, last_step)
        until = f" until step {alert.until_step}" if alert.until_step is not None else ""
        return f"{'Snoozed' if asleep else 'Was snoozed'}{until}{by}{text}"
    return f"{alert.mark.replace('_', ' ').capitalize()}{by}{text}"


def alert_notes(facts: RunFacts, alert: AlertRow) -> list[str]:
    """The notes about it, oldest first: "ana, 2026-03-01 14:05: eval was down"."""
    return [
        f"{note.actor or 'somebody'}, {datetime.fromtimestamp(note.t, UTC).astimezone():%Y-%m-%d %H:%M}: {note.text}"
        for note in facts.notes
        if note.alert_id == alert.alert_id
    ]


def say(ctx: Context, facts: RunFacts, alert: AlertRow) -> None:
    """The four things a person can say about an alert."""
    with st.container(horizontal=True, gap="small"):
        if st.button("Acknowledge", icon=":material/done:", key=f"ack-{alert.alert_id}"):
            _mark(ctx, facts, alert, "acknowledge")
        with st.popover("Snooze", icon=":material/snooze:"), st.form(f"snooze-{alert.alert_id}", border=False):
            steps = st.number_input("For how many steps", min_value=1, max_value=100_000, value=_SNOOZE_STEPS, step=10)
            why = st.text_input("Reason")
            st.caption("A snooze never hides a critical alert.")
            if st.form_submit_button("Snooze"):
                _mark(
                    ctx, facts, alert, "snooze", why, until_step=(facts.live.last_step or alert.step_last) + int(steps)
                )
        with st.popover("False alarm", icon=":material/thumb_down:"), st.form(f"false-{alert.alert_id}", border=False):
            why = st.text_input("What is it instead?")
            if st.form_submit_button("Mark as false alarm"):
                _mark(ctx, facts, alert, "false_alarm", why)
        with st.popover("Note", icon=":material/edit_note:"), st.form(f"note-{alert.alert_id}", border=False):
            text = st.text_area("Note for the next person")
            if st.form_submit_button("Save note") and text.strip():
                _mark(ctx, facts, alert, "note", text)
        if alert.mark in ("acknowledge", "snooze", "false_alarm") and st.button(
            "Reopen", icon=":material/undo:", key=f"reopen-{alert.alert_id}"
        ):
            _mark(ctx, facts, alert, "reopen")


def _mark(
    ctx: Context, facts: RunFacts, alert: AlertRow, kind: str, text: str = "", until_step: int | None = None
) -> None:
    try:
        ctx.monitor.requests.mark(
            facts.run.run_key, kind=kind, alert_id=alert.alert_id, by=actor(), text=text.strip(), until_step=until_step
        )
    except ControlError as error:
        st.error("Nothing was written.", icon=":material/error:")
        st.text(str(error))
        return
    st.toast(f"{kind.replace('_', ' ').capitalize()}: written to the run's log", icon=":material/done:")
