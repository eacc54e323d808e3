"""A `rollouts` line -> rows of table `rollout`, from the plain columns of its Parquet file; texts and token arrays stay
there.

A file that cannot be read (missing, broken, of another schema, outside the run folder, with another number of rows than
the line says) is the event `rollouts_unreadable` {file, rows, reason}; the lines behind it go on. It is tried again: on
a network file system the line may be seen before the file. Once it can be read, its rows come and the event goes in one
transaction, so a rebuilt index is the same as the one that watched.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from regimescope.monitor.catalog import json_text
from regimescope.monitor.errors import RolloutError, WireError
from regimescope.monitor.fields import Record, text_of, time_of, update_of, whole
from regimescope.monitor.rollout_parquet import NEEDED, PLAIN, check_columns, opened
from regimescope.monitor.rows import TABLES, Batch, Row

UNREADABLE = "rollouts_unreadable"
MAX_ROWS = 1 << 20
"A line that tells of more in one file is a bad line."
FILES_A_TICK = 64
"Files that one tick reads for one segment, and of those that could not be read before."

_MARK = b'"k":"rollouts"'
_EVENT = list(TABLES["event"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A `rollouts` line of a segment."""

    run_key: int
    launch_no: int
    rank: int
    step: int
    seq: int
    file: str
    "Relative to the run folder."
    rows: int
    "Rows that the file must have."

    @property
    def event(self) -> tuple[int, int, int, int, str]:
        """What names its event, if there is one (`Batch.taken_back`)."""
        return (self.run_key, self.launch_no, self.rank, self.seq, self.file)


def add_rollouts(record: Record, place: tuple[int, int, int, int], run_dir: Path, batch: Batch) -> None:
    """The rows of a line, or the event that tells why there are none. `place`: run_key, launch_no, rank, step. Raises
    WireError.
    """
    update_of(record)
    run_key, launch_no, rank, step = place
    file = text_of(record.get("file"), "file")
    if not 0 < len(file) <= 1000:
        raise WireError(f"file name of {len(file)} characters")
    rows, seq = whole(record.get("rows"), "rows", MAX_ROWS), whole(record.get("q"), "q")
    line = Line(run_key=run_key, launch_no=launch_no, rank=rank, step=step, seq=seq, file=file, rows=rows)
    try:
        batch.extend("rollout", read_rows(run_dir, line))
    except RolloutError as error:
        data = json_text({"file": file, "rows": rows, "reason": str(error)})
        batch.add("event", (run_key, launch_no, rank, seq, time_of(record), step, UNREADABLE, data))


def read_rows(run_dir: Path, line: Line) -> list[Row]:
    """Rows of table `rollout`, in the order of the file. Raises RolloutError."""
    with opened(run_dir, line.file) as parquet:
        if parquet.metadata.num_rows != line.rows:
            raise RolloutError(f"{line.file} has {parquet.metadata.num_rows} rows: its line says {line.rows}")
        check_columns(parquet, line.file, PLAIN)
        table = parquet.read(columns=list(PLAIN), use_threads=False)
        columns = [_column(table, name, line.file) for name in PLAIN]
    head = (line.run_key, line.launch_no, line.rank, line.step)
    return [(*head, i, line.file, *values) for i, values in enumerate(zip(*columns, strict=True))]


def _column(table: pa.Table, name: str, file: str) -> list[object]:
    column = table.column(name)
    if name in NEEDED and column.null_count:
        raise RolloutError(f"{file} has rows without {name!r}")
    try:
        values: list[object] = column.cast(PLAIN[name]).to_pylist()
    except pa.ArrowException as error:
        raise RolloutError(f"{file} has values in {name!r} that are no {PLAIN[name]}: {error}") from None
    return values


def bytes_of_a_tick(lines: Sequence[bytes]) -> int:
    """Length of the first of these lines, which name as many files as one tick reads; 0 = all of them do not."""
    size = files = 0
    for line in lines:
        size += len(line) + 1
        files += _MARK in line
        if files == FILES_A_TICK:
            return size
    return 0


class Waiting:
    """Lines whose file could not be read, each looked at again after as long as it has waited: a late file is found at
    once, a lost one costs nothing in the end.
    """

    def __init__(self) -> None:
        self._since: dict[Line, float] = {}
        self._next: dict[Line, float] = {}

    @classmethod
    def load(cls, con: duckdb.DuckDBPyConnection) -> Waiting:
        """Those of which an index tells."""
        waiting = cls()
        wanted = ", ".join("0.0" if name == "ts" else name for name in _EVENT)
        waiting.add(con.execute(f"SELECT {wanted} FROM event WHERE kind = ?", [UNREADABLE]).fetchall())
        return waiting

    def add(self, events: Iterable[Row]) -> None:
        """Rows of table `event`; those of other kinds are passed over."""
        now = time.monotonic()
        for event in events:
            line = _line(event)
            if line is not None:
                self._since[line] = self._next[line] = now

    def due(self) -> list[Line]:
        """Some of those whose time has come."""
        if not self._next:
            return []
        now = time.monotonic()
        return sorted((line for line, at in self._next.items() if at <= now), key=self._next.__getitem__)[:FILES_A_TICK]

    def again(self, line: Line) -> None:
        """It could not be read this time either."""
        now = time.monotonic()
        self._next[line] = now + max(0.25, now - self._since[line])

    def drop(self, lines: Iterable[Line]) -> None:
        """They were read, or their run is gone."""
        for line in list(lines):
            self._since.pop(line, None)
            self._next.pop(line, None)


def _line(event: Row) -> Line | None:
    values = dict(zip(_EVENT, event, strict=True))
    if values["kind"] != UNREADABLE:
        return None
    try:
        data = json.loads(str(values["payload"]))
        return Line(
            run_key=whole(values["run_key"], "run_key"),
            launch_no=whole(values["launch_no"], "launch_no"),
            rank=whole(values["rank"], "rank"),
            step=whole(values["step"], "step"),
            seq=whole(values["seq"], "seq"),
            file=text_of(data["file"], "file"),
            rows=whole(data["rows"], "rows", MAX_ROWS),
        )
    except (WireError, KeyError, TypeError, ValueError):
        return None  # a trainer's own event of that name
