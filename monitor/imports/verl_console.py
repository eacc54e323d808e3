"""Console of verl: `(TaskRunner pid=42) step:15 - actor/entropy:0.47 - critic/score/mean:np.float64(1.1)`.

Model text between the lines says "step: 3" too, so a step must be followed by a key with a slash or `key:number - `. A
line that was wrapped when it was pasted is joined again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from regimescope.monitor.imports.numbers import NUMBER, number_of
from regimescope.monitor.imports.rows import LogRow, Notes

NAME = "verl console"
HINT = "step:"
_START = re.compile(r"(?:^|\s)step:(\d{1,9}) - (?=[A-Za-z_][\w@.\-]*/)")
_GOES_ON = re.compile(rf"^[\w@./\-]*:?(?:[\w.]+\()?(?:{NUMBER})?\)?(?: - [\w@./\-]+:[^ ]*)*(?: -)?\s*$")
_MOST_JOINED = 60


class Reader:
    """Lines in, rows out; a row comes when the next line tells that it is complete."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        notes.framework = "verl"
        self._open: list[str] = []
        self._step = 0

    def feed(self, line: str) -> Iterator[LogRow]:
        """The rows that are complete with this line; "" after the last."""
        start = _START.search(line) if HINT in line else None
        if start is not None:
            yield from self.end()
            self._step, self._open = int(start.group(1)), [line[start.end() :]]
            return
        if self._open:
            if line.strip() and self._wrapped() and _GOES_ON.match(line) and len(self._open) < _MOST_JOINED:
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

    def _wrapped(self) -> bool:
        """A line of a paste with a fixed width: long, so that it may go on in the next."""
        return len(self._open[-1]) >= 60


def _joined(parts: list[str]) -> str:
    """One line again: a break stands for a blank beside a dash, for nothing inside a key or a number."""
    text = parts[0]
    for part in parts[1:]:
        apart = text.endswith(("-", " ")) or part.startswith(("-", " "))
        text = f"{text.rstrip()} {part.lstrip()}" if apart else text + part
    return text
