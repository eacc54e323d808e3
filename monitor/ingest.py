"""The tail: new lines of all segments below a root -> rows of the index, with the new offsets in the same transaction.
Exactly once, without keys.

`Ingester(store).tick()` reads what is new and returns the runs that changed; `catch_up()` reads everything. A run whose
files are no longer those that were read (a segment missing, shorter or replaced), or come in another order than they
were read in, is taken out of the index and read again: the files are the truth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import duckdb

from regimescope.monitor.catalog import Catalog, Run, Segment
from regimescope.monitor.errors import RolloutError, WireError
from regimescope.monitor.header_reader import Misordered
from regimescope.monitor.lines import LineReader
from regimescope.monitor.live import CRASHED_FLOOR_S, crashed, median_step_s
from regimescope.monitor.places import spare_segments
from regimescope.monitor.problems import Problems
from regimescope.monitor.progress import FileRead
from regimescope.monitor.rollout_index import Waiting, bytes_of_a_tick, read_rows
from regimescope.monitor.rows import Batch
from regimescope.monitor.segments import SegmentFile, find_runs, is_unchanged, list_segments, read_chunk
from regimescope.monitor.store import Store

_WALK_SHARE = 20
"A walk over the root that took t seconds is not repeated within 20 t."
SETTLED_S = 10.0
"Other ranks may still write their last lines when the first one has ended."


class _Replaced(Exception):
    """A file does not begin any more with what was read of it; its name."""


class Ingester:
    """Tails the runs below the root of a store. One per index; not thread-safe."""

    def __init__(self, store: Store, *, only: Iterable[str] | None = None, rollouts: bool = True) -> None:
        """`only`: paths of runs, relative to the root; None = every run that is there or appears. `rollouts`: read
        their files into the index, about 1 ms each.
        """
        self._store = store
        self._rollouts = rollouts
        self._spare = spare_segments(store.root, ".")
        self._only = None if only is None else sorted(only)
        self._paths: list[str] = []
        self._walk_again = 0.0
        self._problems = Problems()
        self._in_order: set[str] = set()
        self.said: set[int] = set()
        "Runs of which the last tick brought more than numbers: events, answers, marks, a launch, an end, losses."
        self._revisions: dict[int, set[object]] = {}
        self._arrived: dict[int, float] = {}
        self._up_to_date: set[int] = set()
        self._more = False
        self.behind: set[int] = set()
        "Runs of which the last tick left lines unread, for they were more than it reads at once."
        self.held: set[int] = set()
        "Those of them whose steps cannot be told yet: several files are read side by side, and one may be far ahead."
        self.first_steps: dict[int, int] = {}
        "Run -> lowest step that the last tick brought numbers of."
        with store.cursor() as con:
            self._catalog = Catalog.load(con)
            self._waiting = Waiting.load(con)

    def tick(self) -> set[int]:
        """Read what is new of every run, at most 4 MiB a file; returns the keys of the runs that changed. Raises
        duckdb.Error, OSError.
        """
        self._more = False
        self.behind, self.held, self.first_steps = set(), set(), {}
        self.said = set()
        changed = set()
        with self._store.cursor() as con:
            paths = self._look()
            self._forget_gone(con, paths)
            for path in paths:
                run_key = self._read_run(con, path)
                if run_key is not None:
                    changed.add(run_key)
            changed |= self._look_for_late_files(con)
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

    @property
    def more(self) -> bool:
        """Whether the last tick left lines unread."""
        return self._more

    @property
    def problems(self) -> dict[str, str]:
        """Path below the root -> what is wrong there, and what to do (`problems.py`)."""
        return self._problems.all()

    def silence(self) -> dict[int, float]:
        """Run key -> seconds since the last new byte in a trainer's segment, by this process's clock."""
        now = time.monotonic()
        return {run_key: max(0.0, now - at) for run_key, at in list(self._arrived.items())}

    def finished(self) -> list[int]:
        """Keys of the runs that have ended or were given up, and have not grown for SETTLED_S."""
        silence = self.silence()
        return [
            run.run_key
            for run in list(self._catalog.runs.values())
            if run.stored and run.status != "running" and silence.get(run.run_key, SETTLED_S) >= SETTLED_S
        ]

    def paths(self) -> dict[int, str]:
        """Every run by key."""
        return {run.run_key: path for path, run in self._catalog.runs.items()}

    def files(self, runs: Iterable[int] | None = None) -> dict[str, dict[str, FileRead]]:
        """Path of each of these runs (None = all) -> its segments by name, as far as they were read."""
        wanted = None if runs is None else set(runs)
        return {
            run.path: {
                s.name: FileRead(
                    offset=s.byte_offset, lost=s.lost, dropped=s.dropped, bad_lines=s.bad_lines, refused=s.refused
                )
                for s in run.segments.values()
            }
            for run in self._catalog.runs.values()
            if wanted is None or run.run_key in wanted
        }

    def _look(self) -> list[str]:
        if self._only is not None:
            return self._only
        now = time.monotonic()
        if now >= self._walk_again:
            self._paths = find_runs(self._store.root, self._problems.unread_of(""))
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

    def _read_again(self, con: duckdb.DuckDBPyConnection, path: str) -> int | None:
        """The run from its beginning; what this tick read of it is thrown away."""
        self._catalog = Catalog.load(con, self._catalog)
        if path in self._catalog.runs:
            self._forget(con, path)
        return self._read_run(con, path)

    def _read_run(self, con: duckdb.DuckDBPyConnection, path: str) -> int | None:
        """Everything new of one run in one transaction; its key when there was something."""
        folder = self._store.root / path
        files = list_segments(folder, self._problems.unread_of(path), self._spare / path)
        known = self._catalog.runs.get(path)
        if known is not None and (name := _replaced(known, files)):
            self._problems.replaced(path, name)
            return self._read_again(con, path)
        if known is not None and all(_unchanged(known, file) for file in files):
            self._first_sight(known, files)
            self._up_to_date.add(known.run_key)
            return None
        if not files:
            return None
        batch = Batch()
        run = known or self._catalog.run(path)
        before = _outline(run)
        try:
            grown, behind = self._read_files(run, files, batch)
        except Misordered as misordered:
            self._in_order.add(f"{path}/{misordered.name}")  # once for each file
            return self._read_again(con, path)
        except _Replaced as replaced:
            self._problems.replaced(path, str(replaced))
            return self._read_again(con, path)
        if not run.launches and not run.stored:  # nothing but a torn header yet, or no trainer
            if not grown:
                del self._catalog.runs[path]
                return None
            self._catalog.touch_run(run)
        self._first_sight(run, files)
        if run.run_key in self._up_to_date:
            self._problems.look_for_two(run, [file for file in grown if file.series not in behind])
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
            if (first := batch.first_step()) is not None:
                self.first_steps[run.run_key] = first
            if run.run_key in self.behind and _side_by_side(run):
                self.held.add(run.run_key)
            if self._moved(run, batch) or batch.says or before != _outline(run):
                self.said.add(run.run_key)
        return run.run_key if grown else None

    def _moved(self, run: Run, batch: Batch) -> bool:
        """Whether bucket rows came under a revision that this process has not seen yet."""
        known, found = self._revisions.setdefault(run.run_key, set()), batch.revisions()
        fresh = bool(found - known)
        known |= found
        return fresh

    def _read_files(self, run: Run, files: list[SegmentFile], batch: Batch) -> tuple[list[SegmentFile], set[str]]:
        """Lines of the files -> batch; the files that had new ones, and the series that have more. Raises Misordered,
        _Replaced.
        """
        self._catalog.slice(run, ("all", ""), batch)
        grown = []
        behind: set[str] = set()
        parts: dict[str, Segment] = {}
        for file in files:
            segment = run.segments.get(file.name)
            if file.series not in behind and (segment is None or not _unchanged(run, file)):
                if segment is None:  # the numbers go on through the parts
                    before = parts.get(file.series, Segment(name=""))
                    segment = Segment(name=file.name, last_seq=before.last_seq, bad_tail=before.bad_tail)
                read, more = self._read_file(run, segment, file.folder / file.name, batch)
                if read:
                    grown.append(file)
                if more:
                    behind.add(file.series)
            if segment is not None:
                segment.stamp = file.stamp
                parts[file.series] = segment
        return grown, behind

    def _read_file(self, run: Run, segment: Segment, path: Path, batch: Batch) -> tuple[bool, bool]:
        """Whether there were lines, and whether there are more at once."""
        offset, trace = segment.byte_offset, segment.trace
        try:
            chunk = read_chunk(path, offset, trace=trace, scanned=segment.scanned)
            if self._rollouts and (limit := bytes_of_a_tick(chunk.lines)):
                chunk = read_chunk(path, offset, limit, trace=trace, scanned=segment.scanned)
        except OSError as error:  # gone since it was listed, or not ours to read: the other files go on
            why = f"{error.strerror or error}; give this user read permission"
            self._problems.cannot_read(run.path, f"segments/{path.name}", why)
            return False, False
        if chunk.replaced:
            raise _Replaced(path.name)
        segment.scanned = chunk.scanned
        self._more = self._more or chunk.more
        if chunk.more:
            self.behind.add(run.run_key)
        if chunk.offset == segment.byte_offset:
            return False, False
        reader = LineReader(
            self._catalog,
            run,
            segment,
            batch,
            self._store.root / run.path if self._rollouts else None,
            in_order=f"{run.path}/{path.name}" in self._in_order,
        )
        if segment.byte_offset and segment.header is None and segment.refused is None:
            _recall(reader, path)
        at = segment.byte_offset
        if chunk.skipped is not None:
            reader.skip(chunk.skipped.start, at, chunk.skipped.reason)
        for line in chunk.lines:
            reader.read(line, at)
            if segment.refused is not None:  # nothing from here on is read
                break
            at += len(line) + 1
        segment.byte_offset = chunk.offset if segment.refused is None else at
        segment.trace = chunk.trace if segment.refused is None else ""
        run.segments[segment.name] = segment
        self._catalog.touch_segment(run, segment)
        return True, chunk.more

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

    def _look_for_late_files(self, con: duckdb.DuckDBPyConnection) -> set[int]:
        """Rollouts whose file was not there when its line was: their rows now, and no event any more."""
        folders = {run.run_key: self._store.root / path for path, run in self._catalog.runs.items()}
        batch, found = Batch(), []
        for line in self._waiting.due():
            try:
                batch.extend("rollout", read_rows(folders[line.run_key], line))
            except RolloutError:
                self._waiting.again(line)
            except KeyError:
                self._waiting.drop([line])
            else:
                batch.taken_back.append(line.event)
                found.append(line)
        if found:
            self._transaction(con, batch)
            self._waiting.drop(found)
        self.said |= {line.run_key for line in found}
        return {line.run_key for line in found}

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
        if batch is not None:
            self._waiting.add(batch.tables["event"])

    def _reset(self, con: duckdb.DuckDBPyConnection) -> None:
        try:
            con.rollback()
            self._catalog = Catalog.load(con, self._catalog)
        except duckdb.Error:  # the instance is unusable: the owner opens the index again and makes a new ingester
            self._catalog = Catalog()


def _recall(reader: LineReader, path: Path) -> None:
    """Names of the header of a file that an earlier process began to read."""
    first = read_chunk(path, 0)
    try:
        reader.recall(first.lines[0])
    except (WireError, IndexError):
        return  # its header was bad: so are its lines


def _side_by_side(run: Run) -> bool:
    """Whether a step may have lines in several files, or a later launch in another one."""
    return len(run.launches) > 1 or any(launch.ranks > 1 for launch in run.launches)


def _outline(run: Run) -> tuple[object, ...]:
    """What of a run can change without a row of its own: launches and their ends, losses of the segments."""
    launches = [(x.launch_id, x.ranks, x.state, x.end_reason, x.superseded_from) for x in run.launches]
    segments = [(x.name, x.lost, x.bad_lines, x.refused) for x in run.segments.values()]
    return run.status, run.name, launches, segments


def _replaced(run: Run, files: list[SegmentFile]) -> str | None:
    """A file that is gone, shorter, or touched without growing and no longer what was read."""
    there = {file.name: file for file in files}
    for name, segment in run.segments.items():
        file = there.get(name)
        if file is None or file.size < segment.byte_offset:
            return name
        if file.size > segment.byte_offset or file.stamp == segment.stamp:
            continue
        try:
            if not is_unchanged(file.folder / name, segment.byte_offset, segment.trace):
                return name
        except OSError:  # not ours to read any more: what was read stays
            continue
        segment.stamp = file.stamp
    return None


def _unchanged(run: Run, file: SegmentFile) -> bool:
    segment = run.segments.get(file.name)
    return segment is not None and (file.size == segment.byte_offset or segment.refused is not None)


def _arrival(files: Iterable[SegmentFile]) -> float:
    """When the newest of them grew, on this process's clock."""
    age = max(0.0, time.time() - max(file.mtime for file in files))
    return time.monotonic() - age
