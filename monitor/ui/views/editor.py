"""The editor of Control: the bounds in force, what is filled in from an alert, an address or a published window, what
that would change, and the button that opens the review. `editor(ctx, facts, allowed)` gives the bounds it shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from regimescope.monitor.bounds import Bounds, Limits, SignLimits
from regimescope.monitor.query import named_bounds
from regimescope.monitor.ui.answers import lint_note
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import Proposal, RunFacts, proposal
from regimescope.monitor.ui.header import badge
from regimescope.monitor.ui.prefill import Prefill, from_link, of_window
from regimescope.monitor.ui.session import page_link
from regimescope.monitor.ui.texts import REGIME_OF, bound_label, driver_text, eps_label, weight
from regimescope.monitor.ui.url_bounds import PARAMETERS
from regimescope.monitor.ui.views.predicted import draw_prediction
from regimescope.monitor.ui.views.review import Request, ask, change_under_way
from regimescope.monitor.windows import windows

_LAYOUT = (("pos", ("pos.w_max", "pos.w_min")), ("neg", ("neg.w_max", "neg.w_min")))
"Rows by sign of A, columns by side of r: the four regimes R1 R2 / R3 R4."
_SIDES = {"pos": "A>0: right answers", "neg": "A<0: wrong answers"}
PRESETS = ("dispo", "cispo", "dapo", "grpo")
"Published windows with a button."
_FILLED = "control_filled"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filled:
    """What a button filled in last."""

    base: str
    "Of the fields' keys."
    name: str
    'Of the window; "" = as in force.'
    prefill: Prefill
    count: int
    "Buttons pressed so far: makes the keys new."


def editor(ctx: Context, facts: RunFacts, allowed: bool) -> Bounds | None:
    """Draw it; None: this run has no bounds to edit."""
    st.subheader("Bounds in force")
    run, bounds = facts.run, facts.bounds
    if bounds is None or run.limits is None or "set_bounds" not in run.capabilities:
        st.text("This run accepts no change of bounds (no limits in its header).")
        return None if bounds is None else bounds.bounds
    st.caption(
        f"Revision {bounds.revision}, in force since step {bounds.since_step}. Absolute weights; the trainer holds the "
        "limits too, and rejects what is outside them."
    )
    suggested, linked = _suggested(facts), from_link(_link(), run.limits)
    _lint(facts, suggested)
    given = _given(suggested, linked, named_bounds(bounds.bounds))
    base = _base(facts, suggested, linked)
    _windows(run.limits, base, allowed)
    filled = _filled(base)
    if filled is not None:
        given, base = dict(filled.prefill.values), f"{base}-{filled.count}"
    start, wanted = named_bounds(bounds.bounds), dict(named_bounds(bounds.bounds))
    for sign, names in _LAYOUT:
        with st.container(border=True):
            st.markdown(f"**{_SIDES[sign]}**")
            limits: SignLimits | None = getattr(run.limits, sign)
            if limits is None:
                st.text("The weight of this side is 1: it has no bounds to move.")
                continue
            for column, name in zip(st.columns(2), names, strict=True):
                with column:
                    wanted[name] = _field(name, start[name], given.get(name, start[name]), limits, base, allowed)
    new = bounds.bounds.with_values(wanted)
    if new != bounds.bounds:
        draw_prediction(ctx, facts, new, place="editor")
    _review_button(facts, new, allowed, suggested)
    return new


def _link() -> dict[str, str]:
    return {key: st.query_params[key] for key in PARAMETERS if key in st.query_params}


def _given(suggested: Proposal | None, linked: Prefill, now: Mapping[str, float]) -> dict[str, float]:
    """What the address fills in, said; explicit bounds win over the alert's proposal."""
    for problem in linked.problems:
        st.warning(problem, icon=":material/block:")
    if linked.values:
        moves = [f"{bound_label(n)} {weight(now[n])} → {weight(v)}" for n, v in linked.values.items() if v != now[n]]
        said = ", ".join(moves) or "the bounds that are in force"
        st.info(f"Filled in from the link: {said}", icon=":material/link:")
        return dict(linked.values)
    if suggested is not None:
        move = f"{bound_label(suggested.bound)} {weight(suggested.old)} → {weight(suggested.new)}"
        st.info(f"Prefilled from the alert: {move}", icon=":material/lightbulb:")
        return {suggested.bound: suggested.new}
    return {}


