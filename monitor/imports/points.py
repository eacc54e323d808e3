"""Single numbers, each with its step, as rows over steps: what TensorBoard, mlflow and the like store.

`rows_of(points, notes)` joins the numbers of a step wherever they stand, tag by tag as well as step by step, and fills
nothing in. A tag that is given anew from an earlier step on begins a new launch. Memory is bounded: beyond `MOST_OPEN`
waiting numbers the earliest steps are handed on, and what comes for them later is counted and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from regimescope.monitor.imports.rows import LogRow, Notes

MOST_OPEN = 500_000
"Numbers that wait for others of their step: about 60 MB."

Point = tuple[str, int, float, float | None]
"Tag, step, number, unix seconds."
_TOO_LATE = "numbers came after so many others that their step was over"
_AGAIN = "numbers were given twice for a step; the later one counts"


def rows_of(points: Iterable[Point], notes: Notes, *, begins: bool = False) -> Iterator[LogRow]:
    """A row per step, in order, whole. `begins`: the first row is of another launch than the rows before."""
    open_rows: dict[int, dict[str, float]] = {}
    times: dict[int, float | None] = {}
    last: dict[str, int] = {}
    at, over, waiting, most = -1, -1, 0, MOST_OPEN
    row: dict[str, float] = {}
    for tag, step, value, t in points:
        if step == at and tag not in row:  # nearly always: the next number of a step
            row[tag] = value
            last[tag] = step
            waiting += 1
            continue
        if step < 0:
            notes.leave_out("numbers of a negative step", tag)
            continue
        before = last.get(tag, -1)
        known = open_rows.get(step)
        if known is not None and tag in known and step == before:
            if known[tag] != value and known[tag] == known[tag]:
                notes.leave_out(_AGAIN, tag)
            known[tag] = value
            continue
        if step <= before and (step <= over or (known is not None and tag in known)):
            yield from _handed_on(open_rows, times, sorted(open_rows), begins)
            begins, known, last, over, waiting = True, None, {}, -1, 0
        if step <= over:
            notes.leave_out(_TOO_LATE, tag)
            continue
        if known is None:
            known = open_rows[step] = {}
            times[step] = t
        at, row = step, known
        row[tag] = value
        last[tag] = step
        waiting += 1
        if waiting > most:
            first = sorted(open_rows)[: max(1, len(open_rows) // 2)]
            at, over = -1, first[-1]
            waiting -= sum(len(open_rows[step]) for step in first)
            yield from _handed_on(open_rows, times, first, begins)
            begins = False
    yield from _handed_on(open_rows, times, sorted(open_rows), begins)


def _handed_on(
    open_rows: dict[int, dict[str, float]], times: dict[int, float | None], steps: list[int], begins: bool
) -> Iterator[LogRow]:
    for place, step in enumerate(steps):
        yield LogRow(values=open_rows.pop(step), step=step, t=times.pop(step), begins=begins and place == 0, whole=True)
