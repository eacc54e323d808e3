"""Overview: five answers in a fixed order, tiles with their change against 50 steps ago, then the live grid.

Answers and tiles are a fragment of 5 s: a redraw costs the browser more than a new point in every chart. The grid
updates itself and is mounted once per run, slice and set of panels.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.cells import cell
from regimescope.monitor.query import Latest, SliceRow
from regimescope.monitor.ui import answers
from regimescope.monitor.ui.answers import Answer
from regimescope.monitor.ui.context import current
from regimescope.monitor.ui.facts import RunFacts, load_facts
from regimescope.monitor.ui.grid import live_grid
from regimescope.monitor.ui.header import badge
from regimescope.monitor.ui.numbers import BACK, ENV_METRICS, Numbers
from regimescope.monitor.ui.numbers import numbers as read_numbers
from regimescope.monitor.ui.session import chosen_run, page_link, plain_errors
from regimescope.monitor.ui.texts import number, percent
from regimescope.monitor.ui.views.first_run import checklist
from regimescope.monitor.ui.views.panels import PANELS, TILES, Tile, available, missing

_SKELETON_PX = 480
_SLICE, _ENVS, _ENV_ORDER, _ROW_CLICKED = "slice_picker", "env_table", "env_order", "env_clicked"
"Session keys: the picker, the table, the slice ids of its rows as drawn, and the one that was clicked."


def render() -> None:
    """Draw the page of the chosen run."""
    ctx, run = current(), chosen_run()
    clicked = st.session_state.pop(_ROW_CLICKED, None)
    if clicked is not None:  # here and not at the click: a redraw that was under way has the address of before
        st.query_params["slice"] = str(clicked)
    with plain_errors("The run's metrics"):
        with ctx.monitor.store.cursor() as con:
            names = frozenset(query.metric_names(con, run.run_key))
            envs = [row for row in query.slices(con, run.run_key) if row.kind == "env"]
        _live_part(run.path, names, run.last_step is not None)
        slice_id = _choose_slice(envs)
        _grid(run, slice_id, names)


@st.fragment(run_every="5s", key="overview")
def _live_part(path: str, names: frozenset[str], has_steps: bool) -> None:
    ctx = current()
    with plain_errors("The answers"):
        facts = load_facts(ctx, path)
        if facts is None:
            st.warning("The folder of this run is gone.", icon=":material/folder_off:")
            return
        numbers = read_numbers(ctx.monitor, facts.run.run_key)
        if _ROW_CLICKED in st.session_state:
            st.rerun(scope="app")
        if has_steps != (facts.live.last_step is not None) or _sees_more(names, numbers.names):
            st.rerun(scope="app")
        _answers(facts, numbers)
        if facts.live.last_step is None:
            checklist(facts, names)
            return
        _tiles(numbers, facts)


def _sees_more(before: frozenset[str], now: frozenset[str]) -> bool:
    """Whether a panel that was off can now be drawn."""
    return len(available(now)) > len(available(before))


def _choose_slice(envs: Sequence[SliceRow]) -> int:
    """The slice of the URL, with a picker where there is something to pick; a click on a row of the table sets it."""
    if not envs:
        return 0
    ids = [0, *(row.slice_id for row in envs)]
    values = {row.slice_id: row.value for row in envs}
    wanted = st.query_params.get("slice", "0")
    start = int(wanted) if wanted.isdigit() and int(wanted) in ids else 0
    if st.session_state.get(_SLICE) != start:
        st.session_state[_SLICE] = start
    left, _ = st.columns([3, 9])
    with left:
        st.selectbox(
            "Charts of this environment",
            ids,
            format_func=lambda i: values.get(i, "everything"),
            key=_SLICE,
            on_change=_slice_picked,
        )
    return start


def _slice_picked() -> None:
    st.query_params["slice"] = str(st.session_state[_SLICE])


def _row_picked() -> None:
    """A row of the table of environments. A selection that goes changes nothing: the table itself drops it as well."""
    rows = st.session_state[_ENVS]["selection"]["rows"]
    order = st.session_state.get(_ENV_ORDER, [])
    if rows and rows[0] < len(order):
        st.session_state[_ROW_CLICKED] = order[rows[0]]


def _answers(facts: RunFacts, numbers: Numbers) -> None:
    with st.container(border=True, gap="xsmall", key="answers"):
        _row(answers.alive(facts, facts.segments))
        _row(answers.where(numbers.envs))
        if numbers.envs:
            _envs(numbers)
        _row(answers.policy_or_infrastructure(facts, numbers.latest))
        _row(answers.held_out(numbers.latest, numbers.evaluations))
        _row(answers.regimes(facts, numbers.latest), facts)


def _row(answer: Answer, facts: RunFacts | None = None) -> None:
    """One answer: question, badge, numbers, quieter note; with links when it is about an alert."""
    question, verdict, text = st.columns([3, 2, 16], vertical_alignment="top", gap="small")
    with question:
        st.markdown(f"**{answer.question}**")
    with verdict:
        badge(answer.word, answer.tone)
    with text, st.container(gap=None):
        st.text(answer.text)
        if answer.notes:
            with st.container(gap=None, key=f"quiet-{answer.question}"):
                for note in answer.notes:
                    st.text(note)
        if facts is not None:
            _links(facts)


def _links(facts: RunFacts) -> None:
    change = facts.remedy or facts.lint_remedy
    if not facts.open_alerts and change is None:
        return
    with st.container(horizontal=True, gap="small", key="answer-links"):
        if facts.open_alerts:
            page_link("alerts", "Evidence", icon=":material/search:", alert=facts.open_alerts[0].alert_id)
        if change is not None and not (facts.live.ended or facts.live.stale):
            page_link("control", "Review this change", icon=":material/tune:", alert=change.alert_id)


def _envs(numbers: Numbers) -> None:
    """A row by environment, the largest loss of accuracy first; names come from the run, so they stand in a table."""
    st.session_state[_ENV_ORDER] = [row.slice_id for row, _ in numbers.envs]
    _, table = st.columns([5, 16])
    with table:
        st.dataframe(
            env_rows(numbers),
            hide_index=True,
            width=760,
            height="content",
            key=_ENVS,
            selection_mode="single-row",
            on_select=_row_picked,
            alt="By environment, the largest loss of accuracy first; a click on a row shows its charts",
        )


def env_rows(numbers: Numbers) -> list[dict[str, str]]:
    """The table of environments as text."""
    rows = []
    for row, latest in numbers.envs:
        before = latest.before if latest is not None else None
        beside = numbers.by_env.get(row.slice_id, {})
        reward, held_out, cut = (beside.get(name) for name in ENV_METRICS)
        change = "" if latest is None or before is None else ("▼ " if latest.value < before else "▲ ")
        rows.append(
            {
                "environment": cell(row.value),
                "accuracy": change + percent(latest.value if latest else None),
                f"{BACK} steps ago": percent(before),
                "reward": number(reward.value if reward else None),
                "held out": percent(held_out.value if held_out else None),
                "truncated": percent(cut.value if cut else None),
            }
        )
    return rows


def _tiles(numbers: Numbers, facts: RunFacts) -> None:
    with st.container(horizontal=True, gap="small", key="tiles"):
        for tile in TILES:
            if tile.name in numbers.latest:
                _tile(tile, numbers.latest[tile.name])
    if any(latest.before is not None for latest in numbers.latest.values()):
        st.caption(f"Change against {BACK} steps earlier.")


def _tile(tile: Tile, latest: Latest) -> None:
    change = None if latest.before is None else tile.change(latest.value, latest.before)
    st.metric(tile.label, tile.show(latest.value), change, delta_color=tile.better, border=True)


def _grid(run: query.RunRow, slice_id: int, names: frozenset[str]) -> None:
    if run.last_step is None:
        st.skeleton(_SKELETON_PX)
        return
    drawn = available(names)
    live_grid(run=run, slice_id=slice_id, panels=drawn, key=f"overview-{len(drawn)}")
    note = answers.ratio_note(run.ratio_source, {})
    if run.ratio_source in ("proximal", "infer"):
        st.caption(f"{note}: read the clip panels with that in mind.")
    off = missing(names)
    if off:
        st.caption("Off, for want of data: " + "; ".join(f"{title} (log {', '.join(fields)})" for title, fields in off))


__all__ = ["PANELS", "render"]
