"""No data yet: where the server looks, how to record, how to see a demo, and a checklist that turns green.

The Overview shows the checklist alone while a run has no step.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping

import streamlit as st

from regimescope.monitor.ui.context import current
from regimescope.monitor.ui.facts import RunFacts

SNIPPET = """\
from regimescope.monitor import Recorder

recorder = Recorder({folder!r}, name="my run", objective="dispo")
recorder.step(step, {{"reward_mean": reward, "accuracy": accuracy, "entropy_mean": entropy}})   # last line of each step
recorder.end("finished")
"""
_SKELETON_PX = 480
_MOST = 8
"Files that are named at most."
DEMO = ("regimescope", "train", "--scenario", "length-collapse", "--pace", "3", "--run-dir")


def render() -> None:
    """Draw the page; the header looks for the first run and reruns it."""
    monitor = current().monitor
    root = monitor.root
    if not monitor.progress.ticks:
        st.subheader("Reading the runs")
        st.text(f"The index is built from the segments below {root}. This page turns into the Overview by itself.")
        st.skeleton(_SKELETON_PX)
        return
    st.subheader("No data yet")
    st.text(f"Waiting for rows in {root}. This page turns into the Overview by itself.")
    _unread(monitor.problems)
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.markdown("**See a real run collapse**: a tiny policy, slow enough to watch and to save")
        st.code(shlex.join([*DEMO, str(root / "demo")]), language=None)
        st.markdown("**Record your own**: three lines in the training process, standard library only")
        st.code(SNIPPET.format(folder=str(root / "my-run")), language=None)
        st.caption("Buckets, ratios and commands come next: docs/embedding.md.")
    with right:
        checklist(None, ())


def _unread(problems: Mapping[str, str]) -> None:
    """Files that are there and cannot be read: why no run is shown."""
    if problems:
        st.warning("Some files below this folder are not read:", icon=":material/folder_off:")
        for path, why in sorted(problems.items())[:_MOST]:
            st.text(f"{path}: {why}")


def checklist(facts: RunFacts | None, names: Collection[str]) -> None:
    """What has arrived so far, in the order in which it is usually wired up."""
    with st.container(border=True, gap="xsmall", key="checklist"):
        st.markdown("**Checklist**")
        for label, done in steps(facts, names):
            icon = ":material/check_circle:" if done else ":material/radio_button_unchecked:"
            st.badge(label, icon=icon, color="green" if done else "gray")


def steps(facts: RunFacts | None, names: Collection[str]) -> list[tuple[str, bool]]:
    """Label and whether it is there; names = the metrics of the run."""
    steerable = facts is not None and bool(facts.run.capabilities) and not (facts.live.ended or facts.live.stale)
    return [
        ("run found", facts is not None),
        ("first step", facts is not None and facts.live.last_step is not None),
        ("log-probabilities: Recorder.buckets", any(name.endswith(".ratio_mean") for name in names)),
        ("advantages: Recorder.buckets", any(name.endswith(".grad_mass") for name in names)),
        ("rollouts, optional", facts is not None and "rollouts" in facts.run.capabilities),
        ("control channel alive: Recorder(can=..., limits=...)", steerable),
    ]
