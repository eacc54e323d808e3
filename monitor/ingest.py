"""The tail: new lines of all segments below a root -> rows of the index, with the new offsets in the same transaction.
Exactly once, without keys.

`Ingester(store).tick()` reads what is new and returns the runs that changed; `catch_up()` reads everything. A run whose
files are no longer those that were read (a segment missing or shorter) is taken out of the index and read again: the
files are the truth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import duckdb

from regimescope.monitor.catalog import Catalog, Run, Segment
from regimescope.monitor.errors import WireError
from regimescope.monitor.lines import LineReader
from regimescope.monitor.live import CRASHED_FLOOR_S, crashed, median_step_s
from regimescope.monitor.rows import Batch
from regimescope.monitor.segments import SegmentFile, find_runs, list_segments, read_chunk
from regimescope.monitor.store import Store

_WALK_SHARE = 20
"A walk over the root that took t seconds is not repeated within 20 t."


class Ingester:
    """Tails the runs below the root of a store. One per index; not thread-safe."""

    def __init__(self, store: Store, *, only: Iterable[str] | None = None) -> None:
        """`only`: paths of runs, relative to the root; None = every run that is there or appears."""
        self._store = store
        self._only = None if only is None else sorted(only)
        self._paths: list[str] = []
        self._walk_again = 0.0
        self.problems: dict[str, str] = {}
        "Segment that could not be read -> why, at the last try."
        self.said: set[int] = set()
        "Runs of which the last tick brought more than numbers: events, answers, marks, a launch, an end, losses."
        self._revisions: dict[int, set[object]] = {}
        self._arrived: dict[int, float] = {}
        self._up_to_date: set[int] = set()
        self._more = False
        with store.cursor() as con:
            self._catalog = Catalog.load(con)

    def tick(self) -> set[int]:
        """Read what is new of every run, at most 4 MiB a file; returns the keys of the runs that changed. Raises
        duckdb.Error, OSError.
        """
        self._more = False
        self.said = set()
        changed = set()
        with self._store.cursor() as con:
            paths = self._look()
            self._forget_gone(con, paths)
            for path in paths:
                run_key = self._read_run(con, path)
                if run_key is not None:
                    changed.add(run_key)
            changed |= self._give_up_silent(con)
        return changed

    def catch_up(self) -> set[int]:
        """Tick until nothing is left to read."""
        changed = self.tick()
        said = self.said
        while self._more:
            changed |= self.tick()
            said |= self.said
        self.said = said
        return changed

    def silence(self) -> dict[int, float]:
        """Run key -> seconds since the last new byte in a trainer's segment, by this process's clock."""
        now = time.monotonic()
        return {run_key: max(0.0, now - at) for run_key, at in list(self._arrived.items())}

    def _look(self) -> list[str]:
        if self._only is not None:
            return self._only
        now = time.monotonic()
        if now >= self._walk_again:
            self._paths = find_runs(self._store.root)
            self._walk_again = time.monotonic() + _WALK_SHARE * (time.monotonic() - now)
        return self._paths

    def _forget_gone(self, con: duckdb.DuckDBPyConnection, paths: list[str]) -> None:
        gone = [] if self._only is not None else self._catalog.runs.keys() - set(paths)
        for path in gone:
            if self._store.root.exists():  # a root that is away for a moment takes nothing with it
                self._forget(con, path)

    def _forget(self, con: duckdb.DuckDBPyConnection, path: str) -> None:
        run_key = self._catalog.runs[path].run_key
        self._arrived.pop(run_key, None)
        self._revisions.pop(run_key, None)
        self.said.add(run_key)
        self._transaction(con, None, path)

    def _read_run(self, con: duckdb.DuckDBPyConnection, path: str) -> int | None:
        """Everything new of one run in one transaction; its key when there was something."""
        folder = self._store.root / path
        files = list_segments(folder)
        known = self._catalog.runs.get(path)
        if known is not None and _replaced(known, files):
            self._forget(con, path)
            known = None
        if known is not None and all(_unchanged(known, file) for file in files):
            self._first_sight(known, files)
            self._up_to_date.add(known.run_key)
            return None
        if not files:
            return None
        batch = Batch()
        run = known or self._catalog.run(path)
        before = _outline(run)
        grown = self._read_files(run, folder, files, batch)
        if not run.launches and not run.stored:  # nothing but a torn header yet, or no trainer
            if not grown:
                del self._catalog.runs[path]
                return None
            self._catalog.touch_run(run)
        self._first_sight(run, files)
        if any(not file.is_monitor for file in grown):
            live = (
                run.run_key in self._up_to_date
            )  # this process saw it grow; else the file's own time says when it did
            self._arrived[run.run_key] = time.monotonic() if live else _arrival(f for f in grown if not f.is_monitor)
            if run.status == "crashed":
                run.status = "running"
        if not self._more:
            self._up_to_date.add(run.run_key)
        if grown:
            self._catalog.touch_run(run)
            self._transaction(con, batch)
            if self._moved(run, batch) or batch.says or before != _outline(run):
                self.said.add(run.run_key)
        return run.run_key if grown else None

    def _moved(self, run: Run, batch: Batch) -> bool:
        """Whether bucket rows came under a revision that this process has not seen yet."""
        known, found = self._revisions.setdefault(run.run_key, set()), batch.revisions()
        fresh = bool(found - known)
        known |= found
        return fresh

    def _read_files(self, run: Run, folder: Path, files: list[SegmentFile], batch: Batch) -> list[SegmentFile]:
        """Lines of the files -> batch; the files that had new ones."""
        self._catalog.slice(run, ("all", ""), batch)
        grown = []
        behind: set[tuple[int, int, int, int]] = set()
        sequences: dict[tuple[int, int, int, int], int | None] = {}
        for file in files:
            segment = run.segments.get(file.name)
            if file.series not in behind and (segment is None or file.size > segment.byte_offset):
                if segment is None:
                    segment = Segment(name=file.name, last_seq=sequences.get(file.series))
                if self._read_file(run, segment, folder / "segments" / file.name, batch):
                    grown.append(file)
                if segment.byte_offset < file.size and self._more:
                    behind.add(file.series)
            if segment is not None:
                sequences[file.series] = segment.last_seq
        return grown

    def _read_file(self, run: Run, segment: Segment, path: Path, batch: Batch) -> bool:
        try:
            chunk = read_chunk(path, segment.byte_offset)
        except OSError as error:  # gone since it was listed, or not ours to read: the other files go on
            self.problems[f"{run.path}/segments/{path.name}"] = error.strerror or str(error)
            return False
        self.problems.pop(f"{run.path}/segments/{path.name}", None)
        self._more = self._more or chunk.more
        if chunk.offset == segment.byte_offset:
            return False
        reader = LineReader(self._catalog, run, segment, batch)
        if segment.byte_offset and segment.header is None and segment.refused is None:
            _recall(reader, path)
        for line in chunk.lines:
            reader.read(line)
        segment.bad_lines += chunk.too_long
        segment.byte_offset = chunk.offset
        run.segments[segment.name] = segment
        self._catalog.touch_segment(run, segment)
        return True

    def _first_sight(self, run: Run, files: list[SegmentFile]) -> None:
        """A run that was there before this process: the age of its newest file stands for its silence."""
        if run.run_key not in self._arrived and (trainers := [f for f in files if not f.is_monitor]):
            self._arrived[run.run_key] = _arrival(trainers)

    def _give_up_silent(self, con: duckdb.DuckDBPyConnection) -> set[int]:
        """Runs without an end line that have been silent for long are called crashed."""
        silence = self.silence()
        given_up = set()
        for run in self._catalog.runs.values():
            silent = silence.get(run.run_key, 0.0)
            if (
                run.status == "running"
                and silent > CRASHED_FLOOR_S
                and crashed(silent, median_step_s(con, run.run_key))
            ):
                run.status = "crashed"
                self._catalog.touch_run(run)
                given_up.add(run.run_key)
                self.said.add(run.run_key)
        if given_up:
            self._transaction(con, Batch())
        return given_up

    def _transaction(self, con: duckdb.DuckDBPyConnection, batch: Batch | None, forget: str | None = None) -> None:
        """Rows, numbers and offsets, all or nothing."""
        try:
            con.begin()
            if forget is not None:
                self._catalog.forget(con, forget)
            if batch is not None:
                batch.insert(con)
            self._catalog.save(con)
            con.commit()
        except duckdb.Error:
            self._reset(con)
            raise
        self._catalog.saved()

    def _reset(self, con: duckdb.DuckDBPyConnection) -> None:
        try:
            con.rollback()
            self._catalog = Catalog.load(con)
        except duckdb.Error:  # the instance is unusable: the owner opens the index again and makes a new ingester
            self._catalog = Catalog()


def _recall(reader: LineReader, path: Path) -> None:
    """Names of the header of a file that an earlier process began to read."""
    first = read_chunk(path, 0)
    try:
        reader.recall(first.lines[0])
    except (WireError, IndexError):
        return  # its header was bad: so are its lines


def _outline(run: Run) -> tuple[object, ...]:
    """What of a run can change without a row of its own: launches and their ends, losses of the segments."""
    launches = [(x.launch_id, x.ranks, x.state, x.end_reason, x.superseded_from) for x in run.launches.values()]
    segments = [(x.name, x.lost, x.bad_lines, x.refused) for x in run.segments.values()]
    return run.status, run.name, launches, segments


def _replaced(run: Run, files: list[SegmentFile]) -> bool:
    sizes = {file.name: file.size for file in files}
    return any(sizes.get(name, -1) < segment.byte_offset for name, segment in run.segments.items())


def _unchanged(run: Run, file: SegmentFile) -> bool:
    segment = run.segments.get(file.name)
    return segment is not None and (file.size == segment.byte_offset or segment.refused is not None)


def _arrival(files: Iterable[SegmentFile]) -> float:
    """When the newest of them grew, on this process's clock."""
    age = max(0.0, time.time() - max(file.mtime for file in files))
    return time.monotonic() - age
