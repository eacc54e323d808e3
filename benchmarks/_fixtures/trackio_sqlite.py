"""trackio: its SQLite file."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import trackio
from benchmarks._fixtures import STEPS, Truth, note, numbers


def write_trackio(folder: Path) -> Truth:
    """Two runs of a project, one with what is no finite number."""
    truth: Truth = {}
    for seed, name in ((1, "first"), (2, "second")):
        trackio.init(
            project="fixtures", name=name, embed=False, auto_log_gpu=False, auto_log_cpu=False, config={"a": 1}
        )
        for step in range(STEPS):
            values = numbers(step, seed)
            if step == 3:
                values |= {"train/grad_norm": math.inf, "train/entropy": math.nan}
            trackio.log(values, step=step)
            note(truth, name, step, values)
        trackio.finish()
    for path in list(folder.iterdir()):
        if path.suffix != ".db":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return truth
