"""The what-if panel: what other bounds would have done to the tokens of the last steps, and the published windows side
by side.

    what_if_panel(ctx, facts, then)                # Regimes: the bounds of its sliders; Control: those of its editor
    window_table(ctx, facts)                       # DISPO, CISPO, DAPO, ... each in the place of the bounds in force

Same batches, one step ahead: no forecast of the policy. Nothing is recommended where nothing would change.
"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.memo import Memo
from regimescope.monitor.query import RunRow
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.session import page_link
from regimescope.monitor.ui.texts import number, percent, weight
from regimescope.monitor.ui.url_bounds import parameters_of
from regimescope.monitor.what_if import NO_HISTOGRAM, Effect, Prediction, Window, obstacle, read_window, replay
from regimescope.monitor.windows import PublishedWindow, windows

_windows: Memo[Window | None] = Memo()
CAVEAT = "Same batches, one step ahead: not a forecast of the policy."


def what_if_panel(
    ctx: Context, facts: RunFacts, then: Bounds, *, slice_id: int = 0, until: int | None = None, link: bool = True
) -> None:
    """Draw it for the last 20 steps up to `until`. `link`: offer the way to Control."""
    found = prediction(ctx, facts, then, slice_id=slice_id, until=until)
    if found.obstacle:
        st.info(found.obstacle, icon=":material/block:")
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="what-if-head"):
        st.text(f"{found.changed:,} of {found.tokens:,} tokens would change", width="content")
        _span(found)
    if found.changed:
        st.dataframe(
            [effect_row(effect) for effect in found.effects],
            hide_index=True,
            height="content",
            alt="By regime: share of tokens clipped and gradient mass, now and under the other bounds",
        )
    st.caption(CAVEAT if found.exact else f"{CAVEAT} A bound between two edges of the histogram: ± is its bin.")
    if link and found.changed:
        _review_link(facts, then)


def prediction(
    ctx: Context, facts: RunFacts, then: Bounds, *, slice_id: int = 0, until: int | None = None
) -> Prediction:
    """What `then` would have done in place of the bounds in force. Raises duckdb.Error."""
    run = facts.run
    stop = obstacle(run) or ("" if facts.bounds else "The bounds in force are not known.")
    window = None if stop else _window(ctx, run, slice_id, until)
    if window is None or facts.bounds is None or run.weight_rule is None:
        return Prediction(obstacle=stop or NO_HISTOGRAM)
    try:
        return replay(window, run.weight_rule, now=facts.bounds.bounds, then=then)
    except BoundsError as error:
        return Prediction(obstacle=f"The weight rule of this run cannot take these bounds: {error}")


def _window(ctx: Context, run: RunRow, slice_id: int, until: int | None) -> Window | None:
    """Read once per step: a slider asks again and again."""

    def read() -> Window | None:
        with ctx.monitor.store.cursor() as con:
            return read_window(con, run.run_key, slice_id=slice_id, until=until)

    key = (ctx.monitor.store.instance, run.run_key, slice_id, until)
    return _windows.get(key, (run.launch_no, run.last_step), read)


def effect_row(effect: Effect) -> dict[str, str]:
    """One regime as text."""
    error = f" ± {percent(effect.clipped_error)}" if effect.clipped_error else ""
    return {
        "regime": effect.regime,
        "tokens": f"{effect.tokens:,}",
        "clipped now": percent(effect.clipped_now),
        "clipped then": percent(effect.clipped_then) + error,
        "median of steps": percent(effect.median),
        "lowest to highest": f"{percent(effect.low)} to {percent(effect.high)}",
        "gradient mass now": percent(effect.grad_mass_now),
        "gradient mass then": percent(effect.grad_mass_then),
        "tokens changed": f"{effect.changed:,}",
    }


def window_table(
    ctx: Context,
    facts: RunFacts,
    *,
    slice_id: int = 0,
    until: int | None = None,
    on_choose: Callable[[Bounds], None] | None = None,
) -> None:
    """The published windows, each replayed over the same tokens. `on_choose`: gets the bounds of a row one clicks."""
    rows = [(window, prediction(ctx, facts, window.bounds, slice_id=slice_id, until=until)) for window in windows()]
    if rows[0][1].obstacle:
        return
    known = any(effect.grad_mass_then is not None for effect in rows[0][1].effects)
    shares = "share clipped · share of the gradient mass" if known else "share clipped"
    how = " Click a row to put its bounds on the sliders." if on_choose else ""
    st.caption(f"Each window in the place of the bounds in force, under this run's own rule. R1 to R4: {shares}.{how}")
    options = {} if on_choose is None else {"selection_mode": "single-row", "on_select": lambda: _chosen(on_choose)}
    st.dataframe(
        [window_row(window, found, facts) for window, found in rows],
        hide_index=True,
        height="content",
        key="window-table",
        column_config={"note": st.column_config.Column(width=130)},
        alt="Published windows side by side: tokens changed, share clipped and gradient mass by regime, source",
        **options,
    )  # type: ignore[call-overload]


def _chosen(on_choose: Callable[[Bounds], None]) -> None:
    rows = st.session_state["window-table"]["selection"]["rows"]
    if rows and rows[0] < len(windows()):
        on_choose(windows()[rows[0]].bounds)


def window_row(window: PublishedWindow, found: Prediction, facts: RunFacts) -> dict[str, str]:
    """One published window as text."""
    row = {
        "window": window.title,
        "A>0": _pair(window.bounds.pos.w_min, window.bounds.pos.w_max),
        "A<0": _pair(window.bounds.neg.w_min, window.bounds.neg.w_max),
        "tokens changed": "0" if not found.changed else f"{found.changed:,} ({percent(found.changed / found.tokens)})",
    }
    for effect in found.effects:
        mass = "" if effect.grad_mass_then is None else f" · {percent(effect.grad_mass_then)}"
        row[effect.regime] = percent(effect.clipped_then) + mass
    limits = facts.run.limits
    row["note"] = "in force" if facts.bounds is not None and window.bounds == facts.bounds.bounds else ""
    if limits is not None and limits.problems(window.bounds):
        row["note"] = "beyond the limits"
    return {**row, "source": window.source}


def _pair(low: float, high: float) -> str:
    return f"[{number(low)}, {weight(high)}]"


def _span(found: Prediction) -> None:
    steps = f"steps {found.first} to {found.last}" if found.steps > 1 else f"step {found.first}"
    st.caption(f"in the {found.steps} steps with a histogram, {steps}" if found.steps > 1 else f"in {steps}")


def _review_link(facts: RunFacts, then: Bounds) -> None:
    """The way to Control, or what stands in it."""
    if facts.live.ended or facts.run.limits is None or facts.bounds is None:
        return
    problems = facts.run.limits.problems(then)
    if problems:
        st.text("The trainer would reject these bounds: " + "; ".join(problems))
        return
    page_link("control", "Review in Control", icon=":material/tune:", **parameters_of(then))
