"""Compaction: the scalars of finished runs are put in order, so that a chart reads its own metric and not all of them.

Lines arrive step by step, each with every metric. `Compactor(store).work(finished)` rewrites one piece, some million
rows of consecutive steps of one launch, sorted by slice, metric, step and order of arrival, in one transaction that
also notes the piece (table `compaction`): a kill leaves the same rows and costs one piece. A piece takes a fraction of
a second, so the tail beside it waits no longer than that, and memory holds one piece. Pieces of one run lie one after
the other; rows that a resumed run adds are sorted when it has finished again, once they are enough to matter.

The other tables are left as they came: they are read by step, in which order they lie already.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from regimescope.monitor.store import Store

PIECE_ROWS = 1_000_000
"Rows of a piece: eight row groups of DuckDB. Smaller ones read slower, larger ones hold up the tail."
LEAST_ROWS = 50_000
"Fewer rows than that are not worth it: less than half a row group."
PAUSE_S = 0.5
"When a piece takes longer, the next ones are half as large, down to SMALLEST_ROWS."
SMALLEST_ROWS = 250_000
"Two row groups: with less, each of them would hold several metrics again."
MIN_FREE_BYTES = 512 << 20
"With less free disk nothing is rewritten: a piece lies there twice until the next checkpoint."
_BINS = 1000
"Stretches of steps whose rows are counted, to cut pieces between them."


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Steps of one launch that are sorted together."""

    run_key: int
    launch_no: int
    first: int
    end: int
    "Exclusive."


class Compactor:
    """Sorts the finished runs of one index, a piece at a time; for the thread that ingests: nobody writes beside it."""

    def __init__(self, store: Store) -> None:
        """Reads nothing yet."""
        self._store = store
        self._pieces: deque[Piece] = deque()
        self._rows = PIECE_ROWS
        self._loose = False
        "Old rows lie in the file that a checkpoint would give free."
        self._sorted: set[int] = set()
        "Runs that were looked at since they last changed."

    def changed(self, runs: Iterable[int]) -> None:
        """These runs have new rows, or are gone."""
        found = set(runs)
        self._sorted -= found
        if found:
            self._pieces = deque(piece for piece in self._pieces if piece.run_key not in found)

    def work(self, finished: Iterable[int]) -> bool:
        """Sort one piece of these runs, or look at one for pieces, or give the space of the old rows free; True while
        there was something to do. Raises duckdb.Error, and has changed nothing then.
        """
        waiting = None if self._pieces else next((key for key in finished if key not in self._sorted), None)
        if not self._pieces and waiting is None and not self._loose:
            return False
        if not self._room():
            return False
        with self._store.cursor() as con:
            if not self._pieces and waiting is None:
                self._loose = False
                with contextlib.suppress(duckdb.TransactionException):  # somebody reads: the next checkpoint does it
                    con.execute("CHECKPOINT").fetchall()
                return True
            if waiting is not None:
                self._sorted.add(waiting)
                self._pieces.extend(pieces(con, waiting, self._rows))
                return True
            piece = self._pieces.popleft()
            started = time.monotonic()
            _sort(con, piece)
            self._loose = True
            if time.monotonic() - started > PAUSE_S and self._rows > SMALLEST_ROWS:
                self._rows = max(SMALLEST_ROWS, self._rows // 2)
                self._sorted.discard(piece.run_key)  # the rest of it is cut again
                self._pieces.clear()
        return True

    def _room(self) -> bool:
        path = self._store.path
        return path is None or shutil.disk_usage(path.parent).free >= MIN_FREE_BYTES


def pieces(con: duckdb.DuckDBPyConnection, run_key: int, rows: int = PIECE_ROWS) -> list[Piece]:
    """What of a run is not in order yet, cut into about so many rows; nothing when that is less than LEAST_ROWS."""
    spans = con.execute(
        """SELECT s.launch_no, min(step), max(step), count(*)
           FROM scalar s LEFT JOIN (SELECT launch_no, max(end_step) AS done FROM compaction WHERE run_key = $run
                                    GROUP BY launch_no) c USING (launch_no)
           WHERE run_key = $run AND step >= coalesce(done, 0) GROUP BY s.launch_no ORDER BY s.launch_no""",
        {"run": run_key},
    ).fetchall()
    if sum(count for *_, count in spans) < LEAST_ROWS:
        return []
    found = []
    for launch_no, low, high, _ in spans:
        width = (high - low) // _BINS + 1
        counts = con.execute(
            """SELECT step // ?::UBIGINT AS bin, count(*) FROM scalar WHERE run_key = ? AND launch_no = ? AND step >= ?
               GROUP BY bin ORDER BY bin""",
            [width, run_key, launch_no, low],
        ).fetchall()
        ends = [min((at + 1) * width, high + 1) for at in _cuts(counts, rows)]
        for first, end in zip([low, *ends[:-1]], ends, strict=True):
            found.append(Piece(run_key=run_key, launch_no=launch_no, first=first, end=end))
    return found


def _cuts(counts: Iterable[tuple[int, int]], rows: int) -> list[int]:
    """The bins after which a piece ends; the last one is always among them."""
    cuts, held, last = [], 0, None
    for at, count in counts:
        if last is not None and held + count > rows:
            cuts.append(last)
            held = 0
        held, last = held + count, at
    return [*cuts, *([] if last is None else [last])]


def _sort(con: duckdb.DuckDBPyConnection, piece: Piece) -> None:
    """One transaction: a sorted copy, the old rows away, and a note that it was done."""
    where = "run_key = $run AND launch_no = $launch AND step >= $first AND step < $end AND rowid <= $top"
    (top,) = con.execute("SELECT coalesce(max(rowid), -1) FROM scalar").fetchall()[0]
    values = {
        "run": piece.run_key,
        "launch": piece.launch_no,
        "first": piece.first,
        "end": piece.end,
        "top": top,  # the rows as they are now, without the copy
    }
    try:
        con.begin()
        con.execute(
            f"INSERT INTO scalar SELECT * FROM scalar WHERE {where} ORDER BY slice_id, metric_id, step, rowid", values
        ).fetchall()
        con.execute(f"DELETE FROM scalar WHERE {where}", values).fetchall()
        con.execute(
            "INSERT INTO compaction VALUES (?, ?, ?, ?)", [piece.run_key, piece.launch_no, piece.first, piece.end]
        ).fetchall()
        con.commit()
    except duckdb.Error:
        with contextlib.suppress(duckdb.Error):  # the instance may be unusable: then nothing was committed
            con.rollback()
        raise
