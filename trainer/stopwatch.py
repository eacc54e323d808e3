"""Seconds per part of a step: `clock = Stopwatch()`, `with clock("rollout"): ...`, `clock.seconds["rollout"]`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up what each part took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        "Part -> seconds so far."

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start
