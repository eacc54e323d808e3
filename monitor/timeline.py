"""What the detectors are given: per step one mapping of metrics and the dated events, built from the index.

`read_span(con, run_key, launch, steps, parts)` returns the points of one launch in step order. Keys of the mapping:
the names of docs/metrics.md (slice 0, ranks and updates combined), `<name>.n` (items behind a mean) and
`<bucket>.<column>`. The env slices, `parts`, have mappings of their own, with no more than their detectors read. Live
and replay read through the same functions, so both give the detectors the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regimescope.detectors import Event
from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.derived import MASS
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.gap import capped_sides, read_gaps
from regimescope.monitor.query import BUCKET_COLUMNS, Connection, named_bounds
from regimescope.monitor.step_rows import read_buckets, read_scalars

DATED = ("curriculum", "length_limit", "sampling", "sync", "state", "checkpoint")
"Events of the log that are passed on as they are."

StepSeen = tuple[int, int, float | None, int | None]
"(step, ranks that are through; of the lowest of them the end in unix seconds and the number of its line)."


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInfo:
    """What the replay needs to know of a launch."""

    launch_no: int
    launch_id: str
    "Of all its ranks; `#2`, … behind it where a later start took the same id, so that alerts can be told apart."
    started_by: str
    first_step: int
    superseded_from: int | None
    ranks: int
    ended: bool
    state: str | None
    "What it last said it is doing."
    revision: int
    bounds: Bounds | None
    "At the start."
    facts: Mapping[str, object]
    "objective, framework, ratio_source, the bases of the weight rule and the limits, as events carry them."
    capped: frozenset[str] = frozenset()
    "Signs whose weight is r between caps, with nothing dropped."


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsAt:
    """Bounds in force from a step on."""

    revision: int
    bounds: Bounds


@dataclass(slots=True, kw_only=True)
class Point:
    """One step of one launch."""

    step: int
    t: float | None
    "End of the step, unix seconds of the trainer's clock."
    partial: bool
    "Given before every rank had sent its step line."
    metrics: dict[str, float] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    "The same of the env slices that have rows in this step, by value."
    bounds: BoundsAt | None = None
    "Highest revision that this step's rows or an ack name; None = nothing said."
    events: list[Event] = field(default_factory=list)


def read_launches(con: Connection, run_key: int) -> list[LaunchInfo]:
    """In order of start."""
    rows = con.execute(
        """SELECT launch_no, launch_id, coalesce(started_by, 'fresh'), first_step, superseded_from, ranks,
                  end_reason IS NOT NULL, start_revision, start_bounds, objective, ratio_source, weight_rule, state,
                  framework, limits
           FROM launch WHERE run_key = ? ORDER BY launch_no""",
        [run_key],
    ).fetchall()
    taken = Counter[str]()
    return [
        LaunchInfo(
            launch_no=r[0], launch_id=_distinct(r[1], taken), started_by=r[2], first_step=r[3],
            superseded_from=r[4], ranks=r[5], ended=r[6], state=r[12], revision=r[7],
            bounds=_bounds(r[8]) or _rule_bounds(r[11]),
            facts={**_facts(r[9], r[10], r[11]), **_declared(r[13], r[14])}, capped=capped_sides(r[11]),
        )
        for r in rows
    ]  # fmt: skip


def _distinct(launch_id: str, taken: Counter[str]) -> str:
    taken[launch_id] += 1
    return launch_id if taken[launch_id] == 1 else f"{launch_id}#{taken[launch_id]}"


def steps_after(
    con: Connection, run_key: int, launch: LaunchInfo, step: int, *, limit: int | None = None
) -> list[StepSeen]:
    """The steps beyond `step` that some rank has finished, ascending; the first `limit` of them."""
    ranks = "1" if launch.ranks == 1 else "count(DISTINCT rank)"
    rows = con.execute(
        f"""SELECT step, {ranks}, arg_min(epoch(ts), rank), arg_min(seq, rank) FROM step_done
            WHERE run_key = ? AND launch_no = ? AND step >= ? GROUP BY step ORDER BY step LIMIT ?""",
        [run_key, launch.launch_no, max(0, step + 1), limit],
    ).fetchall()
    return [(s, ranks, t, seq) for s, ranks, t, seq in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The env slices of a run, and what is read of them."""

    values: Mapping[int, str]
    "slice_id -> value; empty: there are none."
    names: frozenset[str]
    "Scalars and `<bucket>.<column>`."


