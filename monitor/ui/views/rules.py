"""The thresholds of Settings: change some, replay this run with them, copy the lines; below it every rule as it is.

A change lives in this browser until the page is closed. The replay has suites of its own and ends after LIMIT_S; one
runs at a time, so that many viewers cannot slow the monitor down.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from regimescope.detectors import Rules, RulesError
from regimescope.monitor import query
from regimescope.monitor.errors import RulesFileError
from regimescope.monitor.rules_file import rules_of, rules_path
from regimescope.monitor.thresholds import (
    SWITCH,
    Name,
    Threshold,
    Value,
    changed,
    optional_rules,
    thresholds,
    toml_lines,
)
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.rule_rows import as_written, by_level, change_rows, counts, meaning, rule_rows
from regimescope.monitor.ui.texts import number
from regimescope.monitor.what_rules import Change, Trial, changes_of, found_now, summary, try_rules

LIMIT_S = 60.0
"A replay that takes longer is compared as far as it came."
_CHANGES = "settings_changes"
_RESULT = "settings_result"
_RULE = "settings_rule"
_COLUMNS = 5
_BUSY = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A replay that was made in this browser, and what it is of."""

    path: str
    changes: Mapping[Name, Value]
    trial: Trial
    compared: Sequence[Change]


def try_change(ctx: Context, facts: RunFacts) -> None:
    """Pick a rule, change its numbers, replay."""
    found = thresholds(ctx.monitor.rule_table)
    st.subheader("What would other thresholds have found on this run?")
    names = list(dict.fromkeys(t.rule for t in found))
    left, right = st.columns([1, 2], vertical_alignment="bottom")
    with left:
        rule = st.selectbox("Rule", names, key=_RULE, index=_first(names, facts))
    with right:
        st.text(ctx.monitor.rules[rule].text)
    _fields(ctx.monitor.rules, [t for t in found if t.rule == rule])
    changes = _changes(found)
    _buttons(ctx, facts, changes)
    _result(facts, changes)
    if changes:
        _keep(ctx, changes)


def rules_in_force(ctx: Context, run_key: int | None) -> None:
    """Every rule with its numbers, and where they come from."""
    st.subheader("Rules in force")
    st.text(_source(ctx))
    found = thresholds(ctx.monitor.rule_table)
    blind = [] if run_key is None else ctx.monitor.blind(run_key)
    st.dataframe(
        rule_rows(ctx.monitor.rules, found, optional_rules(), blind),
        hide_index=True,
        height=420,
        column_config={"state": st.column_config.TextColumn(width=100)},
        alt="Rules with their thresholds",
    )
    st.caption(
        "An optional rule is off until its false alarms are measured; while it is off it raises nothing and has no "
        "lane on Alerts. What each number does: docs/detectors.md. The numbers that all rules share are in [core]."
    )


def _source(ctx: Context) -> str:
    """Which file the numbers come from, and whether it is what the server started with."""
    path = rules_path(ctx.monitor.root)
    try:
        stale = rules_of(ctx.monitor.root).version != ctx.monitor.rules.version
    except RulesFileError as error:
        return f"{error}. The server goes on with the rules it started with, and would not start again."
    if stale:
        return f"{path} was changed since the server started: it counts from the next start on."
    if path.exists():
        return f"As shipped, with {path} over them (version {ctx.monitor.rules.version})."
    return f"As shipped (version {ctx.monitor.rules.version}). Numbers of your own go into {path}."


def _first(names: Sequence[str], facts: RunFacts) -> int:
    """The rule of the worst open alert, else the first."""
    worst = facts.open_alerts[0].rule if facts.open_alerts else ""
    return names.index(worst) if worst in names else 0


def _fields(rules: Rules, found: Sequence[Threshold]) -> None:
    """A field per number; what differs from what is in force is remembered."""
    held: dict[Name, Value] = st.session_state.setdefault(_CHANGES, {})
    switch = next(t for t in found if t.key == SWITCH)
    st.toggle(
        "Rule is on" + (" (optional: its false alarms are not measured yet)" if not switch.shipped else ""),
        value=bool(held.get((switch.rule, SWITCH), switch.value)),
        key=_key(switch),
        on_change=_note,
        args=(switch,),
    )
    for numbers in by_level([t for t in found if t.key != SWITCH]):
        columns = st.columns(_COLUMNS)
        for column, one in zip(columns, numbers, strict=False):
            with column:
                _field(one, held.get((one.rule, one.key), one.value), meaning(one.key, one.comment, rules.core))


