"""Placeholder."""

import streamlit as st


def render() -> None:
    st.text("control")
