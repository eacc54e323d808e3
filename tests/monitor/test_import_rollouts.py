"""Dumps of rollouts: what is measured of them, how they join a log, which texts are kept."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regimescope.cli import main
from regimescope.monitor import query
from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports import dump_join
from regimescope.monitor.imports.dumps import is_dump, numbers_of_step, steps_of
from regimescope.monitor.imports.rows import Notes
from regimescope.monitor.imports.run import Request, import_log
from regimescope.monitor.private import read_run
from regimescope.monitor.rollout_reader import rollout_tokens
from regimescope.monitor.text_units import repeated_share, units_of
from regimescope.trainer.repetition import seq_rep
from regimescope.trainer.text_statistics import text_units

TRL = Path(__file__).parents[1] / "data" / "imports" / "trl"
LOOP = "so it goes " * 20


def dump(folder, steps, **fields):
    """verl's: a file per step, two responses to each of two prompts; the second loops from step 3 on."""
    folder.mkdir()
    for step in steps:
        texts = [LOOP if i == 1 and step >= 3 else f"one two three four {i} {step}" for i in range(4)]
        rows = [
            {"input": f"prompt {i // 2} of {step}", "output": texts[i],
             "score": float(i == 0), "step": step, "acc": i == 0, "gts": "7", **fields}
            for i in range(4)
        ]  # fmt: skip
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def console(path, steps):
    path.write_text("".join(f"step:{step} - actor/entropy:0.5 - critic/score/mean:0.75\n" for step in steps))
    return path


def read(tmp_path, log, **request):
    done = import_log(log, tmp_path / "root", Request(**request))
    with read_run(str(done.folder), None) as view, view.monitor.store.cursor() as con:
        key = view.run.run_key
        found = query.history(con, key, 0, list(query.metric_names(con, key)))
        series = {name: dict(zip(h.steps.tolist(), h.values.tolist(), strict=True)) for name, h in found.items()}
        return done, series, query.rollouts_where(con, key, query.RolloutFilter(), limit=1000)


def test_a_dump_joins_the_steps_of_its_log_and_its_texts_are_kept(tmp_path):
    log = console(tmp_path / "train.log", range(1, 6))
    done, series, kept = read(tmp_path, log, rollouts=dump(tmp_path / "rollouts", range(1, 5)))
    loop = repeated_share(LOOP.split(), 4)
    assert loop > 0.9
    assert series["rep4_mean"] == {1: 0.0, 2: 0.0, 3: loop / 4, 4: loop / 4}
    assert series["repetition_frac"] == {1: 0.0, 2: 0.0, 3: 0.25, 4: 0.25}
    assert series["zero_variance_frac"] == dict.fromkeys(range(1, 5), 0.5)
    assert set(series["reward_mean"].values()) == {0.75}  # the log's own key goes first
    assert series["dump/acc/mean"][1] == 0.25
    assert "accuracy" not in series and "truncated_frac" not in series and "response_length_mean" not in series
    assert {(row.step, row.sample_id) for row in kept} == {(step, i) for step in range(1, 5) for i in range(4)}
    assert max(kept, key=lambda row: row.repetition).repetition == loop
    assert {row.group_id for row in kept} == {0, 1}
    assert done.steps == 5 and not done.left_out


def test_a_kept_text_is_the_one_of_the_dump(tmp_path):
    log = console(tmp_path / "train.log", range(1, 6))
    done = import_log(log, tmp_path / "root", Request(rollouts=dump(tmp_path / "rollouts", range(1, 5))))
    with read_run(str(done.folder), None) as view, view.monitor.store.cursor() as con:
        row = query.rollouts_where(con, view.run.run_key, query.RolloutFilter(), sort="-repetition", limit=1)[0]
        text = rollout_tokens(done.folder, row)
    assert text.response == LOOP and text.prompt == f"prompt 0 of {row.step}"


def test_steps_of_a_dump_that_the_log_lacks_are_said(tmp_path):
    log = console(tmp_path / "train.log", range(1, 4))
    done, series, _ = read(tmp_path, log, rollouts=dump(tmp_path / "rollouts", (2, 3, 10, 20)))
    assert series["rep4_mean"].keys() == {2, 3}
    assert done.left_out == ["2 steps of the dump are no steps of the log (step 10, step 20)"]


def test_a_dump_alone_is_a_log(tmp_path, capsys):
    folder = dump(tmp_path / "rollouts", range(1, 5), finish_reason="length")
    assert main(["import", str(folder), "--root", str(tmp_path / "root"), "--map", "dump/acc/mean=accuracy"]) == 0
    out = capsys.readouterr().out
    assert "verl rollouts" in out and "rep4_mean <- dump/rep4/mean (proxy)" in out
    _, series, kept = read(tmp_path, folder, name="again", user_map={"dump/acc/mean": "accuracy"})
    assert series["reward_mean"] == series["accuracy"] == dict.fromkeys(range(1, 5), 0.25)
    assert series["truncated_frac"] == dict.fromkeys(range(1, 5), 1.0)
    assert {row.finish_reason for row in kept} == {"length"}


