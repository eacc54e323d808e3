"""Console of HF's Trainer, so of TRL and ms-swift: `{'loss': '0.0415', 'completions/mean_length': 14.2, 'epoch': 0}`.

The line has no step: the progress bar before it does (`10/300 [`), glued to it or not. Without a bar rows are counted
from 1. An epoch that falls is another run in the same file. Checkpoints: saved.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from regimescope.monitor.imports import saved
from regimescope.monitor.imports.numbers import number_of
from regimescope.monitor.imports.rows import LogRow, Notes

NAME = "HF Trainer console"
HINT = "'epoch'"
_DICT = re.compile(r"\{'[^{}]{8,40000}\}")
_ITEM = re.compile(r"'([^'\n]{1,200})':\s*(?:'([^'\n]{0,80})'|([^,}\n]{1,80}))")
_BAR = re.compile(r"(\d+)/(\d+) \[\d")
_OF = "global_step/max_steps"
_TRAINED = ("loss", "reward", "kl", "entropy", "grad_norm", "completions/mean_length", "completion_length")


class Reader:
    """Lines in, rows out."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._bar: tuple[int, int] | None = None
        self._total: int | None = None
        self._last, self._stride, self._epoch = 0, 1, float("-inf")
        self._counted = False
        self._saved = saved.of_hf()

    def feed(self, line: str) -> Iterator[LogRow]:
        """The rows of one line."""
        if "/" in line and (bars := _BAR.findall(line)):
            self._bar = (int(bars[-1][0]), int(bars[-1][1]))
        yield from self._saved.take(line, self._done())
        if HINT not in line:
            return
        for found in _DICT.finditer(line):
            record = {key: quoted or bare for key, quoted, bare in _ITEM.findall(found.group())}
            values = {key: number for key, text in record.items() if (number := number_of(text)) is not None}
            if "epoch" in values:
                yield from self._row(record, values)
                yield from self._saved.after(self._done())

    def _done(self) -> int | None:
        """The last step that the log itself told; None where its rows were counted."""
        return None if self._counted else self._last or None

    def _row(self, record: dict[str, str], values: dict[str, float]) -> Iterator[LogRow]:
        if "train_runtime" in values or "train_loss" in values:
            self._notes.leave_out("final summaries of the Trainer")
            return
        epoch = values.pop("epoch")
        if any(key.startswith("eval_") for key in values):
            yield LogRow(values=values, step=self._last or None)
            return
        if not any(key.removeprefix("train/") in _TRAINED for key in values):
            return
        begins = epoch < self._epoch - 1e-9
        if begins:
            self._last, self._stride, self._total = 0, 1, None
        self._epoch = epoch
        yield LogRow(values=values, step=self._step(record), begins=begins, whole=True)

    def _step(self, record: dict[str, str]) -> int:
        told = record.get(_OF, "").partition("/")[0]
        self._counted = False
        bar, self._bar = self._bar, None
        if told.isdigit():
            step = int(told)
        elif bar is not None and bar[0] > self._last and self._total in (None, bar[1]):
            self._total, step = bar[1], bar[0]
        else:
            step = self._last + self._stride
            self._counted = True
            self._notes.leave_out("rows without a step were counted")
        self._stride = max(1, step - self._last) if self._last else self._stride
        self._last = step
        return step
