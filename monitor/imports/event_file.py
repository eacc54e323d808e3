"""TensorBoard's event files: numbers out of TFRecords, read by a parser of our own.

`read_points(path, notes)` yields (tag, step, number, unix seconds). Scalars of either kind: `simple_value` of
TensorBoard 1 and torch, one-element `tensor` of TensorBoard 2. A file that is cut in a record, as of a job that was
killed, is read up to there. The checksum of a record's length is looked at where the length is doubtful; that of its
content is not: in Python it costs more than all the rest.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from regimescope.monitor.imports.points import Point
from regimescope.monitor.imports.protobuf import Malformed, fields, signed, to_varint, varint
from regimescope.monitor.imports.rows import Notes
from regimescope.monitor.imports.text import Progress

NAME = "TensorBoard events"
CHUNK = 1 << 20
DOUBTFUL = 64 << 20
"Bytes of a record that are not believed without its checksum: images are smaller."
_HEAD, _TAIL = 12, 4
_LENGTH = struct.Struct("<Q")
_BEGINNING = struct.Struct("<BdBB")
"Key of wall_time, wall_time, key of the next field, its first byte."
_SHORTEST = 20
"Bytes of an event that may hold a number."
_MOST_KNOWN = 100_000
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_WALL_TIME, _STEP, _SUMMARY = 0x09, 0x10, 0x2A
_ARGUMENTS = "args/text_summary"
"Where HF's Trainer keeps its arguments, as JSON."
_UNREADABLE = "event files are unreadable from a place on: a record is damaged there"
_CUT = "event files end inside a record (the job was killed, or still writes)"


def is_event_file(head: bytes) -> bool:
    """Whether these first bytes are those of TFRecords with events: the checksum of a length, then a wall time."""
    return len(head) >= _HEAD + 9 and head[12] == _WALL_TIME and _true_length(head[:_HEAD])


def read_points(path: Path, notes: Notes, progress: Progress | None = None) -> Iterator[Point]:
    """Every scalar in the order of the file. Raises OSError."""
    known: dict[bytes, str] = {}
    find, beginning, number = known.get, _BEGINNING.unpack_from, _FLOAT.unpack_from
    with open(path, "rb") as file:
        for buffer, start, stop in _records(file, path, notes, progress):
            # the layout that every writer has, of one number that was met before: no function is called for it
            if stop - start > _SHORTEST:
                first, wall, second, step = beginning(buffer, start)
                at = start + 11
                if first == _WALL_TIME and second == _STEP:
                    if step >= 0x80:
                        step = (step & 0x7F) | (buffer[at] << 7)
                        at += 1
                        if step >= 1 << 14:
                            step = (step & 0x3FFF) | (buffer[at] << 14)
                            at += 1
                    if step < 1 << 21 and (tag := find(buffer[at : stop - 4])) is not None:
                        yield tag, step, number(buffer, stop - 4)[0], wall
                        continue
            yield from _any_points(buffer[start:stop], known, notes, path)


def _records(file: IO[bytes], path: Path, notes: Notes, progress: Progress | None) -> Iterator[tuple[bytes, int, int]]:
    """Where the content of each record lies in a buffer, which holds a chunk and a record at most."""
    size, base, at, buffer = os.fstat(file.fileno()).st_size, 0, 0, file.read(CHUNK)
    unpack = _LENGTH.unpack_from
    end = len(buffer)
    while True:
        if at + _HEAD <= end:
            start = at + _HEAD
            stop = start + unpack(buffer, at)[0]
            if stop + _TAIL <= end:
                yield buffer, start, stop
                at = stop + _TAIL
                continue
            length = stop - start
            if (length > DOUBTFUL or base + stop > size) and not _true_length(buffer[at:start]):
                notes.leave_out(_UNREADABLE, f"{path.name}, byte {base + at:,}")
                return
            wanted = length + _HEAD + _TAIL - (end - at)
        else:
            wanted = _HEAD
        if progress is not None:
            progress(base + at, size)
        more = file.read(max(wanted, CHUNK))
        if not more:
            break
        buffer, base = buffer[at:] + more, base + at
        at, end = 0, len(buffer)
    if at < end:
        notes.leave_out(_CUT, path.name)
    if progress is not None:
        progress(size, size)


def _any_points(record: bytes, known: dict[bytes, str], notes: Notes, path: Path) -> Iterator[Point]:
    """The numbers of any event. One whose number is its last four bytes is known from then on by what is before."""
    try:
        wall, step, summary = _event(record)
        values = [value for number, value in fields(summary) if number == 1 and isinstance(value, bytes)]
        for value in values:
            tag, number, is_last = _value(value)
            if number is None and tag == _ARGUMENTS:
                notes.config |= _arguments(value)
            elif number is None:
                notes.leave_out("summaries that are no number (texts, images, histograms)", tag)
            if number is None:
                continue
            tail = bytes([_SUMMARY]) + to_varint(len(summary)) + summary
            if is_last and len(values) == 1 and record.endswith(tail) and len(known) < _MOST_KNOWN:
                known[tail[:-4]] = tag
            yield tag, step, number, wall
    except (Malformed, struct.error):
        notes.leave_out("events that are none", path.name)


def _arguments(value: bytes) -> dict[str, object]:
    """The configuration in a text summary of HF's Trainer; {} where it is none. Raises Malformed."""
    tensors = (data for number, data in fields(value) if number == 8 and isinstance(data, bytes))
    texts = [text for data in tensors for number, text in fields(data) if number == 8 and isinstance(text, bytes)]
    try:
        found = json.loads(texts[0]) if len(texts) == 1 else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _event(record: bytes) -> tuple[float, int, bytes]:
    """Wall time, step (none is 0) and summary of an event. Raises Malformed, struct.error."""
    wall, step, summary = 0.0, 0, b""
    for number, value in fields(record):
        if number == 1 and isinstance(value, bytes):
            wall = _DOUBLE.unpack(value)[0]
        elif number == 2 and isinstance(value, int):
            step = signed(value)
        elif number == 5 and isinstance(value, bytes):
            summary = value
    return wall, step, summary


