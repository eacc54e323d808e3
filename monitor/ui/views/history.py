"""What became of the commands: the newest ones as lines with a badge, all of them as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from regimescope.monitor.query import CommandRow
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.palette import Tone, badge_color
from regimescope.monitor.ui.texts import ago, span, weight

_SHOWN = 4
_STATUS: dict[str, tuple[str, Tone, str]] = {
    "pending": ("pending", "info", ":material/hourglass_top:"),
    "applying": ("applying", "info", ":material/sync:"),
    "applied": ("applied", "ok", ":material/check_circle:"),
    "rejected": ("rejected", "critical", ":material/cancel:"),
    "expired": ("expired", "stale", ":material/timer_off:"),
}


def command_rows(facts: RunFacts) -> None:
    """The newest commands with their answers; says so when one got its answer since the last look."""
    if not facts.commands:
        st.caption("None yet.")
    for command in facts.commands[:_SHOWN]:
        word, tone, icon = _STATUS[command.status]
        with st.container(border=True, gap="xsmall"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.badge(word, icon=icon, color=badge_color(tone))
                st.text(what(command))
            st.text(answer(command, time.time()))
            if command.why:
                st.text(f"{command.by or 'somebody'}: {command.why}")
    _announce(facts.commands)


def _announce(commands: Sequence[CommandRow]) -> None:
    """A toast when the command sent from this browser got its answer."""
    sent = st.session_state.get("last_sent")
    mine = next((command for command in commands if command.command_id == sent), None)
    if mine is None or mine.status in ("pending", "applying"):
        return
    del st.session_state["last_sent"]
    at = f" at step {mine.applied_step}" if mine.applied_step is not None else ""
    st.toast(f"{mine.kind} {mine.status}{at}", icon=_STATUS[mine.status][2])


def what(command: CommandRow) -> str:
    """ "set_bounds neg.w_min 1 → 0"."""
    moves = ", ".join(
        f"{change.name} {weight(change.old) if change.old is not None else '?'} → {weight(change.new)}"
        for change in command.changes
    )
    return f"{command.kind} {moves}".strip()


def answer(command: CommandRow, now: float) -> str:
    """What the trainer said, or how long it has left; now in unix seconds."""
    asked = f"asked {ago(now - command.issued_at)} ago"
    if command.status == "applied":
        step = f" at step {command.applied_step}" if command.applied_step is not None else ""
        revision = (
            f", revision {command.revision}" if command.kind == "set_bounds" and command.revision is not None else ""
        )
        return f"Applied{step}{revision}, {asked}"
    if command.status == "applying":
        return f"{command.applied_ranks} of {command.ranks} ranks have applied it, {asked}"
    if command.status == "rejected":
        return f"Rejected by the trainer: {command.message or 'no reason given'}"
    if command.status == "expired":
        return (
            f"Not applied: {command.message or 'the trainer did not take it in time'}. Ask again if you still want it."
        )
    return f"Waiting for the trainer's next step boundary, {asked}, {span(command.not_after - now)} left"


def command_history(commands: Sequence[CommandRow]) -> None:
    """All commands, newest first. Append-only: a revert is a new command."""
    if not commands:
        st.caption("No command was ever sent to this run.")
        return
    rows = [
        {
            "when": datetime.fromtimestamp(command.issued_at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            "by": command.by or "",
            "what": what(command),
            "status": command.status,
            "step": command.applied_step,
            "revision": command.revision,
            "why": command.why or "",
            "answer": command.message or "",
        }
        for command in commands
    ]
    st.dataframe(
        rows, hide_index=True, height="content" if len(rows) < 12 else 420, alt="All commands to this run, newest first"
    )
