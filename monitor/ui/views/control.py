"""Control: the editor of bounds, run commands, roll back, and what became of each command.

Nothing is sent from here: every button opens a dialog of review.py. A link may fill the editor in: `?alert=` with the
change that the alert proposes, `?neg_min=` and the like with bounds, `?rollback=` with a checkpoint.
"""

from __future__ import annotations

import shlex

import streamlit as st

from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import RunFacts, load_facts
from regimescope.monitor.ui.header import REVIEW_OPEN
from regimescope.monitor.ui.session import chosen_run, control_allowed, plain_errors
from regimescope.monitor.ui.views.editor import editor
from regimescope.monitor.ui.views.history import command_history, command_rows
from regimescope.monitor.ui.views.outcomes import outcomes
from regimescope.monitor.ui.views.review import Request, ask, open_review
from regimescope.monitor.ui.views.rollback import rollback

_BUTTONS = (
    ("pause", "Pause", ":material/pause:"),
    ("resume", "Resume", ":material/play_arrow:"),
    ("checkpoint", "Checkpoint", ":material/save:"),
    ("stop", "Stop", ":material/stop:"),
)


def render() -> None:
    """Draw the page of the chosen run."""
    ctx = current()
    if ctx.read_only:
        st.info("This server is read-only: no command leaves it.", icon=":material/lock:")
        return
    with plain_errors("The control channel"):
        facts = load_facts(ctx, chosen_run().path)
        if facts is None:
            st.warning("The folder of this run is gone.", icon=":material/folder_off:")
            return
        obstacle = _obstacle(facts)
        if obstacle:
            st.warning(obstacle, icon=":material/block:")
        if facts.live.ended or facts.live.stale:
            _how_to_resume(ctx, facts)
        allowed = not obstacle and control_allowed(ctx)
        left, right = st.columns([3, 2], gap="large")
        with left:
            new = editor(ctx, facts, allowed)
        with right:
            _run_commands(facts, allowed)
            rollback(facts, new, allowed)
            _status(facts.run.path, facts.bounds.revision if facts.bounds else None, bool(obstacle), allowed)
        outcomes(facts.run.path, allowed)
        st.subheader("History")
        command_history(facts.commands, facts.alerts)
        open_review(facts.run.path)


def _obstacle(facts: RunFacts) -> str:
    """Why nothing can be asked of this run now; empty = all is well."""
    live, run = facts.live, facts.run
    if live.ended:
        return "This run has ended, so nothing can be applied to it."
    if live.stale:
        return "This run is silent, so nothing can be applied to it: see whether its process is alive."
    if not run.capabilities:
        return "This run is only observed: its recorder declared no commands (Recorder(can=..., limits=...))."
    return ""


def _how_to_resume(ctx: Context, facts: RunFacts) -> None:
    if not (facts.run.framework or "").startswith("regimescope "):
        st.text("The monitor starts no process: start this run again with its own trainer.")
        return
    st.text("The monitor starts no process. To go on from the last checkpoint under the bounds last acknowledged:")
    command = ["regimescope", "train", "--resume", "--run-dir", str(ctx.monitor.root / facts.run.path)]
    st.code(shlex.join(command), language=None)  # a folder's name must not become a command where this is pasted
    wanted = next((e.step for e in facts.checkpoints if str(e.step) == st.query_params.get("rollback")), None)
    if wanted is not None:
        st.text(f"To go back to the checkpoint of step {wanted}:")
        st.code(shlex.join([*command, "--checkpoint", str(wanted)]), language=None)


def _run_commands(facts: RunFacts, allowed: bool) -> None:
    st.subheader("Run")
    paused = facts.live.state == "paused"
    with st.container(horizontal=True, gap="small"):
        for kind, label, icon in _BUTTONS:
            idle = (kind == "resume" and not paused) or (kind == "pause" and paused)
            disabled = not allowed or idle or kind not in facts.run.capabilities
            if st.button(label, icon=icon, disabled=disabled, key=f"run-{kind}"):
                ask(Request.of(facts, kind))


@st.fragment(run_every="2s", key="control-status")
def _status(path: str, revision: int | None, blocked: bool, allowed: bool) -> None:
    """The newest commands and how far they got. Runs the page again when its editor is out of date."""
    with plain_errors("The commands"):
        facts = load_facts(current(), path)
        if facts is None:
            return
        now = facts.bounds.revision if facts.bounds else None
        if (now != revision or bool(_obstacle(facts)) != blocked) and not st.session_state.get(REVIEW_OPEN):
            st.rerun(scope="app")
        st.subheader("Commands")
        command_rows(facts, allowed)
