"""Rollouts: which responses were kept, by what they have wrong, and one of them token by token."""

from __future__ import annotations

import streamlit as st


def render() -> None:
    """Draw the page of the chosen run."""
    st.text("This page is being built.")
