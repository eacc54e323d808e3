"""Whom this server tells about alerts: its targets with their URLs masked, how they are, and a test to one of them.

The targets are a file below the root and the environment (docs/notifications.md); nothing is changed here.
"""

from __future__ import annotations

import streamlit as st

from regimescope.monitor.notify.targets import notify_path
from regimescope.monitor.notify.told import failures, target_rows
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.session import control_allowed


def notices(ctx: Context) -> None:
    """Draw the tab."""
    if ctx.read_only:
        st.info("This server is read-only: it sends no notices.", icon=":material/notifications_off:")
        return
    notifier = ctx.monitor.notifier
    if notifier is None:
        st.info("No targets: nobody is told about an alert who does not look at this page.", icon=":material/mail:")
        st.text(
            f"Name them in {notify_path(ctx.monitor.root)} and start the server again; docs/notifications.md has the "
            "form. Or set REGIMESCOPE_NOTIFY to their URLs."
        )
        st.code('[[target]]\nname = "oncall"\nurl_env = "ONCALL_URL"\nseverity = "warning"', language="toml")
        return
    states = notifier.states()
    st.dataframe(target_rows(states), hide_index=True, height="content", alt="Targets of notices and how they are")
    for line in failures(states):
        st.text(line)
    st.caption("Targets are read when the server starts. A notice that is not delivered is tried again until it is.")
    if not control_allowed(ctx):
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Target", [state.target.name for state in states], width=280, key="notice-target")
        pressed = st.button("Send test", icon=":material/send:", key="notice-test")
    if pressed and name is not None:
        with st.spinner("Waiting for the target"):
            why = notifier.test(name)
        if why:
            st.error("Not delivered.", icon=":material/error:")
            st.text(f"{name}: {why}")
        else:
            st.success("Delivered.", icon=":material/check:")
