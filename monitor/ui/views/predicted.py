"""The prediction under the editor and in the review dialog: what other bounds would have done to the tokens of the
last steps. Nothing is recommended where nothing would change.
"""

from __future__ import annotations

import streamlit as st

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.texts import percent
from regimescope.monitor.ui.views.what_if import CAVEAT, prediction
from regimescope.monitor.what_if import Effect, Prediction

NBSP = "\u00a0"
"A narrow page breaks between cells, not within one."


def draw_prediction(ctx: Context, facts: RunFacts, then: Bounds, *, place: str) -> None:
    """A line on how many tokens change, and a row per regime that does. `place`: makes its key unique."""
    found = prediction(ctx, facts, then)
    with st.container(border=True, gap="xsmall", key=f"prose-prediction-{place}"):
        st.markdown("**What it would have done**")
        if found.obstacle:
            st.text(f"Nothing can be said. {found.obstacle}")
            return
        st.text(headline(found))
        if found.changed:
            st.markdown("\n".join(rows(found)))
        st.caption(CAVEAT if found.exact else f"{CAVEAT} ± is the bin that a bound splits.")


def headline(found: Prediction) -> str:
    """ "0 of 1,240,332 tokens of steps 412 to 431 would change"."""
    over = f"step {found.first}" if found.first == found.last else f"steps {found.first} to {found.last}"
    line = f"{found.changed:,} of {found.tokens:,} tokens of {over} would change"
    return line if found.changed else f"{line}: on this batch it moves nothing."


def rows(found: Prediction) -> list[str]:
    """A Markdown table of numbers, of the regimes that change."""
    head = ["| | clipped | over single steps | gradient mass | tokens that change |", "| --- | --- | --- | --- | --- |"]
    return [*head, *(_row(effect) for effect in found.effects if effect.changed)]


def _row(effect: Effect) -> str:
    error = f" ± {percent(effect.clipped_error)}" if effect.clipped_error else ""
    mass = "not known"
    if effect.grad_mass_now is not None and effect.grad_mass_then is not None:
        mass = f"{percent(effect.grad_mass_now)} → {percent(effect.grad_mass_then)}"
    cells = (
        f"{percent(effect.clipped_now)} → {percent(effect.clipped_then)}{error}",
        f"{percent(effect.low)} to {percent(effect.high)}",
        mass,
        f"{effect.changed:,} of {effect.tokens:,}",
    )
    return f"| **{effect.regime}** | {' | '.join(cell.replace(' ', NBSP) for cell in cells)} |"
