"""Logs of other people's trainers: every public log of tests/data/real_logs imports, or is refused for the right
reason.
"""

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.cli import main
from regimescope.monitor import query
from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports import aliases, verl_console
from regimescope.monitor.imports.formats import Options
from regimescope.monitor.imports.mapping import Mapper, parse_map
from regimescope.monitor.imports.rows import LogRow, Notes
from regimescope.monitor.imports.run import Request, import_log, name_of
from regimescope.monitor.imports.steps import Steps
from regimescope.monitor.imports.text import plain
from regimescope.monitor.metrics import METRICS
from regimescope.monitor.private import read_run

REAL = Path(__file__).parents[1] / "data" / "real_logs"
READ = {
    "custom_metrics_restarts.jsonl": ("JSON lines", None, 44, 0, 40),
    "custom_step_logs.json": ("JSON list", None, 990, 11, 1000),
    "slurm_console.out": ("HF Trainer console", "trl", 15, 1, 15),
    "tinker_metrics.jsonl": ("JSON lines", "tinker", 57, 0, 56),
    "tinker_metrics_short.jsonl": ("JSON lines", "tinker", 7, 0, 6),
    "trl_console.log": ("HF Trainer console", "trl", 10, 5, 50),
    "trl_trainer_state_1000.json": ("HF trainer_state.json", "trl", 200, 5, 1000),
    "trl_trainer_state_50.json": ("HF trainer_state.json", "trl", 10, 5, 50),
    "trl_trainer_state_old_keys.json": ("HF trainer_state.json", "trl", 250, 1, 250),
    "trl_trainer_state_shortening_healthy.json": ("HF trainer_state.json", "trl", 25, 10, 250),
    "verl_console_old_with_samples.log": ("verl console", "verl", 1, 1, 1),
    "verl_notebook_outputs.ipynb": ("verl console, notebook outputs", "verl", 61, 0, 60),
}
REFUSED = {
    "summary_one_row_per_run.csv": "several runs",
    "sweep_summary.csv": "a row per run",
    "verl_startup_crash.log": "ended before its first step (NotImplementedError)",
}


def read(log, tmp_path, **request):
    """(what became of it, metric -> {step: value}) of an import into a root of its own."""
    done = import_log(log, tmp_path / "root", Request(**request))
    with read_run(str(done.folder), None) as view, view.monitor.store.cursor() as con:
        key = view.run.run_key
        names = query.metric_names(con, key)
        found = query.history(con, key, 0, list(names))
        series = {
            name: dict(zip(history.steps.tolist(), history.values.tolist(), strict=True))
            for name, history in found.items()
        }
        return done, series, view.run


def write(tmp_path, name, text, encoding="utf-8"):
    log = tmp_path / name
    log.write_bytes(text.encode(encoding))
    return log


@pytest.mark.parametrize("name", READ)
def test_a_public_log_is_read(name, tmp_path):
    done = import_log(REAL / name, tmp_path, Request())
    assert (done.format, done.framework, done.steps, done.first, done.last) == READ[name]
    assert "loss" in done.mapped or "reward_mean" in done.mapped


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_log_over_steps_is_refused_for_its_own_reason(name, tmp_path):
    with pytest.raises(ImportFailed, match=re.escape(REFUSED[name])):
        import_log(REAL / name, tmp_path, Request())
    assert list(tmp_path.iterdir()) == []


def test_every_public_log_is_one_of_these():
    logs = {path.name for path in REAL.iterdir()} - {"SOURCES.tsv"}
    assert logs == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READ)
def test_public_logs_raise_no_alarm(name, capsys):
    assert main(["check", str(REAL / name), "--fail-on", "warning"]) == 0
    assert capsys.readouterr().out.startswith("OK")


