"""The charts of Forensics: what came out of the runs, then the four regimes, both runs in each chart."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from regimescope.monitor import query
from regimescope.monitor.compare import By
from regimescope.monitor.departures import CLIP_OF
from regimescope.monitor.query import Series
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import shown_checkpoints
from regimescope.monitor.ui.figures import CONFIG
from regimescope.monitor.ui.figures_compare import At, Cell, Line, Which, small_multiples
from regimescope.monitor.ui.session import theme
from regimescope.monitor.ui.two_runs import Side, axis, reseats

POINTS = 600
"Points of a curve at most; the minimum and the maximum of each stretch stay."
OUTCOMES = (
    ("accuracy", "Accuracy", True), ("entropy_mean", "Entropy, nat", False),
    ("response_length_mean", "Length, tokens", False), ("rep4_mean", "Rep-4", True),
    ("truncated_frac", "Truncated", True), ("grad_norm", "Gradient norm", False),
    ("kl_step", "KL of a step, nat", False), ("lag_mean", "Lag, versions", False),
)  # fmt: skip
REGIMES = (
    *((f"{regime}.{side}", f"{regime} clipped", True) for regime, side in CLIP_OF.items()),
    *((f"{regime}.grad_mass", f"{regime} gradient mass", True) for regime in CLIP_OF),
)


def curves(ctx: Context, a: Side, b: Side | None, by: By, onsets: tuple[int, int], x_title: str) -> None:
    """Draw both groups."""
    sides: list[tuple[Which, Side, int]] = [("A", a, onsets[0])]
    if b is not None:
        sides.append(("B", b, onsets[1]))
    marks = [mark for which, side, onset in sides for mark in _marks(which, side, by, onset)]
    for title, group in (("What came out", OUTCOMES), ("The four regimes", REGIMES)):
        st.subheader(title)
        read = _read(ctx, sides, [name for name, _, _ in group])
        cells = [
            Cell(title=label, share=share, curves=drawn)
            for name, label, share in group
            if (drawn := _lines(read, name, sides, by))
        ]
        if cells:
            figure = small_multiples(cells, marks, theme=theme(), x_title=x_title)
            names = ", ".join(cell.title for cell in cells)
            st.plotly_chart(figure, theme=None, config=dict(CONFIG), key=f"curves-{title}", alt=f"{title}: {names}")
        for sentence in sentences(read, group, [which for which, _, _ in sides]):
            st.caption(sentence)
    st.caption("Solid: A, dotted: B. Line: onset; dashed: bounds changed; ▴ checkpoint; x not finite.")


def _read(ctx: Context, sides: Sequence[tuple[Which, Side, int]], names: Sequence[str]) -> dict[str, dict[str, Series]]:
    with ctx.monitor.store.cursor() as con:
        return {
            which: query.envelopes(con, s.run.run_key, 0, [n for n in names if n in s.names], None, None, POINTS)
            for which, s, _ in sides
        }


def _lines(
    read: dict[str, dict[str, Series]], name: str, sides: Sequence[tuple[Which, Side, int]], by: By
) -> tuple[Line, ...]:
    found = []
    for which, side, onset in sides:
        series = read[which].get(name)
        if series is not None and (series.steps or series.nonfinite):
            found.append(
                Line(
                    which=which,
                    x=axis(side, series.steps, by, onset).tolist(),
                    y=series.values,
                    bad=axis(side, series.nonfinite, by, onset).tolist(),
                )
            )
    return tuple(found)


def _marks(which: Which, side: Side, by: By, onset: int) -> list[At]:
    steps = {
        "onset": [] if side.onset is None else [side.onset],
        "bounds": reseats(side.facts),
        "checkpoint": shown_checkpoints(side.facts.checkpoints, side.facts.open_alerts),
    }
    return [
        At(which=which, kind=kind, x=float(x))  # type: ignore[arg-type]
        for kind, some in steps.items()
        for x in axis(side, some, by, onset)
    ]


def sentences(
    read: dict[str, dict[str, Series]], group: Sequence[tuple[str, str, bool]], letters: Sequence[str]
) -> list[str]:
    """What is missing, thinned or not finite in a group of charts."""
    said = []
    for letter in letters:
        labels = [
            label for name, label, _ in group if not (s := read[letter].get(name)) or not (s.steps or s.nonfinite)
        ]
        if labels:
            said.append(f"Not logged by {letter}: {', '.join(labels)}.")
        bad = [
            f"{label} {s.nonfinite_count:,}" for name, label, _ in group
            if (s := read[letter].get(name)) is not None and s.nonfinite_count
        ]  # fmt: skip
        if bad:
            said.append(f"Not finite in {letter}, at the crosses: {', '.join(bad)}.")
    if any(s.thinned for some in read.values() for s in some.values()):
        said.append("Long curves are thinned to the minimum and maximum of each stretch: spikes stay.")
    return said
