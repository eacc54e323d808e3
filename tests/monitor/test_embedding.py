"""docs/embedding.md is true: each of its programs runs as it stands and records what it says."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
RECORDED = {
    "runs/my-run": ("step", 100),
    "runs/my-dispo-run": ("buckets", 1),
    "runs/with-rollouts": ("rollouts", 10),
    "runs/steered": ("step", 100),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_the_page_run(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (path,) = tmp_path.glob("runs/*/segments/*.jsonl")
    kind, count = RECORDED[path.parents[1].relative_to(tmp_path).as_posix()]
    kinds = [json.loads(line)["k"] for line in path.read_bytes().splitlines()]
    assert kinds.count(kind) == count
    assert kinds[-1] == "end"


def test_every_program_is_run() -> None:
    assert len(PROGRAMS) == len(RECORDED)


@pytest.mark.parametrize("name", ["bounds", "header_writer", "launch", "metrics", "record", "wire"])
def test_examples_in_the_code(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"regimescope.monitor.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
