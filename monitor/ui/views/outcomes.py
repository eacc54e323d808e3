"""What the changes did: per applied change of bounds the prediction beside what was observed, and a way back.

Redrawn every 2 s; an outcome is read again with each step until it has seen all that it looks at.
"""

from __future__ import annotations

import streamlit as st

from regimescope.monitor.memo import Memo
from regimescope.monitor.observed import MOVES, MetricOutcome, Outcome, RegimeOutcome, bounds_before, outcome
from regimescope.monitor.query import CommandRow
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import RunFacts, load_facts
from regimescope.monitor.ui.session import plain_errors
from regimescope.monitor.ui.texts import number, percent
from regimescope.monitor.ui.views.history import what
from regimescope.monitor.ui.views.review import Request, ask, change_under_way

SHOWN = 3
"Newest changes that are drawn; the others on request."
_LABELS = {
    "accuracy": "accuracy",
    "response_length_mean": "length, tokens",
    "rep4_mean": "rep-4",
    "entropy_mean": "entropy, nat",
}
_outcomes: Memo[Outcome | None] = Memo()


@st.fragment(run_every="2s", key="control-outcomes")
def outcomes(path: str, allowed: bool) -> None:
    """Draw it; nothing before the first applied change."""
    with plain_errors("What the changes did"):
        ctx = current()
        facts = load_facts(ctx, path)
        done = [] if facts is None else [c for c in facts.commands if is_change(c)]
        if facts is None or not done:
            return
        st.subheader("What the changes did")
        every = len(done) > SHOWN and st.toggle(f"All {len(done)} changes", key=f"all-changes-{facts.run.run_key}")
        for command in done if every else done[:SHOWN]:
            _card(ctx, facts, command, allowed)


def is_change(command: CommandRow) -> bool:
    """An applied command that moved bounds."""
    return command.kind in MOVES and command.status == "applied" and bool(command.changes)


def read_outcome(ctx: Context, facts: RunFacts, command: CommandRow) -> Outcome | None:
    """Read once per step and once per answer to a command. Raises duckdb.Error."""

    def read() -> Outcome | None:
        with ctx.monitor.store.cursor() as con:
            return outcome(con, facts.run, facts.commands, command)

    stamp = (
        facts.live.last_step,
        facts.run.launch_no,
        len(facts.commands),
        ctx.monitor.version(facts.run.run_key).said,
    )
    return _outcomes.get((ctx.monitor.store.instance, facts.run.run_key, command.command_id), stamp, read)


def _card(ctx: Context, facts: RunFacts, command: CommandRow, allowed: bool) -> None:
    found = read_outcome(ctx, facts, command)
    if found is None:
        return
    with st.container(border=True, gap="xsmall", key=f"outcome-{command.command_id}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge(f"revision {command.revision}", color="gray")
            st.text(f"{what(command)}, at step {found.first}", width="content")
            st.caption(f"{found.steps} of {found.of} steps seen", width="content")
            _revert(facts, command, allowed)
        left, right, _ = st.columns([5, 4, 2], gap="medium")
        with left:
            st.markdown("\n".join(regime_table(found)))
        with right:
            if found.metrics:
                st.markdown("\n".join(metric_table(found)))
        if found.note:
            st.text(found.note)


def regime_table(found: Outcome) -> list[str]:
    """Markdown, numbers only."""
    head = ["| | before | predicted | observed |", "| --- | --- | --- | --- |"]
    return [*head, *(line for regime in found.regimes for line in _regime_rows(regime))]


def _regime_rows(r: RegimeOutcome) -> list[str]:
    error = f" ± {percent(r.clipped_error)}" if r.clipped_error else ""
    clipped = (percent(r.clipped_before), percent(r.clipped_predicted) + error, percent(r.clipped_observed))
    mass = (percent(r.mass_before), percent(r.mass_predicted), percent(r.mass_observed))
    return [
        f"| **{r.regime}** clipped | {' | '.join(clipped)} |",
        f"| **{r.regime}** gradient mass | {' | '.join(mass)} |",
    ]


def metric_table(found: Outcome) -> list[str]:
    """Markdown, numbers only: means of the steps before and after."""
    head = ["| mean over the steps | before | after |", "| --- | --- | --- |"]
    return [*head, *(_metric_row(metric) for metric in found.metrics)]


def _metric_row(metric: MetricOutcome) -> str:
    return f"| {_LABELS[metric.name]} | {number(metric.before)} | {number(metric.after)} |"


def _revert(facts: RunFacts, command: CommandRow, allowed: bool) -> None:
    """The bounds of before as a new command, after a review."""
    before = bounds_before(command)
    if command.kind != "set_bounds" or before is None or facts.bounds is None:
        return
    idle = before == facts.bounds.bounds
    disabled = not allowed or idle or change_under_way(facts)
    tip = "These bounds are in force." if idle else "Opens the review with the bounds of before: a new command."
    if st.button("Revert", icon=":material/undo:", key=f"revert-{command.command_id}", disabled=disabled, help=tip):
        ask(Request.of(facts, "set_bounds", new=before))
        st.rerun(scope="app")
