"""The figures of a study: one page, opened from disk, that shows each arm beside DISPO of the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from regimescope.monitor.control import replace_file
from regimescope.trainer.lab.outcomes import Outcome
from regimescope.trainer.lab.plan import DISPO, study

SHOWN = {
    "accuracy": "accuracy", "response_length_mean": "response length", "rep4_mean": "rep-4", "entropy_mean": "entropy"
}  # fmt: skip
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
"Of the seeds; of Okabe and Ito's palette, which readers with any colour vision can tell apart."
BESIDE = "#9AA0A6"
ROW = 150
"Height of an arm, pixels."


def write_figures(path: Path, outcomes: Sequence[Outcome]) -> None:
    """A section per condition, a row per arm, a column per metric."""
    conditions = study()["condition"]
    parts = [
        figure(conditions[name]["title"], cell).to_html(full_html=False, include_plotlyjs=first)
        for first, (name, cell) in _flagged(outcomes)
    ]
    page = "<!doctype html><meta charset='utf-8'><title>regimescope lab</title><body>" + "\n".join(parts)
    replace_file(path, page.encode())


def _flagged(outcomes: Sequence[Outcome]) -> list[tuple[bool, tuple[str, list[Outcome]]]]:
    """(whether it is the first, (condition, its outcomes)): plotly's code goes into the page once."""
    found = [(name, [o for o in outcomes if o.run.condition == name]) for name in study()["condition"]]
    return [(i == 0, cell) for i, cell in enumerate(cell for cell in found if cell[1])]


def figure(title: str, outcomes: Sequence[Outcome]) -> go.Figure:
    """The arms of one condition; DISPO of the same seed behind each, dotted."""
    table = study()["arm"]
    arms = [arm for arm in table if any(o.run.arm == arm for o in outcomes)]
    drawn = make_subplots(
        rows=len(arms), cols=len(SHOWN), shared_xaxes=True, horizontal_spacing=0.04,
        vertical_spacing=min(0.03, 0.3 / len(arms)), column_titles=list(SHOWN.values()),
        row_titles=[table[arm]["title"] for arm in arms],
    )  # fmt: skip
    seeds = sorted({o.run.seed for o in outcomes})
    for row, arm in enumerate(arms, 1):
        for o in outcomes:
            if o.run.arm not in (arm, DISPO):
                continue
            behind = o.run.arm != arm
            for column, name in enumerate(SHOWN, 1):
                points = [(r["step"], r[name]) for r in o.rows if name in r]
                drawn.add_scatter(
                    x=[step for step, _ in points], y=[value for _, value in points], row=row, col=column,
                    mode="lines", name=f"seed {o.run.seed}" + (", DISPO" if behind else ""),
                    line={
                        "width": 1 if behind else 1.6, "dash": "dot" if behind else "solid",
                        "color": BESIDE if behind else COLOURS[seeds.index(o.run.seed) % len(COLOURS)],
                    },
                    showlegend=False, hovertemplate="%{y:.3g} at step %{x}",
                )  # fmt: skip
    drawn.update_layout(
        title=f"{title.capitalize()}: each colour a seed, dotted DISPO of the same seeds", template="plotly_white",
        height=ROW * len(arms) + 120, margin={"l": 40, "r": 90, "t": 90, "b": 40}, font={"size": 12},
    )  # fmt: skip
    return drawn
