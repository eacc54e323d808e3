"""What Forensics knows about one run and about two: what changed and in which order, where two runs go apart, which
settings differ. `side_of` asks the index; the rest is pure and gives rows of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regimescope.detectors import Rules
from regimescope.monitor import query
from regimescope.monitor.compare import By, Curve, Divergence, differing, diverged, flat, place
from regimescope.monitor.departures import MAX_POINTS, Departure, Watched, departure, watched_metrics
from regimescope.monitor.memo import Memo
from regimescope.monitor.query import AlertRow, RunRow
from regimescope.monitor.service import Monitor
from regimescope.monitor.timeline import read_launches
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.texts import bound_label, number, signature_text, weight
from regimescope.monitor.ui.verdict import LINT, of_slice

TOKENS = "tokens"
BEFORE = 3 * MAX_POINTS // 4
"Steps before the first alert that are looked at in a run that is too long to be looked at whole."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One of the runs, read to its end."""

    facts: RunFacts
    names: frozenset[str]
    "Metrics that it logged."
    points: Mapping[str, query.History]
    "Those that are watched for a departure, and the tokens of each step."
    departures: tuple[Departure, ...]
    "By step."
    looked: tuple[int, int]
    "First and last step that were looked at."
    repeated: tuple[tuple[int, int], ...]
    "Stretches that a later launch did again: left out everywhere."
    environments: tuple[str, ...]

    @property
    def run(self) -> RunRow:
        """The run."""
        return self.facts.run

    @property
    def onset(self) -> int | None:
        """Where it began to fail: the first onset of a critical alert that counts, else of a warning; None = never."""
        return first_onset(self.facts.alerts)


_sides: Memo[Side] = Memo()


def side_of(monitor: Monitor, facts: RunFacts) -> Side:
    """Read once as long as nothing new came. Raises duckdb.Error."""
    key = facts.run.run_key

    def read() -> Side:
        with monitor.store.cursor() as con:
            return read_side(con, facts, monitor.rules)

    return _sides.get((monitor.store.instance, key), monitor.version(key), read)


def read_side(con: query.Connection, facts: RunFacts, rules: Rules) -> Side:
    """Everything of a run but its drawn curves. Raises duckdb.Error."""
    key, watched = facts.run.run_key, watched_metrics(rules)
    names = frozenset(query.metric_names(con, key))
    first, last = stretch(first_onset(facts.alerts), facts.run.last_step)
    points = query.history(con, key, 0, [w.name for w in watched if w.name in names], (first, last))
    moved = sorted([*reseats(facts), *(launch.first_step for launch in read_launches(con, key)[1:])])
    found = (departure(points[w.name].steps.tolist(), points[w.name].values.tolist(), w, rules, moved)
             for w in watched if w.name in points)  # fmt: skip
    tokens = query.history(con, key, 0, [TOKENS]) if TOKENS in names else {}
    return Side(
        facts=facts,
        names=names,
        points={**points, **tokens},
        departures=tuple(sorted((d for d in found if d is not None), key=lambda d: (d.step, d.seen))),
        looked=(first, last),
        repeated=tuple(query.repeated_stretches(con, key)),
        environments=tuple(s.value for s in query.slices(con, key) if s.kind == "env"),
    )


def first_onset(alerts: Sequence[AlertRow]) -> int | None:
    """Of the critical alerts that count, else of the warnings; what the bounds alone tell is none."""
    for severity in ("critical", "warning"):
        onsets = [a.step_onset for a in alerts if a.severity == severity and _counts(a)]
        if onsets:
            return min(onsets)
    return None


def _counts(alert: AlertRow) -> bool:
    return not (alert.superseded or alert.signature == LINT or alert.mark == "false_alarm" or alert.state == "pending")


def stretch(onset: int | None, last: int | None) -> tuple[int, int]:
    """First and last step that are looked at: all of a short run; of a long one the steps around its onset, else the
    last ones.
    """
    end = last or 0
    if end < MAX_POINTS:
        return 0, end
    first = max(0, (end - MAX_POINTS if onset is None else onset - BEFORE) + 1)
    return first, min(end, first + MAX_POINTS - 1)


def reseats(facts: RunFacts) -> list[int]:
    """Steps from which on the run had other bounds."""
    return sorted(
        c.applied_step for c in facts.commands if c.status == "applied" and c.kind == "set_bounds" and c.applied_step
    )


