"""`.wandb` files, which W&B writes beside a run, online or off: rows of its history, configuration, name.

LevelDB's log format (blocks of 32 KiB, a record in one or more parts, a CRC-32 of each), each record a protobuf message
of W&B; read without their package. Rows that lack the step of the trainer where others have it (a reward function that
logs for itself) are averaged into the step that they led to.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import cast

from regimescope.monitor.imports.json_rows import STEP_KEYS, row_of
from regimescope.monitor.imports.protobuf import Malformed, fields, signed
from regimescope.monitor.imports.rows import LogRow, Notes
from regimescope.monitor.imports.text import Progress

NAME = "wandb run file"
MAGIC = b":W&B"
_BLOCK, _HEAD = 32 * 1024, 7
"Bytes of a block; of the head of the file, and of that of a part: CRC, length, type."
_PART = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
_PEEKED = 5000
"Rows among which a step of the trainer is looked for."
_CUT = "records are cut or damaged (the job was killed, or still writes)"
_MERGED = "rows without the trainer's step were averaged into the step that followed"

Row = dict[str, object]


def read(path: Path, notes: Notes, progress: Progress | None = None) -> Iterator[LogRow]:
    """A row per row of the history, several to a step. The notes have name and configuration when the first row comes.

    Raises OSError.
    """
    notes.format = NAME
    history = _history(path, notes, progress)
    head = list(islice(history, _PEEKED))
    counter = next((key for key in STEP_KEYS[:-1] for row in head if key in row), None)
    rows = chain(head, history)
    return _by_step(rows, counter, notes) if counter is not None else _each(rows, notes)


def _each(rows: Iterator[Row], notes: Notes) -> Iterator[LogRow]:
    for row in rows:
        if (made := row_of(row)) is not None:
            yield made
        else:
            notes.leave_out("rows without a number")


def _by_step(rows: Iterator[Row], counter: str, notes: Notes) -> Iterator[LogRow]:
    """Rows of one step of the trainer, which follow one another, as one."""
    sums: dict[str, tuple[float, int]] = {}
    waiting: LogRow | None = None
    for row in rows:
        made = row_of(row)
        if made is None:
            continue
        if counter not in row:
            notes.leave_out(_MERGED)
            for key, value in made.values.items():
                total, count = sums.get(key, (0.0, 0))
                sums[key] = (total + value, count + 1)
            continue
        means = {key: total / count for key, (total, count) in sums.items()}
        sums = {}
        before: Mapping[str, float] = {}
        if waiting is not None and waiting.step == made.step:
            before = waiting.values
            for key in before.keys() & made.values.keys():
                if before[key] != made.values[key]:
                    notes.leave_out("numbers were given twice for a step; the later one counts", key)
        elif waiting is not None:
            yield waiting
        waiting = LogRow(values={**before, **means, **made.values}, step=made.step, t=made.t)
    if waiting is not None:
        yield waiting
    if sums:
        notes.leave_out("numbers came after the last step of the trainer", count=len(sums))


def _history(path: Path, notes: Notes, progress: Progress | None) -> Iterator[Row]:
    for record in _records(path, notes, progress):
        try:
            for number, body in fields(record):
                if number == _HISTORY and isinstance(body, bytes):
                    yield _row(body)
                elif number in (_CONFIG, _RUN, _EXIT) and isinstance(body, bytes):
                    _note(number, body, notes)
        except (Malformed, UnicodeDecodeError, struct.error):
            notes.leave_out(_CUT)


def _row(body: bytes) -> Row:
    """Keys and values of a row; a nested key is joined by slashes."""
    row: Row = {}
    for number, part in fields(body):
        if number == 1 and isinstance(part, bytes):
            key, value = _item(part)
            row[key] = value
        elif number == 2 and isinstance(part, bytes):
            row.setdefault("_step", next((signed(n) for f, n in fields(part) if f == 1 and isinstance(n, int)), 0))
    return row


def _item(part: bytes) -> tuple[str, object]:
    key, value = "", cast(object, None)
    nested: list[str] = []
    for number, data in fields(part):
        if isinstance(data, int):
            value = bool(data) if number == 4 else signed(data) if number == 5 else value
        elif number == 1:
            key = data.decode()
        elif number == 2:
            nested.append(data.decode())
        elif number == 6:
            value = struct.unpack("<d", data)[0]
        elif number == 16:
            value = _json(data)
    return key or "/".join(nested), value


def _json(data: bytes) -> object:
    """The value; what is no number and large (tables, images) is not parsed."""
    try:
        return float(data)
    except ValueError:
        pass
    try:
        return json.loads(data) if len(data) < 1 << 16 else None
    except (ValueError, RecursionError):
        return None


def _note(number: int, body: bytes, notes: Notes) -> None:
    """Name, configuration and exit code."""
    if number == _CONFIG:
        _config(body, notes)
    elif number == _EXIT:
        code = next((signed(value) for f, value in fields(body) if f == 1 and isinstance(value, int)), 0)
        if code:
            notes.leave_out(f"run ended with exit code {code}")
    else:
        for field, value in fields(body):
            if field == 4 and isinstance(value, bytes):
                _config(value, notes)
            elif field == 8 and isinstance(value, bytes):
                notes.name = value.decode("utf-8", "replace")


def _config(body: bytes, notes: Notes) -> None:
    for number, part in fields(body):
        if number == 1 and isinstance(part, bytes):
            key, value = _item(part)
            if key and key != "_wandb":
                notes.config[key] = int(value) if isinstance(value, float) and value.is_integer() else value


def _records(path: Path, notes: Notes, progress: Progress | None) -> Iterator[bytes]:
    """Whole records; a damaged part costs its record, a damaged block what is left of it."""
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        parts: list[bytes] = []
        at, place = _HEAD, 0  # the file's own head is the beginning of the first block
        while block := file.read(_BLOCK):
            place += len(block)
            if progress is not None and place % (32 * _BLOCK) < _BLOCK:
                progress(place, size)
            while at + _HEAD <= len(block):
                crc, length, kind = _PART.unpack_from(block, at)
                if kind == 0 and length == 0:  # the rest of a block, or of a file that was prepared for more
                    break
                data = block[at + _HEAD : at + _HEAD + length]
                if len(data) < length or zlib.crc32(data, zlib.crc32(block[at + 6 : at + 7])) != crc:
                    notes.leave_out(_CUT, f"in the block that ends at byte {place:,}")
                    parts = []
                    break
                at += _HEAD + length
                if kind in (_FULL, _FIRST):
                    parts = [data]
                elif parts:
                    parts.append(data)
                if kind in (_FULL, _LAST) and parts:
                    yield b"".join(parts)
                    parts = []
            at = 0
    if parts:
        notes.leave_out(_CUT, "at the end")
    if progress is not None:
        progress(size, size)
