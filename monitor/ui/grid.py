"""The live charts: one components.v2 component that polls /api/series and appends new rows to Plotly charts it owns.

Streamlit is not involved in an update, so zoom, hover and the chart's nodes survive it. The script is grid.js; colours
are keys of the palette.

    accuracy = Panel(title="Accuracy", metrics=(Line("accuracy", "accuracy", "R1"),), unit="%")
    live_grid(run=run, slice_id=0, panels=[accuracy], key="overview")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import plotly.offline
import streamlit as st

from regimescope.monitor.query import RunRow
from regimescope.monitor.ui.context import current
from regimescope.monitor.ui.palette import colors

Dash = Literal["solid", "dash", "dot", "dashdot"]


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of a panel."""

    name: str
    'Metric as rows_after takes it: "accuracy", "R4.clip_low_frac", "pos.w_max".'
    label: str
    "In the legend and the hover text."
    color: str
    "Key of the palette (R1, pos_eq1, ok, ...), resolved for light and dark."
    dash: Dash = "solid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart of the grid."""

    title: str
    metrics: tuple[Line, ...]
    """The curves, drawn in this order. kind="band": low edge, high edge, then further curves; the space between the
    first two is filled. kind="stack": areas on top of each other."""
    kind: Literal["line", "band", "stack"] = "line"
    unit: str = ""
    'Behind the numbers of the axis, such as "tokens"; "%" shows fractions as percentages.'
    y_range: tuple[float, float] | None = None
    "Fixed y axis in the metric's unit; None = fitted to what is shown."
    reference: float | None = None
    "A dotted horizontal line at this value, such as 0 or 1; None = none."


def live_grid(*, run: RunRow, slice_id: int, panels: Sequence[Panel], key: str, height: int = 220) -> None:
    """Mount the grid of one run and slice; it keeps itself up to date until the page is left.

    height is that of one chart in pixels. The key must differ between grids of a page; another run or slice is another
    mount.
    """
    _GRID(
        key=f"grid-{key}-{run.run_key}-{slice_id}",
        data={
            "run": run.path,
            "slice": slice_id,
            "panels": [_wire_panel(panel) for panel in panels],
            "height": height,
            "token": current().read_token,
            "version": plotly.offline.get_plotlyjs_version(),
            "palette": {"light": dict(colors("light")), "dark": dict(colors("dark"))},
        },
    )


def _wire_panel(panel: Panel) -> dict[str, object]:
    return {
        "title": panel.title,
        "lines": [asdict(line) for line in panel.metrics],
        "kind": panel.kind,
        "unit": panel.unit,
        "y_range": panel.y_range,
        "reference": panel.reference,
    }


def script() -> str:
    """grid.js without indentation and comment lines: it travels with every message of a page."""
    lines = (line.strip() for line in _part("js").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//")) + "\n"


def _part(suffix: str) -> str:
    return (Path(__file__).parent / f"grid.{suffix}").read_text("utf-8")


_GRID = st.components.v2.component(
    "regimescope_grid", html=_part("html"), css=_part("css"), js=script(), isolate_styles=False
)
