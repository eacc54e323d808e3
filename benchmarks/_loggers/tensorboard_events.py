"""TensorBoard: an event a number, as `SummaryWriter.add_scalar` makes them, through TensorBoard's own EventFileWriter
(no torch, no TensorFlow); read by its EventAccumulator.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks._loggers import Loaded, by_metric
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter


class Events:
    """An event file, with the queue that torch's SummaryWriter gives it."""

    def __init__(self, folder: Path) -> None:
        self._writer = EventFileWriter(str(folder), max_queue_size=10, flush_secs=120)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            self._writer.add_event(Event(step=step, wall_time=time.time(), summary=summary))

    def flush(self) -> None:
        """Everything so far is in the file."""
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def start(folder: Path, variant: str) -> Events:
    return Events(folder)


def load(folder: Path, names: Sequence[str] | None) -> Loaded:
    """`Reload` reads every event, whatever is asked for."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return by_metric({name: events.Scalars(name) for name in (names or events.Tags()["scalars"])})
