"""Rows on their way into the index: plain tuples, collected per table, inserted inside the caller's transaction.

`Batch.add("scalar", (...))` collects, `batch.insert(con)` writes everything. The column lists below are the only place
that knows how a Python value becomes a column; times are unix seconds, JSON is text, non-finite numbers are stored as
they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import cast

import duckdb
import pyarrow as pa

_INT, _FLOAT, _TEXT, _INTS, _FLOATS, _BOOL = "BIGINT", "DOUBLE", "VARCHAR", "BIGINT[]", "DOUBLE[]", "BOOLEAN"
_ARROW = {
    _INT: pa.int64(),
    _FLOAT: pa.float64(),
    _TEXT: pa.string(),
    _INTS: pa.list_(pa.int64()),
    _FLOATS: pa.list_(pa.float64()),
    _BOOL: pa.bool_(),
}
_KEY = {"run_key": _INT, "launch_no": _INT, "rank": _INT, "step": _INT}
_TIMES = ("ts", "issued_at", "not_after")

TABLES: Mapping[str, Mapping[str, str]] = {
    "slice": {"run_key": _INT, "slice_id": _INT, "kind": _TEXT, "value": _TEXT},
    "metric": {"metric_id": _INT, "name": _TEXT, "agg": _TEXT, "unit": _TEXT, "description": _TEXT},
    "metric_source": {
        "run_key": _INT, "metric_id": _INT, "source_key": _TEXT, "transform": _TEXT, "trust": _TEXT,
    },
    "hist_edges": {"edges_id": _INT, "name": _TEXT, "edges": _FLOATS},
    "scalar": {
        **_KEY, "update": _INT, "slice_id": _INT, "ts": _FLOAT, "metric_id": _INT, "value": _FLOAT, "weight": _FLOAT,
    },
    "bucket_step": {
        **_KEY, "update": _INT, "slice_id": _INT, "ts": _FLOAT, "bucket": _TEXT, "revision": _INT, "w_min": _FLOAT,
        "w_max": _FLOAT, "tokens": _INT, "clip_high": _INT, "clip_low": _INT, "clamped": _INT, "ratio_sum": _FLOAT,
        "weight_sum": _FLOAT, "abs_adv_weight_sum": _FLOAT, "signed_adv_weight_sum": _FLOAT,
        "entropy_effect_sum": _FLOAT, "entropy_effect_tokens": _INT,
        "entropy_sum": _FLOAT, "logp_sum": _FLOAT, "log_ratio_sum": _FLOAT, "log_ratio_sq_sum": _FLOAT,
    },
    "ratio_hist": {
        **_KEY, "update": _INT, "slice_id": _INT, "sign": _INT, "edges_id": _INT, "counts": _INTS,
        "ratio_sum": _FLOATS, "abs_adv_sum": _FLOATS, "abs_adv_ratio_sum": _FLOATS,
    },
    "hist": {**_KEY, "update": _INT, "slice_id": _INT, "metric_id": _INT, "edges_id": _INT, "counts": _INTS},
    "step_done": {**_KEY, "ts": _FLOAT, "seq": _INT},
    "rollout": {
        **_KEY, "row_in_file": _INT, "file": _TEXT, "sample_id": _INT, "group_id": _INT, "env": _TEXT,
        "reward": _FLOAT, "advantage": _FLOAT, "correct": _BOOL, "length": _INT, "finish_reason": _TEXT,
        "repetition": _FLOAT, "update": _INT, "revision": _INT, "weight_version": _INT, "lag": _INT, "pick": _TEXT,
    },
    "event": {
        "run_key": _INT, "launch_no": _INT, "rank": _INT, "seq": _INT, "ts": _FLOAT, "step": _INT, "kind": _TEXT,
        "payload": _TEXT,
    },
    "mark": {
        "run_key": _INT, "mark_id": _TEXT, "ts": _FLOAT, "actor": _TEXT, "kind": _TEXT, "alert_id": _TEXT,
        "signature": _TEXT, "step": _INT,
        "until_step": _INT, "text": _TEXT,
    },
    "command": {
        "run_key": _INT, "command_id": _TEXT, "launch_id": _TEXT, "issued_at": _FLOAT, "not_after": _FLOAT,
        "issuer": _TEXT, "kind": _TEXT,
        "args": _TEXT, "expected_revision": _INT, "alert_id": _TEXT, "reason": _TEXT,
    },
    "ack": {
        "run_key": _INT, "command_id": _TEXT, "launch_no": _INT, "rank": _INT, "ts": _FLOAT, "step": _INT,
        "status": _TEXT, "revision": _INT,
        "applied": _TEXT, "message": _TEXT,
    },
}  # fmt: skip
"Columns of each table in the order of the tuples, with the type that a Python value becomes first."

SAYING = ("slice", "event", "mark", "command", "ack")
"Tables whose rows are rare and are read as a whole."

NUMBERS = ("scalar", "bucket_step", "ratio_hist", "hist")
"Tables of what a chart shows."

_STEP = list(_KEY).index("step")
_REVISION = list(TABLES["bucket_step"]).index("revision")

KEYED = frozenset({"mark", "command"})
"Tables with a key: a line that comes twice is taken once."

ARROW_ROWS = 1_000
"From this many rows on they go through Arrow, several times as fast ..."
ARROW_IMPORT_ROWS = 20_000
"... which imports pandas: where nothing has imported it yet, that pays from here on."
ARROW_LISTS = 100
"Both, where a row holds the bins of a histogram."
LISTS = frozenset({"ratio_hist", "hist"})

Row = tuple[object, ...]


class Batch:
    """Rows of one transaction."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {name: [] for name in TABLES}
        self.taken_back: list[tuple[int, int, int, int, str]] = []
        "Events `rollouts_unreadable` that are true no more: run_key, launch_no, rank, seq, file."

    def add(self, table: str, row: Row) -> None:
        """A row in the column order of TABLES."""
        self.tables[table].append(row)

    def extend(self, table: str, rows: list[Row]) -> None:
        """Several rows."""
        self.tables[table].extend(rows)

    @property
    def says(self) -> bool:
        """Whether there is more in it than numbers: an event, a command or its answer, a mark, a new slice."""
        return any(self.tables[name] for name in SAYING)

    def revisions(self) -> set[object]:
        """The bounds revisions that its bucket rows name."""
        return {row[_REVISION] for row in self.tables["bucket_step"]}

    def first_step(self) -> int | None:
        """The lowest step that it has numbers of."""
        steps = (row[_STEP] for name in NUMBERS for row in self.tables[name])
        return min(cast(Iterator[int], steps), default=None)

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.tables.values())

    def insert(self, con: duckdb.DuckDBPyConnection) -> None:
        """Write all rows; the transaction is the caller's."""
        for place in self.taken_back:
            con.execute(
                """DELETE FROM event WHERE run_key = ? AND launch_no = ? AND rank = ? AND seq = ?
                   AND kind = 'rollouts_unreadable' AND payload->>'$.file' = ?""",
                list(place),
            ).fetchall()
        for table, rows in self.tables.items():
            if rows:
                _insert(con, table, rows)


