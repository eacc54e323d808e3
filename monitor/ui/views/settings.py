"""Settings: the thresholds in force, what other ones would have found on this run, whom the server tells about alerts,
and how it is.

Nothing is set on this page. Thresholds are a file below the root: they hold for everybody who looks at these runs, so
a browser may try them on a run and copy the lines, and whoever keeps the root decides.
"""

from __future__ import annotations

import streamlit as st

from regimescope.monitor.ui.context import current
from regimescope.monitor.ui.facts import load_facts
from regimescope.monitor.ui.session import chosen_run, plain_errors
from regimescope.monitor.ui.views.diagnostics import diagnostics
from regimescope.monitor.ui.views.notices import notices
from regimescope.monitor.ui.views.rules import rules_in_force, try_change


def render() -> None:
    """Draw the page of the chosen run."""
    ctx = current()
    numbers, targets, server = st.tabs(["Thresholds", "Notices", "Server and files"])
    with numbers, plain_errors("The thresholds"):
        facts = load_facts(ctx, chosen_run().path)
        if facts is None:
            st.warning("The folder of this run is gone: nothing to try a threshold on.", icon=":material/folder_off:")
        else:
            try_change(ctx, facts)
        rules_in_force(ctx, None if facts is None else facts.run.run_key)
    with targets, plain_errors("The targets of notices"):
        notices(ctx)
    with server, plain_errors("The state of the server"):
        diagnostics(ctx)
