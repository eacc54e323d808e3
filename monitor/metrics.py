"""The canonical metrics: name, how ranks combine, unit, description.

The table is `metrics.csv`; docs/metrics.md shows it to people (`python -m regimescope.monitor.metrics` prints it). A
name that is not in the table keeps its own name and is averaged. `eval.NAME` combines as NAME does. Standard library.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

Agg = Literal["mean", "sum", "min", "max", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table."""

    name: str
    "As it is logged."
    agg: Agg
    "How ranks combine; a mean is weighted by the items behind it."
    unit: str
    "Empty = unknown; 1 = a plain number."
    description: str
    "One or two sentences."


def _load() -> dict[str, Metric]:
    with open(Path(__file__).with_name("metrics.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["agg"] not in get_args(Agg):
            raise ValueError(
                f"metrics.csv: {row['name']} has agg {row['agg']!r}, want one of {', '.join(get_args(Agg))}"
            )
    return {
        row["name"]: Metric(
            name=row["name"], agg=cast(Agg, row["agg"]), unit=row["unit"], description=row["description"]
        )
        for row in rows
    }


METRICS: dict[str, Metric] = _load()


def metric_info(name: str) -> Metric:
    """What is known about a metric; of an unknown one, that it is averaged.

    >>> metric_info("eval.response_length_max").agg
    'max'
    """
    if name in METRICS:
        return METRICS[name]
    base = METRICS.get(name.removeprefix("eval.")) if name.startswith("eval.") else None
    if base is None:
        return Metric(name=name, agg="mean", unit="", description="")
    return Metric(name=name, agg=base.agg, unit=base.unit, description=f"Held-out: {base.description}")


def table() -> str:
    """The metrics as a Markdown table."""
    rows = [f"| `{m.name}` | {m.unit} | {m.agg} | {m.description} |" for m in METRICS.values()]
    return "\n".join(["| name | unit | over ranks | what it is |", "| --- | --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(table())
