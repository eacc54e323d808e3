"""`regimescope sql`: what it answers, in three formats, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pyarrow as pa
import pytest

from regimescope.cli import main as cli
from regimescope.monitor import sql
from regimescope.monitor.errors import RunError
from regimescope.monitor.private import read_run

DOCS = Path(__file__).parents[2] / "docs" / "queries.md"
STEPS = "SELECT step, value FROM v_metric WHERE name = 'odd' AND slice_id = 0 ORDER BY step"


@pytest.fixture
def run(trainer) -> str:
    """Five steps; the metric `odd` is NaN, inf, -inf, 0.1 and 2; one slice."""
    with trainer.open() as recorder:
        for step, odd in enumerate((math.nan, math.inf, -math.inf, 0.1, 2.0)):
            recorder.scalars(step, {"odd": odd / 2}, slice=("env", "math"))
            trainer.step(recorder, step, odd=odd)
        recorder.event("checkpoint", {"path": "c\x1b[31m", "loss": math.nan}, step=4)
    return str(trainer.run_dir)


def test_the_table_shows_what_is_not_finite_and_what_is_missing(run: str, capsys) -> None:
    assert sql.main([run, f"SELECT *, NULL AS none FROM ({STEPS})"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "step      value  none",
        "----  ---------  ----",
        "   0        NaN  NULL",
        "   1   Infinity  NULL",
        "   2  -Infinity  NULL",
        "   3        0.1  NULL",
        "   4        2.0  NULL",
    ]


def test_csv_tells_a_missing_value_from_the_text_that_spells_it(run: str, capsys) -> None:
    query = """SELECT 'a,"b"' AS "x,y", NULL, 'NULL', '', 'NaN', 'nan'::DOUBLE, 0.1::DOUBLE, true"""
    assert sql.main([run, query, "--format", "csv"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1] == '"a,""b""",NULL,"NULL","","NaN",NaN,0.1,true'
    assert next(csv.reader(io.StringIO(out)))[0] == "x,y"


