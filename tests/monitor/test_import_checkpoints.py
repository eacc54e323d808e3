"""Checkpoints that a foreign log tells of become events of the launch that wrote them; deleted ones are gone."""

from pathlib import Path

from regimescope.monitor import query
from regimescope.monitor.imports.run import Request, import_log
from regimescope.monitor.private import read_run

REAL = Path(__file__).parents[1] / "data" / "real_logs"


def checkpoints(log, tmp_path):
    """Step and path of those that are still there."""
    done = import_log(log, tmp_path / "runs", Request())
    with read_run(str(done.folder), None) as view, view.monitor.store.cursor() as con:
        found = query.checkpoints(con, view.run.run_key)
        return [(e.step, e.data["path"]) for e in found], query.step_count(con, view.run.run_key)


def written(tmp_path, *lines):
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines) + "\n")
    return log


def trl(step, epoch, bar=True):
    return (f"{step}/300 [00:10<01:00] " if bar else "") + f"{{'loss': '0.1', 'reward': '0.5', 'epoch': '{epoch:.3f}'}}"


def test_a_public_verl_log_tells_of_its_checkpoints(tmp_path):
    found, _ = checkpoints(REAL / "verl_notebook_outputs.ipynb", tmp_path)
    assert [step for step, _ in found] == [9, 19, 29, 39, 49, 59]
    assert found[0][1] == "checkpoints/verl_examples/gsm8k/actor/global_step_9"


def test_todays_verl_tells_before_the_row_of_the_step_and_deletes_old_ones(tmp_path):
    lines = []
    for step in range(1, 7):
        lines += [f"(TaskRunner pid=4) local_global_step_folder: ckpt/a/global_step_{step}"] if step % 2 == 0 else []
        gone = (
            f"(WorkerDict pid=5) Checkpoint manager remove previous save local path: /x/ckpt/a/global_step_{step - 4}"
        )
        lines += [f"{gone}/actor"] if step == 6 else []
        lines.append(f"(TaskRunner pid=4) step:{step} - actor/entropy:0.4 - critic/score/mean:0.5")
    found, steps = checkpoints(written(tmp_path, *lines, "done"), tmp_path)
    assert found == [(4, "ckpt/a/global_step_4"), (6, "ckpt/a/global_step_6")] and steps == 6


def test_a_checkpoint_of_a_step_that_a_restart_does_again_is_the_new_one(tmp_path):
    def verl(step, folder):
        return [f"local_global_step_folder: {folder}/global_step_{step}", f"step:{step} - actor/entropy:0.4 - a/b:1"]

    first = [line for step in (1, 2, 3) for line in verl(step, "old")]
    again = [line for step in (2, 3) for line in verl(step, "new")]
    found, _ = checkpoints(written(tmp_path, *first, *again, "done"), tmp_path)
    assert found == [(1, "old/global_step_1"), (2, "new/global_step_2"), (3, "new/global_step_3")]


def test_the_trainers_console_tells_them_where_it_logs_at_info(tmp_path):
    lines = []
    for i in range(1, 7):
        lines.append(trl(10 * i, i / 100))
        if i % 2 == 0:
            lines.append(
                f"[INFO|trainer.py:4149] 2026-11-01 10:00:0{i} >> Saving model checkpoint to out/checkpoint-{10 * i}"
            )
        if i == 6:
            lines.append(
                "[INFO|trainer.py:2035] >> Deleting older checkpoint [out/checkpoint-20] due to args.save_total_limit"
            )
    found, steps = checkpoints(written(tmp_path, *lines), tmp_path)
    assert found == [(40, "out/checkpoint-40"), (60, "out/checkpoint-60")] and steps == 6


def test_where_rows_have_no_step_of_their_own_no_checkpoint_is_placed_among_them(tmp_path):
    lines = [
        line
        for i in (1, 2, 3)
        for line in (trl(10 * i, i / 100, bar=False), f"Saving model checkpoint to o/checkpoint-{i}")
    ]
    found, steps = checkpoints(written(tmp_path, *lines), tmp_path)
    assert found == [] and steps == 3


def test_model_text_that_speaks_of_a_checkpoint_is_none(tmp_path):
    lines = [trl(10, 0.01), "I am Saving model checkpoint to win: checkpoint-50 was a good street", trl(20, 0.02)]
    assert checkpoints(written(tmp_path, *lines), tmp_path)[0] == []
