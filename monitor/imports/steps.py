"""Rows of a log as steps of launches: rows of one step joined, evaluations apart, restarts found.

A step that falls, or that comes again with other numbers, is a new launch, and so is a row that the reader says begins
anew. Rows without a step are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.mapping import is_evaluation
from regimescope.monitor.imports.rows import Checkpoint, LogRow, Rows

MOST_LAUNCHES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a log says of one step, in one go."""

    step: int
    values: Mapping[str, float]
    "Source key -> number."
    t: float | None
    launch: int
    "0, 1, ..."
    late: bool
    "Of an evaluation, or told after the step was over: it ends no step."
    checkpoint: Checkpoint | None = None
    "All that it says."


@dataclass(slots=True)
class Steps:
    """Joins rows; `counted` tells afterwards whether the log had steps of its own."""

    launches: int = 1
    counted: bool = False
    last: int | None = None
    "The last step that was ended."
    _open: LogRow | None = None
    _values: dict[str, float] = field(default_factory=dict)
    _at: int = 0

    def read(self, rows: Rows) -> Iterator[Step | None]:
        """Steps in the order of the log; None where the reader has nothing new. Raises ImportFailed."""
        for row in rows:
            if row is None:
                yield from self._flush()
                yield None
            elif row.checkpoint is not None:
                yield from self._checkpoint(row.checkpoint)
            elif is_evaluation(row):
                yield from self._evaluation(row)
            else:
                yield from self._row(row)
        yield from self._flush()

    def _evaluation(self, row: LogRow) -> Iterator[Step]:
        yield from self._flush()
        step = row.step if row.step is not None else self.last or 0
        yield Step(step=step, values=row.values, t=row.t, launch=self.launches - 1, late=True)

    def _checkpoint(self, checkpoint: Checkpoint) -> Iterator[Step]:
        yield from self._flush()
        if self.last is not None:
            at = self.launches - 1
            yield Step(step=checkpoint.step, values={}, t=None, launch=at, late=True, checkpoint=checkpoint)

    def _row(self, row: LogRow) -> Iterator[Step]:
        step = row.step
        if step is None:
            self.counted = True
            before = self._at if self._open is not None else self.last
            step = 0 if before is None or row.begins else before + 1
        if self._open is not None and step == self._at and not row.begins and self._agrees(row):
            self._values |= row.values
            return
        yield from self._flush()
        if self.last is not None and (row.begins or step <= self.last):
            self._restart(step)
        self._open, self._values, self._at = row, dict(row.values), step
        if row.whole:
            yield from self._flush()

    def _agrees(self, row: LogRow) -> bool:
        return all(_same(self._values[key], value) for key, value in row.values.items() if key in self._values)

    def _restart(self, step: int) -> None:
        self.launches += 1
        self.last = None
        if self.launches > MOST_LAUNCHES:
            raise ImportFailed(
                f"the step falls or comes again more than {MOST_LAUNCHES} times (now at step {step}): this log has "
                "several rows per step; name another column for the step, --map COLUMN=step"
            )

    def _flush(self) -> Iterator[Step]:
        if self._open is None:
            return
        yield Step(step=self._at, values=self._values, t=self._open.t, launch=self.launches - 1, late=False)
        self.last, self._open = self._at, None


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
