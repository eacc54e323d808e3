"""Structured logs: what the real writers logged is read back equal; what is cut, empty or ambiguous is said."""

import gzip
import json
import math
import sqlite3
import struct
import zlib
from pathlib import Path

import pytest

from regimescope.cli import main
from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports import event_file, points
from regimescope.monitor.imports.formats import Options, open_log
from regimescope.monitor.imports.rows import Notes

DATA = Path(__file__).parents[1] / "data" / "imports"


def truth_of(folder, run):
    """metric -> {step: number}"""
    found = json.loads((DATA / folder / "truth.json").read_text())[run]
    return {name: {int(step): value for step, value in points} for name, points in found.items()}


def rows_of(log, **options):
    notes = Notes()
    return [row for row in open_log(log, notes, Options(**options)) if row is not None], notes


def series_of(rows):
    """metric -> {step: number}, the last of each step."""
    found = {}
    for row in rows:
        for name, value in row.values.items():
            found.setdefault(name, {})[row.step] = value
    return found


def same(found, wanted, tolerance=0.0):
    assert found.keys() == wanted.keys()
    for name, numbers in wanted.items():
        assert found[name].keys() == numbers.keys(), name
        for step, value in numbers.items():
            got = found[name][step]
            equal = got == value or (math.isnan(got) and math.isnan(value))
            assert equal or abs(got - value) <= tolerance, (name, step, got, value)


def unpacked(folder, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.decompress((DATA / folder / f"{name}.gz").read_bytes()))
    return path


def copied(source, tmp_path, name="copy"):
    path = tmp_path / name
    path.write_bytes(source.read_bytes())
    return path


# TensorBoard ----------------------------------------------------------------------------------------------------------


def test_tensorboard_is_read_back_equal_each_tag_at_its_own_steps():
    rows, notes = rows_of(DATA / "tensorboard", run="other")
    same(series_of(rows), truth_of("tensorboard", "other/3"))
    assert series_of(rows)["eval/reward"].keys() == {0, 5}
    assert notes.config == {"epsilon_high": 5.0, "loss_type": "cispo"} and not notes.left_out
    assert rows[3].t == 1_790_000_030 and notes.format == "TensorBoard events" and notes.name == "other"


def test_a_second_event_file_is_a_launch_and_a_copy_of_its_beginning_is_left_out():
    rows, notes = rows_of(DATA / "tensorboard" / "restarted")
    assert [row.step for row in rows] == [*range(20), *range(15, 30)]
    assert [row.step for row in rows if row.begins] == [15]
    first, second = truth_of("tensorboard", "restarted/1"), truth_of("tensorboard", "restarted/2")
    same(series_of(rows[:20]), first)
    same(series_of(rows[20:]), second)
    assert notes.left_out["event files are copies of the beginning of another"] == 1


def test_several_runs_of_event_files_want_a_choice():
    with pytest.raises(ImportFailed, match="holds 2 runs: choose one with --run, of other, restarted"):
        rows_of(DATA / "tensorboard")
    with pytest.raises(ImportFailed, match="no run 'third'"):
        rows_of(DATA / "tensorboard", run="third")


def test_two_writers_at_the_same_time_are_told_apart(tmp_path):
    for name in ("other", "restarted"):
        source = min((DATA / "tensorboard" / name).iterdir())
        copied(source, tmp_path, source.name)
    with pytest.raises(ImportFailed, match="written at the same time and share the tag 'eval/reward'"):
        rows_of(tmp_path)


@pytest.mark.parametrize("cut", [1, 20, 500])
def test_an_event_file_cut_in_a_record_is_read_up_to_there(tmp_path, cut):
    (source,) = (DATA / "tensorboard" / "other").iterdir()
    path = tmp_path / "events"
    path.write_bytes(source.read_bytes()[:-cut])
    rows, notes = rows_of(path)
    wanted = truth_of("tensorboard", "other/3")
    assert all(wanted[name][step] == value for name, found in series_of(rows).items() for step, value in found.items())
    assert rows[-1].step >= 7
    assert notes.left_out["event files end inside a record (the job was killed, or still writes)"] == 1


