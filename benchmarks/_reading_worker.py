"""Runs for `reading`, in the peers' environment or in ours: one reader over one run, timed.

    python -m benchmarks._reading_worker MODULE FOLDER METRICS ROUNDS       prints one JSON object

MODULE is one of benchmarks/_loggers. Loads one metric, six, and all METRICS of them. Databases are open before (ours,
mlflow's; trackio opens its own in microseconds), files are read from their beginning. A reader that takes more than
SLOW_S is asked once. Prints seconds per load, and the number of points that came with each.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import cast

from benchmarks._loggers import LoadModule, metric_names

SLOW_S = 3.0


def main(module: str, folder: Path, metrics: int, rounds: int) -> dict[str, dict[str, float]]:
    """Kind of load -> seconds and points."""
    os.environ |= {"TRACKIO_DIR": str(folder), "TRACKIO_DISABLE_LOGS_CACHE": "1"}
    reader = cast(LoadModule, import_module(f"benchmarks._loggers.{module}"))
    if hasattr(reader, "opened"):
        reader.opened(folder)
    names = metric_names(metrics)
    found = {}
    for kind, wanted in (("one", names[:1]), ("six", names[:6]), ("all", None)):
        taken: list[float] = []
        while len(taken) < rounds and sum(taken) < SLOW_S:
            gc.collect()
            start = time.perf_counter()
            loaded = reader.load(folder, wanted)
            taken.append(time.perf_counter() - start)
            count = loaded.points
            del loaded
        found[kind] = {"seconds": median(taken), "points": count}
    return found


if __name__ == "__main__":
    print("\n" + json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