def test_json_lines_keep_digits_nesting_and_columns_of_one_name(run: str, capsys) -> None:
    query = """SELECT value, value, payload, [1.5, NULL] AS l, {'a': 'inf'::DOUBLE} AS s,
                      TIMESTAMPTZ '2026-01-01 01:00+01' AS t
               FROM v_metric m, event WHERE name = 'odd' AND slice_id = 0 AND m.step IN (0, 3) ORDER BY m.step"""
    assert sql.main([run, query, "--format", "jsonl"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["value"] == first["value_2"] == "NaN" and second["value"] == 0.1
    assert second["payload"] == {"path": "c\x1b[31m", "loss": "NaN"}
    assert (second["l"], second["s"]) == ([1.5, None], {"a": "Infinity"})
    assert second["t"] == "2026-01-01T00:00:00Z"


def test_no_text_of_a_run_reaches_the_terminal_as_a_command(run: str, capsys) -> None:
    assert sql.main([run, "SELECT payload->>'path' AS p FROM event WHERE kind = 'checkpoint'"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "c\\x1b[31m"


def test_a_slice_is_named_by_the_table_slice(run: str, capsys) -> None:
    query = """SELECT value FROM v_metric JOIN slice s USING (run_key, slice_id)
               WHERE name = 'odd' AND s.kind = 'env' AND s.value = 'math' AND step = 4"""
    with read_run(run, None) as view, view.monitor.store.cursor() as con:
        assert sql.ask(con, query.replace("SELECT value", "SELECT v_metric.value")).rows == [(1.0,)]


@pytest.mark.parametrize(
    "query",
    [
        STEPS,
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "FROM v_run",
        "VALUES (1)",
        "DESCRIBE v_metric",
        "SHOW TABLES",
        "SUMMARIZE v_scalar",
        "EXPLAIN SELECT * FROM v_bucket",
        "-- a comment; with a semicolon\nSELECT 1;",
    ],
)
@pytest.mark.parametrize("form", ["table", "csv", "jsonl"])
def test_what_reads_is_answered(run: str, query: str, form: str, capsys) -> None:
    with read_run(run, None) as view, view.monitor.store.cursor() as con:
        answer = sql.ask(con, query)
    assert answer.rows and not answer.cut
    assert len(list(sql._lines(answer, form))) >= 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("COPY v_scalar TO '{there}'", "kind COPY"),
        ("ATTACH '{there}'", "kind ATTACH"),
        ("INSTALL httpfs", "kind LOAD"),
        ("LOAD httpfs", "kind LOAD"),
        ("SET threads = 1", "kind SET"),
        ("RESET threads", "refused"),
        ("PRAGMA version", "kind PRAGMA"),
        ("CALL pragma_version()", "kind CALL"),
        ("EXPORT DATABASE '{there}'", "kind EXPORT"),
        ("PREPARE p AS SELECT 1", "kind PREPARE"),
        ("BEGIN", "kind TRANSACTION"),
        ("CREATE TABLE x (a INTEGER)", "kind CREATE"),
        ("INSERT INTO meta SELECT * FROM meta", "kind INSERT"),
        ("WITH a AS (SELECT 1) DELETE FROM scalar", "kind DELETE"),
        ("UPDATE scalar SET value = 0", "kind UPDATE"),
        ("DROP VIEW v_scalar", "kind DROP"),
        ("EXPLAIN ANALYZE DELETE FROM scalar", "read-only"),
        ("SELECT 1; DELETE FROM scalar", "2 statements"),
        ("  -- nothing", "no statements"),
        ("SELECT * FROM read_csv('/etc/passwd')", "Permission Error"),
        ("SELECT * FROM '/etc/passwd'", "does not exist"),
        ("SELECT * FROM read_text('{root}/../secret.txt')", "Permission Error"),
        ("SELECT * FROM read_text('{root}/.regimescope/endpoint.json')", "Permission Error"),
        ("SELECT * FROM read_json('{run}/segments/*.jsonl')", "Permission Error"),
        ("SELECT * FROM '{run}/rollouts/a.parquet'", "Permission Error"),
        ("SELECT * FROM glob('{root}/*')", "Permission Error"),
        ("SELECT * FROM read_text('https://example.com/x')", "Error"),
        ("SELECT * FROM glob('/etc/*')", "Permission Error"),
        ("SELECT getenv('HOME')", "does not exist"),
        ("SELECT * FROM query('DELETE FROM scalar')", "single SELECT"),
    ],
)
def test_what_writes_or_leaves_the_run_is_refused_in_one_line(
    run: str, root: Path, query: str, said: str, capsys
) -> None:
    there = root / "there"
    (root.parent / "secret.txt").write_text("secret")
    assert cli(["sql", run, query.format(there=there, root=root, run=run)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and not captured.out
    assert not there.exists()


def test_a_refused_query_leaves_the_index_as_it_was(run: str) -> None:
    with read_run(run, None) as view, view.monitor.store.cursor() as con:
        before = sql.ask(con, STEPS).rows
        with pytest.raises(sql.QueryError):
            sql.ask(con, "EXPLAIN ANALYZE DELETE FROM scalar")
        assert len(sql.ask(con, STEPS).rows) == len(before) == 5


def test_a_python_variable_is_no_table(run: str) -> None:
    frame = pa.table({"a": [1]})
    with read_run(run, None) as view, view.monitor.store.cursor() as con, pytest.raises(sql.QueryError, match="frame"):
        sql.ask(con, "SELECT * FROM frame")
    assert frame.num_rows == 1


def test_what_duckdb_does_not_understand_is_one_line(run: str, capsys) -> None:
    for query in ("SELEC 1", "SELECT nothing FROM v_metric", "SELECT ?", "SELECT 'x'::INTEGER"):
        assert cli(["sql", run, query]) == 2
        captured = capsys.readouterr()
        assert "Error: " in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_the_row_limit_is_said_when_it_cuts(run: str, capsys) -> None:
    assert sql.main([run, "FROM range(1001)"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1002
    assert captured.err == "regimescope: only the first 1,000 rows; --rows 0 gives all\n"
    for given, query in (("0", "FROM range(1001)"), ("1001", "FROM range(1001)")):
        assert sql.main([run, query, "--rows", given, "--format", "csv"]) == 0
        captured = capsys.readouterr()
        assert (len(captured.out.splitlines()), captured.err) == (1002, "")


def test_a_query_over_its_time_is_stopped(run: str, capsys) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000000) b"
    assert cli(["sql", run, endless, "--seconds", "0.2"]) == 2
    assert "stopped after 0.2 s" in capsys.readouterr().err
    assert cli(["sql", run, "FROM range(1000000000000)", "--rows", "0", "--seconds", "0.2", "--format", "csv"]) == 2
    assert "stopped after 0.2 s" in capsys.readouterr().err


def test_the_connection_works_after_a_query_was_stopped(run: str) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000000) b"
    with read_run(run, None) as view, view.monitor.store.cursor() as con:
        with pytest.raises(sql.QueryError, match="stopped"):
            sql.ask(con, endless, seconds=0.1)
        assert sql.ask(con, "SELECT 1").rows == [(1,)]


@pytest.mark.parametrize("option", [["--rows", "-1"], ["--rows", "x"], ["--seconds", "0"], ["--seconds", "nan"]])
def test_a_wrong_limit_is_a_users_mistake(run: str, option: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        sql.main([run, "SELECT 1", *option])
    assert ended.value.code == 2 and option[0] in capsys.readouterr().err


def test_the_query_comes_from_standard_input(run: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 42 AS answer\n"))
    assert sql.main([run, "-", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out) == {"answer": 42}


def test_without_sql_the_views_their_columns_and_examples_that_run(run: str, capsys) -> None:
    assert sql.main([run]) == 0
    out = capsys.readouterr().out
    assert "v_metric\n  run_key, name, slice_id, step, update, ts, n, value\n" in out
    assert all(f"\n{name}\n" in out for name in ("v_scalar", "v_bucket", "v_metric_step", "v_rollout"))
    with read_run(run, None) as view, view.monitor.store.cursor() as con:
        assert all(example in out and len(sql.ask(con, example).rows) == 5 for example in sql.EXAMPLES)


def test_the_queries_of_the_docs_run(run: str) -> None:
    (block,) = re.findall(r"```sql\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    first, second = (query for query in block.split(";") if query.strip())
    with read_run(run, None) as view, view.monitor.store.cursor() as con:
        assert [row[0] for row in sql.ask(con, first).rows] == [0, 1, 2, 3, 4]
        assert sql.ask(con, second.replace("'accuracy'", "'odd'")).rows == [("math", 4, 1.0)]


def test_a_wrong_run_and_one_without_a_step(trainer, root: Path, capsys) -> None:
    with pytest.raises(RunError, match="no run folder"):
        sql.main([str(root / "missing"), "SELECT 1"])
    trainer.open().close()
    assert sql.main(["run", "SELECT * FROM v_metric", "--root", str(root)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["run_key", "name"]


def test_nothing_is_written(run: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(root)
    before = sorted(root.rglob("*"))
    sql.main([run, STEPS])
    assert sorted(root.rglob("*")) == before
