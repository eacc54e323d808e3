"""Where the numbers of an imported run come from: format, keys behind our names, what was left out. For Forensics."""

from __future__ import annotations

import streamlit as st

from regimescope.monitor.imports.origin import Origin, origin_of
from regimescope.monitor.query import RunRow
from regimescope.monitor.ui.context import Context

NO_REGIMES = (
    "A log tells that a run fails and when, not which regime drives it: no framework logs counts per regime. "
    "Recorder.buckets in the policy loss does (docs/embedding.md)."
)


def origin(ctx: Context, run: RunRow, letter: str) -> None:
    """Draw it, folded; nothing for a run that was recorded."""
    with ctx.monitor.store.cursor() as con:
        found = origin_of(con, run)
    if found is None:
        return
    with st.expander(f"{letter}: imported, {len(found.sources)} keys mapped", icon=":material/input:"):
        st.text(f"{found.format}, keys of {found.framework or 'no known framework'}")
        st.dataframe(origin_rows(found), hide_index=True, height="content", alt="Which key of the log fed which metric")
        if found.unmapped:
            st.text("Kept under their own name: " + ", ".join(found.unmapped))
        for note in found.notes:
            st.text(f"Note: {note}")
        st.caption(NO_REGIMES)


def origin_rows(found: Origin) -> list[dict[str, str]]:
    """A row per key."""
    return [
        {"metric": s.name, "key of the log": s.source_key, "transform": s.transform or "", "trust": s.trust or ""}
        for s in found.sources
    ]
