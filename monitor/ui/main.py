"""The page script that Streamlit runs for every browser and rerun: navigation, the header strip, then the chosen page.

Started by app.py; nothing here is imported by others. Pages are functions in views/; a read-only server has no
Control page.
"""

from __future__ import annotations

import streamlit as st
from streamlit.navigation.page import Page

from regimescope.monitor.ui.context import current
from regimescope.monitor.ui.header import REVIEW_OPEN, header, run_list, store_state, wait_for_run
from regimescope.monitor.ui.session import choose_run, favicon, page_style, plain_errors, remember_pages, theme
from regimescope.monitor.ui.views import alerts, control, first_run, forensics, overview, regimes, rollouts, settings
from regimescope.monitor.ui.views.review import forget


def main() -> None:
    """One run of the page script."""
    st.set_page_config(page_title="regimescope", page_icon=favicon(), layout="wide")
    st.html(page_style(theme()))
    st.session_state[REVIEW_OPEN] = False  # Control opens the dialog again where something is under review
    pages = {
        "overview": st.Page(overview.render, title="Overview", icon=":material/monitoring:", default=True),
        "regimes": st.Page(regimes.render, title="Regimes", icon=":material/grid_view:", url_path="regimes"),
        "alerts": st.Page(alerts.render, title="Alerts", icon=":material/notifications:", url_path="alerts"),
        "rollouts": st.Page(rollouts.render, title="Rollouts", icon=":material/notes:", url_path="rollouts"),
    }
    if not current().read_only:
        pages["control"] = st.Page(control.render, title="Control", icon=":material/tune:", url_path="control")
    pages["forensics"] = st.Page(
        forensics.render, title="Forensics", icon=":material/troubleshoot:", url_path="forensics"
    )
    pages["settings"] = st.Page(settings.render, title="Settings", icon=":material/settings:", url_path="settings")
    remember_pages(pages)
    page = st.navigation(list(pages.values()), position="top")
    if page is not pages.get("control"):
        forget()
    store_state()
    with plain_errors("The list of runs"):
        _draw(page)


def _draw(page: Page) -> None:
    runs = run_list()
    if not runs:
        wait_for_run()
        first_run.render()
        return
    with st.container(key="strip"):
        left, right = st.columns([2, 9], vertical_alignment="center")
        with left:
            run = choose_run(runs)
        with right:
            header(run.path, tuple(sorted(run.path for run in runs)))
    st.session_state["run_row"] = run
    page.run()


main()
