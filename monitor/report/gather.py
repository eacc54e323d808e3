"""What a report tells, from a run that was read: `gather(view, log)`. Numbers and texts, no form."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from regimescope import __version__
from regimescope.monitor import query
from regimescope.monitor.check import Report, make_report
from regimescope.monitor.departures import Departure, watched_metrics
from regimescope.monitor.errors import RolloutError
from regimescope.monitor.imports.origin import Origin, origin_of
from regimescope.monitor.imports.write import Imported
from regimescope.monitor.private import RunView
from regimescope.monitor.report.charts import Chart, Line, Mark
from regimescope.monitor.rescue import hours_since
from regimescope.monitor.rollout_picks import rollouts_of_alert
from regimescope.monitor.rollout_reader import rollout_tokens
from regimescope.monitor.ui.facts import RunFacts, facts_of
from regimescope.monitor.ui.rollout_texts import line
from regimescope.monitor.ui.texts import span
from regimescope.monitor.ui.two_runs import Side, read_side

POINTS = 500
"Of a curve at most: every spike is kept."
MOST_TEXT = 1500
"Characters of a response."
_ROLLOUTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRollout:
    """A response that shows what happened."""

    step: int
    why: str
    "What it was picked for."
    line: str
    "Its numbers in words."
    prompt: str
    response: str
    "Cut at MOST_TEXT."


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that a report tells."""

    made_by: str
    name: str
    "Of the log, or path of the run."
    report: Report
    verdict: str
    "One sentence."
    moved: list[tuple[str, Departure]]
    "What left its reference, by step, with its label."
    charts: list[Chart]
    hours: float | None
    "Since the onset of the worst alert that counts; None = no alert, or no times in the log."
    attribution: str
    rollouts: list[ShownRollout]
    origin: Origin | None
    "Of a foreign log; None = recorded."
    settings: dict[str, object]
    bounds: dict[str, float]


def gather(view: RunView, log: Imported | None, name: str) -> Findings:
    """Everything of one run. Raises RunError."""
    report = make_report(view, log)
    facts = facts_of(view.monitor, view.run.path)
    assert facts is not None  # the view has just read it
    rules = view.monitor.rules
    with view.monitor.store.cursor() as con:
        side = read_side(con, facts, rules)
        charts = run_charts(con, facts, report)
        hours = hours_since(con, view.run.run_key, worst_onset(report), report.last_step)
        shown = _rollouts(con, view, facts)
        origin = origin_of(con, view.run)
    labels = {w.name: w.label for w in watched_metrics(rules)}
    return Findings(
        made_by=f"regimescope {__version__}",
        name=name,
        report=report,
        verdict=verdict_sentence(report, hours),
        moved=[(f"{labels[d.name]} {'up' if d.rises else 'down'}", d) for d in side.departures],
        charts=charts,
        hours=hours,
        attribution=attribution(report, side),
        rollouts=shown,
        origin=origin,
        settings=dict(view.run.config),
        bounds=query.named_bounds(facts.bounds.bounds) if facts.bounds is not None else {},
    )


def counting(report: Report) -> list[dict[str, object]]:
    """The alerts that count, the worst first."""
    return [alert for alert in report.alerts if alert["counts"]]


def worst_onset(report: Report) -> int | None:
    """Onset of the worst alert that counts."""
    found = counting(report)
    return int(str(found[0]["step_onset"])) if found else None


def verdict_sentence(report: Report, hours: float | None) -> str:
    """ "Critical: length collapse since step 12 (detected 15), driven by R4; it was trained for 3 h after that." """
    found = counting(report)
    if not found:
        return f"Nothing that counts was found in {report.steps:,} steps."
    worst = found[0]
    driver = f", driven by {worst['driver']}" if worst["driver"] else ""
    late = "" if hours is None else f"; it was trained for {span(3600 * hours)} after that"
    more = f". {len(found) - 1} more alert{'s' * (len(found) > 2)} below" if len(found) > 1 else ""
    title = str(worst["title"])
    return (
        f"{str(worst['severity']).capitalize()}: {title[:1].lower()}{title[1:]} since step {worst['step_onset']} "
        f"(detected at step {worst['step_detected']}){driver}{late}{more}."
    )


