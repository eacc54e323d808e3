"""A training process for the comparison in `dashboard`: a history at once, then a row a second, by one of the loggers.

    python -m benchmarks._dashboard_worker LOGGER FOLDER STEPS SECONDS     prints "ready", then "STEP TIME" of each row

Runs in benchmarks/.venv-peers. The ten metrics are those of `_trainer_worker`. TensorBoard's file is flushed after each
row: its writer would keep them for two minutes.
"""

from __future__ import annotations

import random
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import cast

from benchmarks._loggers import LOGGERS, LogModule
from benchmarks._trainer_worker import HEALTHY


def main(name: str, folder: Path, steps: int, seconds: float) -> None:
    """Record until the time is over; ends early when standard output is closed."""
    module = cast(LogModule, import_module(f"benchmarks._loggers.{LOGGERS[name]}"))
    logger = module.start(folder, name.partition(", ")[2])
    flush = getattr(logger, "flush", None)
    draw = random.Random(3).gauss
    for step in range(steps):
        logger.log(step, {metric: draw(*around) for metric, around in HEALTHY.items()})
    if flush is not None:
        flush()
    print("ready", flush=True)
    start = time.monotonic()
    for step in range(steps, steps + int(seconds)):
        time.sleep(max(0.0, start + step - steps - time.monotonic()))
        logger.log(step, {metric: draw(*around) for metric, around in HEALTHY.items()})
        if flush is not None:
            flush()
        print(step, time.time(), flush=True)
    logger.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