def order_rows(side: Side, watched: Sequence[Watched], onset: int | None) -> list[dict[str, object]]:
    """What changed, by step: metrics that left their reference, alerts, bounds. `onset`: counted from there too."""
    labels = {w.name: w.label for w in watched}
    rows: list[dict[str, object]] = [
        {
            "step": d.step,
            "what": f"{labels[d.name]} {'up' if d.rises else 'down'}",
            "kind": "metric",
            "sure at": d.seen,
            "from → to": f"{number(d.before)} → {number(d.after)}",
        }
        for d in side.departures
    ]
    rows += [
        {
            "step": a.step_onset,
            "what": signature_text(a.signature).title + of_slice(a),
            "kind": f"alert, {a.severity}" + (", explained by another" if a.inhibited_by else ""),
            "sure at": a.step_detected,
            "from → to": "",
        }
        for a in side.facts.alerts
        if _counts(a)
    ]
    rows += [
        {
            "step": c.applied_step,
            "what": "; ".join(_moved(b) for b in c.changes) or "bounds",
            "kind": "bounds",
            "sure at": c.applied_step,
            "from → to": "",
        }
        for c in side.facts.commands
        if c.kind == "set_bounds" and c.status == "applied" and c.applied_step is not None
    ]  # fmt: skip
    rows.sort(key=lambda r: (r["step"], r["sure at"]))
    return rows if onset is None else [{"from onset": int(str(r["step"])) - onset, **r} for r in rows]


def _moved(change: query.BoundChange) -> str:
    was = "?" if change.old is None else weight(change.old)
    return f"{bound_label(change.name)} {was} → {weight(change.new)}"


def first_sentence(rows: Sequence[Mapping[str, object]]) -> str:
    """ "First: early loss of accuracy, step 2; then Length falls, step 3." """
    if not rows:
        return "Nothing left its reference, and nothing fired."
    parts = [f"{row['what']} (step {row['step']:,})" for row in rows[:3]]
    return "First: " + ", then ".join(parts) + "."


def axis(side: Side, steps: Sequence[int] | np.ndarray, by: By, onset: int) -> np.ndarray:
    """Steps of this run on the common axis."""
    points = side.points.get(TOKENS)
    tokens = None if points is None else Curve(x=points.steps.astype(np.float64), values=points.values)
    return place(steps, by, onset=onset, tokens=tokens)


def apart(a: Side, b: Side, watched: Sequence[Watched], by: By, onsets: tuple[int, int]) -> list[Divergence]:
    """Metrics in which the two go apart, the first first."""
    found = []
    for metric in watched:
        if metric.name in a.points and metric.name in b.points:
            of_a, of_b = (
                Curve(x=axis(s, s.points[metric.name].steps, by, onset), values=s.points[metric.name].values)
                for s, onset in zip((a, b), onsets, strict=True)
            )
            found.append(diverged(of_a, of_b, metric))
    return sorted((d for d in found if d is not None), key=lambda d: d.x)


def apart_rows(found: Sequence[Divergence], watched: Sequence[Watched], by: By) -> list[dict[str, object]]:
    """A row per metric."""
    labels = {w.name: w.label for w in watched}
    place_of = {"step": "step", "tokens": "tokens", "onset": "from onset"}[by]
    return [{place_of: int(d.x), "metric": labels[d.name], "A": number(d.a), "B": number(d.b)} for d in found]


def setting_rows(a: Side, b: Side | None) -> list[dict[str, str]]:
    """Settings that differ; of one run alone all of them."""
    if b is None:
        return [{"setting": key, "value": value} for key, value in sorted(settings(a).items())]
    return [
        {"setting": key, "A": _known(one), "B": _known(other)}
        for key, one, other in differing(settings(a), settings(b))
    ]


def _known(value: str | None) -> str:
    return "not there" if value is None else value


def settings(side: Side) -> dict[str, str]:
    """What the header of the newest launch says, by name."""
    run = side.run
    facts: dict[str, object] = {
        "objective": run.objective,
        "framework": run.framework,
        "ratio_source": run.ratio_source,
        "ranks": run.ranks,
        "environments": ", ".join(side.environments) or None,
    }
    if side.facts.bounds is not None:
        facts |= {f"bounds.{k}": v for k, v in query.named_bounds(side.facts.bounds.bounds).items()}
    return flat({k: v for k, v in facts.items() if v is not None}) | flat(run.config, "config.")
