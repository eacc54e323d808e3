"""Console of verl: `(TaskRunner pid=42) step:15 - actor/entropy:0.47 - critic/score/mean:np.float64(1.1)`.

Model text between the lines says "step: 3" too, so a step must be followed by a key with a slash or `key:number - `. A
line that was wrapped when it was pasted is joined again. Checkpoints: saved.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from regimescope.monitor.imports import saved
from regimescope.monitor.imports.numbers import NUMBER, number_of
from regimescope.monitor.imports.rows import LogRow, Notes

NAME = "verl console"
HINT = "step:"
_START = re.compile(r"(?:^|\s)step:(\d{1,9}) - (?=[A-Za-z_][\w@.\-]*/)")
_ITEM = re.compile(rf"[\w@./\-]+:(?:[\w.]+\()?{NUMBER}\)?")
_ITEM_AT_END = re.compile(rf"(?:^| )[\w@./\-]+:(?:[\w.]+\()?{NUMBER}\)?\s*$")
_PIECE = re.compile(r"[\w@./:+()\-]+")
_MOST_JOINED = 60
_NARROWEST = 60
"Characters of the narrowest paste."


class Reader:
    """Lines in, rows out; a row comes when the next line tells that it is complete."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        notes.framework = "verl"
        self._open: list[str] = []
        self._step = 0
        self._done: int | None = None
        self._saved = saved.of_verl()

    def feed(self, line: str) -> Iterator[LogRow]:
        """The rows that are complete with this line; "" after the last."""
        yield from self._lines(line)
        yield from self._saved.take(line, self._done)

    def _lines(self, line: str) -> Iterator[LogRow]:
        start = _START.search(line) if HINT in line else None
        if start is not None:
            yield from self.end()
            self._step, self._open = int(start.group(1)), [line[start.end() :]]
            return
        if self._open:
            if self._wrapped() and _goes_on(line, alone=len(self._open) > 1 or not _ITEM_AT_END.search(self._open[0])):
                self._open.append(line)
            else:
                yield from self.end()

    def end(self) -> Iterator[LogRow]:
        """The row that is still open."""
        parts, self._open = self._open, []
        if not parts:
            return
        values = {}
        for item in _joined(parts).split(" - "):
            key, colon, text = item.strip().rpartition(":")
            number = number_of(text) if colon else None
            if number is not None:
                values[key] = number
            elif item.strip():
                self._notes.leave_out("values that are no numbers", f"step {self._step}: {item.strip()[:60]}")
        if values:
            yield LogRow(values=values, step=self._step, whole=True)
            self._done = self._step
            yield from self._saved.after(self._done)

    def _wrapped(self) -> bool:
        """Whether the last line was cut at a fixed width, as far as it tells: the first may have lost its prefix."""
        parts = self._open
        as_wide = len(parts) < 3 or abs(len(parts[-1]) - len(parts[1])) < 4
        return len(parts[-1]) >= _NARROWEST and len(parts) < _MOST_JOINED and as_wide


def _goes_on(line: str, *, alone: bool = False) -> bool:
    """Whether a line is the middle of a row: `key:number` between dashes, cut only at its ends. alone: or a rest
    without a dash, for something is missing.

    >>> _goes_on("opy:0.47 - critic/score/mean:1.1 - acto"), _goes_on("Answer: 42"), _goes_on("so it is - well - fine")
    (True, False, False)
    """
    items = [item.strip() for item in f" {line} ".split(" - ")]
    ends, middle = [items[0].removeprefix("- "), items[-1].removesuffix(" -")], items[1:-1]
    if not all(_ITEM.fullmatch(item) for item in middle) or not all(not e or _PIECE.fullmatch(e) for e in ends):
        return False
    return len(items) > 1 or (alone and bool(re.search(r"\d\)?$", ends[0])))


def _joined(parts: list[str]) -> str:
    """One line again: a break stands for a blank beside a dash, for nothing inside a key or a number."""
    text = parts[0]
    for part in parts[1:]:
        apart = text.endswith((" -", " ")) or part.startswith(("- ", " "))
        text = f"{text.rstrip()} {part.lstrip()}" if apart else text + part
    return text
