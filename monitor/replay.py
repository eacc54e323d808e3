"""The detectors over the index: live step by step, and from the beginning after a start. Alerts are derived, so a run's
alerts are always replaced as a whole.

A replay goes launch by launch: each launch gets a fresh suite that sees the surviving steps before its first one and
then its own. An episode belongs to the launch in which it was detected; a later launch that saw the same stretch brings
its picture up to date. A step is given once: when all ranks sent its `step` line, when a later step says that it will
not become complete, or after a minute.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from regimescope.detectors import Blind, Event, Rules, Slices, Suite, load_rules, slice_inputs
from regimescope.monitor.alerts import Episode, EpisodeKey, Gap, incident_id, replace_alerts
from regimescope.monitor.live import GAP_FLOOR_S, WINDOW, Pulse, median_gap
from regimescope.monitor.query import Connection, named_bounds
from regimescope.monitor.store import Store
from regimescope.monitor.timeline import (
    NO_PARTS,
    BoundsAt,
    LaunchInfo,
    Parts,
    Point,
    StepSeen,
    bounds_data,
    has_acks,
    read_launches,
    read_parts,
    read_span,
    steps_after,
)

LATE_S = 60.0
"A step that some rank has finished is given after this time, whatever the others do."
AHEAD = 2
"... or when a rank is this many steps ahead."
SPAN = 2_000
"Steps that are read at a time: their metrics are in memory as dictionaries. With slices they are so many fewer."
SPAN_LEAST = 50
KEPT = 128
"Points of a live run that stay in memory: browsers that keep up get them without a query."


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """The last steps of a run as the detectors got them: all of them in after < step <= last."""

    launch_no: int
    after: int
    last: int
    points: tuple[tuple[int, Mapping[str, float]], ...]
    "(step, metrics of slice 0 by name), ascending."


class LaunchReplay:
    """One suite over one launch and the surviving steps before it, and one per env slice."""

    def __init__(self, launches: list[LaunchInfo], rules: Rules) -> None:
        """`launches`: up to and including the one that is replayed."""
        self.launch = launches[-1]
        self.suite = Suite(rules)
        self.slices = Slices(self.suite)
        self.of_slices = slice_inputs(rules)
        self.last = -1
        self._launches = launches
        self._owners: list[tuple[int, LaunchInfo]] = []  # first step of each stretch, and whose it is
        self._ends: deque[float | None] = deque(maxlen=WINDOW + 1)  # of the last steps of this launch
        self._opened: dict[tuple[str, str | None, int], float | None] = {}  # rule, slice, ordinal -> when it spoke
        self._at: BoundsAt | None = None
        self._first_partial: int | None = None

    def surviving(self) -> Iterator[tuple[LaunchInfo, int, int | None]]:
        """The stretches that this launch sees: launch, first step, end (exclusive; None = open)."""
        for i, launch in enumerate(self._launches):
            later = [other.first_step for other in self._launches[i + 1 :]]
            yield launch, launch.first_step, min(later, default=None)

    def give(self, launch: LaunchInfo, points: list[Point]) -> list[tuple[int, Mapping[str, float]]]:
        """Hand steps to the suites; what that of the whole was given."""
        given: list[tuple[int, Mapping[str, float]]] = []
        for point in points:
            events = self._events(launch, point)
            metrics = {**point.metrics, **(named_bounds(self._at.bounds) if self._at else {})}
            self.last = point.step
            if point.step >= self.launch.first_step:
                self._ends.append(point.t)
            if point.partial and self._first_partial is None:
                self._first_partial = point.step
            found = self.suite.update(point.step, metrics, events)
            found += self.slices.update(point.step, point.parts, events)
            for finding in found:
                self._opened.setdefault((finding.rule, finding.slice, finding.ordinal), point.t)
            given.append((point.step, metrics))
        return given

    def median_step_s(self) -> float | None:
        """Median time between the ends of the last steps of this launch, seconds; None before two are done."""
        return median_gap(sorted(t for t in self._ends if t is not None))

    def _events(self, launch: LaunchInfo, point: Point) -> list[Event]:
        events = []
        if not self._owners or self._owners[-1][1].launch_no != launch.launch_no:
            events.append(self._start(launch, point))
        if point.bounds is not None and (self._at is None or point.bounds.revision > self._at.revision):
            known, self._at = self._at, point.bounds
            if known is not None:
                events.append(Event(kind="bounds_changed", step=point.step, data=bounds_data(launch.facts, self._at)))
        return events + point.events

    def _start(self, launch: LaunchInfo, point: Point) -> Event:
        kind = "start" if not self._owners or launch.started_by not in ("resume", "rollback") else launch.started_by
        self._owners.append((point.step, launch))
        if launch.bounds is not None:
            self._at = BoundsAt(revision=launch.revision, bounds=launch.bounds)
        elif point.bounds is not None:
            self._at = point.bounds
        return Event(kind=kind, step=point.step, data=bounds_data(launch.facts, self._at))

    def episodes(self, path: str) -> list[tuple[EpisodeKey, Episode]]:
        """All findings so far with their owners."""
        findings = [*self.suite.findings(), *self.slices.findings()]
        owners = [self._owner(f.step_detected) for f in findings]
        first: dict[int, LaunchInfo] = {}
        for finding, owner in sorted(zip(findings, owners, strict=True), key=lambda pair: pair[0].step_detected):
            first.setdefault(finding.incident, owner)
        return [
            (
                (owner.launch_no, f.rule, f.slice, f.ordinal),
                Episode(
                    finding=f,
                    launch=owner,
                    incident_id=incident_id(path, first[f.incident].launch_id, f.incident),
                    opened_at=self._opened.get((f.rule, f.slice, f.ordinal)),
                    partial=self._first_partial is not None and self._first_partial <= f.step_detected,
                ),
            )
            for f, owner in zip(findings, owners, strict=True)
        ]

    def _owner(self, step: int) -> LaunchInfo:
        return next((launch for first, launch in reversed(self._owners) if first <= step), self.launch)


@dataclass(slots=True, kw_only=True)
class RunReplay:
    """Where the detectors are with one run."""

    run_key: int
    path: str
    launches: list[LaunchInfo]
    current: LaunchReplay
    episodes: dict[EpisodeKey, Episode] = field(default_factory=dict)
    "Of older launches, as their suites left them."
    waiting: dict[int, float] = field(default_factory=dict)
    "Step -> when this process first saw it unfinished, monotonic seconds."
    pulse: Pulse | None = None
    recent: Recent | None = None
    "What came while this process watched."
    told: bool = True
    "More than numbers came that no step may have been given with yet: events, a new slice."
    acks: bool = True
    "Commands were answered."
    parts: Parts = NO_PARTS
    gap: Gap | None = None
    written: object = None
    "What the alert table was made from."


class Replayer:
    """Keeps the detectors and the alert table of every run up to date. Driven by the monitor's tick."""

    def __init__(self, store: Store, rules: Rules | None = None) -> None:
        self._store = store
        self._rules = load_rules() if rules is None else rules
        self._runs: dict[int, RunReplay] = {}
        self._held: set[int] = set()  # changed while they were held, and not brought up to date since
        self._late: Counter[int] = Counter()

    def update(
        self,
        changed: set[int],
        silence: Mapping[int, float],
        said: set[int] | None = None,
        held: Collection[int] = frozenset(),
    ) -> set[int]:
        """Bring these runs up to date, and look for silent ones; the runs whose alerts were written anew. A run that is
        new here is replayed from its beginning, changed or not.

        `said`: those of `changed` whose launches may have changed; None = all. `held`: runs to be left for later.
        """
        freed, self._held = self._held.difference(held), (self._held | changed).intersection(held)
        due = changed | freed | (silence.keys() - self._runs.keys())
        due |= {key for key, run in self._runs.items() if run.waiting}
        due.difference_update(held)
        quiet = [
            key
            for key, silent in silence.items()
            if key in self._runs and (silent > GAP_FLOOR_S or self._runs[key].gap)
        ]
        written: set[int] = set()
        if not due and not quiet:
            return written
        with self._store.cursor() as con:
            for run_key in sorted(due):
                if self._update_run(con, run_key, silence.get(run_key), said is None or run_key in said | freed):
                    written.add(run_key)
            for run_key in quiet:
                if self._check_gap(con, run_key, silence[run_key]):
                    written.add(run_key)
        return written

    def head(self, run_key: int) -> tuple[int, int]:
        """Number of the newest launch and last step given to the detectors; -1 = none."""
        run = self._runs.get(run_key)
        return (run.launches[-1].launch_no, run.current.last) if run else (-1, -1)

    def arrived(self, first_steps: Mapping[int, int]) -> None:
        """Numbers came, of these steps on (run -> lowest). Where they belong to steps that were given already, what was
        read of those is no longer what the index holds.
        """
        for run_key, first in first_steps.items():
            run = self._runs.get(run_key)
            if run is not None and first <= run.current.last:
                self._late[run_key] += 1
                run.recent = None

    def again(self) -> None:
        """The index was opened again and may lack what was written last: every run is due, and its alerts."""
        for run in self._runs.values():
            run.written = run.recent = None
        self._held |= self._runs.keys()

    def late(self, run_key: int) -> int:
        """How often numbers came for steps that had been given."""
        return self._late[run_key]

    def recent(self, run_key: int) -> Recent | None:
        """The last steps, where the run was watched while they came."""
        run = self._runs.get(run_key)
        return run.recent if run else None

    def median_step_s(self, run_key: int) -> float | None:
        """Median step time of the newest launch, seconds."""
        run = self._runs.get(run_key)
        return run.pulse.median_step_s if run and run.pulse else None

    def warming(self, run_key: int) -> tuple[int, int]:
        """Points seen, points needed before the shift rules speak."""
        run = self._runs.get(run_key)
        return run.current.suite.warming() if run else Suite(self._rules).warming()

    def blind(self, run_key: int) -> list[Blind]:
        """What each rule can see of this run's log."""
        run = self._runs.get(run_key)
        return run.current.suite.blind() if run else []

    def _update_run(self, con: Connection, run_key: int, silent_s: float | None, said: bool) -> bool:
        run = self._runs.get(run_key)
        launches = read_launches(con, run_key) if said or run is None else run.launches
        if not launches:  # a run that is gone, or has no trainer yet
            self._runs.pop(run_key, None)
            return False
        if run is None or _restarted(run.launches, launches):
            path = con.execute("SELECT path FROM run WHERE run_key = ?", [run_key]).fetchall()[0][0]
            run = self._runs[run_key] = _replay(con, run_key, path, launches, self._rules)
        else:
            run.launches, run.current.launch = launches, launches[-1]
            run.told = run.told or said or launches[-1].ranks > 1
            before = run.current.last
            for given in _give(con, run, launches[-1], max(before, launches[-1].first_step - 1), wait=True):
                _remember(run, before, given)
                before = run.current.last
                run.told = said  # what came behind the last step's line is for the next one
            if launches[-1].ended:
                run.recent = None
        newest = launches[-1]
        run.pulse = Pulse(ended=newest.ended, state=newest.state, median_step_s=run.current.median_step_s())
        if run.gap is not None and (silent_s is None or silent_s <= GAP_FLOOR_S):
            run.gap = None
        return self._write(con, run)

    def _check_gap(self, con: Connection, run_key: int, silent_s: float) -> bool:
        run = self._runs[run_key]
        beat = run.pulse
        gap = beat is not None and beat.gap(silent_s)
        if gap and run.gap is None and beat is not None and beat.median_step_s is not None:
            run.gap = Gap(step=max(0, run.current.last), silent_s=silent_s, median_step_s=beat.median_step_s)
        elif not gap and run.gap is not None:
            run.gap = None
        else:
            return False
        return self._write(con, run)

    def _write(self, con: Connection, run: RunReplay) -> bool:
        """Replace the alerts where anything about them changed since the last time, evidence included."""
        episodes = {**run.episodes, **dict(run.current.episodes(run.path))}
        superseded = [launch.superseded_from for launch in run.launches]
        picture = (episodes, run.gap, superseded)
        if picture == run.written:
            return False
        replace_alerts(con, run.run_key, run.path, run.launches, episodes, run.gap, self._rules.version)
        run.written = picture
        return True


