"""Regimes: the 2 x 2 matrix of the sign of the advantage and the side of 1 on which the ratio falls."""

from __future__ import annotations

import streamlit as st


def render() -> None:
    """Draw the page of the chosen run."""
    st.text("This page is being built.")
