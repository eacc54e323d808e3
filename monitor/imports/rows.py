"""What a reader of a log hands on: rows as the log has them, and notes on what it left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MAX_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that a log tells of."""

    step: int
    path: str
    "As the log has it."
    deleted: tuple[int, ...] = ()
    "Steps of older ones that were deleted since."


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """Numbers that belong together, under the names that the log gives them."""

    values: Mapping[str, float]
    "Source key -> number; NaN and infinities as they are."
    step: int | None = None
    "As the log tells it; None = it does not, so rows are counted."
    begins: bool = False
    "The log starts anew with this row (an epoch that falls, another process)."
    t: float | None = None
    "Unix seconds; None = not known."
    whole: bool = False
    "All that the log says of this step is in this row, so it need not wait for another."
    checkpoint: Checkpoint | None = None
    "The row tells of this one, and of nothing else: it has no values."


Rows = Iterator[LogRow | None]
"None = nothing new for now, of a log that is being followed."


@dataclass(slots=True, kw_only=True)
class Notes:
    """What a reader found besides rows; filled while it reads."""

    format: str = ""
    "Name of the format, for people."
    framework: str | None = None
    "Where the format itself tells; else the keys do."
    left_out: Counter[str] = field(default_factory=Counter)
    "Reason -> how often."
    examples: dict[str, list[str]] = field(default_factory=dict)
    "Reason -> the first places, 'line 12'."
    config: dict[str, object] = field(default_factory=dict)
    "The job's configuration, where the log holds it."
    name: str | None = None
    "The run's own name, where the log tells it."

    def leave_out(self, reason: str, where: str = "", count: int = 1) -> None:
        """Count something that is not imported."""
        self.left_out[reason] += count
        places = self.examples.setdefault(reason, [])
        if where and len(places) < MAX_EXAMPLES:
            places.append(where)

    def told(self) -> list[str]:
        """ "12 rows of another counter (line 3, line 9)"."""
        return [
            f"{count:,} {reason}" + (f" ({', '.join(self.examples[reason])})" if self.examples[reason] else "")
            for reason, count in self.left_out.most_common()
        ]
