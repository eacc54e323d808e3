"""How the server is: versions, index, how far it lags, what was lost. `regimescope doctor` looks at more, and works
without a server.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib import metadata
from itertools import chain

import streamlit as st

from regimescope import __version__
from regimescope.monitor import doctor
from regimescope.monitor.progress import RunProgress
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.session import actor
from regimescope.monitor.ui.texts import ago, plural, size, span

_PACKAGES = ("streamlit", "plotly", "duckdb", "pandas", "pyarrow")


def diagnostics(ctx: Context) -> None:
    """Draw the tab."""
    _degraded(ctx)
    left, right = st.columns([2, 3])
    with left:
        st.subheader("This server")
        st.dataframe(
            [{"what": what, "is": text} for what, text in server_facts(ctx, actor())],
            hide_index=True,
            height="content",
            alt="Facts about this server",
        )
    with right:
        st.subheader("Runs")
        runs = ctx.monitor.progress.runs(ctx.monitor.root)
        st.text(lag_sentence(runs))
        st.dataframe(run_rows(runs), hide_index=True, height="auto", alt="What of each run was read and lost")
        for name, why in ctx.monitor.problems.items():
            st.text(f"{name}: {why}")
    st.button("Look again", icon=":material/refresh:", key="look-again")
    _closer(ctx)


def _degraded(ctx: Context) -> None:
    if ctx.monitor.degraded is not None:
        since = ago(time.time() - (ctx.monitor.degraded_since or time.time()))
        st.error(
            f"The store is degraded since {since}. It tries again every few seconds and loses nothing; training goes "
            "on.",
            icon=":material/error:",
        )
        st.code(ctx.monitor.degraded, language=None)


def server_facts(ctx: Context, by: str) -> list[tuple[str, str]]:
    """What and its value, in the order in which one asks."""
    path = ctx.monitor.store.path
    index = "in memory" if path is None else str(path)
    versions = {"regimescope": __version__, "python": sys.version.split()[0], **_installed()}
    return [
        ("address", ctx.address),
        ("runs below", str(ctx.monitor.root)),
        ("commands", "off: read-only" if ctx.read_only else f"on, by {by}"),
        ("control token", "asked once per browser" if ctx.control_token else "not needed on this address"),
        ("index", index),
        ("size of the index", "–" if path is None or not path.exists() else size(path.stat().st_size)),  # noqa: RUF001
        ("last look at the files", f"{span(ctx.monitor.progress.tick_age_s)} ago"),
        ("rules", f"version {ctx.monitor.rules.version}"),
        *versions.items(),
    ]


def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def lag_sentence(runs: Sequence[RunProgress]) -> str:
    """How much the index has not read."""
    unread, lag = sum(run.unread_bytes for run in runs), max((run.lag_s for run in runs), default=0.0)
    if not unread:
        return f"{plural(len(runs), 'run')}, all of their lines are read."
    return f"{plural(len(runs), 'run')}, {size(unread)} not read yet, for {span(lag)} at most."


def run_rows(runs: Sequence[RunProgress]) -> list[dict[str, object]]:
    """A row per run, those with something wrong first."""
    ordered = sorted(runs, key=lambda r: (-(r.lost + r.dropped + r.bad_lines + r.refused + r.unread_bytes), r.path))
    return [
        {
            "run": run.path,
            "bytes not read": run.unread_bytes,
            "waiting, s": round(run.lag_s, 1),
            "records lost": run.lost,
            "of them dropped": run.dropped,
            "bad lines": run.bad_lines,
            "files refused": run.refused,
        }
        for run in ordered
    ]


def _closer(ctx: Context) -> None:
    """Disk, clocks and permissions: they read a little of every segment, so only when asked."""
    if not st.button("Check disk, clocks and permissions", icon=":material/stethoscope:", key="doctor"):
        st.caption("From a shell: regimescope doctor ROOT, which also looks at owner and silent runs.")
        return
    root = ctx.monitor.root
    found = chain(doctor.versions(), doctor.disks(root), doctor.clocks(root, time.time()), doctor.permissions(root))
    st.dataframe(
        [{"level": f.level, "topic": f.topic, "found": f.text, "what to do": f.advice} for f in found],
        hide_index=True,
        height="content",
        alt="Findings about disk, clocks and permissions",
    )