def _remember(run: RunReplay, before: int, given: list[tuple[int, Mapping[str, float]]]) -> None:
    """Keep the last points, as one value that a reader in another thread sees whole."""
    known = run.recent
    points = ((*known.points, *given) if known else tuple(given))[-KEPT - 1 :]
    after, number = known.after if known else before, run.launches[-1].launch_no
    if len(points) > KEPT:
        after, points = points[0][0], points[1:]
    run.recent = Recent(launch_no=number, after=after, last=points[-1][0], points=points)


def _restarted(old: list[LaunchInfo], new: list[LaunchInfo]) -> bool:
    return [x.launch_id for x in old] != [x.launch_id for x in new]


def replaying(
    con: Connection, run_key: int, path: str, launches: list[LaunchInfo], rules: Rules
) -> Iterator[RunReplay]:
    """Launch by launch from the beginning: the same replay after each span of steps, and at its end."""
    run = RunReplay(run_key=run_key, path=path, launches=launches, current=LaunchReplay(launches[:1], rules))
    for i in range(len(launches)):
        if i:
            run.episodes |= dict(run.current.episodes(path))
            run.current = LaunchReplay(launches[: i + 1], rules)
        for launch, first, end in run.current.surviving():
            newest = i == len(launches) - 1 and launch is launches[i] and not launch.ended
            for _ in _give(con, run, launch, first - 1, end, wait=newest):
                yield run
    yield run


