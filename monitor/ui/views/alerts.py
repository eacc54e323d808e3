"""Alerts: the incident timeline, and the card of one alert: when, how sure, why, what to do, what people said about it.

`?alert=` names the alert; without it the worst open one is shown. The page is run again
when an alert opens, changes or is marked.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from regimescope.monitor.query import AlertRow
from regimescope.monitor.ui.context import current
from regimescope.monitor.ui.facts import RunFacts, last_good_step, load_facts, shown_checkpoints
from regimescope.monitor.ui.figures import CONFIG, Mark, incident_timeline
from regimescope.monitor.ui.header import REVIEW_OPEN
from regimescope.monitor.ui.session import chosen_run, plain_errors, theme
from regimescope.monitor.ui.texts import signature_text, weight
from regimescope.monitor.ui.verdict import LINT, alert_line, of_slice
from regimescope.monitor.ui.views.card import alert_card
from regimescope.monitor.ui.views.incidents import incident_list
from regimescope.monitor.ui.views.unseen import unseen


def render() -> None:
    """Draw the page of the chosen run."""
    ctx = current()
    with plain_errors("The alerts"):
        facts = load_facts(ctx, chosen_run().path)
        if facts is None:
            st.warning("The folder of this run is gone.", icon=":material/folder_off:")
            return
        _watch(facts.run.path, fingerprint(facts))
        shown = [alert for alert in facts.alerts if alert.state != "pending"]
        if not shown:
            _nothing(facts)
            unseen(ctx, facts)
            return
        chosen = _choose(shown, facts)
        _timeline(facts, shown, chosen)
        incident_list(ctx, facts, shown)
        picked = _picker(shown, chosen)
        alert_card(ctx, facts, picked, _marks(facts, picked))
        unseen(ctx, facts)


@st.fragment(run_every="2s", key="alerts-watch")
def _watch(path: str, known: tuple[tuple[str, ...], ...]) -> None:
    """Run the page again when its alerts are not the drawn ones any more."""
    with plain_errors("The alerts"):
        facts = load_facts(current(), path)
        if facts is not None and fingerprint(facts) != known and not st.session_state.get(REVIEW_OPEN):
            st.rerun(scope="app")


def fingerprint(facts: RunFacts) -> tuple[tuple[str, ...], ...]:
    """What must differ for the page to be drawn again."""
    shown = [alert for alert in facts.alerts if alert.state != "pending"]
    notes = tuple((note.alert_id or "", note.text) for note in facts.notes)
    return *((a.alert_id, a.state, a.severity, a.mark or "", a.mark_text or "") for a in shown), *notes


def _nothing(facts: RunFacts) -> None:
    st.subheader("No alert so far")
    step = facts.live.last_step
    st.text("No step has been seen yet." if step is None else f"Nothing has fired up to step {step:,}.")
    pending = [alert for alert in facts.alerts if alert.state == "pending"]
    for alert in pending:
        st.text(f"Under suspicion: {alert_line(alert)}")


def _choose(shown: Sequence[AlertRow], facts: RunFacts) -> AlertRow:
    """The alert of the URL, else the worst open one, else the newest."""
    by_id = {alert.alert_id: alert for alert in shown}
    wanted = st.query_params.get("alert")
    if wanted in by_id:
        return by_id[wanted]
    if wanted is not None:
        st.warning(
            "The alert of this address is gone: the rules or the run changed. Another one is shown.",
            icon=":material/link_off:",
        )
    if facts.open_alerts:
        return facts.open_alerts[0]
    return next((alert for alert in shown if alert.signature != LINT), shown[0])


def _timeline(facts: RunFacts, shown: Sequence[AlertRow], chosen: AlertRow) -> None:
    figure = incident_timeline(
        shown, _marks(facts), last_step=facts.live.last_step or 0, theme=theme(), chosen=chosen.alert_id
    )
    st.plotly_chart(figure, theme=None, config=dict(CONFIG), key="timeline", alt=timeline_text(shown))


def timeline_text(alerts: Sequence[AlertRow]) -> str:
    """The timeline in words, for those who cannot see it."""
    parts = [
        f"{signature_text(a.signature).title}{of_slice(a)}, {a.severity}, from step {a.step_onset} to {a.step_last}, "
        f"{a.state}"
        for a in alerts
    ]
    return "Alerts over steps: " + "; ".join(parts)


def _picker(shown: Sequence[AlertRow], chosen: AlertRow) -> AlertRow:
    by_id = {alert.alert_id: alert for alert in shown}
    if st.session_state.get("alert_picker") != chosen.alert_id:
        st.session_state["alert_picker"] = chosen.alert_id
    picked = st.selectbox(
        "Alert",
        list(by_id),
        format_func=lambda key: alert_name(by_id[key]),
        key="alert_picker",
        label_visibility="collapsed",
        on_change=_picked,
    )
    return by_id[picked]


def _picked() -> None:
    st.query_params["alert"] = st.session_state["alert_picker"]


def alert_name(alert: AlertRow) -> str:
    """One line for the picker."""
    parts = [signature_text(alert.signature).title, alert.severity, alert.state, f"onset {alert.step_onset}"]
    if alert.driver:
        parts.append(alert.driver)
    if alert.slice:
        parts.append(alert.slice)
    if alert.inhibited_by:
        parts.append("explained by another")
    if alert.mark:
        parts.append(alert.mark.replace("_", " "))
    return " · ".join(parts)


def _marks(facts: RunFacts, alert: AlertRow | None = None) -> list[Mark]:
    """Applied changes of bounds and the checkpoints that matter, for the charts: the last good one of the run, and that
    before this alert.
    """
    marks = []
    for command in facts.commands:
        if command.kind == "set_bounds" and command.status == "applied" and command.applied_step is not None:
            moves = ", ".join(
                f"{c.name} {weight(c.old) if c.old is not None else '?'} → {weight(c.new)}" for c in command.changes
            )
            marks.append(Mark(step=command.applied_step, kind="bounds", label=f"step {command.applied_step}: {moves}"))
    steps = set(shown_checkpoints(facts.checkpoints, facts.open_alerts))
    if alert is not None and (good := last_good_step(facts.checkpoints, [alert])) is not None:
        steps.add(good)
    return marks + [Mark(step=step, kind="checkpoint", label=f"checkpoint, step {step}") for step in sorted(steps)]