def _base(facts: RunFacts, suggested: Proposal | None, linked: Prefill) -> str:
    """Beginning of the fields' keys: another revision, alert or link begins with fresh fields."""
    assert facts.bounds is not None
    link = ",".join(f"{name}={value:g}" for name, value in linked.values.items())
    alert = suggested.alert_id if suggested else ""
    return f"{facts.run.run_key}-{facts.run.launch_id}-{facts.bounds.revision}-{alert}-{link}"


def _windows(limits: Limits, base: str, allowed: bool) -> None:
    """Buttons that fill in a published window."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="presets"):
        st.caption("Fill in the window of", width="content")
        for window in windows():
            if window.name in PRESETS:
                name = window.title.partition(",")[0]
                fill = (base, name, of_window(window.bounds, limits))
                st.button(name, key=f"preset-{window.name}", help=window.source, disabled=not allowed,
                          on_click=_fill, args=fill)  # fmt: skip
        st.button("As in force", key="preset-none", disabled=not allowed, on_click=_fill,
                  args=(base, "", Prefill(values={})))  # fmt: skip
    filled = _filled(base)
    if filled is None or not filled.name:
        return
    st.caption(
        f"{filled.name}'s window is filled in. Whether a token beyond it is held or dropped is this run's own rule."
    )
    for problem in filled.prefill.problems:
        st.warning(problem, icon=":material/block:")


def _filled(base: str) -> _Filled | None:
    found: _Filled | None = st.session_state.get(_FILLED)
    return found if found is not None and found.base == base else None


def _fill(base: str, name: str, prefill: Prefill) -> None:
    """Before the page runs again: fresh fields begin with these values, the others as they are in force. The values
    are the fields' defaults and not set through the session state, which a browser can miss when a run is cut short.
    """
    count = st.session_state[_FILLED].count + 1 if _FILLED in st.session_state else 1
    st.session_state[_FILLED] = _Filled(base=base, name=name, prefill=prefill, count=count)


def _field(name: str, now: float, value: float, limits: SignLimits, base: str, allowed: bool) -> float:
    """One bound: the weight to ask for. Limits are held by the widget, and again by the trainer."""
    low, high = getattr(limits, name.partition(".")[2])
    key = f"{base}-{name}"
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
    empty = math.inf if math.isinf(high) and name.endswith("w_max") else now
    asked = empty if chosen is None else float(chosen)
    changed = f"now {weight(now)} → **{weight(asked)}**" if asked != now else f"now {weight(now)}"
    st.caption(f"{changed} · {eps_label(name, asked)} · limits {weight(low)} to {weight(high)}")
    return asked


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


def _suggested(facts: RunFacts) -> Proposal | None:
    """The change that the alert of the URL proposes; nothing of the URL but the id is used."""
    wanted = st.query_params.get("alert")
    alert = next((alert for alert in facts.alerts if alert.alert_id == wanted), None)
    return proposal(alert, facts.bounds) if alert is not None else None


def _review_button(facts: RunFacts, new: Bounds, allowed: bool, suggested: Proposal | None) -> None:
    assert facts.bounds is not None
    problems = (facts.run.limits or Limits()).problems(new)
    pending = change_under_way(facts)
    unchanged = new == facts.bounds.bounds
    for problem in problems:
        st.text(problem)
    if pending:
        st.text("A change of bounds is on its way; wait for its answer.")
    elif unchanged:
        st.caption("Change a bound above to review it. Nothing is sent before you confirm.")
    disabled = not allowed or bool(problems) or pending or unchanged
    if st.button("Review change", type="primary", icon=":material/rate_review:", disabled=disabled):
        ask(Request.of(facts, "set_bounds", new=new, alert_id=suggested.alert_id if suggested else None))
