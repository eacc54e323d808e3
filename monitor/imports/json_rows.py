"""Rows of JSON: JSON lines of any trainer (verl's file logger, tinker, prime-rl, flat ones), a list of rows, and
`trainer_state.json` of HF's Trainer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.numbers import numbers_of
from regimescope.monitor.imports.rows import LogRow, Notes, Rows
from regimescope.monitor.imports.text import Progress, text_lines

LINES, LIST, STATE = "JSON lines", "JSON list", "HF trainer_state.json"
STEP_KEYS = (
    "train/global_step", "trainer/global_step", "training/global_step", "global_step", "global_step/max_steps", "step",
    "Step", "iteration", "_step",
)  # fmt: skip
"The first that is there is the step."
TIME_KEYS = ("_timestamp", "timestamp", "time")
_EPOCH_S = 1e9
"A smaller time is none since 1970."
_MOST_BYTES = 1 << 30
_NO_METRIC = frozenset({*STEP_KEYS, *TIME_KEYS, "_runtime", "epoch", "train/epoch"})


def row_of(record: Mapping[str, object]) -> LogRow | None:
    """The row of one object; None where it holds no number but its step.

    >>> row_of({"step": 1, "data": {"actor/entropy": 0.14}}).values
    {'actor/entropy': 0.14}
    """
    inner = record.get("data")
    if isinstance(inner, Mapping) and "step" in record:  # verl's file logger
        record = {**inner, "step": record["step"]}
    values = numbers_of(record)
    step = next((found for key in STEP_KEYS if (found := _step(record.get(key))) is not None), None)
    t = next((values[key] for key in TIME_KEYS if values.get(key, 0.0) > _EPOCH_S), None)
    values = {key: value for key, value in values.items() if key not in _NO_METRIC}
    return LogRow(values=values, step=step, t=t) if values else None


def _step(value: object) -> int | None:
    if isinstance(value, str):
        value = value.partition("/")[0]
        return int(value) if value.isdigit() else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value and 0 <= value < 2**53 and value == int(value) else None


def read_lines(path: Path, notes: Notes, *, follow: bool = False, progress: Progress | None = None) -> Rows:
    """A row per line. What is no JSON object is counted and left out; a last line that was cut, too. Raises OSError."""
    notes.format = LINES
    for number, line in enumerate(text_lines(path, notes, follow=follow, progress=progress), 1):
        if line is None:
            yield None
            continue
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            notes.leave_out("lines that are no JSON", f"line {number}")
            continue
        row = row_of(record) if isinstance(record, dict) else None
        if row is None:
            notes.leave_out("lines without a number", f"line {number}")
        else:
            yield row


def read_whole(path: Path, notes: Notes) -> Iterator[LogRow]:
    """A list of rows, or the `log_history` of a trainer state. Raises ImportFailed, OSError."""
    record = whole_json(path)
    if isinstance(record, dict) and isinstance(record.get("log_history"), list):
        notes.format = STATE
        notes.config = {key: record[key] for key in ("max_steps", "logging_steps", "train_batch_size") if key in record}
        rows = record["log_history"]
    elif isinstance(record, list):
        notes.format, rows = LIST, record
    else:
        raise ImportFailed(f"{path} is one JSON object without a `log_history`: no rows over steps in it")
    for place, item in enumerate(rows):
        if isinstance(item, dict) and {"train_runtime", "total_flos"} & item.keys():
            notes.leave_out("final summaries of the Trainer")
            continue
        row = row_of(item) if isinstance(item, dict) else None
        if row is None:
            notes.leave_out("entries without a number", f"entry {place}")
        else:
            yield row


def whole_json(path: Path) -> object:
    """A JSON file, read at once. Raises ImportFailed: too large, cut off, no JSON."""
    if path.stat().st_size > _MOST_BYTES:
        raise ImportFailed(f"{path} is one JSON value of more than 1 GiB: write it as JSON lines, a row per line")
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ImportFailed(f"{path} is nested too deeply to be a log") from None
    except ValueError as error:
        raise ImportFailed(f"{path} begins as JSON and does not end as such ({error}): is it complete?") from None
