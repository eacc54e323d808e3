"""The Recorder inside a training loop that is not ours, in a process of its own: all arrives, and nothing changes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("torch_loop.py")


def run(run_dir: str, how: str = "sync") -> list[str]:
    done = subprocess.run([sys.executable, str(SCRIPT), run_dir, how], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("how", ["sync", "thread"])
def test_the_loss_is_the_same_bit_for_bit_with_and_without_recording(tmp_path: Path, how: str) -> None:
    without, with_ = run("-"), run(str(tmp_path / "run"), how)
    assert with_ == without and len(without) == 201
    (path,) = (tmp_path / "run" / "segments").glob("r*.jsonl")
    steps = [line for line in map(json.loads, path.read_text().splitlines()) if line["k"] == "step"]
    assert [line["s"] for line in steps] == list(range(200))
    assert [float(line["m"]["loss"]).hex() for line in steps] == without[:200]  # exact, after JSON
    assert {line["m"]["kl_ref"] for line in steps} == {"NaN"}
