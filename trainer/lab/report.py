"""Tables and figures of a study: `outcomes.md`, `outcomes.json` and `figures.html`, written from the outcomes alone."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from regimescope.monitor.control import replace_file
from regimescope.monitor.wire import plain
from regimescope.trainer.lab.claims import verdicts
from regimescope.trainer.lab.figures import write_figures
from regimescope.trainer.lab.outcomes import Outcome
from regimescope.trainer.lab.plan import study
from regimescope.trainer.lab.runs import code_hash

TABLE = ("arm", "seed", "ending", "half at", "accuracy 0-4, best 5, last 10", "length", "rep-4", "entropy", "alerts")


def write_study(out: Path, grid: str, outcomes: Sequence[Outcome]) -> str:
    """Write all three; the page."""
    page = study_page(grid, outcomes)
    replace_file(out / "outcomes.md", (page + "\n").encode())
    replace_file(out / "outcomes.json", json.dumps([_plain(o) for o in outcomes], indent=1).encode())
    write_figures(out / "figures.html", outcomes)
    return page


def study_page(grid: str, outcomes: Sequence[Outcome]) -> str:
    """Markdown: claims first, then every run."""
    seeds = sorted({o.run.seed for o in outcomes})
    hours = sum(o.seconds for o in outcomes) / 3600
    head = (
        f"`regimescope lab --grid {grid}`, {len(outcomes)} runs, seeds {', '.join(map(str, seeds))}, trainer "
        f"{code_hash()}, {sum(len(o.rows) for o in outcomes):,} steps in {hours:.1f} hours of one core each "
        f"({os.cpu_count()} cores)."
    )
    return "\n\n".join([head, _claims(outcomes), _summary(outcomes), *_conditions(outcomes)])


def _claims(outcomes: Sequence[Outcome]) -> str:
    conditions = study()["condition"]
    rows = [
        (
            v.text + (f" ({v.own})" if v.own else ""), conditions[v.condition]["title"],
            f"**{v.word}**", f"{v.agree} for, {v.opposite} against, of {v.seeds}", v.detail,
        )
        for v in verdicts(outcomes)
    ]  # fmt: skip
    return markdown(("claim", "condition", "here", "seeds", "seed by seed: arm / the other"), rows)


def _summary(outcomes: Sequence[Outcome]) -> str:
    """Endings by arm and condition."""
    table = study()
    conditions = [name for name in table["condition"] if any(o.run.condition == name for o in outcomes)]
    rows = []
    for arm in table["arm"]:
        cells = [[o for o in outcomes if (o.run.arm, o.run.condition) == (arm, name)] for name in conditions]
        if any(cells):
            rows.append((table["arm"][arm]["title"], *(_endings(cell) for cell in cells)))
    return markdown(("ending, accuracy of the last 10", *(table["condition"][n]["title"] for n in conditions)), rows)


def _endings(cell: Sequence[Outcome]) -> str:
    if not cell:
        return ""
    counts = Counter(o.ending for o in cell)
    words = ", ".join(f"{count} {ending}" for ending, count in counts.most_common())
    return f"{words}; {fmean(o.measures['accuracy'] for o in cell):.2f}"


def _conditions(outcomes: Sequence[Outcome]) -> Iterable[str]:
    table = study()
    for name, condition in table["condition"].items():
        rows = [_row(o) for o in outcomes if o.run.condition == name]
        if rows:
            settings = ", ".join(f"{key} {value}" for key, value in condition["settings"].items())
            yield f"### {condition['title'].capitalize()}\n\n{settings}.\n\n" + markdown(TABLE, rows)


def _row(o: Outcome) -> tuple[str, ...]:
    measures = o.measures
    half = o.labels.halved
    alerts = [f"{a.signature} {a.driver or ''}@{a.step_detected}".replace(" @", "@") for a in o.alerts
              if not a.inhibited]  # fmt: skip
    return (
        study()["arm"][o.run.arm]["title"],
        str(o.run.seed),
        o.ending,
        "-" if half is None else str(half),
        f"{_edge(o, 'accuracy', 0):.2f}, {measures['peak']:.2f}, {measures['accuracy']:.2f}",
        _from_to(o, "response_length_mean", 0),
        _from_to(o, "rep4_mean", 2),
        _from_to(o, "entropy_mean", 2),
        ", ".join(alerts) or "-",
    )


def _from_to(o: Outcome, name: str, digits: int) -> str:
    return f"{_edge(o, name, 0):.{digits}f} to {_edge(o, name, -1):.{digits}f}"


def _edge(o: Outcome, name: str, end: int) -> float:
    """Mean over the first (0) or last (-1) five steps."""
    rows = o.rows[:5] if end == 0 else o.rows[-5:]
    values = [row[name] for row in rows if name in row]
    return fmean(values) if values else math.nan


def _plain(o: Outcome) -> object:
    labels = {name: getattr(o.labels, name) for name in ("length", "repetition", "decay", "gone", "halved")}
    return plain(
        {
            "name": o.run.name, "arm": o.run.arm, "condition": o.run.condition, "seed": o.run.seed,
            "options": list(o.run.options), "code": code_hash(), "seconds": round(o.seconds, 1),
            "ending": o.ending, "labels": labels, "measures": dict(o.measures),
            "alerts": [
                {"signature": a.signature, "severity": a.severity, "onset": a.step_onset, "detected": a.step_detected,
                 "driver": a.driver, "explained": a.inhibited} for a in o.alerts
            ],
            "rows": [dict(row) for row in o.rows],
        }
    )  # fmt: skip


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
