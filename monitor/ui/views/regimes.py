"""Regimes: the 2 x 2 matrix of the sign of the advantage and the side of 1 on which the ratio falls, of a step or an
update; its course over the steps; the ratio with the bounds as handles; what other bounds would have done.

The matrix is a fragment of 2 s, the curves are the live grid; histograms and heatmaps are redrawn when the reader asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.query import RunRow, SliceRow
from regimescope.monitor.ui import rule_texts
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.grid import Dash, Line, Panel, live_grid
from regimescope.monitor.ui.palette import palette
from regimescope.monitor.ui.regime_numbers import REGIMES, LagRow, by_lag, matrix_of
from regimescope.monitor.ui.session import chosen_run, plain_errors
from regimescope.monitor.ui.texts import number, percent
from regimescope.monitor.ui.views.regimes_matrix import UPDATE, count_of, live_matrix
from regimescope.monitor.ui.views.regimes_ratios import ratios

_UNTIL = "regimes_until"
"Session key: (run, slice) -> step up to which the histograms are drawn."
_SLICE = "regimes_slice"
_UPDATES = "regimes_updates"
"Session key: (run, slice) -> updates that the picker offers."


def render() -> None:
    """Draw the page of the chosen run."""
    ctx, run = current(), chosen_run()
    if run.last_step is None:
        st.text("No step yet: the regimes appear with the first buckets.")
        return
    with plain_errors("The regimes"):
        with ctx.monitor.store.cursor() as con:
            parts = query.slices(con, run.run_key)
            with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
                slice_id = _choose_slice(parts)
                matrix = matrix_of(ctx.monitor, run.run_key, slice_id=slice_id, update=None)
                offered = _offered(run, slice_id, count_of(matrix))
                update = _choose_update(offered)
            whole = matrix_of(ctx.monitor, run.run_key, slice_id=0, update=None)
            lags = by_lag(con, run.run_key, whole.step, parts) if whole is not None else []
        for note in rule_texts.notes(run.weight_rule, run.ratio_source):
            st.info(note, icon=":material/info:")
        live_matrix(run.path, slice_id, update, offered)
        if lags:
            _lag_table(lags)
        if matrix is not None:
            st.subheader("Over the steps")
            live_grid(run=run, slice_id=slice_id, panels=panels(run, matrix.sampled is not None), key="regimes")
        _ratio_part(ctx, run, slice_id)


def _choose_slice(parts: Sequence[SliceRow]) -> int:
    """The slice of the URL; with a picker where there is something to pick."""
    labels = {row.slice_id: f"{row.kind} = {row.value}" if row.slice_id else "everything" for row in parts}
    wanted = st.query_params.get("slice", "0")
    start = int(wanted) if wanted.isdigit() and int(wanted) in labels else 0
    if len(labels) < 2:
        return 0
    if st.session_state.get(_SLICE) != start:
        st.session_state[_SLICE] = start
    st.selectbox(
        "Part of the run", list(labels), format_func=lambda i: labels[i], key=_SLICE, on_change=_sliced, width=260
    )
    return start


def _sliced() -> None:
    st.query_params["slice"] = str(st.session_state[_SLICE])
    st.query_params.pop("update", None)


def _offered(run: RunRow, slice_id: int, count: int) -> int:
    """The most updates of a step that this browser saw: steps differ, and a choice must not go with one of them."""
    seen: dict[tuple[int, int], int] = st.session_state.setdefault(_UPDATES, {})
    seen[run.run_key, slice_id] = max(count, seen.get((run.run_key, slice_id), 0))
    return seen[run.run_key, slice_id]


def _choose_update(offered: int) -> int | None:
    """The update of the URL; None = all of the step."""
    names = ["all", *map(str, range(offered))]
    wanted = st.query_params.get("update", "all")
    start = wanted if wanted in names else "all"
    if st.session_state.get(UPDATE) != start:
        st.session_state[UPDATE] = start
    if offered < 2:
        return None
    st.segmented_control("Gradient update of the step", names, key=UPDATE, on_change=_update_picked, required=True)
    return None if start == "all" else int(start)


def _update_picked() -> None:
    st.query_params["update"] = str(st.session_state[UPDATE])


def _lag_table(lags: Sequence[LagRow]) -> None:
    st.markdown("**By lag, the last 20 steps**")
    st.dataframe(
        [lag_cells(row) for row in lags],
        hide_index=True,
        height="content",
        width=760,
        alt="Steps, tokens and share clipped per regime, by lag",
    )


def lag_cells(row: LagRow) -> dict[str, str]:
    """A row of the table as text."""
    cells = {"lag": row.lag, "steps": f"{row.steps}", "tokens": f"{row.tokens:,}", "mean log r": number(row.log_ratio)}
    return cells | {f"{regime} clipped": percent(row.clipped[regime]) for regime in REGIMES}


def panels(run: RunRow, effect: bool) -> list[Panel]:
    """The curves: clip share at each of the four bounds, tokens, gradient mass, mean weight, entropy effect."""
    clip = [_line(regime, rule_texts.clip_column(run.weight_rule, regime)) for regime in REGIMES]
    found = [
        Panel(title="Clipped share at each bound", unit="%", metrics=tuple(clip)),
        Panel(title="Share of the tokens", unit="%", metrics=tuple(_line(r, "token_frac") for r in REGIMES)),
        Panel(title="Gradient mass", unit="%", metrics=tuple(_line(r, "grad_mass") for r in REGIMES)),
        Panel(title="Mean weight", metrics=tuple(_line(r, "weight_mean") for r in REGIMES), reference=1.0),
        Panel(title="Mean log r", metrics=tuple(_line(r, "log_ratio_mean") for r in REGIMES), reference=0.0),
    ]
    entropy = Panel(title="Entropy effect", metrics=tuple(_line(r, "entropy_effect") for r in REGIMES), reference=0.0)
    return [*found, entropy] if effect else found


def _line(regime: str, column: str) -> Line:
    dash: Dash = "dash" if palette()["dash"][regime] == "dash" else "solid"
    return Line(f"{regime}.{column}", regime, regime, dash)


def _ratio_part(ctx: Context, run: RunRow, slice_id: int) -> None:
    """Histograms and what-if, up to the step that this reader saw last; a button moves it on."""
    kept: dict[tuple[int, int | None, int], int] = st.session_state.setdefault(_UNTIL, {})
    key = (run.run_key, run.launch_no, slice_id)
    assert run.last_step is not None
    until = min(kept.setdefault(key, run.last_step), run.last_step)
    st.subheader("Importance ratio and its bounds")
    _until_line(run.path, until)
    ratios(run.path, slice_id, until)


@st.fragment(run_every="2s", key="regimes-until")
def _until_line(path: str, until: int) -> None:
    """How old the charts below are, with the button that brings them up to date."""
    ctx = current()
    with plain_errors("The run"):
        with ctx.monitor.store.cursor() as con:
            run = query.run_by_path(con, path)
        if run is None or run.last_step is None:
            return
        behind = run.last_step - until
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.caption(
                f"Charts and what-if as of step {until}"
                + (f"; the run is {behind} steps further." if behind > 0 else "."),
                width="content",
            )
            if behind > 0 and st.button("Bring up to date", icon=":material/refresh:", key="regimes-refresh"):
                st.session_state[_UNTIL] = {}
                st.rerun(scope="app")
