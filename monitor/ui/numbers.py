"""What the Overview shows of a run's metrics: the newest value of each with the one 50 steps before, kept up to date
from the points in memory. Only a new browser page, a restart or a run with environments costs queries.

    numbers(monitor, run_key).latest["accuracy"].value
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from regimescope.monitor import query
from regimescope.monitor.memo import Memo
from regimescope.monitor.query import Latest, SliceRow
from regimescope.monitor.service import Head, Monitor
from regimescope.monitor.ui import answers
from regimescope.monitor.ui.answers import Evaluations
from regimescope.monitor.ui.views.panels import PANELS, TILES

BACK = 50
"Steps back that the tiles compare with."
_SLACK = 10
"More steps than that are read, for a metric that is not logged at each."
_HELD_OUT = "eval.accuracy"
ENV_METRICS = ("reward_mean", _HELD_OUT, "truncated_frac")
"What the table of environments shows beside accuracy."
_RARE = 400
"Steps back in which an environment's newest evaluation is looked for."
WANTED = frozenset(
    {*answers.METRICS, *(tile.name for tile in TILES), *(line.name for panel in PANELS for line in panel.metrics)}
)
"Metrics that the page shows, as answer, tile or curve."


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The metrics of a run at one step."""

    names: frozenset[str]
    "Metrics that the run has logged, as far as the page shows them."
    latest: Mapping[str, Latest]
    evaluations: Evaluations
    envs: list[tuple[SliceRow, Latest | None]]
    "Accuracy by environment, worst first."
    by_env: Mapping[int, Mapping[str, Latest]] = field(default_factory=dict)
    "The newest of ENV_METRICS by slice id, as far as the environment logs them."


@dataclass(slots=True)
class Track:
    """The last points of one metric, back to the newest that is at least BACK steps older than the last."""

    points: list[tuple[int, float]] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """A point after the others."""
        self.points.append((step, value))
        while len(self.points) > 1 and self.points[1][0] <= step - BACK:
            del self.points[0]

    @property
    def latest(self) -> Latest:
        """The newest value; there is one."""
        (first, old), (step, value) = self.points[0], self.points[-1]
        return Latest(step=step, value=value, before=old if first <= step - BACK else None)


class Tracker:
    """The numbers of one run while it is served; thread-safe."""

    def __init__(self, monitor: Monitor, run_key: int) -> None:
        """Reads nothing yet."""
        self._monitor, self._run_key = monitor, run_key
        self._lock = threading.Lock()
        self._head: Head | None = None
        self._tracks: dict[str, Track] = {}
        self._evaluations = Evaluations()
        self._numbers: Numbers | None = None

    def numbers(self) -> Numbers:
        """As of the step that is served now."""
        with self._lock:
            head = self._monitor.head(self._run_key)
            if self._numbers is None or head != self._head:
                if not self._follow(head):
                    self._read(head)
                self._head = head
                self._numbers = Numbers(
                    names=frozenset(self._tracks),
                    latest={name: track.latest for name, track in self._tracks.items()},
                    evaluations=self._evaluations,
                    envs=self._environments(head.last),
                    by_env=self._beside(head.last),
                )
            return self._numbers

    def _follow(self, head: Head) -> bool:
        """Add what came since the last look, where memory has all of it."""
        recent = self._monitor.recent(self._run_key)
        if self._head is None or recent is None or head.epoch != self._head.epoch:
            return False
        if recent.after > self._head.last or recent.last < head.last:
            return False
        for step, metrics in recent.points:
            if self._head.last < step <= head.last:
                self._add(step, metrics)
        return True

    def _add(self, step: int, metrics: Mapping[str, float]) -> None:
        for name in metrics.keys() & WANTED:
            self._tracks.setdefault(name, Track()).add(step, metrics[name])
        if _HELD_OUT in metrics:
            self._evaluations = self._evaluations.add(step, metrics[_HELD_OUT])

    def _read(self, head: Head) -> None:
        """Everything from the index."""
        self._tracks, self._evaluations = {}, Evaluations()
        with self._monitor.store.cursor() as con:
            names = sorted(WANTED & set(query.metric_names(con, self._run_key)))
            window = query.news(con, self._run_key, 0, names, head.last - BACK - _SLACK)
            newest = query.latest(con, self._run_key, names, back=BACK)
            held_out = query.rows_after(con, self._run_key, 0, _HELD_OUT, -1)
        for name, found in newest.items():
            self._tracks[name] = _track(found, zip(window[name].steps, window[name].values, strict=True))
        for step, value in zip(held_out.steps, held_out.values, strict=True):
            self._evaluations = self._evaluations.add(step, math.nan if value is None else value)

    def _environments(self, last: int) -> list[tuple[SliceRow, Latest | None]]:
        with self._monitor.store.cursor() as con:
            envs = [row for row in query.slices(con, self._run_key) if row.kind == "env"]
            found = query.by_slice(con, self._run_key, "accuracy", last - BACK - _SLACK) if envs else {}
        rows: list[tuple[SliceRow, Latest | None]] = []
        for row in envs:
            track = Track()
            series = found.get(row.slice_id)
            for step, value in zip(series.steps, series.values, strict=True) if series else ():
                if value is not None:
                    track.add(step, value)
            rows.append((row, track.latest if track.points else None))
        return answers.worst_first(rows)

    def _beside(self, last: int) -> dict[int, dict[str, Latest]]:
        """ENV_METRICS of every environment."""
        found: dict[int, dict[str, Latest]] = {}
        with self._monitor.store.cursor() as con:
            envs = {row.slice_id for row in query.slices(con, self._run_key) if row.kind == "env"}
            for name in ENV_METRICS if envs else ():
                back = _RARE if name == _HELD_OUT else BACK + _SLACK
                for slice_id, series in query.by_slice(con, self._run_key, name, last - back).items():
                    points = [(s, v) for s, v in zip(series.steps, series.values, strict=True) if v is not None]
                    if slice_id in envs and points:
                        found.setdefault(slice_id, {})[name] = Latest(
                            step=points[-1][0], value=points[-1][1], before=None
                        )
        return found


def _track(newest: Latest, window: Iterable[tuple[int, float | None]]) -> Track:
    """The points of the last steps; what is older, or not finite, as the newest value and the one before it say."""
    track = Track()
    if newest.before is not None:
        track.points.append((newest.step - BACK, newest.before))
    for step, value in window:
        if value is not None and newest.step - BACK < step < newest.step:
            track.points.append((step, value))
    track.add(newest.step, newest.value)
    return track


_trackers: Memo[Tracker] = Memo()


def numbers(monitor: Monitor, run_key: int) -> Numbers:
    """Of this run, at the step that is served now. Raises duckdb.Error."""
    instance = monitor.store.instance
    return _trackers.get((instance, run_key), None, lambda: Tracker(monitor, run_key)).numbers()
