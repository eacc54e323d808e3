"""What the index knows by number: runs, launches, slices, metrics, edge sets, and how far each segment was read.

`Catalog.load(con)` reads it, the ingester changes it while it turns lines into rows, `catalog.save(con)` writes the
changes inside the same transaction as the rows. After a failed transaction it is loaded again: the database is right,
memory is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import duckdb

from regimescope.monitor.metrics import metric_info
from regimescope.monitor.rows import Batch
from regimescope.monitor.token_stats import BUCKETS

MAX_SLICES = 64

SliceKey = tuple[str, str]


@dataclass(slots=True, kw_only=True)
class Launch:
    """A start of the job; the fields are columns of `launch`, JSON ones as text."""

    launch_no: int
    launch_id: str
    started_by: str | None = None
    started_at: float | None = None
    first_step: int = 0
    ranks: int = 1
    framework: str | None = None
    objective: str | None = None
    config: str | None = None
    ratio_source: str | None = None
    eq_tol: float | None = None
    weight_rule: str | None = None
    effect_every: int | None = None
    limits: str | None = None
    start_revision: int = 0
    start_bounds: str | None = None
    capabilities: list[str] = field(default_factory=list)
    ended_at: float | None = None
    end_reason: str | None = None
    state: str | None = None
    state_since: float | None = None
    last_row_at: float | None = None
    superseded_from: int | None = None


_TIMES = frozenset({"started_at", "ended_at", "state_since", "last_row_at"})
_MOVING = ("ranks", "ended_at", "end_reason", "state", "state_since", "last_row_at", "superseded_from")
"Columns of a launch that change with its lines."
_HEADER = tuple(f.name for f in fields(Launch) if f.name != "launch_no")
"All that a header declares, and what moves."


@dataclass(slots=True, kw_only=True)
class Segment:
    """Progress of the tail of one file."""

    name: str
    launch_no: int | None = None
    rank: int | None = None
    byte_offset: int = 0
    closed: bool = False
    last_seq: int | None = None
    lost: int = 0
    "Holes in the numbers."
    bad_lines: int = 0
    dropped: int = 0
    "Of the lost: what the recorder announced."
    holes: int = 0
    "Those that no announcement follows at once."
    bad_tail: int = 0
    "Bad lines since the last good one: their numbers are no hole."
    trace: str = ""
    "Of what was read (`segments.read_chunk`)."
    refused: str | None = None
    "Why nothing of this file is read any more."
    header: Header | None = None
    "Names of its header that later lines refer to."
    scanned: int = 0
    "How far the end of a line without end was looked for."
    stamp: tuple[int, int] | None = None
    "Inode and time of change when it was last looked at by this process."
    stored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What later lines of a file need from its header."""

    buckets: tuple[str, ...] = BUCKETS
    edges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    "Name -> (edges_id, number of bins)."


@dataclass(slots=True, kw_only=True)
class Run:
    """A run folder."""

    run_key: int
    path: str
    run_id: str = ""
    name: str | None = None
    status: str = "running"
    started_at: float | None = None
    last_row_at: float | None = None
    ended_at: float | None = None
    imported_from: str | None = None
    "Format of a foreign log."
    wire_version: int | None = None
    launches: list[Launch] = field(default_factory=list)
    "In order of launch_no."
    slices: dict[SliceKey, int] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    slices_full: bool = False
    "The event that tells of dropped slices was written."
    stored: bool = False

    @property
    def newest(self) -> Launch | None:
        """The launch that started last."""
        return self.launches[-1] if self.launches else None

    def named(self, launch_id: str) -> list[Launch]:
        """The launches of this id: one, or as many as there were starts that took the same id."""
        return [launch for launch in self.launches if launch.launch_id == launch_id]

    def lead(self, launch: Launch) -> int | None:
        """The lowest rank whose header was read; its header is the launch's."""
        ranks = [s.rank for s in self.segments.values() if s.launch_no == launch.launch_no and s.rank is not None]
        return min(ranks, default=None)