def test_a_damaged_length_ends_an_event_file_and_is_said(tmp_path):
    (source,) = (DATA / "tensorboard" / "other").iterdir()
    data = bytearray(source.read_bytes())
    at = 0
    for _ in range(20):
        at += 16 + struct.unpack_from("<Q", data, at)[0]
    data[at + 5] ^= 0x40
    path = tmp_path / "events"
    path.write_bytes(data)
    rows, notes = rows_of(path)
    assert 2 <= len(rows) < 10
    assert notes.told()[0].startswith("1 event files are unreadable from a place on")
    assert f"byte {at:,}" in notes.told()[0]


def test_the_fast_way_through_an_event_file_reads_what_the_slow_one_does(tmp_path):
    def varint(value):
        return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)

    steps = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**40]
    records = []
    for place, step in enumerate(steps):
        for tag in (b"a", b"t" * 200):
            value = b"\x0a" + varint(len(tag)) + tag + b"\x15" + struct.pack("<f", place)
            summary = b"\x0a" + varint(len(value)) + value
            head = b"\x09" + struct.pack("<d", 100.0 + place) + (b"\x10" + varint(step) if step else b"")
            records.append(head + b"\x2a" + varint(len(summary)) + summary)
    path = tmp_path / "events"
    path.write_bytes(b"".join(struct.pack("<Q4x", len(data)) + data + bytes(4) for data in records))
    found = list(event_file.read_points(path, Notes()))
    wanted = [(tag, step, float(i), 100.0 + i) for i, step in enumerate(steps) for tag in ("a", "t" * 200)]
    assert found == wanted


# Single numbers as rows -----------------------------------------------------------------------------------------------


def aligned(given):
    notes = Notes()
    return [(row.step, dict(row.values), row.begins) for row in points.rows_of(given, notes)], notes


def test_numbers_join_step_by_step_or_tag_by_tag():
    by_step = [(tag, step, step + 0.5, None) for step in range(5) for tag in "ab"]
    by_tag = sorted(by_step)
    assert aligned(by_step)[0] == aligned(by_tag)[0] == [(s, {"a": s + 0.5, "b": s + 0.5}, False) for s in range(5)]


def test_a_tag_given_anew_from_an_earlier_step_on_is_a_launch():
    rows, _ = aligned([("a", step, 1.0, None) for step in (0, 1, 2, 1, 2, 3)])
    assert [(step, begins) for step, _, begins in rows] == [
        (0, False),
        (1, False),
        (2, False),
        (1, True),
        (2, False),
        (3, False),
    ]


def test_a_number_given_twice_in_a_row_counts_once_and_is_said():
    rows, notes = aligned([("a", 0, 1.0, None), ("b", 0, 1.0, None), ("a", 0, 2.0, None), ("b", 0, 1.0, None)])
    assert rows == [(0, {"a": 2.0, "b": 1.0}, False)]
    assert notes.told() == ["1 numbers were given twice for a step; the later one counts (a)"]


def test_memory_stays_bounded_and_what_comes_too_late_is_counted(monkeypatch):
    monkeypatch.setattr(points, "MOST_OPEN", 10)
    rows, notes = aligned([(tag, step, 1.0, None) for tag in "ab" for step in range(20)])
    assert [step for step, _, _ in rows] == list(range(20))
    assert sum(len(values) for _, values, _ in rows) + sum(notes.left_out.values()) == 40
    assert sum(notes.left_out.values()) > 0


# W&B ------------------------------------------------------------------------------------------------------------------


def test_wandb_is_read_back_equal_its_rows_joined_by_the_step_of_the_trainer():
    rows, notes = rows_of(DATA / "wandb" / "logged")
    assert [row.step for row in rows] == list(range(1, 31))
    same(series_of(rows), truth_of("wandb", "logged"), tolerance=1e-12)
    assert notes.config == {"epsilon_high": 5, "loss_type": "cispo", "nested": {"num_generations": 8}}
    assert notes.name == "grpo-tiny" and notes.framework is None


def test_a_run_of_wandb_without_rows_is_read_from_its_console():
    rows, notes = rows_of(DATA / "wandb" / "crashed")
    same({"reward": series_of(rows)["reward"]}, truth_of("wandb", "crashed"))
    assert "1 run ended with exit code 1" in notes.told()
    assert any("files/output.log" in note for note in notes.told())


def test_a_run_of_wandb_without_rows_and_without_console_is_refused(tmp_path):
    path = copied(DATA / "wandb" / "crashed" / "run-crashed.wandb", tmp_path)
    with pytest.raises(ImportFailed, match="without a row of history"):
        rows_of(path)


