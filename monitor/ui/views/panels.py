"""What the Overview shows: the panels of the live grid and the tiles, as data, and which of them a run can fill."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from regimescope.monitor.token_stats import BUCKETS
from regimescope.monitor.ui.grid import Dash, Line, Panel
from regimescope.monitor.ui.palette import palette
from regimescope.monitor.ui.texts import number, percent

_CLIP_SIDE = {"R1": "clip_high_frac", "R2": "clip_low_frac", "R3": "clip_high_frac", "R4": "clip_low_frac"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number with its change."""

    name: str
    "Metric."
    label: str
    form: Literal["number", "percent"] = "number"
    better: Literal["normal", "inverse", "off"] = "off"
    "Colour of the change: normal = more is better."

    def show(self, value: float) -> str:
        """The value as text."""
        return percent(value) if self.form == "percent" else number(value)

    def change(self, value: float, before: float) -> str | None:
        """The change as text: points for shares, else the metric's own unit; None = none."""
        delta = value - before
        points = round(100 * abs(delta), 1)
        if delta == 0 or (self.form == "percent" and points == 0):
            return None
        sign = "+" if delta >= 0 else "-"
        return f"{sign}{points:g} pt" if self.form == "percent" else f"{sign}{number(abs(delta))}"


TILES = (
    Tile(name="step_seconds", label="Step time, s"),
    Tile(name="reward_mean", label="Reward", better="normal"),
    Tile(name="accuracy", label="Accuracy", form="percent", better="normal"),
    Tile(name="truncated_frac", label="Truncated", form="percent", better="inverse"),
    Tile(name="entropy_mean", label="Entropy, nat"),
    Tile(name="response_length_mean", label="Length, tokens"),
    Tile(name="rep4_mean", label="Rep-4", form="percent", better="inverse"),
    Tile(name="grad_norm", label="Grad norm"),
)


def _regime(regime: str, column: str, label: str) -> Line:
    dash: Dash = "dash" if palette()["dash"][regime] == "dash" else "solid"
    return Line(f"{regime}.{column}", label, regime, dash)


PANELS = (
    Panel(
        title="Accuracy and reward",
        metrics=(
            Line("accuracy", "accuracy", "info"),
            Line("eval.accuracy", "held out", "ok", "dot"),
            Line("reward_mean", "reward", "stale"),
        ),
    ),
    Panel(
        title="Truncated and failed rollouts",
        unit="%",
        metrics=(
            Line("truncated_frac", "truncated", "info"),
            Line("infra_failed_frac", "failed", "watch", "dash"),
        ),
    ),
    Panel(
        title="Lag",
        unit="versions",
        metrics=(
            Line("lag_mean", "mean", "info"),
            Line("lag_p95", "p95", "stale", "dash"),
            Line("lag_max", "max", "stale", "dot"),
        ),
    ),
    Panel(title="Entropy", metrics=(Line("entropy_mean", "entropy", "info"),), unit="nat"),
    Panel(
        title="Response length: median, p10 to p90",
        kind="band",
        unit="tokens",
        metrics=(
            Line("response_length_p10", "p10", "stale"),
            Line("response_length_p90", "p90", "stale"),
            Line("response_length_p50", "median", "info"),
        ),
    ),
    Panel(
        title="Repetition",
        unit="%",
        metrics=(
            Line("rep4_mean", "rep-4", "info"),
            Line("repetition_frac", "looping responses", "watch", "dash"),
        ),
    ),
    Panel(
        title="Tokens by bucket",
        kind="stack",
        unit="%",
        y_range=(0.0, 1.0),
        metrics=tuple(Line(f"{bucket}.token_frac", bucket, bucket) for bucket in BUCKETS),
    ),
    Panel(
        title="Clipped share of each regime",
        unit="%",
        metrics=tuple(_regime(regime, column, regime) for regime, column in _CLIP_SIDE.items()),
    ),
    Panel(
        title="Gradient mass by regime",
        unit="%",
        metrics=tuple(_regime(regime, "grad_mass", regime) for regime in _CLIP_SIDE),
    ),
    Panel(title="KL of a step", metrics=(Line("kl_step", "KL", "info"),), unit="nat"),
    Panel(title="Gradient norm", metrics=(Line("grad_norm", "grad norm", "info"),)),
)


def available(names: Collection[str]) -> list[Panel]:
    """The panels that a run with these metrics can fill, without the curves it lacks; a band needs all of its own."""
    found = []
    for panel in PANELS:
        lines = tuple(line for line in panel.metrics if line.name in names)
        if lines and (panel.kind != "band" or len(lines) == len(panel.metrics)):
            found.append(replace(panel, metrics=lines))
    return found


def missing(names: Collection[str]) -> list[tuple[str, list[str]]]:
    """Titles of the panels that are off, each with the fields to log."""
    drawn = {panel.title for panel in available(names)}
    return [(panel.title, _fields(panel, names)) for panel in PANELS if panel.title not in drawn]


def _fields(panel: Panel, names: Collection[str]) -> list[str]:
    if all("." in line.name and line.name.partition(".")[0] in BUCKETS for line in panel.metrics):
        return ["buckets"]
    return [line.name for line in panel.metrics if line.name not in names][:3]
