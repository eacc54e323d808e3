"""One detector over many runs, one row after the other: `python -m benchmarks.scorecard.worker NAME JOB OUT`.

JOB is a JSON file of runs (name, objective, rows, whole; told: what a run of ours tells beside each row); OUT gets, per
run, its alarms as (row, name, level), the rows it was given and the CPU seconds it took.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scorecard.watchers import DETECTORS

Alarms = list[tuple[int, str, str]]


def watch(name: str, runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, object]]:
    """What the detector of `benchmarks.scorecard.watchers.<name>` says about each run."""
    module = importlib.import_module(f"benchmarks.scorecard.watchers.{name}")
    limit = DETECTORS[name].limit
    return {run["name"]: _watch(module.Watcher, run, None if run.get("whole") else limit) for run in runs}


def _watch(make: Any, run: dict[str, Any], limit: int | None) -> dict[str, object]:
    rows, told = run["rows"][:limit], run.get("told")
    with tempfile.TemporaryDirectory() as folder:
        watcher = make(Path(folder), run["objective"])
        tell = getattr(watcher, "tell", None) if told else None
        alarms: Alarms = []
        begin = time.process_time()
        for index, row in enumerate(rows):
            if tell is not None:
                tell(**told[index])
            alarms += [(index, alarm.name, alarm.level) for alarm in watcher.update(row)]
        seconds = time.process_time() - begin
        watcher.close()
    return {"alarms": alarms, "rows": len(rows), "seconds": seconds}


def main(argv: Sequence[str]) -> int:
    name, job, out = argv
    runs = json.loads(Path(job).read_text(encoding="utf-8"))
    with contextlib.redirect_stdout(io.StringIO()):  # some talk
        answers = watch(name, runs)
    Path(out).write_text(json.dumps(answers), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
