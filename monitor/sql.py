"""`regimescope sql RUN "SELECT ..."`: one query over one run, on a private index of its segments; without SQL the views
and their columns.

Only what reads is let in: DuckDB's own parser names the kind of the statement, it runs in a read-only transaction, and
the index has no access to any file or address, those of the run included. Locks nobody out, writes nothing, works
beside a running server. Exit code 2: what DuckDB did not understand, in one line, or a query over its time limit.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from regimescope.monitor.errors import RegimescopeError
from regimescope.monitor.private import read_run
from regimescope.monitor.series import Connection
from regimescope.monitor.tables import Row, as_table, csv_lines, json_lines

MAX_ROWS = 1000
SECONDS = 30.0
_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
"To the parser WITH, FROM, VALUES, DESCRIBE, SHOW and SUMMARIZE are a SELECT."
_AGAIN_S = 0.1
"An interrupt that comes before the query has begun is forgotten, so it is repeated."
EXAMPLES = (
    "SELECT step, value FROM v_metric_step WHERE name = 'reward_mean' AND slice_id = 0 ORDER BY step",
    "SELECT step, bucket, token_frac, clip_low_frac, w_min FROM v_bucket_step WHERE slice_id = 0 AND bucket = 'R4' "
    "ORDER BY step",
)


class QueryError(RegimescopeError):
    """A query that was refused, not understood or stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a query gave."""

    names: list[str]
    "Columns, in the order of the query; a name may repeat."
    types: list[str]
    "Their types, as DuckDB calls them."
    rows: list[Row]
    "At most as many as asked for."
    cut: bool
    "There were more."
    plan: bool
    "The answer of EXPLAIN: drawn over several lines."


def main(argv: list[str]) -> int:
    """Print the answer; exit code 0. Raises RunError, QueryError."""
    options = _parser().parse_args(argv)
    sql = sys.stdin.read() if options.sql == "-" else options.sql
    with read_run(options.run, options.root) as view, view.monitor.store.cursor() as con:
        if sql is None:
            print(listing(con))
            return 0
        answer = ask(con, sql, rows=options.rows, seconds=options.seconds)
    for line in _lines(answer, options.format):
        print(line)
    if answer.cut:
        print(f"regimescope: only the first {len(answer.rows):,} rows; --rows 0 gives all", file=sys.stderr)
    return 0


def ask(con: Connection, sql: str, *, rows: int = MAX_ROWS, seconds: float = SECONDS) -> Answer:
    """The answer to one reading statement. `rows`: at most so many, 0 = all. Raises QueryError."""
    try:
        statement = _only_statement(con, sql)
        con.execute("BEGIN TRANSACTION READ ONLY").fetchall()
        with _time_limit(con, seconds) as over:
            result = con.execute(statement)
            columns = result.description
            found: list[Row] = list(result.fetchmany(rows + 1) if rows else result.fetchall())
            if over.is_set():
                raise duckdb.InterruptException
    except duckdb.InterruptException:
        raise QueryError(f"the query was stopped after {seconds:g} s; --seconds gives it more") from None
    except duckdb.Error as error:
        raise QueryError(one_line(error)) from None
    finally:
        with contextlib.suppress(duckdb.Error):
            con.rollback()
    cut = bool(rows) and len(found) > rows
    return Answer(
        names=[column[0] for column in columns],
        types=[str(column[1]) for column in columns],
        rows=found[:rows] if cut else found,
        cut=cut,
        plan=statement.type == duckdb.StatementType.EXPLAIN,
    )


def listing(con: Connection) -> str:
    """The public views with their columns, and how to begin."""
    rows = con.execute(
        """SELECT view_name, list(column_name ORDER BY column_index)
           FROM duckdb_views() JOIN duckdb_columns() ON table_name = view_name
           WHERE NOT duckdb_views.internal AND starts_with(view_name, 'v_')
           GROUP BY view_name ORDER BY view_name"""
    ).fetchall()
    blocks = [f"{name}\n  {', '.join(columns)}" for name, columns in rows]
    slices = "slice_id 0 is everything; the table slice (slice_id, kind, value) names the others."
    return "\n\n".join([*blocks, slices, "examples:\n" + "\n".join(f"  {example}" for example in EXAMPLES)])


def one_line(error: Exception) -> str:
    """DuckDB's message without the excerpt of the query that follows it."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())


def _only_statement(con: Connection, sql: str) -> duckdb.Statement:
    statements = con.extract_statements(sql)
    if len(statements) != 1:
        raise QueryError(f"{len(statements) or 'no'} statements: give one query")
    if statements[0].type not in _READING:
        kind = statements[0].type.name
        raise QueryError(
            f"refused, a statement of kind {kind}: only one SELECT, WITH, FROM, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN"
        )
    return statements[0]


@contextlib.contextmanager
def _time_limit(con: Connection, seconds: float) -> Iterator[threading.Event]:
    """Interrupts the connection once the time is over, and says so by the event."""
    over, done = threading.Event(), threading.Event()

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            over.set()
            con.interrupt()
            wait = _AGAIN_S

    thread = threading.Thread(target=watch, name="regimescope-sql-limit", daemon=True)
    thread.start()
    try:
        yield over
    finally:
        done.set()
        thread.join()


def _lines(answer: Answer, form: str) -> Iterator[str]:
    if form == "csv":
        yield from csv_lines(answer.names, answer.rows)
    elif form == "jsonl":
        nested = [i for i, kind in enumerate(answer.types) if kind == "JSON"]
        yield from json_lines(answer.names, answer.rows, nested)
    elif answer.plan:
        yield from (str(row[-1]) for row in answer.rows)
    else:
        yield as_table(answer.names, answer.rows)


def _count(given: str) -> int:
    value = int(given)
    if value < 0:
        raise ValueError
    return value


def _positive(given: str) -> float:
    value = float(given)
    if not (0 < value < math.inf):
        raise ValueError
    return min(value, threading.TIMEOUT_MAX)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope sql",
        description="One reading query over one run. Without SQL: the views, their columns, two examples.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder, or its path below the root")
    parser.add_argument("sql", nargs="?", metavar="SQL", help='the query; "-" reads it from standard input')
    parser.add_argument("--root", help="folder above the runs (default: $REGIMESCOPE_ROOT, else ./runs)")
    parser.add_argument("--format", choices=("table", "csv", "jsonl"), default="table", help="default: table")
    parser.add_argument(
        "--rows", type=_count, default=MAX_ROWS, metavar="N", help=f"at most so many, 0 = all (default: {MAX_ROWS})"
    )
    parser.add_argument(
        "--seconds", type=_positive, default=SECONDS, metavar="S", help=f"time limit (default: {SECONDS:g})"
    )
    return parser