def test_numbers_arrive_as_the_log_has_them(tmp_path):
    _, series, run = read(REAL / "verl_notebook_outputs.ipynb", tmp_path)
    text = "".join(
        "".join(output.get("text", []))
        for cell in json.loads((REAL / "verl_notebook_outputs.ipynb").read_text())["cells"]
        for output in cell.get("outputs", [])
    )
    told = {
        int(step): float(value) for step, value in re.findall(r"step:(\d+) - .*?response_length/mean:([\d.]+)", text)
    }
    assert series["response_length_mean"] == told and len(told) == 61
    assert run.status == "imported" and run.framework == "verl"


def test_where_a_metric_comes_from_is_kept(tmp_path):
    done = import_log(REAL / "trl_trainer_state_1000.json", tmp_path, Request())
    with read_run(str(done.folder), None) as view, view.monitor.store.cursor() as con:
        sources = {source.name: source for source in query.metric_sources(con, view.run.run_key)}
        imported_from = view.run.imported_from
    assert imported_from == "HF trainer_state.json"
    assert (sources["truncated_frac"].source_key, sources["truncated_frac"].trust) == (
        "completions/clipped_ratio",
        "exact",
    )
    assert (sources["tokens"].transform, sources["reward_std"].trust) == ("diff", "proxy")


TRL = "{{'loss': '{loss}', 'grad_norm': '0.1', 'reward': '{reward}', 'entropy': {entropy}, 'epoch': '{epoch}'}}"


def trl_line(i, entropy="0.5", epoch=None):
    return TRL.format(loss=0.001 * i, reward=i / 10, entropy=entropy, epoch=epoch or i / 100)


def test_a_progress_bar_glued_to_the_row_tells_the_step(tmp_path):
    bars = "".join(f"\r{n}%|#  | {n}/300 [00:0{n % 10}<1:00, 2.3s/it]" for n in range(1, 10))
    text = bars + "\r 3%|# | 10/300 [00:20<9:00, 2s/it]" + trl_line(1) + "\r 6%|# | 20/300 [00:40<8:00]" + trl_line(2)
    done, series, _ = read(write(tmp_path, "a.log", text + "\n"), tmp_path)
    assert series["reward_mean"] == {10: 0.1, 20: 0.2} and done.left_out == []


def test_other_bars_are_no_steps_and_rows_are_counted_where_there_are_none(tmp_path):
    text = "Map: 100%|##| 5/7000 [00:01<00:00]\n" + "\n".join(trl_line(i) for i in (1, 2, 3))
    done, series, _ = read(write(tmp_path, "a.log", "no bar\n" + text.partition("\n")[2]), tmp_path)
    assert sorted(series["reward_mean"]) == [1, 2, 3]
    assert any("counted" in note for note in done.left_out)


def test_nan_and_infinity_are_kept_and_evaluations_stand_apart(tmp_path):
    rows = [
        trl_line(1, "nan"),
        trl_line(2, "inf"),
        "{'eval_reward': 0.75, 'eval_runtime': 3.1, 'epoch': 0.02}",
        trl_line(3),
    ]
    rows.append("{'train_runtime': 100.0, 'train_loss': 0.01, 'epoch': 1.0}")
    done, series, _ = read(write(tmp_path, "a.log", "\n".join(rows)), tmp_path)
    assert math.isnan(series["entropy_mean"][1]) and series["entropy_mean"][2] == math.inf
    assert series["eval.reward_mean"] == {2: 0.75} and done.evaluations == 1
    assert done.steps == 3 and done.left_out[-1].startswith("1 final summaries")


def test_a_second_run_in_the_same_console_is_a_launch_of_its_own(tmp_path):
    rows = [trl_line(i) for i in (1, 2, 3, 4)] + [trl_line(i) for i in (1, 2)]
    done, series, _ = read(write(tmp_path, "a.log", "\n".join(rows)), tmp_path)
    assert done.launches == [(1, 4), (1, 2)]
    assert sorted(series["reward_mean"]) == [1, 2]  # the later one counts from its first step on


VERL = (
    "\x1b[36m(TaskRunner pid=42, ip=::1)\x1b[0m step:{i} - actor/entropy:0.4{i} - critic/score/mean:np.float64(1.{i}) "
    "- response_length/mean:24{i}.5 - val-core/openai/gsm8k/acc/mean@8:0.5{i} [repeated 2x across cluster]"
)


