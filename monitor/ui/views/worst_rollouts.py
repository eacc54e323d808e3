"""The rollouts that show an alert: five worst and five best as lines that open them. For the card of an alert.

worst_rollouts(ctx, facts, alert)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.errors import RolloutError
from regimescope.monitor.query import AlertRow, RolloutRow
from regimescope.monitor.repeats import loop_of
from regimescope.monitor.rollout_picks import rollouts_of_alert
from regimescope.monitor.rollout_reader import RolloutTokens, rollout_contents
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.rollout_texts import excerpt, kept_id, line
from regimescope.monitor.ui.session import page_link

NONE = "No rollout of these steps was kept. Recorder(rollouts=RolloutOptions()) keeps some: docs/embedding.md."


def worst_rollouts(ctx: Context, facts: RunFacts, alert: AlertRow) -> None:
    """Draw them: what the alert is about most, and the highest rewards, between its onset and its last step."""
    with ctx.monitor.store.cursor() as con:
        found = rollouts_of_alert(con, facts.run.run_key, alert)
    if found is None:
        st.caption(NONE)
        return
    contents = first_looks(ctx, facts.run, [*found.worst, *found.best])
    left, right = st.columns(2, gap="medium")
    with left:
        rollout_list(f"Worst: {found.word}", found.worst, contents, key=f"worst-{alert.alert_id}")
    with right:
        rollout_list("Best: highest reward", found.best, contents, key=f"best-{alert.alert_id}")
    if not found.inside:
        st.caption(f"No step from the onset on has kept rollouts; these are of step {found.first}, before it.")


Key = tuple[int, int, int]
"Step, rank, sample_id."


def key_of(row: RolloutRow) -> Key:
    """Names a row of a run."""
    return row.step, row.rank, row.sample_id


def first_looks(ctx: Context, run: query.RunRow, rows: Sequence[RolloutRow]) -> dict[Key, RolloutTokens | str]:
    """Response and token ids of each row, or why they cannot be read; each file is opened once."""
    by_file: dict[str, list[RolloutRow]] = {}
    for row in rows:
        by_file.setdefault(row.file, []).append(row)
    found: dict[Key, RolloutTokens | str] = {}
    for of_file in by_file.values():
        try:
            contents = rollout_contents(ctx.monitor.root / run.path, of_file, ("response", "token_ids"))
            found |= {key_of(row): content for row, content in zip(of_file, contents, strict=True)}
        except RolloutError as error:
            found |= {key_of(row): str(error) for row in of_file}
    return found


def rollout_list(
    title: str,
    rows: Sequence[RolloutRow],
    contents: Mapping[Key, RolloutTokens | str],
    *,
    key: str,
    where: Mapping[str, str] | None = None,
) -> None:
    """A line per rollout: link, numbers, the start of the response as plain text. `key` names the block, `where` are
    further parameters of the links.
    """
    st.markdown(f"**{title}**")
    with st.container(key=f"rollout-list-{key}", gap=None):
        if not rows:
            st.caption("None.")
        for row in rows:
            content = contents[key_of(row)]
            with st.container(horizontal=True, vertical_alignment="center", gap="xxsmall"):
                page_link(
                    "rollouts",
                    f"Step {row.step}, no. {kept_id(row)}",
                    icon=":material/notes:",
                    step=row.step,
                    id=kept_id(row),
                    tok=_loop(row, content),
                    **(where or {}),
                )
                st.text(line(row), width="content", wrap=False)
            text = content if isinstance(content, str) else excerpt(content.response)
            with st.container(key=f"rollout-said-{key}-{row.step}-{kept_id(row)}"):
                st.text(text, width="stretch", wrap=False)


def _loop(row: RolloutRow, content: RolloutTokens | str) -> int | None:
    """Where its loop starts, to be opened there."""
    if isinstance(content, str) or content.token_ids is None:
        return None
    loop = loop_of(content.token_ids, ended=row.finish_reason == "eos")
    return None if loop is None else loop.start
