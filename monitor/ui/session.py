"""What a page run needs: the pages by name, the chosen run, the theme, and one place that puts errors into words.

View state lives in the URL (`run`, `slice`, `alert`, what a page adds), so a reload or a link shows the same thing. A
run in the URL is looked up among the known runs; it is never taken for a path.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import streamlit as st
from streamlit.navigation.page import Page

from regimescope.monitor import query
from regimescope.monitor.errors import RegimescopeError
from regimescope.monitor.store import is_unusable
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.palette import Theme, colors
from regimescope.monitor.ui.security import GATE, ControlRefused

if TYPE_CHECKING:
    from regimescope.monitor.query import RunRow

BROKEN = "page_broken"
"Session key: a part of this page could not be read from the index, so the page is run again once it works."
OF_A_RUN = (
    "a", "alert", "slice", "step", "id", "tok", "x0", "x1", "update", "pos_min", "pos_max", "neg_min", "neg_max",
    "steps", "env", "len", "end", "rollback",
)  # fmt: skip
"Query parameters that mean nothing for another run."
_PICKER = "run_picker"
_UNLOCKED = "control_unlocked"
_AWAITED = "run_awaited"
"Session key: a run of the address that was not in the index, and since when it is waited for."
WAIT_S = 15.0
"So long."


def remember_pages(pages: Mapping[str, Page]) -> None:
    """Keep the page objects of this run for links."""
    st.session_state["pages"] = dict(pages)


def page_link(name: str, label: str, *, icon: str | None = None, **where: object) -> None:
    """A link to another page of the same run; nothing where that page is hidden (Control in a read-only server).

    where = what it opens, as query parameters of that page (alert, step, id, tok, slice, a, b); None is left out.
    """
    page = st.session_state.get("pages", {}).get(name)
    if page is None:
        return
    given = {key: str(value) for key, value in where.items() if value is not None}
    st.page_link(page, label=label, icon=icon, query_params={"run": st.query_params.get("run", ""), **given})


def choose_run(runs: Sequence[RunRow]) -> RunRow:
    """Draw the run picker and return the chosen run; there is at least one.

    The URL wins, then what this browser looked at last, then the newest run that is alive. A run of the URL that is not
    in the index yet is waited for: a link may be opened in the second in which its run starts.
    """
    by_path = {run.path: run for run in runs}
    wanted = st.query_params.get("run") or st.session_state.get("run_path")
    if wanted is not None and wanted not in by_path and _awaited(wanted):
        _wait(wanted, list(by_path))
    if wanted is not None and wanted not in by_path:
        st.warning(
            "This address names a run that is not below this root: showing the newest.", icon=":material/link_off:"
        )
    if wanted not in by_path:
        wanted = _newest(runs).path
    if st.session_state.get(_PICKER) != wanted:
        st.session_state[_PICKER] = wanted
    st.selectbox("Run", list(by_path), key=_PICKER, label_visibility="collapsed", on_change=_picked)
    st.session_state["run_path"] = wanted
    if st.query_params.get("run") != wanted:
        st.query_params["run"] = wanted
    return by_path[wanted]


def _awaited(path: str) -> bool:
    """Whether this address is still waited for."""
    known, since = st.session_state.get(_AWAITED, (None, 0.0))
    if known != path:
        since = time.monotonic()
        st.session_state[_AWAITED] = (path, since)
    return time.monotonic() - float(since) < WAIT_S


def _wait(path: str, others: list[str]) -> None:
    """Say so in place of a page, which is run again when the run is there or the time is over; the address stays."""
    st.session_state[_PICKER] = None
    st.selectbox(
        "Run",
        others,
        index=None,
        key=_PICKER,
        label_visibility="collapsed",
        on_change=_picked,
        placeholder="Another run",
    )
    st.info("The run of this address is not here yet: waiting for it.", icon=":material/hourglass_top:")
    _look_again(path)
    st.stop()


@st.fragment(run_every="1s", key="awaited-run")
def _look_again(path: str) -> None:
    with current().monitor.store.cursor() as con:
        found = query.run_key_of(con, path) is not None
    if found or not _awaited(path):
        st.rerun(scope="app")


def _picked() -> None:
    st.query_params["run"] = st.session_state[_PICKER]
    for key in OF_A_RUN:
        st.query_params.pop(key, None)


def _newest(runs: Sequence[RunRow]) -> RunRow:
    return next((run for run in runs if run.status == "running"), runs[0])  # the one that wrote last comes first


def page_style(shown: Theme) -> str:
    """The style sheet of the pages with the palette of this theme, as a `<style>` element; nothing of a run in it."""
    variables = "".join(f"--rs-{name}: {value};" for name, value in colors(shown).items())
    sheet = (Path(__file__).parent / "page.css").read_text("utf-8")
    return f"<style>\n:root {{{variables}}}\n{sheet}</style>"


def favicon() -> str:
    """The four regimes as an SVG of our own: a named icon would be fetched from a foreign host."""
    corners = {"R1": (0, 0), "R2": (17, 0), "R3": (0, 17), "R4": (17, 17)}
    squares = "".join(
        f'<rect x="{x}" y="{y}" width="15" height="15" rx="3" fill="{colors("light")[name]}"/>'
        for name, (x, y) in corners.items()
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{squares}</svg>'


def theme() -> Theme:
    """The theme this browser shows."""
    return "dark" if st.context.theme.type == "dark" else "light"


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Show an error of the store or control channel as a sentence, its details folded away; never a traceback."""
    try:
        yield
    except RegimescopeError as error:
        _show(f"{what} could not be read.", error)
    except duckdb.Error as error:
        if is_unusable(error):
            current().monitor.doubt(error)
            st.session_state[BROKEN] = True
            _show(f"{what} could not be read: the store is degraded. It recovers by itself; training goes on.", error)
        else:
            _show(f"{what} could not be read.", error)


def _show(sentence: str, error: Exception) -> None:
    st.error(sentence, icon=":material/error:")
    with st.expander("Details"):
        st.code(str(error), language=None)


def chosen_run() -> RunRow:
    """The run that choose_run returned in this page run."""
    run: RunRow = st.session_state["run_row"]
    return run


def actor() -> str:
    """Who acts in this browser: the login where the server has one, else --actor or the OS user."""
    email = st.user.to_dict().get("email")
    return str(email) if email else current().actor


def control_allowed(ctx: Context) -> bool:
    """Whether this browser may send commands; off loopback it asks for the control token, once per session."""
    if ctx.control_token is None or st.session_state.get(_UNLOCKED):
        return True
    with st.form("control-token", border=True, width=520):
        given = st.text_input("Control token of this server", type="password")
        if st.form_submit_button("Unlock control", icon=":material/lock_open:"):
            try:
                GATE.check(given, ctx, peer=st.context.ip_address or "page")
            except ControlRefused as error:
                st.error(str(error), icon=":material/lock:")
                return False
            st.session_state[_UNLOCKED] = True
            st.rerun()
    return False
