"""`regimescope export`: every value comes back from the three formats, and nothing is overwritten."""

from __future__ import annotations

import csv
import json
import math
import struct
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from regimescope.cli import main as cli
from regimescope.monitor import export, sql
from regimescope.monitor.edges import LR1
from regimescope.monitor.errors import RunError
from regimescope.monitor.private import read_run
from regimescope.monitor.token_stats import RatioHist
from regimescope.monitor.wire import number

ODD = (math.nan, math.inf, -math.inf, 0.1, 1e-308, 2 / 3)


def ratios() -> RatioHist:
    sums = tuple(0.5 if i == 7 else 0.0 for i in range(len(LR1) + 1))
    counts = tuple(3 if i == 7 else 0 for i in range(len(LR1) + 1))
    return RatioHist(counts=counts, ratio_sum=sums, abs_adv_sum=sums, abs_adv_ratio_sum=sums)


@pytest.fixture
def run(trainer) -> str:
    """Six steps whose metric `odd` holds odd numbers, a slice, both kinds of histogram, an event with odd text."""
    with trainer.open(edges={"len": [10.0, 20.0]}) as recorder:
        for step, odd in enumerate(ODD):
            recorder.scalars(step, {"odd": 7.0}, slice=("env", 'a,"b'))
            recorder.hist(step, "response_length", [4, 0, 2], "len")
            recorder.ratio_hist(step, replace(trainer.stats(), hist_pos=ratios(), hist_neg=ratios()))
            trainer.step(recorder, step, odd=odd)
        recorder.event("checkpoint", {"path": 'c"1,\n2', "loss": math.inf}, step=5)
        recorder.end("finished")
    return str(trainer.run_dir)


def read(folder: Path, name: str, form: str) -> list[dict[str, object]]:
    path = folder / f"{name}.{form}"
    if form == "parquet":
        return pq.read_table(path).to_pylist()
    if form == "jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def as_float(value: object, form: str) -> float:
    return float(str(value)) if form == "csv" else number(value)


def bits(values) -> list[bytes]:
    return [struct.pack("<d", math.nan if math.isnan(v) else v) for v in values]


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_every_value_comes_back(run: str, root: Path, form: str, capsys) -> None:
    out = root / "out"
    assert export.main([run, "--format", form, "--out", str(out)]) == 0
    assert {p.name for p in out.iterdir()} == {f"{name}.{form}" for name in export.TABLES}
    rows = [r for r in read(out, "metrics", form) if r["name"] == "odd"]
    whole = sorted((int(str(r["step"])), as_float(r["value"], form)) for r in rows if r["slice"] == "all")
    assert bits(v for _, v in whole) == bits(ODD)
    assert [as_float(r["value"], form) for r in rows if r["slice"] == 'env=a,"b'] == [7.0] * 6
    assert {r["update"] for r in rows} == {"" if form == "csv" else None}
    assert str(rows[0]["time"]).startswith("20")
    said = capsys.readouterr().out.splitlines()
    for line in said[1:]:
        file, count, _ = line.split()
        assert int(count.replace(",", "")) == len(read(out, file.partition(".")[0], form))


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_buckets_histograms_events(run: str, root: Path, form: str) -> None:
    out = root / "out"
    export.main([run, "--format", form, "--out", str(out)])
    buckets = read(out, "buckets", form)
    assert len(buckets) == 6 * 7
    r4 = next(r for r in buckets if r["bucket"] == "R4" and str(r["step"]) == "3")
    assert int(str(r4["tokens"])) == 400 and as_float(r4["w_max"], form) == 101.0 and r4["slice"] == "all"
    hist = [r for r in read(out, "histograms", form) if str(r["step"]) == "2"]
    assert [(as_float(r["lo"], form), as_float(r["hi"], form), int(str(r["count"]))) for r in hist] == [
        (-math.inf, 10.0, 4),
        (10.0, 20.0, 0),
        (20.0, math.inf, 2),
    ]
    ratio = [r for r in read(out, "ratio_histograms", form) if str(r["step"]) == "2" and str(r["sign"]) == "1"]
    assert len(ratio) == len(LR1) + 1
    filled = [r for r in ratio if int(str(r["tokens"]))]
    assert [(as_float(r["lo"], form), as_float(r["hi"], form)) for r in filled] == [(LR1[6], LR1[7])]
    (event,) = [r for r in read(out, "events", form) if r["kind"] == "checkpoint"]
    data = event["data"] if form == "jsonl" else json.loads(str(event["data"]))
    assert data == {"path": 'c"1,\n2', "loss": "Infinity"}


def test_alerts_of_a_collapse(collapsed, root: Path) -> None:
    export.main([str(root / "run"), "--format", "jsonl", "--out", str(root / "out"), "--what", "alerts"])
    assert [p.name for p in (root / "out").iterdir()] == ["alerts.jsonl"]
    alerts = read(root / "out", "alerts", "jsonl")
    with read_run(str(root / "run"), None) as view, view.monitor.store.cursor() as con:
        wanted = sql.ask(con, "SELECT alert_id::VARCHAR FROM alert").rows
    assert sorted(str(a["alert_id"]) for a in alerts) == sorted(str(i) for (i,) in wanted) and alerts
    assert all(isinstance(a["evidence"], dict) and a["slice"] == "all" for a in alerts)


