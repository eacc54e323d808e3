"""Two gloo processes under torchrun: their sums are those of one rank, counts exactly, and so is the gradient."""

import json
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from regimescope.trainer.loss.statistics import BUCKET_SIZE, COLUMNS, COUNTS

SCRIPT = Path(__file__).with_name("two_ranks.py")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_two_ranks_add_up_to_one(tmp_path: Path) -> None:
    out = tmp_path / "two.json"
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_addr", "127.0.0.1"]
    command = [sys.executable, *launch, "--master_port", str(free_port()), str(SCRIPT), str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    two = json.loads(out.read_text())
    assert two["ranks"] == 2
    sums, grads = runpy.run_path(str(SCRIPT))["run"](0, 1)
    for one, other in zip(sums.tolist(), two["sums"], strict=True):  # one row per task
        assert other == pytest.approx(one, rel=1e-9, abs=1e-9)
        for column in (*COUNTS, "entropy_effect_tokens"):
            at = COLUMNS.index(column)
            assert other[at : BUCKET_SIZE : len(COLUMNS)] == one[at : BUCKET_SIZE : len(COLUMNS)], column
    of = {name: COLUMNS.index(name) for name in ("tokens", "clip_high", "clip_low", "entropy_effect_tokens")}
    totals = {name: sum(sums.sum(0).tolist()[at : BUCKET_SIZE : len(COLUMNS)]) for name, at in of.items()}
    assert all(totals.values()), totals  # the batch shows every one of them
    flat = [x for grad in grads for x in grad.flatten().tolist()]
    assert two["grad"] == pytest.approx(flat, rel=1e-9, abs=1e-12)
