"""Settings: thresholds with their replay, optional rules, diagnostics."""

from __future__ import annotations

import streamlit as st


def render() -> None:
    """Draw the page of the chosen run."""
    st.text("This page is being built.")
