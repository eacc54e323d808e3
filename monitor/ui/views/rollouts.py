"""Rollouts: filters, the list of what was kept, and one response token by token with the group of its prompt.

`?step=&id=` names the open one (`rollout_texts.kept_id`), `tok=` a token of it, `color=` what tokens are coloured by;
the filters stand in the address too. Ids are looked up among the known rows, never taken for a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.query import RolloutFilter, RolloutRow, RunRow
from regimescope.monitor.rollout_search import MOST_ROWS, Searched, search
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.rollout_asked import Asked, parse_number
from regimescope.monitor.ui.rollout_texts import ENDED, kept_id, line, parse_id, verdict_word
from regimescope.monitor.ui.session import chosen_run, plain_errors
from regimescope.monitor.ui.texts import number, plural
from regimescope.monitor.ui.views.rollout_detail import detail
from regimescope.monitor.ui.views.rollout_filters import filters
from regimescope.monitor.ui.views.worst_rollouts import first_looks, rollout_list

LISTED = 200
"Rows of the table at most."
EXTREMES = 5
_PICKER = "rollout_picker"
SNIPPET = """\
recorder = Recorder(folder, rollouts=RolloutOptions(every=10))
if recorder.wants_rollouts(step):
    recorder.rollouts(step, [Rollout(sample_id=0, length=3, reward=1.0, response="4 #", token_ids=[5, 6, 1])])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What the filters leave."""

    rows: Sequence[RolloutRow]
    "In the order asked for, at most LISTED."
    worst: Sequence[RolloutRow]
    best: Sequence[RolloutRow]
    text: str
    "How many, and how far was looked."


def render() -> None:
    """Draw the page of the chosen run."""
    ctx, run = current(), chosen_run()
    with plain_errors("The rollouts"):
        with ctx.monitor.store.cursor() as con:
            facets = query.rollout_facets(con, run.run_key)
        if not facets.count:
            _nothing(ctx, run)
            return
        wanted = filters(facets)
        listed = _list(ctx, run, wanted)
        left, right = st.columns([2, 3], gap="large")
        opened = _opened(ctx, run, listed)
        with left:
            _extremes(ctx, run, listed)
            _table(listed, opened)
        with right:
            if opened is None:
                st.text("No rollout fulfils the filters. Clear them, or widen the steps.")
            else:
                detail(ctx, run, opened)


def _nothing(ctx: Context, run: RunRow) -> None:
    st.subheader("No rollout so far")
    with ctx.monitor.store.cursor() as con:
        unreadable = query.events(con, run.run_key, ["rollouts_unreadable"])
    if unreadable:
        st.text(f"{plural(len(unreadable), 'file')} of rollouts cannot be read, the first of them:")
        st.code(f"{unreadable[0].data.get('file')}: {unreadable[0].data.get('reason')}", language=None)
    elif "rollouts" in run.capabilities:
        st.text("This run keeps responses; those of its first sampled step appear here.")
    else:
        st.text("This run keeps no responses. Three lines in the training loop keep some of every tenth step:")
        st.code(SNIPPET, language=None)
        st.caption("pip install 'regimescope[rollouts]'; docs/embedding.md says what else a row can hold.")


def _list(ctx: Context, run: RunRow, wanted: Asked) -> Listed:
    """Rows of the filters, those that have to be looked for in the files too."""
    with ctx.monitor.store.cursor() as con:
        total = query.rollout_count(con, run.run_key, wanted.filter)

        def rows(sort: query.RolloutSort, limit: int) -> list[RolloutRow]:
            return query.rollouts_where(con, run.run_key, wanted.filter, sort=sort, limit=limit)

        if not wanted.looks_into_files:
            shown = rows(wanted.order, LISTED)
            worst, best = rows("reward", EXTREMES), rows("-reward", EXTREMES)
            return Listed(rows=shown, worst=worst, best=_others(best, worst), text=_count_text(len(shown), total))
        candidates = rows(wanted.order, MOST_ROWS + 1)
    found = search(
        ctx.monitor.root / run.path, candidates, text=wanted.text, clipped=wanted.clipped, rule=run.weight_rule
    )
    judged = sorted((row for row in found.rows if row.reward is not None), key=lambda row: row.reward or 0.0)
    worst = judged[:EXTREMES]
    best = _others(judged[::-1][:EXTREMES], worst)
    return Listed(rows=found.rows[:LISTED], worst=worst, best=best, text=_search_text(found, total))


def _others(rows: Sequence[RolloutRow], known: Sequence[RolloutRow]) -> list[RolloutRow]:
    return [row for row in rows if row not in known]


def _count_text(shown: int, total: int) -> str:
    return f"{plural(total, 'rollout')}" + (f", the first {shown} are listed" if shown < total else "")


def _search_text(found: Searched, total: int) -> str:
    text = f"{len(found.rows):,} found; looked into {found.looked:,} of {plural(total, 'rollout')}"
    if found.stopped:
        text += ": narrow the steps to look into the others"
    return text + (f"; {plural(found.unreadable, 'file row')} unreadable" if found.unreadable else "")


def _opened(ctx: Context, run: RunRow, listed: Listed) -> RolloutRow | None:
    """The rollout of the address; without one, the worst of the list."""
    step, text = parse_number(st.query_params.get("step")), st.query_params.get("id")
    if text is None:
        return next(iter((*listed.worst, *listed.rows)), None)
    place = parse_id(text)
    if step is not None and place is not None:
        wanted = RolloutFilter(steps=(step, step), rank=place[0], sample_id=place[1])
        with ctx.monitor.store.cursor() as con:
            rows = query.rollouts_where(con, run.run_key, wanted, limit=1)
        if rows:
            return rows[0]
    st.warning(
        "The rollout of this address is not among those that are kept: pruned, repeated by a later launch, or never "
        "there. Another one is shown.",
        icon=":material/link_off:",
    )
    return next(iter((*listed.worst, *listed.rows)), None)


def _extremes(ctx: Context, run: RunRow, listed: Listed) -> None:
    """Five worst and five best."""
    looks = first_looks(ctx, run, [*listed.worst, *listed.best])
    rollout_list("Five worst, by reward", listed.worst, looks, key="worst", where=_kept_parameters())
    rollout_list(
        "Five best: the suspects where reward is hacked", listed.best, looks, key="best", where=_kept_parameters()
    )


def _kept_parameters() -> dict[str, str]:
    """Filters and colour, so that a link keeps them."""
    return {k: v for k, v in st.query_params.to_dict().items() if k not in ("run", "step", "id", "tok")}


def _table(listed: Listed, opened: RolloutRow | None) -> None:
    st.markdown("**All**")
    st.caption(listed.text)
    if not listed.rows:
        return
    _picker(listed.rows, opened)
    st.dataframe(
        [_cells(row, opened) for row in listed.rows],
        hide_index=True,
        height=420,
        key="rollout-table",
        on_select=_selected,
        selection_mode="single-row",
        alt="Rollouts that were kept",
        column_config={"": st.column_config.TextColumn(width=24), "step": st.column_config.NumberColumn(format="%d")},
    )
    st.session_state["rollout_rows"] = [(row.step, kept_id(row)) for row in listed.rows]


def _cells(row: RolloutRow, opened: RolloutRow | None) -> dict[str, object]:
    return {
        "": "▸" if row == opened else "",
        "step": row.step,
        "no.": kept_id(row),
        "verdict": verdict_word(row),
        "reward": row.reward,
        "A": None if row.advantage is None else number(row.advantage),
        "tokens": row.length,
        "repetition": None if row.repetition is None else round(row.repetition, 3),
        "end": ENDED.get(row.finish_reason or "", row.finish_reason),
        "env": row.env,
        "kept as": row.pick,
        "lag": row.lag,
        "prompt no.": row.group_id,
    }


def _picker(rows: Sequence[RolloutRow], opened: RolloutRow | None) -> None:
    """The same list for the keyboard."""
    names = {(row.step, kept_id(row)): f"step {row.step}, no. {kept_id(row)} · {line(row)}" for row in rows}
    chosen = None if opened is None else (opened.step, kept_id(opened))
    if opened is not None and chosen not in names:
        names = {(opened.step, kept_id(opened)): f"step {opened.step}, no. {kept_id(opened)} · {line(opened)}", **names}
    if st.session_state.get(_PICKER) != chosen:
        st.session_state[_PICKER] = chosen
    st.selectbox("Open", list(names), key=_PICKER, format_func=lambda place: names.get(place, ""), on_change=_picked)


def _picked() -> None:
    if (place := st.session_state[_PICKER]) is not None:
        _open(*place)


def _selected() -> None:
    """A row of the table was clicked."""
    rows = st.session_state["rollout-table"].selection.rows
    known = st.session_state.get("rollout_rows", [])
    if rows and rows[0] < len(known):
        _open(*known[rows[0]])


def _open(step: int, name: str) -> None:
    st.query_params.update({"step": str(step), "id": name})
    st.query_params.pop("tok", None)