def _insert(con: duckdb.DuckDBPyConnection, table: str, rows: list[Row]) -> None:
    columns = TABLES[table]
    names = ", ".join(f'"{c}"' for c in columns)
    wanted = ", ".join(f'to_timestamp("{c}")' if c in _TIMES else f'"{c}"' for c in columns)
    into = f"INSERT {'OR IGNORE ' if table in KEYED else ''}INTO {table} ({names}) SELECT {wanted} FROM"
    values = list(zip(*rows, strict=True))
    if len(rows) < _arrow_from(table):
        given = ", ".join(f'unnest(?::{kind}[]) AS "{c}"' for c, kind in columns.items())
        con.execute(f"{into} (SELECT {given})", [list(column) for column in values]).fetchall()
        return
    arrays = [pa.array(column, type=_ARROW[kind]) for column, kind in zip(values, columns.values(), strict=True)]
    con.register("batch", pa.table(dict(zip(columns, arrays, strict=True))))
    try:
        con.execute(f"{into} batch").fetchall()
    finally:
        con.unregister("batch")


def _arrow_from(table: str) -> int:
    """Rows from which Arrow pays."""
    if table in LISTS:
        return ARROW_LISTS
    return ARROW_ROWS if "pandas" in sys.modules else ARROW_IMPORT_ROWS
