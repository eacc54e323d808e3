"""The dashboard's launcher: `streamlit run app.py` or `python app.py`; `regimescope serve` is the same with options.

Options come from the environment: REGIMESCOPE_ROOT, _HOST, _PORT, _READ_ONLY, _CONTROL_TOKEN, _ACTOR. Under
`streamlit run` address and port are Streamlit's own options (--server.port).
"""

import streamlit as st

from regimescope.monitor.ui.application import app_options, run

app = st.App(**app_options())  # Streamlit looks for this literal call: a factory would not be found

if __name__ == "__main__":
    run(app)