def test_what_a_later_launch_repeated_is_left_out(run: str, trainer, root: Path) -> None:
    with trainer.open(launch="b", start="resume", first_step=2, edges={"len": [10.0, 20.0]}) as recorder:
        recorder.hist(2, "response_length", [9, 9, 9], "len")
        recorder.ratio_hist(2, replace(trainer.stats(), hist_pos=ratios(), hist_neg=ratios()))
        trainer.step(recorder, 2, length=99.0)
    export.main([run, "--format", "jsonl", "--out", str(root / "out")])
    rows = [r for r in read(root / "out", "metrics", "jsonl") if r["name"] == "response_length_mean"]
    assert [(r["step"], r["value"]) for r in rows] == [(0, 35.0), (1, 35.0), (2, 99.0)]
    hist = read(root / "out", "histograms", "jsonl")
    assert [(r["step"], r["count"]) for r in hist] == [(0, 4), (0, 0), (0, 2), (1, 4), (1, 0), (1, 2), *[(2, 9)] * 3]
    assert len(read(root / "out", "ratio_histograms", "jsonl")) == 3 * 2 * (len(LR1) + 1)
    assert len(read(root / "out", "buckets", "jsonl")) == 3 * 7
    events = [r for r in read(root / "out", "events", "jsonl") if r["kind"] == "checkpoint"]
    assert [(r["step"], r["superseded"]) for r in events] == [(5, True)]


def test_an_alert_of_a_repeated_stretch_says_so(collapsed, root: Path) -> None:
    with collapsed.open(launch="b", start="resume", first_step=15) as recorder:
        collapsed.step(recorder, 15)
    export.main([str(root / "run"), "--format", "jsonl", "--out", str(root / "out"), "--what", "alerts"])
    assert any(a["superseded"] for a in read(root / "out", "alerts", "jsonl"))


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_run_without_a_step_gives_files_without_rows(trainer, root: Path, form: str, capsys) -> None:
    trainer.open().close()
    assert export.main([str(root / "run"), "--format", form, "--out", str(root / "out")]) == 0
    assert f"metrics.{form}" in capsys.readouterr().out
    assert read(root / "out", "metrics", form) == read(root / "out", "buckets", form) == []


def test_nothing_is_overwritten(run: str, root: Path, capsys) -> None:
    out = root / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    argv = ["export", run, "--format", "csv", "--out", str(out)]
    assert cli(argv) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert [p.name for p in out.iterdir()] == ["mine.txt"] and not (root / "out.partial").exists()
    (out / "mine.txt").unlink()
    (root / "out.partial").mkdir()
    assert cli(argv) == 2
    assert "delete it" in capsys.readouterr().err and (root / "out.partial").exists()
    (root / "out.partial").rmdir()
    assert cli(argv) == 0 and len(list(out.iterdir())) == len(export.TABLES)
    assert cli([*argv[:-1], str(out / "metrics.csv")]) == 2
    assert cli([*argv[:-1], str(out / "metrics.csv" / "below")]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_failed_export_leaves_nothing(run: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setitem(export.TABLES, "alerts", "SELECT 'x'::INTEGER")
    for form in ("csv", "parquet"):
        assert cli(["export", run, "--format", form, "--out", str(root / "out")]) == 2
        err = capsys.readouterr().err
        assert "cannot export" in err and err.count("\n") == 1
        assert not list(root.glob("out*"))


def test_the_folder_is_named_after_the_run(run: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(root)
    assert export.main(["run", "--root", ".", "--format", "jsonl", "--what", "events", "metrics", "events"]) == 0
    assert sorted(p.name for p in (root / "run-export").iterdir()) == ["events.jsonl", "metrics.jsonl"]
    assert capsys.readouterr().out.startswith("run-export:\n  events.jsonl ")


def test_a_wrong_run_or_table(run: str, root: Path, capsys) -> None:
    with pytest.raises(RunError, match="no run folder"):
        export.main([str(root / "missing"), "--format", "csv", "--out", str(root / "out")])
    with pytest.raises(SystemExit) as ended:
        export.main([run, "--format", "csv", "--what", "metric"])
    assert ended.value.code == 2 and not (root / "out").exists()


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_rollouts_as_the_index_knows_them(run: str, root: Path, form: str, rollout_file) -> None:
    for step, name in ((1, "rollouts/a.parquet"), (5, "rollouts/b.parquet")):
        rollout_file(Path(run), name, 2, reward=[math.nan, None], env=['a,"b', None], response=["secret"] * 2)
        with next((Path(run) / "segments").iterdir()).open("a") as file:
            line = {"v": 1, "k": "rollouts", "q": 900 + step, "s": step, "file": name, "rows": 2}
            file.write(json.dumps(line) + "\n")
    out = root / "out"
    export.main([run, "--format", form, "--out", str(out), "--what", "rollouts"])
    rows = read(out, "rollouts", form)
    missing = "" if form == "csv" else None
    assert [(int(str(r["step"])), r["file"], int(str(r["row_in_file"]))) for r in rows] == [
        (1, "rollouts/a.parquet", 0), (1, "rollouts/a.parquet", 1), (5, "rollouts/b.parquet", 0),
        (5, "rollouts/b.parquet", 1),
    ]  # fmt: skip
    assert [r["env"] for r in rows] == ['a,"b', missing] * 2 and rows[1]["reward"] == missing
    assert math.isnan(as_float(rows[0]["reward"], form)) and rows[0]["pick"] == "random"
    assert "secret" not in (out / f"rollouts.{form}").read_bytes().decode("latin-1")