def _field(one: Threshold, value: Value, hint: str) -> None:
    whole = counts(one)
    st.number_input(
        one.key.replace(".", ": ").replace("_", " "),
        min_value=0 if whole else 0.0,
        value=int(value) if whole else float(value),
        step=1 if whole else _step(float(one.value)),
        format=None if whole else "%g",
        key=_key(one),
        on_change=_note,
        args=(one,),
        help=f"{hint or 'See docs/detectors.md.'} In force: {number(float(one.value), 4)}.",
    )


def _step(value: float) -> float:
    return max(0.0001, float(f"{abs(value) / 10:.0e}"))


def _key(one: Threshold) -> str:
    return f"rule-{one.rule}-{one.key}-{one.value}"


def _note(one: Threshold) -> None:
    """A field was changed."""
    held: dict[Name, Value] = st.session_state.setdefault(_CHANGES, {})
    value = st.session_state.get(_key(one))
    if value is None or value == one.value:
        held.pop((one.rule, one.key), None)
    else:
        held[one.rule, one.key] = value if isinstance(value, bool) else as_written(one, value)


def _changes(found: Sequence[Threshold]) -> dict[Name, Value]:
    """What this browser changed and the file does not say by now."""
    held: dict[Name, Value] = st.session_state.setdefault(_CHANGES, {})
    return {(t.rule, t.key): held[t.rule, t.key] for t in found if held.get((t.rule, t.key), t.value) != t.value}


def _buttons(ctx: Context, facts: RunFacts, changes: Mapping[Name, Value]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        go = st.button("Replay this run", icon=":material/replay:", type="primary", disabled=not changes)
        st.button("Undo all changes", icon=":material/undo:", disabled=not changes, on_click=_forget)
        st.caption(_listed(changes) if changes else "Change a number or the switch, then replay.")
    if not go:
        return
    if not _BUSY.acquire(blocking=False):
        st.warning("Another replay is running in this server: try again in a moment.", icon=":material/hourglass:")
        return
    try:
        _replay(ctx, facts, changes)
    finally:
        _BUSY.release()


def _listed(changes: Mapping[Name, Value]) -> str:
    return "Changed: " + ", ".join(f"{rule} {key} = {value}" for (rule, key), value in changes.items())


def _forget() -> None:
    for key in [key for key in st.session_state if str(key).startswith("rule-")]:
        del st.session_state[key]
    st.session_state[_CHANGES] = {}
    st.session_state.pop(_RESULT, None)


def _replay(ctx: Context, facts: RunFacts, changes: Mapping[Name, Value]) -> None:
    """Run it, with a bar; keep the result for this browser."""
    last = max(1, facts.run.last_step or 1)
    bar = st.progress(0.0, text="Replaying the stored steps")

    def show(step: int) -> None:
        bar.progress(min(1.0, max(0.0, step / last)), text=f"Step {step:,} of {last:,}")

    try:
        rules = changed(ctx.monitor.rule_table, changes)
        with ctx.monitor.store.cursor() as con:
            trial = try_rules(con, facts.run, rules, limit_s=LIMIT_S, on_step=show)
            now = found_now(query.alerts(con, facts.run.run_key))
    except RulesError as error:
        st.error("These numbers cannot be used.", icon=":material/error:")
        st.code(str(error), language=None)
        return
    finally:
        bar.empty()
    st.session_state[_RESULT] = Result(
        path=facts.run.path, changes=dict(changes), trial=trial, compared=changes_of(now, trial)
    )


def _result(facts: RunFacts, changes: Mapping[Name, Value]) -> None:
    result: Result | None = st.session_state.get(_RESULT)
    if result is None or result.path != facts.run.path:
        return
    if result.changes != changes:
        st.caption("The numbers were changed since the last replay: replay again.")
        return
    st.text(summary(result.compared, result.trial))
    rows = change_rows(result.compared)
    if rows:
        st.dataframe(rows, hide_index=True, height="content", alt="Alerts with these thresholds against those now")


def _keep(ctx: Context, changes: Mapping[Name, Value]) -> None:
    """How to make the change last."""
    path = rules_path(ctx.monitor.root)
    word = "Append these lines to" if path.exists() else "To keep it, write these lines to"
    st.text(f"{word} {path}, then start the server again. They count for every run below this root.")
    st.code(toml_lines(changes), language="toml")
