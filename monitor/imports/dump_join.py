"""A dump of rollouts beside a log, or instead of one: its numbers join the steps, a sample of its texts is kept.

dump = load(path, notes)          reads it once, in bounded memory
dump.numbers[step]                what was measured of that step's responses
dump.keep(step, folder, segment)  writes the sample of a step, so that the Rollouts page shows it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regimescope.monitor.errors import ImportFailed, RecorderError
from regimescope.monitor.imports.dumps import Response, is_dump, numbers_of_step, steps_of
from regimescope.monitor.imports.rows import LogRow, Notes
from regimescope.monitor.imports.segments import SegmentWriter
from regimescope.monitor.rollout_writer import RolloutWriter
from regimescope.monitor.rollouts import Rollout, RolloutOptions, choose

MOST_STEPS = 48
"Steps whose texts are kept, spread over the dump."
PER_STEP = 16
MOST_CHARACTERS = 200_000
"Of a text; the rest of a longer one is cut off."
_MOST_BYTES = 256 << 20
_NOT_THERE = "steps of the dump are no steps of the log"


@dataclass(slots=True, kw_only=True)
class Dump:
    """What was read."""

    path: Path
    format: str = ""
    numbers: dict[int, dict[str, float]] = field(default_factory=dict)
    "Step -> key -> number, in the order of the dump."
    kept: dict[int, list[Rollout]] = field(default_factory=dict)
    "Step -> responses, of `MOST_STEPS` steps at most."
    used: set[int] = field(default_factory=set)
    "Steps that were in the log."
    _writer: RolloutWriter | None = None

    def rows(self) -> Iterator[LogRow]:
        """The dump as a log of its own."""
        for step, numbers in self.numbers.items():
            yield LogRow(values=numbers, step=step, whole=True)

    def at(self, step: int) -> dict[str, float]:
        """Numbers of a step of the log."""
        if step in self.numbers:
            self.used.add(step)
        return self.numbers.get(step, {})

    def keep(self, step: int, folder: Path, segment: SegmentWriter, notes: Notes) -> None:
        """Write the texts of a step, if they are among those that are kept, and the line that names their file."""
        rows = self.kept.get(step)
        if not rows:
            return
        try:
            if self._writer is None:
                options = RolloutOptions(every=1, limit=PER_STEP, max_bytes=_MOST_BYTES)
                self._writer = RolloutWriter(folder, options, rank=0, ranks=1)
            self._writer.start_ns = segment.start_ns
            self._writer.reserve()
            line = self._writer.write(step, None, rows, {"k": "rollouts", "s": step})
        except RecorderError as error:
            notes.leave_out(f"steps whose texts could not be kept: {error}")
            return
        if line is not None:
            segment.put(str(line.pop("k")), line)

    def tell(self, notes: Notes) -> None:
        """What of it joined nothing."""
        for step in self.numbers:
            if step not in self.used:
                notes.leave_out(_NOT_THERE, f"step {step}")


def dump_of(log: Path, beside: Path | None, notes: Notes) -> Dump | None:
    """The dump beside a log, or the log itself where it is one. Raises ImportFailed, OSError."""
    if beside is not None:
        if not beside.exists():
            raise ImportFailed(f"no dump of rollouts {beside}: give a file, or the folder with a file per step")
        if not is_dump(beside):
            raise ImportFailed(
                f"{beside} is no dump of rollouts: want verl's JSON lines (input, output, score, step), TRL's "
                "completions_*.parquet, or a folder of either"
            )
        return load(beside, notes)
    return load(log, notes) if log.exists() and is_dump(log) else None


def load(path: Path, notes: Notes) -> Dump:
    """Read the dump once. Raises ImportFailed, OSError."""
    dump, stride = Dump(path=path), 1
    for place, (step, responses) in enumerate(steps_of(path, notes)):
        if step in dump.numbers:
            notes.leave_out("steps come again in the dump; the later part counts", f"step {step}")
        dump.numbers[step] = numbers_of_step(responses)
        if place % stride == 0:
            dump.kept[step] = _sample(step, responses)
            if len(dump.kept) > MOST_STEPS:
                stride *= 2
                dump.kept = dict(list(dump.kept.items())[::2])
    dump.format = notes.format
    if not dump.numbers:
        raise ImportFailed(f"{path} holds no response with a text")
    return dump


def _sample(step: int, responses: list[Response]) -> list[Rollout]:
    groups = {prompt: number for number, prompt in enumerate(dict.fromkeys(r.prompt for r in responses))}
    rows = [
        Rollout(
            sample_id=number, length=r.units, group_id=groups[r.prompt], prompt=r.prompt[:MOST_CHARACTERS],
            response=r.text[:MOST_CHARACTERS], reward=r.reward, advantage=r.advantage,
            finish_reason="length" if r.truncated else None, repetition=r.rep4,
        )
        for number, r in enumerate(responses)
    ]  # fmt: skip
    return [row for _, row in choose(rows, PER_STEP, step=step)]
