"""What the rules cannot see in this log, and what to log so that they do: the foot of the Alerts page.

`regimescope check` prints the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import streamlit as st

from regimescope.detectors import Blind
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import RunFacts

WORDS: Mapping[str, str] = {"blind": "blind", "degraded": "without an optional input", "warming": "warming up"}
"Status to word, the worst first."


def unseen(ctx: Context, facts: RunFacts) -> None:
    """Draw it: one line, the table behind a click."""
    found = ctx.monitor.blind(facts.run.run_key)
    rows = table(found)
    if not rows:
        st.caption("All rules see what they need in this log." if found else "No step has been given to the rules yet.")
        return
    with st.expander(summary(found)):
        st.dataframe(
            rows, hide_index=True, height="content", alt="Rules that cannot see all they need, and what to log"
        )


def summary(found: Sequence[Blind]) -> str:
    """ "20 rules: 2 blind, 3 without an optional input, 4 warming up"."""
    count = Counter[str](blind.status for blind in found)
    parts = [f"{count[status]} {word}" for status, word in WORDS.items() if count[status]]
    return f"{len(found)} rules: {', '.join(parts)}"


def table(found: Sequence[Blind]) -> list[dict[str, str]]:
    """A row per rule that is not fully there, the worst first."""
    order = list(WORDS)
    rest = sorted((blind for blind in found if blind.status in WORDS), key=lambda blind: order.index(blind.status))
    return [
        {"rule": blind.rule, "state": WORDS[blind.status], "why": blind.reason, "what to log": blind.help}
        for blind in rest
    ]