def _replay(con: Connection, run_key: int, path: str, launches: list[LaunchInfo], rules: Rules) -> RunReplay:
    *_, run = replaying(con, run_key, path, launches, rules)
    return run


def _give(
    con: Connection, run: RunReplay, launch: LaunchInfo, after: int, end: int | None = None, *, wait: bool
) -> Iterator[list[tuple[int, Mapping[str, float]]]]:
    """Hand the steps of after < step < end to the current suites, a span of them at a time; what that of the whole was
    given.

    wait: steps that may still become complete stay for later.
    """
    if run.told:
        run.parts = read_parts(con, run.run_key, run.current.of_slices)
        run.acks = has_acks(con, run.run_key)
    told, parts = run.told, run.parts
    span, more = max(SPAN_LEAST, SPAN // (1 + len(parts.values))), True
    while more:
        found = steps_after(con, run.run_key, launch, after, limit=span)
        more = len(found) == span
        found = [s for s in found if end is None or s[0] < end]
        ready = _ready(launch, found, run.waiting, time.monotonic()) if wait else found
        if not ready:
            return
        points = read_span(con, run.run_key, launch, ready, parts, events=told, acks=run.acks)
        yield run.current.give(launch, points)
        after = ready[-1][0]


def _ready(launch: LaunchInfo, found: list[StepSeen], waiting: dict[int, float], now: float) -> list[StepSeen]:
    """The steps that can be given: complete, or as complete as they will get. Notes when the others were first seen."""
    if launch.ended or launch.ranks == 1:
        waiting.clear()
        return found
    complete = max((s for s, ranks, *_ in found if ranks >= launch.ranks), default=-1)
    ahead = found[-1][0] - AHEAD if found else -1
    for step, *_ in found:
        waiting.setdefault(step, now)
    late = max((s for s, *_ in found if now - waiting[s] > LATE_S), default=-1)
    ready = [s for s in found if s[0] <= max(complete, ahead, late)]
    for step, *_ in ready:
        del waiting[step]
    return ready
