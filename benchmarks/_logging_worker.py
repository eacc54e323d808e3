"""Runs in the peers' environment for `recording` and `reading`: one logger, one run, measured.

    python -m benchmarks._logging_worker LOGGER FOLDER STEPS SCALARS [SECONDS]       prints one JSON object

SECONDS: length of a step; 0, the default, is a tight loop. Only the log calls are timed one by one; the whole, until
everything is on disk, is timed from the first call to the end of `close`. CPU: of this process, all threads, over the
same stretch, and of its child processes over their life.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import cast

from benchmarks._loggers import LOGGERS, LogModule, payload


def main(name: str, folder: Path, steps: int, scalars: int, every_s: float) -> dict[str, float]:
    """Write a run and say what it took."""
    os.environ |= {"TRACKIO_DIR": str(folder)}
    os.environ |= {f"WANDB_{place}_DIR": str(folder.parent / "wandb") for place in ("CACHE", "CONFIG", "DATA")}
    product, _, variant = name.partition(", ")
    module = LOGGERS.get(name) or next(m for known, m in LOGGERS.items() if known.startswith(product))
    logger = cast(LogModule, import_module(f"benchmarks._loggers.{module}")).start(folder, variant)
    given = payload(steps, scalars)
    empty = size(folder)
    gc.collect()
    calls, clock, log = [0] * steps, time.perf_counter_ns, logger.log
    children, cpu, start = child_cpu(), time.process_time(), time.perf_counter()
    for step, metrics in enumerate(given):
        if every_s:
            time.sleep(max(0.0, start + step * every_s - time.perf_counter()))
        before = clock()
        log(step, metrics)
        calls[step] = clock() - before
    logger.close()
    spent = {
        "wall_s": time.perf_counter() - start,
        "cpu_s": time.process_time() - cpu,
        "child_cpu_s": child_cpu() - children,
    }
    calls.sort()
    return {
        **spent,
        "p50_us": calls[steps // 2] / 1e3,
        "p99_us": calls[steps * 99 // 100] / 1e3,
        "worst_us": calls[-1] / 1e3,
        "bytes_per_point": (size(folder) - empty) / (steps * scalars),
    }


def child_cpu() -> float:
    """CPU seconds of the child processes that have ended and were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def size(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    every = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    measured = main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), every)
    print("\n" + json.dumps(measured))  # the last line: what the loggers say stands before it