def attribution(report: Report, side: Side) -> str:
    """Which regime drives it, or why that cannot be said."""
    found = [alert for alert in counting(report) if alert.get("cause")]
    if found:
        return str(found[0]["cause"])
    if not any(name.startswith(("R1.", "R2.", "R3.", "R4.")) for name in side.names):
        return (
            "No regime can be named from this log: it has no counts per regime (sign of the advantage and side of 1 on "
            "which the ratio falls). Log them with Recorder.buckets in the policy loss (docs/embedding.md)."
        )
    return "No alert that counts, so no driver."


def run_charts(con: query.Connection, facts: RunFacts, report: Report) -> list[Chart]:
    """The panels that have values, with onsets, detections and applied bounds."""
    names = set(query.metric_names(con, facts.run.run_key))
    marks = [*alert_marks(report), *_bound_marks(facts)]
    charts = []
    for panel in panels():
        wanted = [row for row in panel["lines"] if row[0] in names]
        found = query.envelopes(con, facts.run.run_key, 0, [row[0] for row in wanted], None, None, POINTS)
        lines = [
            Line(label=label, color=color, x=found[name].steps, y=[_float(v) for v in found[name].values])
            for name, label, color in wanted
            if found[name].steps
        ]
        if lines:
            charts.append(Chart(title=panel["title"], lines=lines, marks=marks))
    return charts


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


@cache
def panels() -> Sequence[dict[str, Any]]:
    """The charts of a report, in order: `title` and `lines`, each a metric, a label and a colour."""
    with open(Path(__file__).with_name("panels.toml"), "rb") as file:
        return list(tomllib.load(file)["panel"])


def alert_marks(report: Report) -> list[Mark]:
    """Onset and detection of the alerts that count and are more than a note."""
    marks = []
    for alert in counting(report):
        if alert["severity"] != "info":
            onset, seen = int(str(alert["step_onset"])), int(str(alert["step_detected"]))
            marks.append(Mark(x=onset, kind="onset", label=f"onset of {alert['signature']}, step {onset}"))
            marks.append(Mark(x=seen, kind="detected", label=f"{alert['signature']} detected, step {seen}"))
    return marks


def _bound_marks(facts: RunFacts) -> list[Mark]:
    return [
        Mark(x=c.applied_step, kind="bounds", label=f"bounds changed, step {c.applied_step}")
        for c in facts.commands
        if c.kind == "set_bounds" and c.status == "applied" and c.applied_step is not None
    ]


def _rollouts(con: query.Connection, view: RunView, facts: RunFacts) -> list[ShownRollout]:
    alert = next((a for a in facts.alerts if a.severity != "info" and not a.superseded and not a.inhibited_by), None)
    found = None if alert is None else rollouts_of_alert(con, facts.run.run_key, alert)
    if found is None:
        return []
    picked = [(f"worst: {found.word}", row) for row in found.worst[:_ROLLOUTS]]
    picked += [("best: highest reward", row) for row in found.best[:_ROLLOUTS]]
    shown = []
    for why, row in picked:
        try:
            texts = rollout_tokens(view.folder, row)
        except RolloutError:
            continue  # the file is gone: the report has one rollout less
        prompt, response = _cut(texts.prompt), _cut(texts.response)
        shown.append(ShownRollout(step=row.step, why=why, line=line(row), prompt=prompt, response=response))
    return shown


def _cut(text: str | None) -> str:
    text = text or ""
    more = f" ... ({len(text) - MOST_TEXT:,} more characters)" if len(text) > MOST_TEXT else ""
    return text[:MOST_TEXT] + more
