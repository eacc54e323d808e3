"""Control: the bounds in force, an editor in absolute weights, run commands, and what became of each command.

Nothing is sent from here: every button opens a dialog of review.py. A link with `?alert=` prefills the change that the
alert proposes.
"""

from __future__ import annotations

import math
import shlex

import streamlit as st

from regimescope.monitor.bounds import Bounds, Limits, SignLimits
from regimescope.monitor.query import named_bounds
from regimescope.monitor.ui.answers import lint_note
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import Proposal, RunFacts, load_facts, proposal
from regimescope.monitor.ui.header import REVIEW_OPEN, badge
from regimescope.monitor.ui.session import chosen_run, control_allowed, page_link, plain_errors
from regimescope.monitor.ui.texts import REGIME_OF, bound_label, driver_text, eps_label, weight
from regimescope.monitor.ui.views.history import command_history, command_rows
from regimescope.monitor.ui.views.review import Request, ask, open_review

_LAYOUT = (("pos", ("pos.w_max", "pos.w_min")), ("neg", ("neg.w_max", "neg.w_min")))
"Rows by sign of A, columns by side of r: the four regimes R1 R2 / R3 R4."
_SIDES = {"pos": "A>0: right answers", "neg": "A<0: wrong answers"}
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
        editor, commands = st.columns([3, 2], gap="large")
        with editor:
            _editor(facts, allowed)
        with commands:
            _run_commands(facts, allowed)
            _status(facts.run.path, facts.bounds.revision if facts.bounds else None, bool(obstacle))
        st.subheader("History")
        command_history(facts.commands)
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


def _editor(facts: RunFacts, allowed: bool) -> None:
    st.subheader("Bounds in force")
    run, bounds = facts.run, facts.bounds
    if bounds is None or run.limits is None or "set_bounds" not in run.capabilities:
        st.text("This run accepts no change of bounds (no limits in its header).")
        return
    st.caption(f"Revision {bounds.revision}, in force since step {bounds.since_step}. Absolute weights.")
    suggested = _suggested(facts)
    _lint(facts, suggested)
    if suggested is not None:
        move = f"{bound_label(suggested.bound)} {weight(suggested.old)} → {weight(suggested.new)}"
        st.info(f"Prefilled from the alert: {move}", icon=":material/lightbulb:")
    base = f"{run.run_key}-{run.launch_id}-{bounds.revision}-{suggested.alert_id if suggested else ''}"
    start = named_bounds(bounds.bounds)
    wanted = dict(start)
    for sign, names in _LAYOUT:
        with st.container(border=True):
            st.markdown(f"**{_SIDES[sign]}**")
            limits: SignLimits | None = getattr(run.limits, sign)
            if limits is None:
                st.text("The weight of this side is 1: it has no bounds to move.")
                continue
            for column, name in zip(st.columns(2), names, strict=True):
                with column:
                    value = suggested.new if suggested and suggested.bound == name else start[name]
                    wanted[name] = _field(name, start[name], value, limits, f"{base}-{name}", allowed)
    _review_button(facts, bounds.bounds.with_values(wanted), allowed, suggested)


def _lint(facts: RunFacts, suggested: Proposal | None) -> None:
    """What the bounds in force themselves risk, with a way to fill in its remedy."""
    note = lint_note(facts.alerts)
    if not note:
        return
    with st.container(border=True, gap="xsmall", key="prose-lint"):
        badge("bounds lint", "watch")
        st.text(note.removeprefix("bounds lint: "))
        change = facts.lint_remedy
        if change is not None and (suggested is None or suggested.bound != change.bound):
            label = f"Fill in {bound_label(change.bound)}: {weight(change.old)} → {weight(change.new)}"
            page_link("control", label, icon=":material/edit:", alert=change.alert_id)


def _field(name: str, now: float, value: float, limits: SignLimits, key: str, allowed: bool) -> float:
    """One bound: the weight to ask for. Limits are held by the widget, and again by the trainer."""
    low, high = getattr(limits, name.partition(".")[2])
    chosen = st.number_input(
        f"{REGIME_OF[name]}: {bound_label(name)}",
        key=key,
        value=float(value) if math.isfinite(value) else None,
        min_value=float(low),
        max_value=float(high) if math.isfinite(high) else None,
        step=0.1,
        format="%.6g",
        placeholder="no bound",
        disabled=not allowed,
        help=driver_text(REGIME_OF[name]),
    )
    asked = now if chosen is None else float(chosen)
    changed = f"now {weight(now)} → **{weight(asked)}**" if asked != now else f"now {weight(now)}"
    st.caption(f"{changed} · {eps_label(name, asked)} · limits {weight(low)} to {weight(high)}")
    return asked


def _suggested(facts: RunFacts) -> Proposal | None:
    """The change that the alert of the URL proposes; nothing of the URL but the id is used."""
    wanted = st.query_params.get("alert")
    alert = next((alert for alert in facts.alerts if alert.alert_id == wanted), None)
    return proposal(alert, facts.bounds) if alert is not None else None


def _review_button(facts: RunFacts, new: Bounds, allowed: bool, suggested: Proposal | None) -> None:
    assert facts.bounds is not None
    limits = facts.run.limits or Limits()
    problems = limits.problems(new)
    pending = any(
        command.kind == "set_bounds" and command.status in ("pending", "applying") for command in facts.commands
    )
    unchanged = new == facts.bounds.bounds
    for problem in problems:
        st.text(problem)
    if pending:
        st.text("A change of bounds is on its way; wait for its answer.")
    elif unchanged:
        st.caption("Change a bound above to review it. Nothing is sent before you confirm.")
    disabled = not allowed or bool(problems) or pending or unchanged
    if st.button("Review change", type="primary", icon=":material/rate_review:", disabled=disabled):
        ask(
            Request(
                kind="set_bounds",
                path=facts.run.path,
                run_key=facts.run.run_key,
                launch_id=facts.run.launch_id,
                revision=facts.bounds.revision,
                old=facts.bounds.bounds,
                new=new,
                alert_id=suggested.alert_id if suggested else None,
            )
        )


def _run_commands(facts: RunFacts, allowed: bool) -> None:
    st.subheader("Run")
    paused = facts.live.state == "paused"
    with st.container(horizontal=True, gap="small"):
        for kind, label, icon in _BUTTONS:
            idle = (kind == "resume" and not paused) or (kind == "pause" and paused)
            disabled = not allowed or idle or kind not in facts.run.capabilities
            if st.button(label, icon=icon, disabled=disabled, key=f"run-{kind}"):
                revision = facts.bounds.revision if facts.bounds else None
                ask(
                    Request(
                        kind=kind,
                        path=facts.run.path,
                        run_key=facts.run.run_key,
                        launch_id=facts.run.launch_id,
                        revision=revision,
                    )
                )


@st.fragment(run_every="2s", key="control-status")
def _status(path: str, revision: int | None, blocked: bool) -> None:
    """The newest commands and how far they got. Runs the page again when its editor is out of date."""
    with plain_errors("The commands"):
        facts = load_facts(current(), path)
        if facts is None:
            return
        now = facts.bounds.revision if facts.bounds else None
        if (now != revision or bool(_obstacle(facts)) != blocked) and not st.session_state.get(REVIEW_OPEN):
            st.rerun(scope="app")
        st.subheader("Commands")
        command_rows(facts)
