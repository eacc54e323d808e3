"""One reader over one log, for `importing`: `_importing_worker READER FILE ROUNDS` prints seconds, points, peak memory.

READER is `ours` (every row of the log, in either environment), or a peer in its own: `accumulator`, `tbparse`,
`pandas_csv`, `pandas_jsonl`. Seconds are of the CPU, the least of all rounds.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from importlib import import_module
from pathlib import Path


def ours(path: Path) -> int:
    formats, rows = (import_module(f"regimescope.monitor.imports.{name}") for name in ("formats", "rows"))
    found = formats.open_log(path, rows.Notes(), formats.Options())
    return sum(len(row.values) for row in found if row is not None)


def accumulator(path: Path) -> int:
    """TensorBoard's own, of scalars without a limit."""
    module = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = module.EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    return sum(len(events.Scalars(tag)) for tag in events.Tags()["scalars"])


def tbparse(path: Path) -> int:
    return len(import_module("tbparse").SummaryReader(str(path)).scalars)


def pandas_csv(path: Path) -> int:
    found = import_module("pandas").read_csv(path)
    return int(found.shape[0] * (found.shape[1] - 1))


def pandas_jsonl(path: Path) -> int:
    found = import_module("pandas").read_json(path, lines=True)
    return int(found.shape[0] * (found.shape[1] - 1))


def main(reader: str, path: Path, rounds: int) -> dict[str, float]:
    taken = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        points = globals()[reader](path)
        taken.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": min(taken), "points": points, "peak_mb": peak}


if __name__ == "__main__":
    print("\n" + json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
