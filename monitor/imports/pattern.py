r"""Any other text, by a regular expression of the user: `--pattern 'Step (?P<step>\d+).*Reward (?P<reward_mean>\S+)'`.

A group named `step` is the step; every other named group is a metric, `__` in its name standing for a slash. With the
groups `key` and `value` every match on a line is one metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.numbers import number_of
from regimescope.monitor.imports.rows import LogRow, Notes

NAME = "text by --pattern"


class Reader:
    """Lines in, rows out. Raises ImportFailed for a pattern that cannot be used."""

    def __init__(self, notes: Notes, pattern: str) -> None:
        self._notes = notes
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise ImportFailed(f"--pattern is no regular expression: {error}") from None
        names = set(self._pattern.groupindex)
        self._pairs = {"key", "value"} <= names
        if not names - {"step"}:
            raise ImportFailed(
                r"--pattern names no metric: want named groups, say 'step (?P<step>\d+).*reward (?P<reward_mean>\S+)'"
            )

    def feed(self, line: str) -> Iterator[LogRow]:
        """The row of one line."""
        step, values = None, {}
        for match in self._pattern.finditer(line):
            groups = match.groupdict()
            step = int(groups["step"]) if (groups.get("step") or "").isdigit() else step
            if self._pairs:
                groups = {str(groups["key"]).strip(): groups["value"]}
            for name, text in groups.items():
                number = None if name == "step" else number_of((text or "").rstrip(",;|"))
                if number is not None:
                    values[name.replace("__", "/")] = number
        if values:
            yield LogRow(values=values, step=step, whole=True)