def test_a_verl_console_with_colours_prefixes_wrappers_and_model_text(tmp_path):
    lines = []
    for i in range(1, 6):
        lines += [VERL.format(i=i), "<think> in step: 3 - we divide. step:9 is next", "(vLLM pid=7) INFO loading"]
    done, series, _ = read(write(tmp_path, "a.log", "\n".join(lines)), tmp_path)
    assert done.framework == "verl" and done.steps == 5 and done.envs == {"openai/gsm8k"}
    assert series["reward_mean"] == {i: float(f"1.{i}") for i in range(1, 6)}
    assert series["eval.accuracy"][5] == 0.55


def verl_rows():
    record = json.loads((REAL / "verl_notebook_outputs.ipynb").read_text())
    lines = [
        line for cell in record["cells"] for output in cell.get("outputs", []) for line in output.get("text") or []
    ]
    return [plain(line.rstrip("\n")) for line in lines if " step:" in line][:12]


def read_verl(lines):
    reader = verl_console.Reader(Notes())
    return [row for line in [*lines, ""] for row in reader.feed(line)]


WHOLE = verl_rows()


@given(st.integers(70, 400), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_paste_wrapped_at_any_width_reads_as_the_line_did(width, stripped):
    pieces = [line[at : at + width] for line in WHOLE for at in range(0, len(line), width)]
    assert read_verl([piece.strip() for piece in pieces] if stripped else pieces) == read_verl(WHOLE)


def test_text_after_a_row_does_not_join_it():
    for text in ("Answer: 42", "so - it is - fine", "The final value is 7", "-----------", "12"):
        rows = read_verl([WHOLE[0], text, WHOLE[1]])
        assert rows == read_verl(WHOLE[:2]), text


def test_verls_file_logger_and_sparse_rows_of_one_step(tmp_path):
    lines = [json.dumps({"step": i, "data": {"actor/entropy": 0.1 * i, "critic/score/mean": i}}) for i in (1, 2)]
    _, series, _ = read(write(tmp_path, "a.jsonl", "\n".join(lines)), tmp_path / "1")
    assert series["entropy_mean"] == {1: 0.1, 2: 0.2}
    rows = [{"step": 3, "entropy/math/mean": 0.4}, {"step": 3, "optim/lr": 1e-6}, {"step": 4, "entropy/math/mean": 0.3}]
    log = write(tmp_path, "b.jsonl", "\n".join(map(json.dumps, rows)))
    done, series, _ = read(log, tmp_path / "2", framework="prime-rl")
    assert done.steps == 2 and series["lr"] == {3: 1e-6} and series["entropy_mean"] == {3: 0.4, 4: 0.3}


def test_ms_swift_writes_the_step_inside_a_string(tmp_path):
    rows = [{"reward": 0.7, "completions/mean_length": 9.0, "global_step/max_steps": f"{i}/547"} for i in (1, 5)]
    _, series, _ = read(write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows))), tmp_path)
    assert series["reward_mean"] == {1: 0.7, 5: 0.7}


def test_a_notebook_service_exports_pieces_of_a_stream(tmp_path):
    text = f"\r 1%| 10/300 [0:01<1:00]\r{trl_line(1)}\n"
    pieces = [text[:30], text[30:]]
    items = [json.dumps({"stream_name": "stdout", "time": 1.0, "data": piece}) for piece in pieces]
    _, series, _ = read(write(tmp_path, "a.log", "[" + "\n,".join(items) + "\n]"), tmp_path)
    assert series["reward_mean"] == {10: 0.1}


def test_an_export_of_wandb_as_csv_and_its_runs(tmp_path):
    text = 'Step,"run a - train/reward","run a - train/reward__MIN","run b - train/reward"\n1,0.5,0.5,0.1\n2,0.6,0.6,\n'
    log = write(tmp_path, "a.csv", text)
    with pytest.raises(ImportFailed, match=r"2 runs.*run a, run b"):
        import_log(log, tmp_path / "x", Request())
    done, series, _ = read(log, tmp_path / "1", options=Options(run="run a"), framework="trl")
    assert series["reward_mean"] == {1: 0.5, 2: 0.6} and "columns of other runs" in done.left_out[0]