def _value(data: bytes) -> tuple[str, float | None, bool]:
    """Tag, number (None = there is none), and whether it is a float in the last four bytes."""
    tag, number, is_last = "", None, False
    for field, value in fields(data):
        is_last = False
        if field == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif field == 2 and isinstance(value, bytes):
            number, is_last = _FLOAT.unpack(value)[0], True
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return tag, number, is_last


_CONTENT = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e", 14: "bfloat16"}
"Data type -> how its bytes are read."
_LISTS = {5: "<f", 6: "<d"}
"Field with packed numbers -> how they are read."


def _tensor(data: bytes) -> float | None:
    """The number of a tensor with one element; None for any other."""
    dtype, content, listed = 0, b"", None
    for field, value in fields(data):
        if field == 1 and isinstance(value, int):
            dtype = value
        elif field == 4 and isinstance(value, bytes):
            content = value
        elif field in _LISTS and isinstance(value, bytes) and len(value) == struct.calcsize(_LISTS[field]):
            listed = float(struct.unpack(_LISTS[field], value)[0])
        elif field in (7, 10):  # int_val, int64_val
            listed = float(signed(value if isinstance(value, int) else varint(value, 0)[0]))
    form = _CONTENT.get(dtype)
    if form == "bfloat16" and len(content) == 2:
        return float(_FLOAT.unpack(b"\0\0" + content)[0])
    if form is not None and form != "bfloat16" and len(content) == struct.calcsize(form):
        return float(struct.unpack(form, content)[0])
    return listed if form is not None and not content else None


def wall_times(path: Path) -> tuple[float, float]:
    """The earliest and the latest of a file's summaries; (inf, -inf) without one. Raises OSError."""
    first, last = math.inf, -math.inf
    with open(path, "rb") as file:
        for buffer, start, stop in _records(file, path, Notes(), None):
            if stop - start > 9 and buffer[start] == _WALL_TIME and buffer[start + 9] in (_STEP, _SUMMARY):
                wall = _DOUBLE.unpack_from(buffer, start + 1)[0]
                first, last = min(first, wall), max(last, wall)
    return first, last


def tags_of(path: Path, most: int = 2000) -> set[str]:
    """Tags among the first numbers of a file. Raises OSError."""
    tags: set[str] = set()
    for place, point in enumerate(read_points(path, Notes())):
        tags.add(point[0])
        if place >= most:
            break
    return tags


def _true_length(head: bytes) -> bool:
    """Whether the masked CRC-32C behind a length is that of the length."""
    crc = _crc32c(head[:8])
    told: int = struct.unpack_from("<I", head, 8)[0]
    return told == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
