"""Where the numbers of an imported run come from, as its index tells: `origin_of(con, run)`."""

from __future__ import annotations

from dataclasses import dataclass

from regimescope.monitor import query


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an import did."""

    format: str
    framework: str | None
    sources: list[query.MetricSource]
    "Which key fed which metric."
    unmapped: list[str]
    "Keys that were kept under their own name."
    notes: list[str]
    "What was left out, in words."


def origin_of(con: query.Connection, run: query.RunRow) -> Origin | None:
    """None for a run that was recorded."""
    if run.imported_from is None:
        return None
    told = query.events(con, run.run_key, ["metric_sources"])
    last = told[-1].data if told else {}
    return Origin(
        format=run.imported_from,
        framework=run.framework,
        sources=query.metric_sources(con, run.run_key),
        unmapped=_texts(last.get("unmapped")),
        notes=_texts(last.get("left_out")),
    )


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
