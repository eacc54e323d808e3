"""The charts over log r of the Regimes page, with the bounds as handles: histogram and heatmap per sign, sliders, and
what the moved bounds would have done.

Everything here is of the steps up to one step (`until`), which moves when the reader asks: a chart never changes under
the hand that drags it. The sliders' bounds stand in the address.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.bounds import Bounds, WeightRule
from regimescope.monitor.memo import Memo
from regimescope.monitor.query import RatioHeatmap, RatioHistogram, Series, named_bounds
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import RunFacts, load_facts
from regimescope.monitor.ui.figures import CONFIG
from regimescope.monitor.ui.figures_regimes import heat_figure, ratio_figure
from regimescope.monitor.ui.session import plain_errors, theme
from regimescope.monitor.ui.texts import REGIME_OF, bound_label, plural, weight
from regimescope.monitor.ui.url_bounds import PARAMETERS, bounds_of, number_text, parameters_of
from regimescope.monitor.ui.views.what_if import what_if_panel, window_table
from regimescope.monitor.what_if import LAST_STEPS, obstacle

Sign = Literal[1, -1]
_SIGNS: tuple[tuple[Sign, str, str], ...] = ((1, "pos", "A > 0"), (-1, "neg", "A < 0"))
_LOWER = (0.0, 0.1, 0.2, 0.3, 1 / 3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
_UPPER = (1.0, 1.05, 1.1, 1.2, 1.28, 1.4, 1.6, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 11.0, 15.0, 20.0, 30.0, 50.0, 101.0)
"What the sliders stop at, besides the bounds in force and those of the address; the published ones are edges."
_COLUMNS = 160
_BOUND_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """What is drawn of one sign; None = nothing stored."""

    histogram: RatioHistogram | None
    heatmap: RatioHeatmap | None
    lower: Series
    upper: Series
    "The bounds over the steps."


_kept: Memo[dict[str, Ratios]] = Memo()


def read_ratios(ctx: Context, facts: RunFacts, slice_id: int, until: int) -> dict[str, Ratios]:
    """By sign ("pos", "neg"), the steps up to `until`; the histogram is that of the last 20 steps."""
    run_key = facts.run.run_key

    def read() -> dict[str, Ratios]:
        found = {}
        with ctx.monitor.store.cursor() as con:
            recent = query.ratio_steps(con, run_key, last=LAST_STEPS, until=until, slice_id=slice_id)
            first = min((one.step for one in recent.steps), default=None) if recent is not None else None
            for sign, side, _ in _SIGNS:
                found[side] = Ratios(
                    histogram=query.ratio_histogram(con, run_key, sign=sign, steps=(first, until), slice_id=slice_id),
                    heatmap=query.ratio_heatmap(
                        con, run_key, sign=sign, steps=(None, until), slice_id=slice_id, n=_COLUMNS
                    ),
                    lower=query.envelope(con, run_key, 0, f"{side}.w_min", None, until, _BOUND_POINTS),
                    upper=query.envelope(con, run_key, 0, f"{side}.w_max", None, until, _BOUND_POINTS),
                )
        return found

    key = (ctx.monitor.store.instance, run_key, slice_id)
    return _kept.get(key, (facts.run.launch_no, until), read)


@st.fragment(key="regimes-ratios")
def ratios(path: str, slice_id: int, until: int) -> None:
    """Draw histograms, sliders, what-if, heatmaps."""
    ctx = current()
    with plain_errors("The histograms"):
        facts = load_facts(ctx, path)
        if facts is None:
            return
        read = read_ratios(ctx, facts, slice_id, until)
        if all(one.histogram is None for one in read.values()):
            st.info(
                "No histogram over log r is stored for this part, so there is no chart and no what-if. Call "
                "Recorder.ratio_hist(step, stats) in every step; `regimescope train` does so unless record.statistics "
                "is off.",
                icon=":material/bar_chart_off:",
            )
            return
        now = facts.bounds.bounds if facts.bounds is not None else None
        stop = obstacle(facts.run)
        then = bounds_of(st.query_params.to_dict(), now) if now is not None and not stop else now
        _histograms(facts, read, now, then)
        if now is not None and then is not None and not stop:
            _sliders(facts, now, then)
        _what_if(ctx, facts, now, then, slice_id, until)
        _heatmaps(facts, read)


def _histograms(facts: RunFacts, read: dict[str, Ratios], now: Bounds | None, then: Bounds | None) -> None:
    rule = facts.run.weight_rule
    for place, (sign, side, title) in zip(st.columns(2, gap="medium"), _SIGNS, strict=True):
        histogram = read[side].histogram
        with place:
            if histogram is None or not sum(histogram.counts):
                st.markdown(f"**{title}**")
                st.text("No token of this sign away from r = 1.")
                continue
            st.markdown(f"**{title}: {sum(histogram.counts):,} tokens of {plural(histogram.steps, 'step')}**")
            st.plotly_chart(
                ratio_figure(
                    histogram,
                    now=getattr(_moved(rule, now), side, None),
                    then=getattr(_moved(rule, then), side, None),
                    sign=sign,
                    theme=theme(),
                    name=_name(rule, side),
                ),
                theme=None,
                config=dict(CONFIG),
                key=f"ratio-{side}",
                alt=f"Histogram of the importance ratio, {title}, with the bounds",
            )


def _heatmaps(facts: RunFacts, read: dict[str, Ratios]) -> None:
    rule = facts.run.weight_rule
    st.subheader("Ratio over the steps")
    for place, (sign, side, title) in zip(st.columns(2, gap="medium"), _SIGNS, strict=True):
        one = read[side]
        with place:
            if one.heatmap is None or not any(map(sum, one.heatmap.counts)):
                continue
            width = "" if one.heatmap.width == 1 else f", {one.heatmap.width} steps a column"
            st.markdown(f"**{title}{width}**")
            st.plotly_chart(
                heat_figure(
                    one.heatmap, lower=one.lower, upper=one.upper, sign=sign, theme=theme(), name=_name(rule, side),
                    flipped=rule is not None and getattr(rule, side).base == "1/r",
                ),
                theme=None,
                config=dict(CONFIG),
                key=f"heat-{side}",
                alt=f"Share of the tokens by step and importance ratio, {title}, with the bounds",
            )  # fmt: skip
    st.caption("Lines: w_max solid, w_min dashed, as they were in force. Bins narrower than a twentieth are joined.")


def _moved(rule: WeightRule | None, bounds: Bounds | None) -> WeightRule | None:
    return rule if rule is None or bounds is None else rule.with_bounds(bounds)


def _name(rule: WeightRule | None, side: str) -> str:
    return "s" if rule is not None and getattr(rule, side).base == "s" else "r"


def _sliders(facts: RunFacts, now: Bounds, then: Bounds) -> None:
    """Four handles, below the charts that they move in."""
    wanted, in_force = named_bounds(then), named_bounds(now)
    for place, (_, side, _) in zip(st.columns(2, gap="medium"), _SIGNS, strict=True):
        with place:
            for ends, part in zip(st.columns(2, gap="medium"), ("w_min", "w_max"), strict=True):
                name = f"{side}.{part}"
                with ends:
                    _slider(name, in_force[name], wanted[name], fixed=_constant(facts, side))
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.button("Back to the bounds in force", on_click=_choose, args=(now,), disabled=then == now,
                  icon=":material/undo:", key="bounds-back")  # fmt: skip
        with st.popover("Type exact bounds", icon=":material/keyboard:"):
            _exact(then)


def _slider(name: str, now: float, wanted: float, *, fixed: bool) -> None:
    key = f"handle-{name}"
    stops = _LOWER if name.endswith("w_min") else (*_UPPER, math.inf)
    options = sorted({*stops, now, wanted})
    if st.session_state.get(key) != wanted:
        st.session_state[key] = wanted
    st.select_slider(
        f"{bound_label(name)} ({REGIME_OF[name]})",
        options,
        format_func=weight,
        key=key,
        on_change=_slid,
        disabled=fixed,
        help=f"In force: {weight(now)}",
    )


def _constant(facts: RunFacts, side: str) -> bool:
    rule = facts.run.weight_rule
    return rule is not None and getattr(rule, side).base == "1"


def _slid() -> None:
    """All four as the sliders show them, into the address; where a pair crosses, w_min comes down to w_max."""
    shown = {name: st.session_state.get(f"handle-{name}") for name in PARAMETERS.values()}
    values = {name: float(value) for name, value in shown.items() if value is not None}
    for side in ("pos", "neg"):
        low, high = f"{side}.w_min", f"{side}.w_max"
        if low in values and high in values:
            values[low] = min(values[low], values[high])
    for parameter, name in PARAMETERS.items():
        if name in values:
            st.query_params[parameter] = number_text(values[name])


def _choose(bounds: Bounds) -> None:
    for parameter, text in parameters_of(bounds).items():
        st.query_params[parameter] = text


def _exact(then: Bounds) -> None:
    with st.form("exact-bounds", border=False):
        values = {
            parameter: st.number_input(
                bound_label(name), value=value if math.isfinite(value) else None, min_value=0.0, format="%.6g",
                step=0.1, placeholder="no bound" if name.endswith("w_max") else "0",
            )
            for (parameter, name), value in zip(PARAMETERS.items(), named_bounds(then).values(), strict=True)
        }  # fmt: skip
        if st.form_submit_button("Use these"):
            crossed = [side for side in ("pos", "neg") if _high(values[f"{side}_max"]) < (values[f"{side}_min"] or 0.0)]
            if crossed:
                st.error("w_min must not be above w_max.", icon=":material/edit:")
                return
            for parameter, value in values.items():
                empty = "inf" if parameter.endswith("max") else "0"
                st.query_params[parameter] = empty if value is None else number_text(value)
            st.rerun(scope="fragment")


def _high(value: float | None) -> float:
    return math.inf if value is None else value


def _what_if(ctx: Context, facts: RunFacts, now: Bounds | None, then: Bounds | None, slice_id: int, until: int) -> None:
    st.subheader("What if")
    if now is not None and then == now and not obstacle(facts.run):
        st.text("Move a bound above to see what it would have done to the last 20 steps.")
    else:
        what_if_panel(ctx, facts, then or _ANY, slice_id=slice_id, until=until)
    window_table(ctx, facts, slice_id=slice_id, until=until, on_choose=_choose)


_ANY = Bounds.from_wire({"pos": [0.0, math.inf], "neg": [0.0, math.inf]})
"Where the bounds in force are not known, the panel says so."
