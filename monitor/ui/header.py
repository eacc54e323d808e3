"""The strip above every page: verdict, reason, what the trainer is doing, and what to click. Redrawn every 3 s.

The run picker stands outside the fragment, so that a redraw never touches it. When a run appears or goes, the whole
page is run again once, but not under an open review dialog.
"""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import RunFacts, load_facts
from regimescope.monitor.ui.palette import Tone, badge_color, icon
from regimescope.monitor.ui.session import BROKEN, page_link, plain_errors
from regimescope.monitor.ui.texts import ago, bound_label, plural, span, state_text, weight

REVIEW_OPEN = "review_open"
"Session key that a review dialog sets while it is open."

_DEGRADED_DRAWN = "degraded_drawn"
"Session key: whether the page says that the index does not work."

BEHIND_S = 3.0
"Lines that wait longer to be read are told; a tick comes every quarter of a second."

LONG_NAME = 18
"Characters that the run picker shows; a longer name stands in full below the state."

_WORD_ICON = {
    "ENDED": ":material/stop_circle:",
    "PAUSED": ":material/pause_circle:",
    "WAITING": ":material/hourglass_top:",
    "UNSEEN": ":material/visibility_off:",
    "WARMING UP": ":material/hourglass_top:",
}
_WORD_TONE: dict[str, Tone] = {"COLLAPSING": "critical", "WATCH": "watch"}


def run_list() -> list[query.RunRow]:
    """All runs below the root, newest first."""
    with current().monitor.store.cursor() as con:
        return query.list_runs(con)


def run_paths() -> tuple[str, ...]:
    """Their folders, sorted."""
    with current().monitor.store.cursor() as con:
        return tuple(query.run_paths(con))


@st.fragment(run_every="3s", key="header")
def header(path: str, known: tuple[str, ...]) -> None:
    """Draw the strip of one run; known = the runs that the picker shows, sorted."""
    ctx = current()
    with plain_errors("The state of this run"):
        if not st.session_state.get(REVIEW_OPEN) and (_store_differs() or run_paths() != known):
            st.rerun(scope="app")
        facts = load_facts(ctx, path)
        if facts is not None:
            with st.container(key=f"verdict-{facts.verdict.tone}"):
                _first_line(facts)
                _second_line(ctx, facts)
                if len(path) > LONG_NAME:
                    with st.container(key="run-name"):
                        st.text(path)


def _store_differs() -> bool:
    """Whether the index works again, or no longer, since the page was drawn; or a part of it could not be read."""
    degraded = current().monitor.degraded is not None
    broken = not degraded and st.session_state.pop(BROKEN, False)
    return bool(broken) or degraded != st.session_state.get(_DEGRADED_DRAWN, False)


@st.fragment(run_every="10s", key="store-state")
def store_state() -> None:
    """Above everything: why the index does not work and since when; nothing while it does. A page that could not be
    read meanwhile is run again: by the header, and from here where there is none.
    """
    monitor = current().monitor
    reason, since = monitor.degraded, monitor.degraded_since
    st.session_state[_DEGRADED_DRAWN] = reason is not None
    if reason is not None and since is not None:
        at = datetime.fromtimestamp(since, UTC).astimezone()
        with st.container(key="store-degraded"):
            st.error(
                f"**store degraded** since {at:%H:%M:%S}: the index cannot be written. It is tried again every few "
                "seconds; training and recording go on, nothing is lost.",
                icon=":material/database_off:",
            )
            st.code(reason, language=None)
    elif st.session_state.pop(BROKEN, False):
        st.rerun(scope="app")
    elif monitor.progress.waiting_s > BEHIND_S:
        with st.container(key="store-behind"):
            st.info(behind_text(monitor.progress.waiting_s, rebuilt=monitor.store.rebuilt), icon=":material/sync:")


def behind_text(waiting_s: float, *, rebuilt: bool) -> str:
    """Why the pages do not show all that the segments hold yet."""
    if rebuilt:
        return (
            f"The index is being rebuilt from the segments, for {span(waiting_s)} so far: steps and alerts are not "
            "complete yet. Nothing is lost; training and recording go on."
        )
    return (
        f"The index is {span(waiting_s)} behind the segments: the newest steps are missing here until it has read them."
    )


@st.fragment(run_every="2s", key="no-run-header")
def wait_for_run() -> None:
    """Before the first run: look again every 2 s and rerun the page when one is there."""
    with plain_errors("The list of runs"):
        if run_paths():
            st.rerun(scope="app")


def badge(word: str, tone: Tone) -> None:
    """A status as icon, word and colour."""
    st.badge(word, icon=icon(tone), color=badge_color(tone))


def _first_line(facts: RunFacts) -> None:
    verdict = facts.verdict
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        with st.container(key="word", width="content"):
            st.badge(
                verdict.word, icon=_WORD_ICON.get(verdict.word, icon(verdict.tone)), color=badge_color(verdict.tone)
            )
        if verdict.beside:
            badge(verdict.beside, _WORD_TONE[verdict.beside])
        with st.container(key="reason", width="content"):
            st.text(verdict.reason)
        worst = facts.open_alerts[0] if facts.open_alerts else None
        if worst is None:
            return
        page_link("alerts", "Evidence", icon=":material/search:", alert=worst.alert_id)
        if facts.remedy is not None and not (facts.live.ended or facts.live.stale):
            change = f"{bound_label(facts.remedy.bound)}: {weight(facts.remedy.old)} → {weight(facts.remedy.new)}"
            with st.container(key="fix-strip", width="content"):
                page_link("control", f"Move {change}", icon=":material/tune:", alert=facts.remedy.alert_id)


def _second_line(ctx: Context, facts: RunFacts) -> None:
    live = facts.live
    bits = [] if live.ended else [state_text(live.state)]
    if live.last_step is not None and live.last_step >= 0:
        bits.append(f"step {live.last_step:,}")
    bits.append(f"last sign of life {ago(live.silent_s)} ago")
    if live.median_step_s:
        bits.append(f"{span(live.median_step_s)} per step")
    bits.append(plural(len(facts.open_alerts), "open alert"))
    pending = sum(command.status in ("pending", "applying") for command in facts.commands)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(" · ".join(bits), width="content")
        if pending:
            st.badge(plural(pending, "pending command"), icon=":material/hourglass_top:", color="blue")
        if ctx.read_only:
            st.badge("read-only", icon=":material/lock:", color="gray")
        if ctx.monitor.degraded:
            st.badge(
                "store degraded",
                icon=":material/database_off:",
                color="red",
                help="It recovers by itself; training goes on.",
            )
        else:
            st.badge(f"live {datetime.now(UTC).astimezone():%H:%M:%S}", icon=":material/sensors:", color="green")
