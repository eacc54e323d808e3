"""Forensics: one run, or two beside each other: which change came first, where they go apart, what differs.

`?a=` names the run (the one of the strip), `?b=` the second, `?by=` the axis. Nothing here moves by itself: of a living
run the page shows what was there when it was drawn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.check import make_report
from regimescope.monitor.compare import By
from regimescope.monitor.departures import Watched, watched_metrics
from regimescope.monitor.private import RunView
from regimescope.monitor.report.gather import gather
from regimescope.monitor.report.html import html, page
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import load_facts
from regimescope.monitor.ui.session import chosen_run, page_link, plain_errors
from regimescope.monitor.ui.two_runs import (
    TOKENS,
    Side,
    apart,
    apart_rows,
    first_sentence,
    order_rows,
    setting_rows,
    side_of,
)
from regimescope.monitor.ui.views.curves import curves
from regimescope.monitor.ui.views.origin import origin
from regimescope.monitor.wire import plain

_AXES: dict[By, str] = {"step": "Step", "tokens": "Tokens", "onset": "Onset"}
_TITLES: dict[By, str] = {"step": "step", "tokens": "tokens trained on", "onset": "steps from the onset"}
_PICKER, _BY = "forensics_b", "forensics_by"
_RULE = (
    "A metric left its reference where its evidence S (docs/detectors.md) passes h and its shift passes the least that "
    "a rule asks of it, two points in a row; the step is the last one with S = 0 before. That is no alert: a change "
    "may be normal. Alerts stand at their onset."
)
_APART = (
    "Two runs go apart in a metric where their difference, and what it gained since the first 3 common points, both "
    "exceed 4 times its own noise and the least shift that a rule asks of the metric, for 5 points in a row."
)


def render() -> None:
    """Draw the page of the chosen run."""
    ctx, run = current(), chosen_run()
    with plain_errors("The runs"):
        with ctx.monitor.store.cursor() as con:
            paths = query.run_paths(con)
        _follow_a(run.path, paths)
        facts = load_facts(ctx, run.path)
        if facts is None:
            st.warning("The folder of this run is gone.", icon=":material/folder_off:")
            return
        other, by = _head(ctx, run.path, paths)
        a = side_of(ctx.monitor, facts)
        found = None if other is None else load_facts(ctx, other)
        b = None if found is None else side_of(ctx.monitor, found)
        _body(ctx, a, b, by)


def _follow_a(chosen: str, paths: Sequence[str]) -> None:
    """`?a=` chooses the run of the strip; from then on both say the same."""
    wanted = st.query_params.get("a")
    if wanted is not None and wanted != chosen and wanted in paths:
        st.query_params["run"] = wanted
        st.rerun()
    if wanted is not None and wanted not in paths:
        st.warning("The first run of this address is not below this root: the chosen one is shown.")
    elif wanted != chosen:
        st.query_params["a"] = chosen


def _head(ctx: Context, chosen: str, paths: Sequence[str]) -> tuple[str | None, By]:
    """Pick the second run and the axis; what to do with this run."""
    others = [path for path in paths if path != chosen]
    wanted = st.query_params.get("b")
    if wanted == chosen:
        st.warning("This address compares a run with itself: pick a second run.", icon=":material/link_off:")
    elif wanted and wanted not in others:
        st.warning("The second run of this address is not below this root: pick another.", icon=":material/link_off:")
    if st.session_state.get(_PICKER) != (wanted if wanted in others else ""):
        st.session_state[_PICKER] = wanted if wanted in others else ""
    left, middle, right = st.columns([3, 4, 4], vertical_alignment="bottom")
    with left:
        other = st.selectbox(
            "Compare with (B)",
            ["", *others],
            key=_PICKER,
            format_func=lambda path: path or "no second run",
            on_change=_picked,
            disabled=not others,
        )
    with middle:
        by = _axis()
    with right, st.container(horizontal=True, vertical_alignment="center"):
        st.button("Look again", icon=":material/refresh:")
        st.download_button(
            "Alerts as JSON", lambda: report_json(ctx, chosen), "alerts.json", "application/json",
            icon=":material/download:", on_click="ignore", help="What `regimescope check RUN --json` prints.",
        )  # fmt: skip
        st.download_button(
            "Report", lambda: report_html(ctx, chosen), "report.html", "text/html", icon=":material/description:",
            on_click="ignore", help="What `regimescope report RUN` writes: one file that opens from disk.",
        )  # fmt: skip
        page_link("settings", "Other thresholds", icon=":material/tune:")
    if not others:
        st.caption("There is one run below this root: nothing to compare it with.")
    return other or None, by


def _axis() -> By:
    """The axis of the URL, else the step."""
    wanted = st.query_params.get("by")
    if st.session_state.get(_BY) != (wanted if wanted in _AXES else "step"):
        st.session_state[_BY] = wanted if wanted in _AXES else "step"
    picked = st.segmented_control(
        "Axis", list(_AXES), key=_BY, format_func=lambda one: _AXES[one], required=True, on_change=_turned
    )
    return picked or "step"


def _turned() -> None:
    st.query_params["by"] = st.session_state[_BY]


def _picked() -> None:
    if st.session_state[_PICKER]:
        st.query_params["b"] = st.session_state[_PICKER]
    else:
        st.query_params.pop("b", None)


def report_json(ctx: Context, path: str) -> str:
    """What `regimescope check RUN --json` prints, of the run as this server knows it."""
    with ctx.monitor.store.cursor() as con:
        run = query.run_by_path(con, path)
    if run is None:
        return "{}"
    report = make_report(RunView(folder=ctx.monitor.root / path, run=run, monitor=ctx.monitor))
    return json.dumps(plain(asdict(report)), indent=2, ensure_ascii=False)


def report_html(ctx: Context, path: str) -> str:
    """The report of a run as this server knows it."""
    with ctx.monitor.store.cursor() as con:
        run = query.run_by_path(con, path)
    if run is None:
        return page(path, ["<p>This run is gone.</p>"])
    return html(gather(RunView(folder=ctx.monitor.root / path, run=run, monitor=ctx.monitor), None, path))


def _body(ctx: Context, a: Side, b: Side | None, by: By) -> None:
    if a.run.last_step is None:
        st.text("No step of this run has been seen yet: there is nothing to look at.")
        return
    if b is not None and b.run.last_step is None:
        st.text("No step of the second run has been seen yet: the first one is shown alone.")
        b = None
    by, onsets = _aligned(a, b, by)
    watched = watched_metrics(ctx.monitor.rules)
    st.subheader("Which change came first")
    if b is None:
        _order(a, "A", watched, by)
        st.caption(_RULE)
        st.caption("Pick a second run above to see where the two go apart.")
    else:
        _first_apart(a, b, watched, by, onsets)
        left, right = st.columns(2)
        with left:
            _order(a, "A", watched, by)
        with right:
            _order(b, "B", watched, by)
        st.caption(_RULE)
    curves(ctx, a, b, by, onsets, _TITLES[by])
    _settings(a, b)
    for letter, side in zip("AB", (a, b), strict=True):
        if side is not None:
            origin(ctx, side.run, letter)


def _aligned(a: Side, b: Side | None, by: By) -> tuple[By, tuple[int, int]]:
    """The axis that these runs can have, and the step of each that is 0 on it."""
    sides = [a] if b is None else [a, b]
    lacking = [s for s in sides if TOKENS not in s.points]
    if by == "tokens" and lacking:
        st.text("The axis is the step: the number of tokens (metric tokens) was not logged by every run shown.")
        return "step", (0, 0)
    if by != "onset":
        return by, (0, 0)
    known = [s.onset for s in sides if s.onset is not None]
    if not known:
        st.text("The axis is the step: no alert says when anything began.")
        return "step", (0, 0)
    if len(known) < len(sides):
        st.text(f"Only one of the runs has an onset: the other is counted from the same step, {known[0]:,}.")
    first = a.onset if a.onset is not None else known[0]
    second = b.onset if b is not None and b.onset is not None else known[0]
    return "onset", (first, second)


def _order(side: Side, letter: str, watched: Sequence[Watched], by: By) -> None:
    rows = order_rows(side, watched, side.onset if by == "onset" else None)
    st.text(f"{letter}: {side.run.path}, as of step {side.run.last_step:,}")
    st.text(first_sentence(rows))
    if rows:
        st.dataframe(rows, hide_index=True, height="auto", alt=f"Changes of run {letter} by step")
    first, last = side.looked
    if first > 0 or last < (side.run.last_step or 0):
        st.caption(f"Metrics were looked at from step {first:,} to {last:,}.")
    for start, end in side.repeated:
        st.caption(f"Steps {start:,} to {end:,} were done twice: what the later launch did counts.")


def _first_apart(a: Side, b: Side, watched: Sequence[Watched], by: By, onsets: tuple[int, int]) -> None:
    common = [w for w in watched if w.name in a.points and w.name in b.points]
    rows = apart_rows(apart(a, b, watched, by, onsets), watched, by)
    if not common:
        st.text("The two runs have no metric in common that could be compared.")
    elif not rows:
        st.text(f"A and B do not go apart in any of the {len(common)} metrics that both logged.")
        st.caption(_APART)
    else:
        place, first = next(iter(rows[0])), rows[0]
        at = f"{first[place]:,} {_TITLES[by]}" if by != "step" else f"step {first[place]:,}"
        st.text(f"A goes away from B first in {first['metric']}, at {at}: {first['A']} against {first['B']}.")
        left, right = st.columns([2, 3])
        with left:
            st.dataframe(rows, hide_index=True, height="content", alt="Where the two runs go apart")
        with right:
            st.caption(_APART)


def _settings(a: Side, b: Side | None) -> None:
    rows = setting_rows(a, b)
    st.subheader("Settings of this run" if b is None else "Settings that differ")
    if rows:
        st.dataframe(rows, hide_index=True, height="auto", alt="Settings")
    else:
        st.text("The header of this run says nothing." if b is None else "None: the headers of both say the same.")