def test_a_column_is_named_as_the_step(tmp_path):
    log = write(tmp_path, "a.csv", "it;score\n1;0.5\n2;0.75\n")
    with pytest.raises(ImportFailed, match="no column for the step"):
        import_log(log, tmp_path / "x", Request())
    assert main(["import", str(log), "--root", str(tmp_path / "r"), "--map", "it=step", "--map", "score=accuracy"]) == 0
    with read_run(str(tmp_path / "r" / "a"), None) as view, view.monitor.store.cursor() as con:
        assert query.history(con, view.run.run_key, 0, ["accuracy"])["accuracy"].values.tolist() == [0.5, 0.75]


def test_any_text_by_a_pattern(tmp_path):
    log = write(tmp_path, "a.txt", "\n".join(f"Epoch:[1/1]({i}/97), Reward: -1.{i}, KL_ref: -0.00{i}" for i in (4, 5)))
    pattern = r"\]\((?P<step>\d+)/.*Reward: (?P<reward_mean>\S+) KL_ref: (?P<kl_ref>\S+)"
    _, series, _ = read(log, tmp_path / "1", options=Options(pattern=pattern))
    assert series["reward_mean"] == {4: -1.4, 5: -1.5} and series["kl_ref"] == {4: -0.004, 5: -0.005}
    with pytest.raises(ImportFailed, match="named groups"):
        import_log(log, tmp_path / "2", Request(options=Options(pattern=r"\d+")))


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.log", b"", "is empty"),
        ("binary.bin", bytes(range(256)) * 64, "binary file"),
        ("cut.json", b'{"log_history": [{"step": 1, "loss": 0.5}, {"st', "complete"),
        ("other.json", b'{"a": 1,\n "b": 2}', "log_history"),
        ("prose.txt", b"Once upon a time\nthere was a run\n" * 20, "no line of a trainer"),
        ("texts.jsonl", b'{"text": "a"}\n{"text": "b"}\n', "no step with a number"),
        ("deep.json", b"[" * 200_000, "nested"),
        (
            "foreign.jsonl",
            b'{"step": 1, "a": 1, "b": 2}\n{"step": 2, "a": 1, "b": 2}\n',
            "none of its keys is known (a, b)",
        ),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(name, data, reason, tmp_path, capsys):
    log = tmp_path / name
    log.write_bytes(data)
    assert main(["import", str(log), "--root", str(tmp_path / "root")]) == 2
    said = capsys.readouterr().err
    assert reason in said and said.count("\n") == 1
    assert not list((tmp_path / "root").glob("*")) and not list((tmp_path / "root").glob(".*"))


