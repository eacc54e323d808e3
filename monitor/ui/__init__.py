"""The dashboard: one Streamlit app with JSON routes of its own."""