def test_several_runs_of_wandb_want_a_choice():
    with pytest.raises(ImportFailed, match="holds 2 runs: choose one with --run, of crashed, logged"):
        rows_of(DATA / "wandb")
    assert len(rows_of(DATA / "wandb", run="logged")[0]) == 30


def test_a_cut_or_damaged_wandb_file_gives_the_rows_that_are_whole(tmp_path):
    data = (DATA / "wandb" / "logged" / "run-logged.wandb").read_bytes()
    assert len(data) > 2 * 32768 - 20_000
    wanted = truth_of("wandb", "logged")["train/reward"]
    cut = tmp_path / "cut"
    cut.write_bytes(data[:20_000])
    rows, notes = rows_of(cut)
    assert (
        5 < len(rows) < 30
        and sum(notes.left_out[key] for key in notes.left_out if key.startswith("records are cut")) == 1
    )
    damaged = tmp_path / "damaged"
    damaged.write_bytes(data[:9_000] + b"\xff" + data[9_001:])
    after, notes = rows_of(damaged)
    assert after[-1].step == 30 and len(after) < 30  # a block of 32 KiB costs its rest, no more
    for row in [*rows, *after]:
        assert row.values["train/reward"] == wanted[row.step]


def wandb_file(tmp_path, rows):
    """A file as W&B writes it, of rows of JSON values."""

    def field(number, data):
        size, head = len(data), bytearray()
        key = number << 3 | 2
        for value in (key, size):
            while value >= 0x80:
                head.append(value & 0x7F | 0x80)
                value >>= 7
            head.append(value)
        return bytes(head) + data

    out = bytearray(b":W&B\xe1\xbe\x00")
    for row in rows:
        items = b"".join(field(1, field(1, k.encode()) + field(16, json.dumps(v).encode())) for k, v in row.items())
        record = field(2, items)
        assert len(out) + 7 + len(record) < 32768
        out += struct.pack("<IHB", zlib.crc32(record, zlib.crc32(b"\x01")), len(record), 1) + record
    path = tmp_path / "run.wandb"
    path.write_bytes(out)
    return path


def test_rows_of_wandb_without_a_step_of_the_trainer_keep_their_own(tmp_path):
    rows, _ = rows_of(wandb_file(tmp_path, [{"_step": step, "loss": step / 2, "text": "a"} for step in range(4)]))
    assert [(row.step, dict(row.values)) for row in rows] == [(step, {"loss": step / 2}) for step in range(4)]


def test_rows_of_one_step_of_the_trainer_in_wandb_are_one(tmp_path):
    given = [
        {"_step": 0, "train/global_step": 10, "loss": 1.0}, {"_step": 1, "train/global_step": 10, "kl": 0.5},
        {"_step": 2, "train/global_step": 10, "loss": 2.0}, {"_step": 3, "train/global_step": 20, "loss": 3.0},
        {"_step": 4, "tail": 1.0},
    ]  # fmt: skip
    rows, notes = rows_of(wandb_file(tmp_path, given))
    assert [(row.step, dict(row.values)) for row in rows] == [(10, {"loss": 2.0, "kl": 0.5}), (20, {"loss": 3.0})]
    assert notes.left_out["numbers were given twice for a step; the later one counts"] == 1
    assert notes.left_out["numbers came after the last step of the trainer"] == 1


# trackio and mlflow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "file"), [("trackio", "fixtures.db"), ("mlflow", "mlflow.db")])
@pytest.mark.parametrize("run", ["first", "second"])
def test_a_sqlite_store_is_read_back_equal(tmp_path, folder, file, run):
    rows, notes = rows_of(unpacked(folder, file, tmp_path), run=run)
    same(series_of(rows), truth_of(folder, run))
    assert notes.name == run and notes.format.startswith(folder) and notes.config
    assert all(row.t for row in rows)
    assert {path.name for path in tmp_path.iterdir()} == {file}  # nothing was made beside it


def test_a_store_in_gzip_is_unpacked_and_its_errors_name_it(tmp_path):
    packed = DATA / "mlflow" / "mlflow.db.gz"
    same(series_of(rows_of(packed, run="second")[0]), truth_of("mlflow", "second"))
    with pytest.raises(ImportFailed, match=r"mlflow\.db\.gz holds 2 runs"):
        rows_of(packed)
    cut = tmp_path / "cut.gz"
    cut.write_bytes(packed.read_bytes()[:-5_000])
    with pytest.raises(ImportFailed, match="ends inside its gzip data"):
        rows_of(cut)