def test_a_log_that_was_cut_is_read_to_the_cut(tmp_path):
    lines = [json.dumps({"step": i, "loss": 1.0}) for i in range(5)]
    done, series, _ = read(write(tmp_path, "a.jsonl", "\n".join(lines)[:-7]), tmp_path)
    assert sorted(series["loss"]) == [0, 1, 2, 3] and done.left_out == ["1 lines that are no JSON (line 5)"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_any_encoding(encoding, tmp_path):
    text = "Prüfung é\n" + "\n".join(trl_line(i) for i in (1, 2)) + "\n"
    _, series, _ = read(write(tmp_path, "a.log", text, encoding), tmp_path)
    assert series["reward_mean"] == {1: 0.1, 2: 0.2}


def test_a_key_that_nobody_knows_keeps_its_name_and_is_listed(tmp_path):
    log = write(tmp_path, "a.jsonl", "\n".join(json.dumps({"step": i, "my/own": i, "reward": 1}) for i in (1, 2)))
    done, series, _ = read(log, tmp_path)
    assert done.unmapped == ["my/own"] and series["my/own"] == {1: 1.0, 2: 2.0}


def test_a_folder_that_is_there_is_not_written_over(tmp_path):
    log = REAL / "trl_console.log"
    import_log(log, tmp_path, Request())
    with pytest.raises(ImportFailed, match="--name"):
        import_log(log, tmp_path, Request())


def test_a_table_with_a_row_per_micro_batch_is_not_a_thousand_launches(tmp_path):
    rows = "\n".join(json.dumps({"step": i // 2, "loss": i}) for i in range(400))
    with pytest.raises(ImportFailed, match="several rows per step"):
        import_log(write(tmp_path, "a.jsonl", rows), tmp_path / "r", Request())


def test_the_table_of_keys_makes_sense():
    for alias in aliases.table():
        assert alias.canonical.removeprefix("eval.") in METRICS, alias
        assert alias.unit == METRICS[alias.canonical.removeprefix("eval.")].unit, alias
        assert alias.canonical != "accuracy", "accuracy is never inferred"


@pytest.mark.parametrize("framework", aliases.frameworks())
def test_a_framework_is_told_by_its_own_keys(framework):
    own = [
        a.source_key.replace("{env}", "math").replace("*", "x") for a in aliases.table() if framework in a.frameworks
    ]
    same_keys = {"ms-swift": "trl"}  # one of its keys in two is TRL's; the tie goes to TRL
    assert aliases.guess(own) in (framework, same_keys.get(framework))


def test_homonyms_are_kept_apart():
    trl, verl = Mapper(framework="trl"), Mapper(framework="verl")
    assert trl.map({"completions/clipped_ratio": 0.2, "clip_ratio/region_mean": 0.3})[None] == {
        "truncated_frac": 0.2,
        "clip_all": 0.3,
    }
    assert verl.map({"response_length/clip_ratio": 0.2, "actor/pg_clipfrac": 0.3, "actor/pg_clipfrac_lower": 0.0})[
        None
    ] == {"truncated_frac": 0.2, "clip_all": 0.3, "clip_neg_dual_all": 0.0}
    assert verl.map({"actor/entropy_loss": 0.4})[None] == {"entropy_mean": 0.4}


def test_environments_become_slices_and_one_alone_is_the_whole():
    one, two = Mapper(framework="tinker"), Mapper(framework="tinker")
    assert one.map({"env/math/reward/total": 0.5}) == {"math": {"reward_mean": 0.5}, None: {"reward_mean": 0.5}}
    rows = two.map({"env/math/reward/total": 0.5, "env/code/reward/total": 0.1})
    assert rows.get(None, {}) == {} and rows["code"] == {"reward_mean": 0.1}
    assert two.map({"env/all/reward/total": 0.3})[None] == {"reward_mean": 0.3}


def test_the_users_map_comes_first_and_its_order_is_checked():
    mapper = Mapper(framework="verl", user=parse_map(["critic/score/mean=accuracy"]))
    assert mapper.map({"critic/score/mean": 0.5})[None] == {"accuracy": 0.5}
    with pytest.raises(ImportFailed, match="comes first"):
        parse_map(["accuracy=critic/score/mean"])


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), min_size=1)),
        max_size=40,
    )
)
@settings(deadline=None)
def test_within_a_launch_steps_ascend_and_nothing_is_lost(rows):
    given_rows = [LogRow(values={k: float(v) for k, v in values.items()}, step=step) for step, values in rows]
    steps = [step for step in Steps().read(iter(given_rows)) if step is not None]
    for launch in {step.launch for step in steps}:
        at = [step.step for step in steps if step.launch == launch]
        assert at == sorted(set(at))
    told = {(row.step, key, value) for row in given_rows for key, value in row.values.items()}
    assert told == {(step.step, key, value) for step in steps for key, value in step.values.items()}


def test_the_folder_is_named_after_what_tells_runs_apart():
    assert name_of(Path("/x/grpo/checkpoint-50/trainer_state.json")) == "grpo-checkpoint-50"
    assert name_of(Path("/x/wandb/run-2025-abc/files/output.log")) == "run-2025-abc"
    assert name_of(Path("/x/my run (1).log")) == "my-run-1"