def test_completions_of_trl_join_its_log_and_a_generation_counts_once(tmp_path):
    done, series, kept = read(tmp_path, TRL / "trainer_state.json", rollouts=TRL / "completions")
    assert done.left_out == ["4 steps that train on an earlier generation again (step 2, step 4, step 6)"]
    rows = {step: numbers_of_step(responses) for step, responses in steps_of(TRL / "completions", Notes())}
    assert rows.keys() == {1, 3, 5, 7}
    truth = json.loads((TRL / "truth.json").read_text())["trl"]
    wanted = {int(step): value for step, value in truth["reward"]}
    for step, numbers in rows.items():
        assert numbers["dump/score/mean"] == pytest.approx(wanted[step], abs=1e-6)
        assert series["adv_max"][step] == numbers["dump/advantage/max"] > 0
    assert {row.step for row in kept} == {1, 3, 5, 7} and len(kept) == 32
    alone = read(tmp_path, TRL / "completions", name="alone")[1]
    assert alone["rep4_mean"] == {step: numbers["dump/rep4/mean"] for step, numbers in rows.items()}


def test_texts_of_many_steps_are_kept_of_some_spread_over_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(dump_join, "MOST_STEPS", 4)
    found = dump_join.load(dump(tmp_path / "rollouts", range(20)), Notes())
    assert list(found.kept) == [0, 8, 16] and len(found.numbers) == 20


def test_steps_that_come_again_in_a_dump_are_said(tmp_path):
    folder = dump(tmp_path / "rollouts", (1, 2))
    path = tmp_path / "all.jsonl"
    texts = [(folder / f"{step}.jsonl").read_text() for step in (1, 2)]
    path.write_text("".join([*texts, texts[0].replace("four", "five")]))
    notes = Notes()
    found = dump_join.load(path, notes)
    assert list(found.numbers) == [1, 2]
    assert notes.told() == ["1 steps come again in the dump; the later part counts (step 1)"]


def test_a_parquet_file_of_other_things_is_refused(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    with pytest.raises(ImportFailed, match="without the columns `step` and `completion`"):
        import_log(path, tmp_path / "root", Request())


def test_characters_are_measured_where_there_are_no_words_and_that_is_said(tmp_path):
    folder = dump(tmp_path / "rollouts", (1,), output="哈哈笑" * 12)
    notes = Notes()
    ((_, responses),) = steps_of(folder, notes)
    assert responses[0].units == 36 and responses[0].rep4 == repeated_share("哈哈笑" * 12, 4) > 0.8
    assert notes.left_out["texts are not written in words: measured over characters"] == 4
    assert "dump/words/mean" not in numbers_of_step(responses)


@given(st.lists(st.sampled_from("ab c哈\n"), max_size=80).map("".join), st.integers(1, 6))
@example("", 4)
@example("a b c d", 4)
def test_repetition_of_a_text_is_that_of_the_trainer(text, n):
    assert repeated_share(units_of(text), n) == pytest.approx(seq_rep([text_units(text)], n)[0], abs=1e-12)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"step": 1, "loss": 0.5}\n', "is no dump of rollouts"),
        (b"", "is no dump of rollouts"),
        (bytes(range(256)), "is no dump of rollouts"),
        (b"PAR1" + bytes(100), "begins as a Parquet file and is none"),
        (b'{"input": "a", "output": "b", "score": 1}\n', "tells no step"),
    ],
)
def test_what_is_no_dump_is_refused(tmp_path, content, reason):
    path = tmp_path / "dump"
    path.write_bytes(content)
    with pytest.raises(ImportFailed, match=reason):
        import_log(console(tmp_path / "train.log", range(3)), tmp_path / "root", Request(rollouts=path))
    assert not list((tmp_path / "root").glob("*"))


def test_a_missing_dump_ends_with_a_sentence(tmp_path, capsys):
    log = console(tmp_path / "train.log", range(3))
    assert main(["import", str(log), "--rollouts", str(tmp_path / "none"), "--root", str(tmp_path / "root")]) == 2
    assert "no dump of rollouts" in capsys.readouterr().err


def test_a_dump_cut_in_a_line_is_read_up_to_there(tmp_path):
    folder = dump(tmp_path / "rollouts", (1, 2))
    path = folder / "2.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    notes = Notes()
    assert [len(responses) for _, responses in steps_of(folder, notes)] == [4, 3]
    assert notes.told() == ["1 lines that are no response (2.jsonl, line 4)"]
    assert is_dump(folder)
