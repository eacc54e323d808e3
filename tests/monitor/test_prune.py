"""`regimescope prune`: what goes, what stays, and that a living run and anything behind a link are left alone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regimescope.monitor import prune
from regimescope.monitor.errors import RegimescopeError, RunError
from regimescope.monitor.store import Store, index_path

HOLD = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print('held', flush=True); sys.stdin.read()"
OWN = (
    "import sys; from regimescope.monitor.store import Store; s = Store.open(sys.argv[1]); print('held', flush=True); "
    "sys.stdin.read()"
)


def age(root: Path, days: float, run: str = "run") -> None:
    at = time.time() - days * 86400
    for path in (root / run / "segments").iterdir():
        os.utime(path, (at, at))


def checkpoint(run: Path, step: int, *, keep: bool = False, size: int = 1000) -> Path:
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text("{}")
    (folder / "trainer.pt").write_bytes(b"x" * size)
    if keep:
        (folder / "keep").touch()
    return folder


def partial(run: Path, step: int, *, hours: float) -> Path:
    folder = run / "checkpoints" / f"step-{step:08d}.partial"
    folder.mkdir(parents=True)
    at = time.time() - hours * 3600
    os.utime(folder, (at, at))
    return folder


@pytest.fixture
def quiet(collapsed, root: Path) -> Path:
    """A run that ended two days ago, with checkpoints."""
    run = root / "run"
    for step in (1, 2, 3):
        checkpoint(run, step, keep=step == 2)
    age(root, 2)
    return run


def hold(code: str, path: Path) -> Iterator[None]:
    """Another process that holds a lock."""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


@pytest.fixture
def trainer_runs(quiet: Path) -> Iterator[None]:
    yield from hold(HOLD, quiet / "trainer.lock")


@pytest.fixture
def index_owned(root: Path) -> Iterator[None]:
    yield from hold(OWN, root)


def names(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoints").iterdir())


def test_old_checkpoints_go_newest_and_kept_ones_stay(quiet: Path, root: Path, capsys) -> None:
    segments = {p: p.read_bytes() for p in (quiet / "segments").iterdir()}
    assert prune.main([str(root), "--yes"]) == 0
    assert names(quiet) == ["step-00000002", "step-00000003"]
    assert {p: p.read_bytes() for p in (quiet / "segments").iterdir()} == segments
    out = capsys.readouterr().out
    assert "checkpoint  run/checkpoints/step-00000001" in out and "freed 0.00 MB: 1 item deleted" in out
    assert prune.main([str(root), "--yes"]) == 0
    assert capsys.readouterr().out == "nothing to delete\n"


def test_checkpoints_that_a_return_set_aside_go(quiet: Path, root: Path) -> None:
    aside = quiet / "checkpoints" / "superseded-1"
    aside.mkdir()
    for step, keep in ((8, False), (9, True)):
        checkpoint(quiet, step, keep=keep).rename(aside / f"step-{step:08d}")
    assert prune.main([str(root), "--yes"]) == 0
    assert [path.name for path in aside.iterdir()] == ["step-00000009"]
    assert names(quiet) == ["step-00000002", "step-00000003", "superseded-1"]


def test_sizes_are_of_files_and_not_behind_links(quiet: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 10**6)
    (quiet / "checkpoints" / "step-00000001" / "link").symlink_to(tmp_path / "big")
    (item,) = prune.make_plan(root).items
    assert 1002 <= item.size < 2000


def test_partial_folders_go_when_old(quiet: Path, root: Path) -> None:
    old, young = partial(quiet, 4, hours=2), partial(quiet, 5, hours=0)
    prune.main([str(root), "--yes"])
    assert not old.exists() and young.exists()
    assert "step-00000003" in names(quiet), "a .partial folder is not the newest checkpoint"


def test_what_is_no_checkpoint_of_ours_stays(quiet: Path, root: Path) -> None:
    (quiet / "checkpoints" / "step-00000000").mkdir()
    (quiet / "checkpoints" / "mine").mkdir()
    prune.main([str(root), "--yes"])
    assert {"step-00000000", "mine"} <= set(names(quiet))


def test_a_run_whose_trainer_holds_its_lock_is_left_alone(quiet: Path, root: Path, trainer_runs, capsys) -> None:
    assert prune.main([str(root), "--yes", "--runs", "1"]) == 0
    assert len(names(quiet)) == 3
    assert "left alone: run: alive, its trainer holds trainer.lock" in capsys.readouterr().out


def test_a_lock_file_that_nobody_holds_is_no_sign_of_life(quiet: Path, root: Path) -> None:
    (quiet / "trainer.lock").touch()
    prune.main([str(root), "--yes"])
    assert len(names(quiet)) == 2


def test_a_run_that_grew_a_moment_ago_is_left_alone(quiet: Path, root: Path, capsys) -> None:
    age(root, 0)
    prune.main([str(root), "--yes", "--runs", "0"])
    assert len(names(quiet)) == 3
    assert "may be alive, its segments grew" in capsys.readouterr().out


def test_a_run_that_came_to_life_while_the_question_waited(quiet: Path, root: Path, capsys) -> None:
    plan = prune.make_plan(root)
    age(root, 0)
    assert prune.delete_all(root, plan) == 1
    assert len(names(quiet)) == 3
    assert "not deleted: run/checkpoints/step-00000001: may be alive" in capsys.readouterr().err


def test_links_are_not_followed(quiet: Path, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for step in (1, 2):
        checkpoint(outside, step)
    (root / "linked").mkdir()
    (root / "linked" / "segments").mkdir()
    (root / "linked" / "checkpoints").symlink_to(outside / "checkpoints")
    (root / "whole").symlink_to(outside)
    (quiet / "checkpoints" / "step-00000000").symlink_to(outside / "checkpoints" / "step-00000001")
    assert [item.name for item in prune.make_plan(root).items] == ["run/checkpoints/step-00000001"]
    prune.main([str(root), "--yes"])
    assert names(outside) == ["step-00000001", "step-00000002"]
    assert (outside / "checkpoints" / "step-00000001" / "trainer.pt").exists()


def test_a_link_put_in_place_of_a_folder_meanwhile(quiet: Path, root: Path, tmp_path: Path, capsys) -> None:
    plan = prune.make_plan(root)
    (quiet / "checkpoints").rename(tmp_path / "moved")
    (quiet / "checkpoints").symlink_to(tmp_path / "moved")
    assert prune.delete_all(root, plan) == 1
    assert (tmp_path / "moved" / "step-00000001").exists()
    assert "no longer lies below the root" in capsys.readouterr().err


def test_the_index_goes_when_nobody_owns_it(quiet: Path, root: Path) -> None:
    Store.open(root).close()
    beside = index_path(root).with_name("other")
    beside.touch()
    prune.main([str(root), "--yes"])
    assert not index_path(root).exists() and beside.exists()


def test_a_file_of_another_program_in_the_place_of_the_index_stays(quiet: Path, root: Path, capsys) -> None:
    index_path(root).parent.mkdir(parents=True, exist_ok=True)
    index_path(root).write_bytes(b"SQLite format 3\0" + bytes(100))
    assert prune.main([str(root), "--yes"]) == 0
    assert index_path(root).exists() and "none of ours" in capsys.readouterr().out


def test_the_index_of_another_process_stays(quiet: Path, root: Path, index_owned, capsys) -> None:
    prune.main([str(root), "--yes"])
    assert index_path(root).exists()
    assert f"left alone: {index_path(root)}: the index is in use" in capsys.readouterr().out


def test_whole_runs_go_only_when_asked_ended_and_old(quiet: Path, root: Path, trainer) -> None:
    crashed = type(trainer)(root / "crashed")
    recorder = crashed.open()
    crashed.step(recorder, 0)
    recorder.close()
    age(root, 30, "crashed")
    prune.main([str(root), "--yes", "--runs", "3"])
    assert quiet.exists()
    prune.main([str(root), "--yes", "--runs", "1"])
    assert not quiet.exists() and (root / "crashed").exists() and root.exists()


def test_a_root_that_is_a_run_and_a_run_around_a_run_stay(quiet: Path, root: Path, capsys) -> None:
    prune.main([str(quiet), "--yes", "--runs", "1"])
    assert quiet.exists() and "never deleted" in capsys.readouterr().out
    (quiet / "inner" / "segments").mkdir(parents=True)
    prune.main([str(root), "--yes", "--runs", "1"])
    assert quiet.exists() and "another run lies inside it, in inner" in capsys.readouterr().out


def test_without_a_terminal_it_wants_yes(quiet: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(RegimescopeError, match=r"Delete 1 item, 0\.00 MB\? Nobody can be asked here: say --yes"):
            prune.main([str(root)])
    assert len(names(quiet)) == 3


@pytest.mark.parametrize(("answer", "left"), [("n", 3), ("", 3), ("y", 2)])
def test_at_a_terminal_it_asks(quiet: Path, root: Path, answer: str, left: int) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "regimescope.cli", "prune", str(root)]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.write(ours, f"{answer}\n".encode())
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert "Delete 1 item, 0.00 MB? [y/N]" in out and process.returncode == 0
    assert len(names(quiet)) == left


def test_a_missing_root_and_wrong_days_are_mistakes(root: Path) -> None:
    with pytest.raises(RunError, match="no folder"):
        prune.main([str(root / "missing")])
    for wrong in ("-1", "nan", "soon"):
        with pytest.raises(SystemExit):
            prune.main([str(root), "--runs", wrong])