def test_check_takes_a_log_of_several_runs_with_a_choice(capsys):
    log = str(DATA / "tensorboard")
    assert main(["check", log]) == 2
    assert "choose one with --run, of other, restarted" in capsys.readouterr().err
    assert main(["check", log, "--run", "other"]) == 0
    assert "tensorboard-other (imported, 10 steps, last 9)" in capsys.readouterr().out


def test_a_folder_with_one_sqlite_store_is_that_store(tmp_path):
    unpacked("trackio", "fixtures.db", tmp_path)
    assert len(rows_of(tmp_path, run="first")[0]) == 30


@pytest.mark.parametrize("run", ["first", "second"])
def test_a_file_store_of_mlflow_is_read_back_equal(run):
    rows, notes = rows_of(DATA / "mlflow_files" / "mlruns", run=run)
    same(series_of(rows), truth_of("mlflow_files", run))
    assert notes.config == {"epsilon_high": "5.0"} and notes.name == run


def test_several_runs_of_a_store_want_a_choice(tmp_path):
    for log in (
        unpacked("trackio", "fixtures.db", tmp_path),
        unpacked("mlflow", "mlflow.db", tmp_path),
        DATA / "mlflow_files",
    ):
        with pytest.raises(ImportFailed, match="holds 2 runs: choose one with --run, of first, second"):
            rows_of(log)
        with pytest.raises(ImportFailed, match="no run 'none'"):
            rows_of(log, run="none")


def test_a_store_that_a_job_still_writes_is_read_with_its_journal(tmp_path):
    path = unpacked("trackio", "fixtures.db", tmp_path)
    con = sqlite3.connect(path)
    con.execute("PRAGMA journal_mode = WAL")
    (run_id,) = con.execute("SELECT run_id FROM metrics WHERE run_name = 'first'").fetchone()
    values = ("x", run_id, "2026-11-01T00:00:00", "first", 30, '{"train/reward": 7.0}')
    con.execute(
        "INSERT INTO metrics (log_id, run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?, ?)", values
    )
    con.commit()
    rows, notes = rows_of(path, run="first")
    con.close()
    assert rows[-1].step == 30 and rows[-1].values == {"train/reward": 7.0}
    assert not notes.left_out


def test_a_sqlite_file_that_is_cut_or_another_ones_is_refused(tmp_path):
    whole = unpacked("mlflow", "mlflow.db", tmp_path)
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole.read_bytes()[:50_000])
    with pytest.raises(ImportFailed, match=r"cannot be read|damaged"):
        rows_of(cut, run="first")
    other = tmp_path / "other.db"
    con = sqlite3.connect(other)
    con.execute("CREATE TABLE metrics (a)")
    con.commit()
    con.close()
    with pytest.raises(ImportFailed, match="without the tables of trackio or mlflow"):
        rows_of(other)


# What is none of these ------------------------------------------------------------------------------------------------


def test_folders_that_are_no_log_are_refused_by_what_is_in_them(tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["import", str(empty), "--root", str(tmp_path / "root")]) == 2
    assert "is an empty folder" in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.log").write_text("hello\n")
    (other / "image.bin").write_bytes(bytes(range(256)))
    with pytest.raises(ImportFailed, match=r"name the log in it, of image.bin, train.log"):
        rows_of(other)
    (tmp_path / "nested" / "inner").mkdir(parents=True)
    with pytest.raises(ImportFailed, match="holds no file"):
        rows_of(tmp_path / "nested")


def test_an_event_file_without_a_number_is_none(tmp_path):
    (source,) = (DATA / "tensorboard" / "other").iterdir()
    data = source.read_bytes()
    (tmp_path / "events").write_bytes(data[: 16 + struct.unpack_from("<Q", data)[0]])
    with pytest.raises(ImportFailed, match="no TensorBoard events with a number"):
        rows_of(tmp_path)


def test_binary_files_cannot_be_watched():
    with pytest.raises(ImportFailed, match="cannot be watched, only text can"):
        rows_of(DATA / "tensorboard" / "other", follow=True)
