"""Looks into the files of rollouts for what the index does not know: a text, or a clipped token.

    found = search(run_dir, rows, text="####")
    found.rows, found.looked, found.stopped

Plain substrings, so nothing can run away, over at most MOST_ROWS rows and SECONDS; what was not looked at is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regimescope.monitor.bounds import WeightRule
from regimescope.monitor.errors import RolloutError
from regimescope.monitor.rollout_parquet import TEXTS
from regimescope.monitor.rollout_reader import RolloutTokens, rollout_contents
from regimescope.monitor.rollout_rows import RolloutRow
from regimescope.monitor.token_view import clip_sides, log_ratio

MOST_ROWS = 400
SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What was found, and how far it was looked."""

    rows: Sequence[RolloutRow]
    "Those that fulfil it, in the order given."
    looked: int
    "Rows whose file was read."
    unreadable: int
    "Rows whose file is gone or broken."
    stopped: bool
    "The time was up, or there were more rows than are looked at."


def search(
    run_dir: Path,
    rows: Sequence[RolloutRow],
    *,
    text: str = "",
    clipped: bool = False,
    rule: WeightRule | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Searched:
    """Rows whose prompt or response contains the text, in any case, and that have a clipped token."""
    deadline, wanted = clock() + SECONDS, text.casefold()
    columns = (*(TEXTS if text else ()), *(("logp_old", "logp_new", "weight") if clipped else ()))
    found: set[tuple[str, int]] = set()
    looked = unreadable = 0
    stopped = len(rows) > MOST_ROWS
    for of_file in _by_file(rows[:MOST_ROWS]):
        if clock() > deadline:
            stopped = True
            break
        try:
            contents = rollout_contents(run_dir, of_file, columns)
        except RolloutError:
            unreadable += len(of_file)
            continue
        looked += len(of_file)
        for row, content in zip(of_file, contents, strict=True):
            if _contains(content, wanted) and (not clipped or _is_clipped(row, content, rule)):
                found.add((row.file, row.row_in_file))
    kept = [row for row in rows if (row.file, row.row_in_file) in found]
    return Searched(rows=kept, looked=looked, unreadable=unreadable, stopped=stopped)


def _by_file(rows: Sequence[RolloutRow]) -> list[list[RolloutRow]]:
    """In the order in which the files first come."""
    files: dict[str, list[RolloutRow]] = {}
    for row in rows:
        files.setdefault(row.file, []).append(row)
    return list(files.values())


def _contains(content: RolloutTokens, wanted: str) -> bool:
    return not wanted or any(wanted in (part or "").casefold() for part in (content.prompt, content.response))


def _is_clipped(row: RolloutRow, content: RolloutTokens, rule: WeightRule | None) -> bool:
    return any(clip_sides(log_ratio(content), content.weight, row.advantage, rule) or ())
