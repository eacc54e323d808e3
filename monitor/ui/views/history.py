"""What became of the commands: the newest ones as lines with a badge, all of them as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import rollback_of
from regimescope.monitor.errors import BoundsError, ControlError
from regimescope.monitor.query import AlertRow, CommandRow
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.palette import Tone, badge_color
from regimescope.monitor.ui.texts import ago, span, weight
from regimescope.monitor.ui.views.review import MOVES, Request, ask

_SHOWN = 4
_STATUS: dict[str, tuple[str, Tone, str]] = {
    "pending": ("pending", "info", ":material/hourglass_top:"),
    "applying": ("applying", "info", ":material/sync:"),
    "applied": ("applied", "ok", ":material/check_circle:"),
    "rejected": ("rejected", "critical", ":material/cancel:"),
    "expired": ("expired", "stale", ":material/timer_off:"),
}


def command_rows(facts: RunFacts, allowed: bool) -> None:
    """The newest commands with their answers; says so when one got its answer since the last look. What expired can be
    asked again: a new command, after a review."""
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
            if command.status == "expired":
                _ask_again(facts, command, allowed)
    _announce(facts.commands)


def _ask_again(facts: RunFacts, command: CommandRow, allowed: bool) -> None:
    known, new, checkpoint = asked_for(command)
    possible = known and command.kind in facts.run.capabilities
    key = f"again-{command.command_id}"
    if st.button("Ask again", icon=":material/replay:", key=key, disabled=not allowed or not possible):
        ask(Request.of(facts, command.kind, new=new, alert_id=command.alert_id, checkpoint=checkpoint))
        st.rerun(scope="app")


def asked_for(command: CommandRow) -> tuple[bool, Bounds | None, int | None]:
    """Whether it can be asked again, with which bounds, to which checkpoint."""
    try:
        if command.kind == "rollback":
            step, bounds = rollback_of(command.args)
            return True, bounds, step
        return True, Bounds.from_wire(command.args) if command.kind == "set_bounds" else None, None
    except (BoundsError, ControlError):  # a line that somebody else wrote
        return False, None, None


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
        f"{change.name} = {weight(change.new)}"  # what was in force is not known
        if change.old is None
        else f"{change.name} {weight(change.old)} → {weight(change.new)}"
        for change in command.changes
    )
    step = command.args.get("checkpoint") if command.kind == "rollback" else None
    to = f"to step {step}" if isinstance(step, int) else ""
    return " ".join(part for part in (command.kind, to, moves) if part)


def answer(command: CommandRow, now: float) -> str:
    """What the trainer said, or how long it has left; now in unix seconds."""
    asked = f"asked {ago(now - command.issued_at)} ago"
    if command.status == "applied":
        step = f" at step {command.applied_step}" if command.applied_step is not None else ""
        revision = f", revision {command.revision}" if command.kind in MOVES and command.revision is not None else ""
        ranks = f" by all {command.ranks} ranks" if (command.ranks or 1) > 1 else ""
        said = f" ({command.message})" if command.message else ""
        return f"Applied{ranks}{step}{revision}, {asked}{said}"
    if command.status == "applying":
        return f"Applied by {ranks_of(command)}, {asked}. {_missing(command, now)}"
    if command.status == "rejected":
        return f"Rejected by the trainer: {command.message or 'no reason given'}"
    if command.status == "expired":
        return (
            f"Not applied: {command.message or 'the trainer did not take it in time'}. Ask again if you still want it."
        )
    return f"Waiting for the trainer's next step boundary, {asked}, {span(command.not_after - now)} left"


def ranks_of(command: CommandRow) -> str:
    """ "1 of 2 ranks"."""
    return f"{command.applied_ranks} of {command.ranks} ranks"


def _missing(command: CommandRow, now: float) -> str:
    """Which ranks have not answered."""
    gone = sorted(set(range(command.ranks or 1)) - set(command.applied_by))
    names = f"rank{'s' if len(gone) != 1 else ''} {', '.join(map(str, gone))}"
    late = "never answered: see whether their processes live" if now > command.not_after else "not heard of yet"
    return f"Missing: {names}, {late}."


def command_history(commands: Sequence[CommandRow], alerts: Sequence[AlertRow]) -> None:
    """All commands, newest first. Append-only: a revert is a new command. `alerts`: those that one may answer."""
    if not commands:
        st.caption("No command was ever sent to this run.")
        return
    answered = {alert.alert_id: alert.signature for alert in alerts}
    rows = [
        {
            "when": datetime.fromtimestamp(command.issued_at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S"),
            "by": command.by or "",
            "what": what(command),
            "status": command.status,
            "step": command.applied_step,
            "revision": command.revision,
            "ranks": ranks_of(command) if command.ranks else "",
            "alert": answered.get(command.alert_id or "", command.alert_id or ""),
            "why": command.why or "",
            "answer": command.message or "",
        }
        for command in commands
    ]
    st.dataframe(
        rows,
        hide_index=True,
        height="content" if len(rows) < 12 else 420,
        column_config={"what": st.column_config.Column(width=260), "why": st.column_config.Column(width=220)},
        alt="All commands to this run, newest first",
    )
