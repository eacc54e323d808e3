"""No data yet: where the server looks, how to record, how to see a demo, and a checklist that turns green."""

from __future__ import annotations

import streamlit as st

from regimescope.monitor.ui.context import current

SNIPPET = """\
from regimescope.monitor import Recorder

recorder = Recorder("{root}/my-run", name="my run", objective="dispo")
recorder.step(step, {{"reward_mean": reward, "accuracy": accuracy, "entropy_mean": entropy}})   # once per step
"""
DEMO = "regimescope train --scenario length-collapse --pace 3 --run-dir {root}/demo"


def render() -> None:
    """Draw the page; the header looks for the first run and reruns it."""
    root = current().monitor.root
    st.subheader("No data yet")
    st.text(f"Waiting for rows in {root}")
    record, demo = st.columns(2, gap="large")
    with record:
        st.markdown("**Record your own run** — three lines in the training process, standard library only:")
        st.code(SNIPPET.format(root=root), language=None)
    with demo:
        st.markdown("**Or watch a real one** — a tiny policy that is going to collapse:")
        st.code(DEMO.format(root=root), language=None)
