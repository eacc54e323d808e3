"""Our Recorder. What it writes is read by `regimescope_index`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from regimescope.monitor import Recorder


class Segments:
    """A Recorder, and its promise that nothing was dropped."""

    def __init__(self, folder: Path, *, sync: bool, queue_size: int) -> None:
        self._recorder = Recorder(folder / "run", sync=sync, queue_size=queue_size)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._recorder.step(step, metrics)

    def close(self) -> None:
        self._recorder.end("finished")
        if self._recorder.dropped:
            raise RuntimeError(f"the Recorder dropped {self._recorder.dropped} records: give the queue more room")


def start(folder: Path, variant: str) -> Segments:
    """`variant`: thread, with the default queue; bulk, with room for a tight loop of any length; sync."""
    return Segments(folder, sync=variant == "sync", queue_size=1_000_000 if variant == "bulk" else 10_000)