NO_PARTS = Parts(values={}, names=frozenset())


def read_parts(con: Connection, run_key: int, names: frozenset[str]) -> Parts:
    """The env slices that the run has by now."""
    rows = con.execute(
        "SELECT slice_id, value FROM slice WHERE run_key = ? AND kind = 'env' ORDER BY slice_id", [run_key]
    ).fetchall()
    return Parts(values=dict(rows), names=names)


def has_acks(con: Connection, run_key: int) -> bool:
    """Whether a command of this run was answered."""
    return bool(con.execute("SELECT 1 FROM ack WHERE run_key = ? LIMIT 1", [run_key]).fetchall())


def read_span(
    con: Connection,
    run_key: int,
    launch: LaunchInfo,
    steps: Sequence[StepSeen],
    parts: Parts = NO_PARTS,
    *,
    events: bool = True,
    acks: bool = True,
) -> list[Point]:
    """The points of these steps (as `steps_after` gives them), ascending, with their metrics, bounds and events.

    events, acks: False where the caller knows that there are none; each saves a query.
    """
    if not steps:
        return []
    points = {s: Point(step=s, t=t, partial=ranks < launch.ranks) for s, ranks, t, _ in steps}
    place = [run_key, launch.launch_no, steps[0][0], steps[-1][0]]
    _add_scalars(con, launch, place, points, parts)
    _add_buckets(con, launch, place, points, parts)
    if acks:
        _add_acks(con, place, points)
    if events:
        _add_events(con, run_key, launch, steps, points)
    return list(points.values())


def _mapping(point: Point, slice_id: int, parts: Parts) -> dict[str, float]:
    return point.parts.setdefault(parts.values[slice_id], {}) if slice_id else point.metrics


def _add_scalars(
    con: Connection, launch: LaunchInfo, place: list[int], points: Mapping[int, Point], parts: Parts
) -> None:
    found = read_scalars(con, place, list(parts.values), list(parts.names), one_rank=launch.ranks == 1)
    for step, slice_id, name, value, weight, weighted in found:
        if value is None or step not in points:
            continue
        metrics = _mapping(points[step], slice_id, parts)
        metrics[name] = value
        if weighted:
            metrics[f"{name}.n"] = weight


def _add_buckets(
    con: Connection, launch: LaunchInfo, place: list[int], points: Mapping[int, Point], parts: Parts
) -> None:
    found = read_buckets(con, place, list(parts.values))
    limits: dict[int, dict[str, tuple[float, float]]] = {}
    revisions: dict[int, int] = {}
    for row in found:
        if row.step not in points:
            continue
        metrics = _mapping(points[row.step], row.slice_id, parts)
        for column in BUCKET_COLUMNS:
            key = f"{row.bucket}.{column}"
            value = row.value(column) if row.slice_id == 0 or key in parts.names else None
            if value is not None:
                metrics[key] = float(f"{value:.12g}")  # sums come in any order
        if row.slice_id:
            continue
        revisions[row.step] = row.revision
        if row.w_min is not None and row.w_max is not None:
            sign = "pos" if row.bucket in ("R1", "R2", "pos_eq1") else "neg"
            limits.setdefault(row.step, {})[sign] = (row.w_min, row.w_max)
    for step, sides in limits.items():
        if len(sides) == 2:
            points[step].bounds = BoundsAt(revision=revisions[step], bounds=Bounds.from_wire(sides))
    in_force = {step: point.bounds.bounds for step, point in points.items() if point.bounds is not None}
    mass = {row.step: row.whole[MASS] for row in found if row.slice_id == 0}
    for step, gaps in read_gaps(con, place, in_force, mass, launch.capped).items():
        points[step].metrics.update(gaps)


