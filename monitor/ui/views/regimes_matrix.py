"""The 2 x 2 matrix of the Regimes page, redrawn every 2 s: A>0 and A<0 as rows, r>1 and r<1 as columns, the three other
buckets beside.
"""

from __future__ import annotations

import streamlit as st

from regimescope.monitor.bounds import Bounds, SignRule, WeightRule
from regimescope.monitor.query import BucketRow
from regimescope.monitor.ui import rule_texts
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import RunFacts, load_facts
from regimescope.monitor.ui.numbers import numbers
from regimescope.monitor.ui.regime_numbers import BACK, Matrix, clipped, matrix_of
from regimescope.monitor.ui.session import plain_errors
from regimescope.monitor.ui.texts import driver_text, percent
from regimescope.monitor.ui.views.panels import Tile

UPDATE = "update_picker"
"Session key of the segmented control."
_ROWS = (("pos", "A > 0", ("R1", "R2")), ("neg", "A < 0", ("R3", "R4")))
_OTHERS = {"pos_eq1": "A>0, r = 1", "neg_eq1": "A<0, r = 1", "zero_adv": "A = 0"}
_SHARE = Tile(name="", label="", form="percent")
_PLAIN = Tile(name="", label="")


@st.fragment(run_every="2s", key="regimes-matrix")
def live_matrix(path: str, slice_id: int, update: int | None, offered: int) -> None:
    """Draw it; runs the page again once a step has more updates than the `offered` ones."""
    ctx = current()
    with plain_errors("The buckets"):
        facts = load_facts(ctx, path)
        if facts is None:
            st.warning("The folder of this run is gone.", icon=":material/folder_off:")
            return
        matrix = matrix_of(ctx.monitor, facts.run.run_key, slice_id=slice_id, update=update)
        if matrix is None:
            st.text(
                "No buckets in the last 20 steps of this part. Log them: Recorder.buckets(step, update, stats, ...)."
            )
            return
        if count_of(matrix) > offered:
            st.rerun(scope="app")
        _draw(matrix, facts, update, None if slice_id else lag_of(ctx, facts))


def count_of(matrix: Matrix | None) -> int:
    """Updates 0 to this, less one, can be asked for."""
    return 0 if matrix is None else max(matrix.updates, default=-1) + 1


def lag_of(ctx: Context, facts: RunFacts) -> float | None:
    """The largest lag of the newest step, else its mean; None = not known.

    Of everything only: the rows of a slice hold all updates of a step, so there is no update 0 to speak of.
    """
    latest = numbers(ctx.monitor, facts.run.run_key).latest
    return next((latest[name].value for name in ("lag_max", "lag_mean") if name in latest), None)


def _draw(matrix: Matrix, facts: RunFacts, update: int | None, lag: float | None) -> None:
    rule = rule_of(facts.run.weight_rule, matrix)
    when = f"Step {matrix.step}" + ("" if matrix.update is None else f", update {update}")
    if update is not None and matrix.update is None:
        when += f", which has no update {update}: all of it"
    change = f"; change against {BACK} steps earlier" if matrix.before else ""
    sampled = (
        "" if matrix.sampled is None else f"; entropy effect scaled up from {percent(matrix.sampled)} of the tokens"
    )
    st.caption(f"{when}{change}{sampled}.")
    grid, side = st.columns([7, 2], gap="small")
    with grid:
        for sign, title, regimes in _ROWS:
            one = getattr(rule, sign) if rule is not None else None
            for place, regime in zip(st.columns(2, gap="small"), regimes, strict=True):
                with place:
                    _cell(matrix, regime, title, one)
    with side:
        _others(matrix)
    if matrix.update == 0 or matrix.updates == (0,):
        note = rule_texts.first_update_note(_share_clipped(matrix), lag, facts.run.ratio_source)
        if note and lag == 0:
            st.warning(note, icon=":material/sync_problem:")
        elif note:
            st.caption(note)


def rule_of(rule: WeightRule | None, matrix: Matrix) -> WeightRule | None:
    """The run's rule under the bounds of the rows shown."""
    row, other = matrix.now.get("R1"), matrix.now.get("R3")
    if rule is None or row is None or other is None or None in (row.w_min, row.w_max, other.w_min, other.w_max):
        return rule
    wire = {"pos": [row.w_min, row.w_max], "neg": [other.w_min, other.w_max]}
    return rule.with_bounds(Bounds.from_wire(wire))


def _cell(matrix: Matrix, regime: str, title: str, rule: SignRule | None) -> None:
    row, before = matrix.now.get(regime), matrix.before.get(regime)
    above = regime in ("R1", "R3")
    with st.container(border=True, gap="xsmall", height="stretch", key=f"cell-{regime}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge(regime, color="blue" if regime in ("R1", "R2") else "orange")
            ratio = "s" if rule is not None and rule.base == "s" else "r"
            st.markdown(f"**{title}, {ratio} {'>' if above else '<'} 1**", width="content")
            if rule is not None:
                st.caption(
                    f"{rule_texts.weight_text(rule)} · {rule_texts.bound_text(rule, above=above)}", width="content"
                )
        with st.container(key=f"cellnumbers-{regime}"):
            _metric("Tokens", _value(row, "token_frac"), _value(before, "token_frac"), _SHARE, driver_text(regime))
            _metric(
                "Clipped", clipped(row), clipped(before), _SHARE, "Share of its tokens whose weight is not the base."
            )
            _metric(
                "Mean w", _value(row, "weight_mean"), _value(before, "weight_mean"), _PLAIN, "A dropped token is 0."
            )
            _metric("Grad mass", _value(row, "grad_mass"), _value(before, "grad_mass"), _SHARE,
                    "Gradient mass: its share of the sum of w|A| over all seven buckets.")  # fmt: skip
            if row is not None and row.entropy_effect is not None:
                _metric("Δ entropy", row.entropy_effect, _value(before, "entropy_effect"), _PLAIN,
                        "Entropy effect: first-order change by one unit step, summed over its tokens.")  # fmt: skip


def _metric(label: str, value: float | None, before: float | None, tile: Tile, text: str) -> None:
    change = None if value is None or before is None else tile.change(value, before)
    st.metric(label, "no tokens" if value is None else tile.show(value), change, delta_color="off", help=text)


def _value(row: BucketRow | None, name: str) -> float | None:
    found = getattr(row, name, None)
    return None if found is None else float(found)


def _others(matrix: Matrix) -> None:
    """pos_eq1, neg_eq1 and zero_adv."""
    with st.container(border=True, gap="xsmall", key="cell-others"):
        st.markdown("**Other buckets**")
        for bucket, text in _OTHERS.items():
            row = matrix.now.get(bucket)
            mass = _value(row, "grad_mass")
            st.text(f"{bucket}: {percent(_value(row, 'token_frac'))}")
            st.caption(text if bucket == "zero_adv" else f"{text}; grad mass {percent(mass)}")


def _share_clipped(matrix: Matrix) -> float | None:
    """Of all tokens of the four regimes and the two with r = 1."""
    rows = [row for bucket, row in matrix.now.items() if bucket != "zero_adv"]
    tokens = sum(row.tokens for row in rows)
    return sum((clipped(row) or 0.0) * row.tokens for row in rows) / tokens if tokens else None
