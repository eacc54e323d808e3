"""Lines of a console that tell of checkpoints: HF's Trainer (TRL, ms-swift) and verl.

    INFO >> Saving model checkpoint to out/checkpoint-50          (HF's Trainer, where its log level is info)
    local_global_step_folder: checkpoints/mine/global_step_50     (verl)

A checkpoint is told only after the row of its step, so that it falls into the launch that wrote it; those of a log
whose rows have no step of their own are left out, for their numbers would not fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from regimescope.monitor.imports.rows import Checkpoint, LogRow

_LONGEST = 500
"Characters of a path."
_HF = re.compile(r"(?:^|[\s>|])Saving model checkpoint to (\S.*?checkpoint-(\d{1,9}))/?\s*$")
_HF_GONE = re.compile(r"(?:^|[\s>|])Deleting older checkpoint \[(\S.*?checkpoint-(\d{1,9}))/?\]")
_VERL = re.compile(
    r"(?:^|\s)(?:local_global_step_folder: |Saving actor checkpoint to )(\S.*?global_step_(\d{1,9}))/?\s*$"
)
_VERL_GONE = re.compile(r"Checkpoint manager remove previous save local path: (\S.*?global_step_(\d{1,9}))/actor/?\s*$")


@dataclass(slots=True, kw_only=True)
class SavedLines:
    """Of one log: `saved` and `gone` each find (path, step) in a line."""

    saved: re.Pattern[str]
    gone: re.Pattern[str]
    hints: tuple[str, ...]
    "One of them is in each such line: a regular expression is not tried on every line."
    _waiting: list[Checkpoint] = field(default_factory=list)
    _last: Checkpoint | None = None

    def take(self, line: str, done: int | None) -> Iterator[LogRow]:
        """What a line says of checkpoints, where the row of its step was there already. done: step of the last row."""
        if not any(hint in line for hint in self.hints):
            return
        if (found := self.saved.search(line)) is not None:
            self._waiting.append(Checkpoint(step=int(found.group(2)), path=found.group(1)[:_LONGEST]))
            if self._waiting[-1].step == done:  # of an earlier step: a restart, whose row is still to come
                yield from self.after(done)
        elif (found := self.gone.search(line)) is not None:
            # told with the newest one, as our trainer does
            newest = self._waiting[-1] if self._waiting else self._last
            if newest is not None and newest.step != int(found.group(2)):
                told = Checkpoint(step=newest.step, path=newest.path, deleted=(*newest.deleted, int(found.group(2))))
                if self._waiting:
                    self._waiting[-1] = told
                else:
                    self._last = told
                    yield _row(told)

    def after(self, done: int | None) -> Iterator[LogRow]:
        """Those that waited for the row of this step."""
        if done is None or not self._waiting:
            return
        ready = [c for c in self._waiting if c.step <= done]
        self._waiting = [c for c in self._waiting if c.step > done]
        for checkpoint in ready:
            self._last = checkpoint
            yield _row(checkpoint)


def of_hf() -> SavedLines:
    """Of HF's Trainer."""
    return SavedLines(saved=_HF, gone=_HF_GONE, hints=("Saving model checkpoint", "Deleting older checkpoint"))


def of_verl() -> SavedLines:
    """Of verl."""
    hints = ("local_global_step_folder", "Saving actor checkpoint", "remove previous save local path")
    return SavedLines(saved=_VERL, gone=_VERL_GONE, hints=hints)


def _row(checkpoint: Checkpoint) -> LogRow:
    return LogRow(values={}, step=checkpoint.step, checkpoint=checkpoint)
