"""The filters above the list of rollouts. The address is the truth: widgets show it, and a change writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from regimescope.monitor.query import RolloutFacets
from regimescope.monitor.ui.rollout_asked import (
    LONGEST_TEXT,
    NAMES,
    PICKS,
    SIGN_WORDS,
    SORTS,
    VERDICTS,
    Asked,
    asked,
)
from regimescope.monitor.ui.rollout_texts import ENDED

_KEY = "rollouts-{}"
ANY = "any"


def filters(facets: RolloutFacets) -> Asked:
    """Draw them and return what they ask for."""
    wanted = asked(st.query_params.to_dict(), facets)
    with st.container(key="rollout-filters", gap="xsmall"):
        _numbers_and_text(facets, wanted)
        _choices(facets, wanted)
    return wanted


def _numbers_and_text(facets: RolloutFacets, wanted: Asked) -> None:
    steps, lengths, repetition, text, sort = st.columns([3, 3, 2, 3, 2], gap="medium")
    with steps:
        if len(facets.steps) > 1:
            low, high = facets.steps[0], facets.steps[-1]
            key = _show("steps", wanted.steps)
            st.slider("Steps", low, high, key=key, on_change=_changed, args=("steps", _range, (low, high)))
        else:
            st.caption("Steps")
            st.text(f"only step {facets.steps[0]}")
    with lengths:
        high = max(1, facets.longest)
        key = _show("len", wanted.lengths if facets.longest else (0, high))
        st.slider("Tokens", 0, high, key=key, on_change=_changed, args=("len", _range, (0, high)))
    with repetition:
        st.slider(
            "Repetition at least", 0.0, 1.0, step=0.05, key=_show("rep", wanted.repetition), on_change=_changed,
            args=("rep", lambda value: f"{value:g}", 0.0), help="Share of 4-grams that came before in the response.",
        )  # fmt: skip
    with text:
        st.text_input(
            "Text contains", key=_show("text", wanted.text), max_chars=LONGEST_TEXT, on_change=_changed,
            args=("text", str, ""), placeholder="in prompt or response",
        )  # fmt: skip
    with sort:
        _select("Order", "sort", {name: word for name, (_, word) in SORTS.items()}, wanted.sort, default="new")


def _choices(facets: RolloutFacets, wanted: Asked) -> None:
    ends = {reason: ENDED.get(reason, reason) for reason in facets.finish_reasons}
    columns = st.columns([2, 2, 2, 2, 2, 1.6, 1.4], gap="medium", vertical_alignment="bottom")
    boxes: Sequence[tuple[str, str, Mapping[str, str], str | None]] = (
        ("Environment", "env", {env: env for env in facets.envs}, wanted.env),
        ("Verdict", "verdict", VERDICTS, wanted.verdict),
        ("Advantage", "sign", SIGN_WORDS, wanted.sign),
        ("End", "end", ends, wanted.end),
        ("Kept as", "pick", {pick: pick for pick in PICKS}, wanted.pick),
    )
    for column, (label, name, words, value) in zip(columns, boxes, strict=False):
        with column:
            _select(label, name, {"": ANY, **words}, value or "", default="")
    with columns[5]:
        st.checkbox(
            "Clipped", key=_show("clipped", wanted.clipped), on_change=_changed,
            args=("clipped", lambda value: "1", False),
        )  # fmt: skip
    with columns[6]:
        st.button("Clear", on_click=_clear, help="No filter at all.")


def _select(label: str, name: str, words: Mapping[str, str], value: str, *, default: str) -> None:
    st.selectbox(
        label, list(words), key=_show(name, value), format_func=lambda option: words.get(option, option),
        on_change=_changed, args=(name, str, default),
    )  # fmt: skip


def _show(name: str, value: object) -> str:
    """The widget's key, its value being that of the address."""
    key = _KEY.format(name)
    if key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value
    return key


def _changed(name: str, text: Callable[[object], str], default: object) -> None:
    value = st.session_state[_KEY.format(name)]
    if value == default:
        st.query_params.pop(name, None)
    else:
        st.query_params[name] = text(value)
    if name == "steps" and "id" not in st.query_params:
        st.query_params.pop("step", None)


def _range(value: object) -> str:
    low, high = value if isinstance(value, tuple) else (0, 0)
    return f"{low}-{high}"


def _clear() -> None:
    for name in NAMES:
        st.query_params.pop(name, None)
    if "id" not in st.query_params:
        st.query_params.pop("step", None)
