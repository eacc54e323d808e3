"""`regimescope export RUN --format csv|parquet|jsonl`: the numbers, rollouts, events and alerts of one run as files for
other tools, one file per table. Texts and tokens of rollouts stay in their Parquet files, which other tools read as
they are.

Read from a private index of the segments, so it works beside a running server. What a later launch repeated is left
out, except from events and alerts, which say so in `superseded`. Nothing is overwritten: the files are written into
FOLDER.partial, which is renamed at the end.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from regimescope.monitor.cells import cell
from regimescope.monitor.errors import RegimescopeError
from regimescope.monitor.private import read_run
from regimescope.monitor.series import Connection
from regimescope.monitor.tables import Row, json_lines, text

_BATCH = 50_000
"Rows that are in memory at once."
_SLICE = "part.slice"
_SLICES = """LEFT JOIN (SELECT run_key, slice_id, CASE slice_id WHEN 0 THEN 'all' ELSE kind || '=' || value END AS slice
                        FROM slice) part USING (run_key, slice_id)"""
_SUPERSEDED = "coalesce(step >= superseded_from, false)"

TABLES = {
    "metrics": f"""SELECT step, update, {_SLICE}, name, value, v.ts AS time
        FROM v_metric v {_SLICES} ORDER BY name, slice_id, step, update NULLS LAST""",
    "buckets": f"""SELECT step, {_SLICE}, bucket::VARCHAR AS bucket,
               v.* EXCLUDE (run_key, launch_no, slice_id, step, bucket, ts), v.ts AS time
        FROM v_bucket_step v {_SLICES} ORDER BY slice_id, step, v.bucket""",
    "ratio_histograms": f"""SELECT step, {_SLICE}, sign, bin, lo, hi, tokens, ratio_sum, abs_adv_sum, abs_adv_ratio_sum
        FROM v_ratio_bin v {_SLICES} ORDER BY slice_id, step, sign, bin""",
    "histograms": f"""WITH x AS (
            SELECT run_key, slice_id, step, update, m.name, edges_id, unnest(range(1, len(counts) + 1)) AS bin,
                   unnest(counts) AS n
            FROM hist h JOIN metric m USING (metric_id) JOIN launch l USING (run_key, launch_no)
            WHERE l.superseded_from IS NULL OR step < l.superseded_from)
        SELECT step, update, {_SLICE}, x.name, bin, coalesce(any_value(edges)[bin - 1], '-infinity') AS lo,
               coalesce(any_value(edges)[bin], 'infinity') AS hi, sum(n)::BIGINT AS count
        FROM x JOIN hist_edges USING (edges_id) {_SLICES}
        GROUP BY slice_id, part.slice, step, update, x.name, edges_id, bin
        ORDER BY x.name, slice_id, step, update NULLS LAST, bin""",
    "rollouts": """SELECT launch_no AS launch, rank, step, update, sample_id, group_id, env, reward, advantage, correct,
               length, finish_reason, repetition, pick, revision, weight_version, lag, file, row_in_file
        FROM v_rollout ORDER BY step, launch_no, rank, row_in_file""",
    "events": f"""SELECT launch_no AS launch, rank, seq, e.ts AS time, step, kind, payload AS data,
               {_SUPERSEDED} AS superseded
        FROM event e LEFT JOIN launch l USING (run_key, launch_no) ORDER BY launch_no NULLS LAST, seq, rank""",
    "alerts": f"""SELECT alert_id::VARCHAR AS alert_id, incident_id::VARCHAR AS incident_id, launch_no AS launch,
               signature, rule, rule_version, {_SLICE}, ordinal, severity, state, driver::VARCHAR AS driver,
               direction, score, step_onset, step_detected, step_last, opened_at AS time, title, text, evidence,
               remedy, inhibited_by, superseded, mark, mark_actor, mark_text
        FROM v_alert v {_SLICES} ORDER BY step_onset, launch_no, rule, slice_id, ordinal""",
}  # fmt: skip
"Name of the file -> query."


class ExportError(RegimescopeError):
    """A folder that is taken, or that cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file of an export."""

    name: str
    "Of the file, with its ending."
    rows: int
    "Rows in it, the header not counted."


def main(argv: list[str]) -> int:
    """Print what was written; exit code 0. Raises RunError, ExportError."""
    options = _parser().parse_args(argv)
    with read_run(options.run, options.root) as view, view.monitor.store.cursor() as con:
        folder = Path(options.out or f"{view.folder.name}-export")
        written = export(con, folder, options.format, options.what or list(TABLES))
    print(f"{folder}:")
    width = max(len(file.name) for file in written)
    for file in written:
        print(f"  {file.name:<{width}}  {file.rows:,} row{'' if file.rows == 1 else 's'}")
    return 0


def export(con: Connection, folder: Path, form: str, names: list[str]) -> list[Written]:
    """Write these tables of an index of one run into the folder. Raises ExportError."""
    target = folder.resolve()
    partial = target.with_name(target.name + ".partial")
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ExportError(f"{folder} exists and is not an empty folder: nothing was written; give --out another")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.mkdir()
        except FileExistsError:
            raise ExportError(
                f"{partial} is there, from an export that is running or was killed: delete it, or give --out another"
            ) from None
        try:
            written = [_write(con, TABLES[name], partial / f"{name}.{form}", form) for name in dict.fromkeys(names)]
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as error:
        raise ExportError(f"cannot write {folder}: {error.strerror or error}") from None
    except duckdb.Error as error:
        raise ExportError(f"cannot export to {folder}: {' '.join(str(error).split())}") from None
    return written


def _write(con: Connection, sql: str, path: Path, form: str) -> Written:
    write = _write_parquet if form == "parquet" else _write_text
    return Written(name=path.name, rows=write(con, sql, path))


def _write_text(con: Connection, sql: str, path: Path) -> int:
    result = con.execute(sql)
    names = [column[0] for column in result.description]
    nested = [i for i, column in enumerate(result.description) if str(column[1]) == "JSON"]
    lines: Callable[[Iterator[Row]], Iterator[str]] = (
        (lambda rows: json_lines(names, rows, nested)) if path.suffix == ".jsonl" else lambda rows: _csv(names, rows)
    )
    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        while batch := result.fetchmany(_BATCH):
            count += len(batch)
            yield from batch

    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        file.writelines(line + "\n" for line in lines(counted()))
    return count


def _csv(names: list[str], rows: Iterator[Row]) -> Iterator[str]:
    """Every text is quoted, a missing value is empty, so the two differ; what a spreadsheet would run gets an
    apostrophe. JSON lines and Parquet keep texts as they are.
    """
    yield ",".join(names)
    for row in rows:
        yield ",".join(_csv_field(value) for value in row)


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    return '"' + cell(value).replace('"', '""') + '"' if isinstance(value, str) else text(value)


def _write_parquet(con: Connection, sql: str, path: Path) -> int:
    count = 0
    with con.sql(sql).to_arrow_reader(_BATCH) as reader, pq.ParquetWriter(path, reader.schema) as writer:
        for batch in reader:
            count += batch.num_rows
            writer.write_table(pa.Table.from_batches([batch]))
    return count


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope export", description="Write the numbers, rollouts, events and alerts of a run as files."
    )
    parser.add_argument("run", metavar="RUN", help="run folder, or its path below the root")
    parser.add_argument("--format", choices=("csv", "parquet", "jsonl"), required=True)
    parser.add_argument(
        "--out", metavar="FOLDER", help="new or empty folder (default: ./RUN-export, RUN the last part)"
    )
    parser.add_argument(
        "--what", nargs="+", choices=sorted(TABLES), metavar="TABLE", help=f"only these: {', '.join(TABLES)}"
    )
    parser.add_argument("--root", help="folder above the runs (default: $REGIMESCOPE_ROOT, else ./runs)")
    return parser