class Catalog:
    """All numbers of one index."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.metrics: dict[str, int] = {}
        self.edges: dict[tuple[str, tuple[float, ...]], int] = {}
        self._next_key = 1
        self._new_launches: list[tuple[Run, Launch]] = []
        self._touched: dict[tuple[int, int], tuple[Run, Launch]] = {}
        self._declared: set[tuple[int, int]] = set()
        self._touched_runs: dict[int, Run] = {}
        self._touched_segments: dict[tuple[int, str], tuple[Run, Segment]] = {}

    # -- numbers, given out on first use

    def run(self, path: str) -> Run:
        """The run of this folder, a new one if need be."""
        if path not in self.runs:
            self.runs[path] = Run(run_key=self._next_key, path=path, run_id=path)
            self._next_key += 1  # never given twice by one process, also after `forget`
        return self.runs[path]

    def metric(self, name: str, batch: Batch) -> int:
        """The number of a metric."""
        number = self.metrics.get(name)
        if number is None:
            number = self.metrics[name] = len(self.metrics) + 1
            info = metric_info(name)
            batch.add("metric", (number, name, info.agg, info.unit, info.description))
        return number

    def edge_set(self, name: str, edges: tuple[float, ...], batch: Batch) -> int:
        """The number of a named edge set; the same name with other edges is another set."""
        number = self.edges.get((name, edges))
        if number is None:
            number = self.edges[name, edges] = len(self.edges) + 1
            batch.add("hist_edges", (number, name, list(edges)))
        return number

    def slice(self, run: Run, key: SliceKey, batch: Batch) -> int | None:
        """The number of a slice; None when the run has its 64 already."""
        number = run.slices.get(key)
        if number is None:
            if len(run.slices) > MAX_SLICES:  # slice 0 is one of them
                return None
            number = run.slices[key] = len(run.slices)
            batch.add("slice", (run.run_key, number, *key))
        return number

    def add_launch(self, run: Run, launch: Launch) -> None:
        """A new launch, the newest of its run."""
        run.launches.append(launch)
        self._new_launches.append((run, launch))
        self.supersede(run)

    def supersede(self, run: Run) -> None:
        """Every launch counts up to the first step that a later one repeats."""
        first: int | None = None
        for launch in reversed(run.launches):
            if launch.superseded_from != first:
                launch.superseded_from = first
                self.touch_launch(run, launch)
            first = launch.first_step if first is None else min(first, launch.first_step)

    def forget(self, con: duckdb.DuckDBPyConnection, path: str) -> None:
        """Take a run out of the index: its folder is gone, or its files are no longer those that were read. The
        transaction is the caller's.
        """
        run = self.runs.pop(path)
        for table in _RUN_TABLES:
            con.execute(f"DELETE FROM {table} WHERE run_key = ?", [run.run_key]).fetchall()

    # -- what changed

    def touch_launch(self, run: Run, launch: Launch) -> None:
        """Its moving columns are written at the next save."""
        self._touched[run.run_key, launch.launch_no] = (run, launch)

    def redeclare(self, run: Run, launch: Launch, header: Launch) -> None:
        """The header of a lower rank speaks for the launch; what its lines said stays."""
        for name in _HEADER:
            if name not in _MOVING:
                setattr(launch, name, getattr(header, name))
        self._declared.add((run.run_key, launch.launch_no))
        self.touch_launch(run, launch)
        self.supersede(run)

    def touch_run(self, run: Run) -> None:
        """Its row is written at the next save."""
        self._touched_runs[run.run_key] = run

    def touch_segment(self, run: Run, segment: Segment) -> None:
        """Its row is written at the next save."""
        self._touched_segments[run.run_key, segment.name] = (run, segment)

    def save(self, con: duckdb.DuckDBPyConnection) -> None:
        """Write what changed; the transaction is the caller's. Call `saved()` after the commit."""
        for run in self._touched_runs.values():
            _save_run(con, run)
        for run, launch in self._new_launches:
            _insert_launch(con, run.run_key, launch)
        fresh = {(run.run_key, launch.launch_no) for run, launch in self._new_launches}
        for key, (run, launch) in self._touched.items():
            if key not in fresh:
                _update_launch(con, run.run_key, launch, _HEADER if key in self._declared else _MOVING)
        for run, segment in self._touched_segments.values():
            _save_segment(con, run.run_key, segment)

    def saved(self) -> None:
        """The transaction is through."""
        for run in self._touched_runs.values():
            run.stored = True
        for _, segment in self._touched_segments.values():
            segment.stored = True
        self._new_launches, self._touched, self._touched_runs, self._touched_segments = [], {}, {}, {}
        self._declared = set()

    # -- reading it back

    @classmethod
    def load(cls, con: duckdb.DuckDBPyConnection, before: Catalog | None = None) -> Catalog:
        """As the index says. `before`: what is replaced by it; the keys that it gave out are not given again."""
        catalog = cls()
        catalog.metrics = dict(con.execute("SELECT name, metric_id FROM metric").fetchall())
        rows = con.execute("SELECT name, edges, edges_id FROM hist_edges").fetchall()
        catalog.edges = {(name, tuple(edges)): number for name, edges, number in rows}
        rows = con.execute(
            """SELECT run_key, path, run_id, name, status, epoch(started_at), epoch(last_row_at), epoch(ended_at),
                      imported_from, wire_version FROM run"""
        ).fetchall()
        names = (
            "run_key", "path", "run_id", "name", "status", "started_at", "last_row_at", "ended_at", "imported_from",
            "wire_version",
        )  # fmt: skip
        by_key = {row[0]: Run(**dict(zip(names, row, strict=True)), stored=True) for row in rows}
        catalog.runs = {run.path: run for run in by_key.values()}
        catalog._next_key = max(1 + max(by_key, default=0), before._next_key if before else 0)
        for key, number, kind, value in con.execute(
            "SELECT run_key, slice_id, kind, value FROM slice ORDER BY run_key, slice_id"
        ).fetchall():
            by_key[key].slices[kind, value] = number
        for (key,) in con.execute("SELECT run_key FROM event WHERE kind = 'slices_dropped'").fetchall():
            by_key[key].slices_full = True
        _load_launches(con, by_key)
        _load_segments(con, by_key)
        return catalog


