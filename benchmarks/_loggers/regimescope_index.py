"""Our reader: the public query functions over the index. It runs in the environment of the package.

`load` wants the index in the folder that REGIMESCOPE_CACHE names; `build` makes it there from the segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from benchmarks._loggers import Loaded

from regimescope.monitor import query
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store


@cache
def opened(folder: Path) -> Store:
    """The index of the runs below `folder`, opened once in a process."""
    return Store.open(folder)


def build(folder: Path) -> None:
    """Segments -> index file, without the detectors."""
    store = Store.open(folder)
    Ingester(store).catch_up()
    store.close()


def load(folder: Path, names: Sequence[str] | None) -> Loaded:
    """By `history`, in one query for all."""
    with opened(folder).cursor() as con:
        run_key = query.run_key_of(con, "run")
        assert run_key is not None
        found = query.history(con, run_key, 0, names or query.metric_names(con, run_key))
    return Loaded(found, sum(map(len, found.values())))
