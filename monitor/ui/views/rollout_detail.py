"""One rollout of the Rollouts page: its numbers, prompt, tokens, and what else was kept of its prompt, side by side."""

from __future__ import annotations

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.errors import RolloutError
from regimescope.monitor.query import RolloutRow, RunRow
from regimescope.monitor.rollout_reader import RolloutTokens, rollout_tokens
from regimescope.monitor.token_view import TokenView, bounds_of, token_view
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.header import badge
from regimescope.monitor.ui.palette import Tone
from regimescope.monitor.ui.rollout_asked import parse_number
from regimescope.monitor.ui.rollout_texts import ENDED, excerpt, kept_id, line, loop_text, verdict_word
from regimescope.monitor.ui.session import page_link
from regimescope.monitor.ui.texts import number, plural
from regimescope.monitor.ui.tokens import token_viewer
from regimescope.monitor.ui.views.worst_rollouts import first_looks, key_of

_TONES: dict[str, Tone] = {"correct": "ok", "wrong": "critical", "no verdict": "off"}
SIDE_BY_SIDE = 3
GROUP_EXCERPT = 600
"Characters of a response in the group."


def detail(ctx: Context, run: RunRow, row: RolloutRow) -> None:
    """Draw it."""
    _head(row)
    try:
        tokens = rollout_tokens(ctx.monitor.root / run.path, row)
    except RolloutError as error:
        st.warning(
            "Its texts and tokens cannot be read; the numbers above are from the index.", icon=":material/draft:"
        )
        st.text(str(error))
    else:
        with st.container(gap="xsmall"):
            _texts(ctx, run, row, tokens)
    _group(ctx, run, row)


def _head(row: RolloutRow) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(f"Step {row.step}, no. {kept_id(row)}", width="content")
        badge(verdict_word(row), _TONES[verdict_word(row)])
        if row.pick in ("worst", "best", "random"):
            st.badge(f"kept as {row.pick}", icon=":material/inventory_2:", color="gray")
        if (end := ENDED.get(row.finish_reason or "")) is not None:
            st.badge(end, icon=":material/stop_circle:", color="gray")
    with st.container(key="prose-rollout", gap=None):
        st.text(" · ".join(_numbers(row)))
        if row.env:
            st.text(f"Environment: {row.env}")


def _numbers(row: RolloutRow) -> list[str]:
    bits = [f"reward {number(row.reward)}", f"advantage {number(row.advantage)}", plural(row.length, "token")]
    for name in ("repetition", "lag", "update", "revision"):
        if (value := getattr(row, name)) is not None:
            bits.append(f"{'bounds revision' if name == 'revision' else name} {number(float(value))}")
    return bits


def _texts(ctx: Context, run: RunRow, row: RolloutRow, tokens: RolloutTokens) -> None:
    with ctx.monitor.store.cursor() as con:
        buckets = query.buckets(con, run.run_key, steps=(row.step, row.step), per_update=True)
    view = token_view(row, tokens, rule=run.weight_rule, bounds=bounds_of(buckets, row.update))
    st.markdown("**Prompt**")
    st.code(tokens.prompt if tokens.prompt is not None else "not recorded", language=None, wrap_lines=True)
    st.markdown("**Response, token by token**")
    if view.texts is None and tokens.response is not None:
        st.code(
            tokens.response, language=None, wrap_lines=True, height=180 if len(tokens.response) > 600 else "content"
        )
        st.caption("The texts of the tokens were not recorded (Rollout.tokens): ids below.")
    if not view.count:
        st.text("An empty response.")
        return
    if not _has_arrays(view):
        st.text("No token array was recorded of it: Rollout(token_ids=, logp_old=, logp_new=, weight=, entropy=).")
        return
    st.caption(" ".join(notes(view)))
    name = f"{run.run_key}/{row.launch_no}/{row.step}/{row.rank}/{row.sample_id}"
    tok, color = parse_number(st.query_params.get("tok")), st.query_params.get("color")
    token_viewer(view, rev=name, place={"step": str(row.step), "id": kept_id(row)}, tok=tok, color=color)


def _has_arrays(view: TokenView) -> bool:
    return any(x is not None for x in (view.texts, view.token_ids, view.logp_old, view.weight, view.entropy))


def notes(view: TokenView) -> list[str]:
    """What is to be known before one reads the colours."""
    found = []
    if view.loop is not None:
        found.append(loop_text(view.loop))
    if view.clip is not None:
        high, low = view.clipped
        found.append(f"Clipped: {high:,} high, {low:,} low, of {plural(view.count, 'token')}.")
    elif view.logp_new is None:
        found.append("Not in an update of its step: no new log-probabilities, weights or buckets.")
    if view.matched:
        found.append("Texts of the tokens: one character of the response each.")
    return found


def _group(ctx: Context, run: RunRow, row: RolloutRow) -> None:
    """All that was kept of the prompt."""
    with ctx.monitor.store.cursor() as con:
        rows = query.rollout_group(con, run.run_key, row)
    if len(rows) < 2:
        st.caption("Nothing else was kept of its prompt.")
        return
    st.markdown(f"**{plural(len(rows), 'response')} kept of this prompt**, the best first")
    looks = first_looks(ctx, run, rows)
    for start in range(0, len(rows), SIDE_BY_SIDE):
        columns = st.columns(SIDE_BY_SIDE, gap="small")
        for column, other in zip(columns, rows[start : start + SIDE_BY_SIDE], strict=False):
            with column, st.container(border=True, gap="xsmall"):
                _member(other, looks[key_of(other)], opened=other == row)


def _member(row: RolloutRow, look: RolloutTokens | str, *, opened: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if opened:
            st.badge(f"no. {kept_id(row)}, open", icon=":material/visibility:", color="blue")
        else:
            page_link(
                "rollouts", f"No. {kept_id(row)}", step=row.step, id=kept_id(row), color=st.query_params.get("color")
            )
        badge(verdict_word(row), _TONES[verdict_word(row)])
    st.caption(line(row))
    text = look if isinstance(look, str) else excerpt(look.response, GROUP_EXCERPT)
    st.code(text, language=None, wrap_lines=True)