_RUN_TABLES = (
    "scalar", "bucket_step", "ratio_hist", "hist", "step_done", "rollout", "event", "alert", "mark", "command",
    "ack", "metric_source", "segment", "compaction",
    "slice", "launch", "run",
)  # fmt: skip
_SEGMENT_COLUMNS = (
    "name", "launch_no", "rank", "byte_offset", "closed", "last_seq", "lost", "bad_lines", "dropped", "holes",
    "bad_tail", "trace", "refused",
)  # fmt: skip


def _save_run(con: duckdb.DuckDBPyConnection, run: Run) -> None:
    times = [run.started_at, run.last_row_at, run.ended_at]
    if run.stored:
        con.execute(
            """UPDATE run SET run_id = ?, name = ?, status = ?, started_at = to_timestamp(?::DOUBLE),
                              last_row_at = to_timestamp(?::DOUBLE), ended_at = to_timestamp(?::DOUBLE),
                              imported_from = ?, wire_version = ?
               WHERE run_key = ?""",
            [run.run_id, run.name, run.status, *times, run.imported_from, run.wire_version, run.run_key],
        ).fetchall()
        return
    con.execute(
        """INSERT INTO run (run_key, path, run_id, name, status, started_at, last_row_at, ended_at, imported_from,
                            wire_version)
           VALUES (?, ?, ?, ?, ?, to_timestamp(?::DOUBLE), to_timestamp(?::DOUBLE), to_timestamp(?::DOUBLE), ?, ?)""",
        [run.run_key, run.path, run.run_id, run.name, run.status, *times, run.imported_from, run.wire_version],
    ).fetchall()


def _placeholder(column: str) -> str:
    return "to_timestamp(?::DOUBLE)" if column in _TIMES else "?"


def _insert_launch(con: duckdb.DuckDBPyConnection, run_key: int, launch: Launch) -> None:
    columns = [f.name for f in fields(launch)]
    marks = ", ".join(_placeholder(c) for c in columns)
    con.execute(
        f"INSERT INTO launch (run_key, {', '.join(columns)}) VALUES (?, {marks})",
        [run_key, *(getattr(launch, c) for c in columns)],
    ).fetchall()


def _update_launch(con: duckdb.DuckDBPyConnection, run_key: int, launch: Launch, columns: Sequence[str]) -> None:
    assignments = ", ".join(f"{c} = {_placeholder(c)}" for c in columns)
    con.execute(
        f"UPDATE launch SET {assignments} WHERE run_key = ? AND launch_no = ?",
        [*(getattr(launch, c) for c in columns), run_key, launch.launch_no],
    ).fetchall()


def _save_segment(con: duckdb.DuckDBPyConnection, run_key: int, segment: Segment) -> None:
    values = [getattr(segment, c) for c in _SEGMENT_COLUMNS]
    if segment.stored:
        assignments = ", ".join(f"{c} = ?" for c in _SEGMENT_COLUMNS[1:])
        con.execute(
            f"UPDATE segment SET {assignments} WHERE run_key = ? AND segment = ?", [*values[1:], run_key, segment.name]
        ).fetchall()
        return
    columns = ", ".join(("segment", *_SEGMENT_COLUMNS[1:]))
    con.execute(
        f"INSERT INTO segment (run_key, {columns}) VALUES ({', '.join('?' * (1 + len(values)))})", [run_key, *values]
    ).fetchall()


def _load_launches(con: duckdb.DuckDBPyConnection, runs: Mapping[int, Run]) -> None:
    columns = [f.name for f in fields(Launch)]
    wanted = ", ".join(f"epoch({c})" if c in _TIMES else c for c in columns)
    for key, *values in con.execute(f"SELECT run_key, {wanted} FROM launch ORDER BY run_key, launch_no").fetchall():
        launch = Launch(**dict(zip(columns, values, strict=True)))
        launch.capabilities = list(launch.capabilities or [])
        runs[key].launches.append(launch)


def _load_segments(con: duckdb.DuckDBPyConnection, runs: Mapping[int, Run]) -> None:
    wanted = ", ".join(("segment", *_SEGMENT_COLUMNS[1:]))
    for key, *values in con.execute(f"SELECT run_key, {wanted} FROM segment").fetchall():
        segment = Segment(**dict(zip(_SEGMENT_COLUMNS, values, strict=True)), stored=True)
        runs[key].segments[segment.name] = segment


def json_text(value: object) -> str:
    """JSON as the index keeps it; None stays None at the caller."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