def _add_acks(con: Connection, place: list[int], points: Mapping[int, Point]) -> None:
    """An applied change counts from its step on, or from the first point after it."""
    rows = con.execute(
        """SELECT DISTINCT step, revision, applied FROM ack
           WHERE run_key = ? AND launch_no = ? AND step <= ? AND status = 'applied' AND applied IS NOT NULL
             AND revision IS NOT NULL ORDER BY step, revision""",
        [place[0], place[1], place[3]],
    ).fetchall()
    steps = sorted(points)
    for step, revision, applied in rows:
        bounds = _bounds(applied)
        target = next((s for s in steps if s >= step), None)
        if bounds is None or target is None:
            continue
        known = points[target].bounds
        if known is None or revision >= known.revision:
            points[target].bounds = BoundsAt(revision=revision, bounds=bounds)


def _add_events(
    con: Connection, run_key: int, launch: LaunchInfo, steps: Sequence[StepSeen], points: Mapping[int, Point]
) -> None:
    """Dated events of the lowest rank, each with the first step whose line came after it: the same live and in a
    replay.
    """
    rows = con.execute(
        """WITH d AS (SELECT rank, step, seq FROM step_done WHERE run_key = $run AND launch_no = $launch)
           SELECT seq, step, kind, payload FROM event
           WHERE run_key = $run AND launch_no = $launch AND list_contains($kinds, kind)
             AND rank = (SELECT min(rank) FROM d)
             AND seq > coalesce((SELECT max(seq) FROM d WHERE rank = (SELECT min(rank) FROM d) AND step < $first), 0)
           ORDER BY seq""",
        {"run": run_key, "launch": launch.launch_no, "kinds": list(DATED), "first": steps[0][0]},
    ).fetchall()
    for sequence, step, kind, payload in rows:
        target = next((s for s, _, _, seq in steps if seq is not None and seq > sequence), None)
        if target is not None:
            data = json.loads(payload) if payload else {}
            points[target].events.append(Event(kind=kind, step=target if step is None else step, data=data))


def bounds_data(facts: Mapping[str, object], at: BoundsAt | None) -> dict[str, object]:
    """Data of the events start, resume, rollback and bounds_changed."""
    if at is None:
        return dict(facts)
    return {**facts, **named_bounds(at.bounds), "revision": at.revision}


def _facts(objective: str | None, source: str | None, rule: str | None) -> dict[str, object]:
    facts: dict[str, object] = {"objective": objective or "", "ratio_source": source or ""}
    sides = json.loads(rule) if rule else {}
    return {
        **facts,
        **{f"{sign}.base": side["base"] for sign, side in sides.items() if isinstance(side, dict) and "base" in side},
    }


def _declared(framework: str | None, limits: str | None) -> dict[str, object]:
    """What advice must know: whose trainer it is, and what it accepts."""
    facts: dict[str, object] = {"framework": framework} if framework else {}
    try:
        accepted = Limits.from_wire(json.loads(limits)) if limits else None
    except BoundsError:
        accepted = None
    for sign, side in (("pos", accepted.pos), ("neg", accepted.neg)) if accepted is not None else ():
        if side is not None:
            facts |= {f"{sign}.w_min.limits": side.w_min, f"{sign}.w_max.limits": side.w_max}
    return facts


def _bounds(text: str | None) -> Bounds | None:
    try:
        return Bounds.from_wire(json.loads(text)) if text else None
    except BoundsError:
        return None


def _rule_bounds(text: str | None) -> Bounds | None:
    try:
        return WeightRule.from_wire(json.loads(text)).bounds if text else None
    except BoundsError:
        return None
