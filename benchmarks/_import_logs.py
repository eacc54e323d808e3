"""Logs of any length for `importing`, as the writers make them: `WRITERS[name](path, steps)`.

Each row has `METRICS` numbers. Event files have the checksums that EventAccumulator wants, unless `checked` is False.
"""

from __future__ import annotations

import csv
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

METRICS = 20
NAMES = [f"actor/metric_{i:02d}" for i in range(METRICS)]


def _rows(steps: int) -> Iterator[dict[str, float]]:
    draw = random.Random(7).random
    for _ in range(steps):
        yield {name: draw() for name in NAMES}


def write_events(path: Path, steps: int, *, checked: bool = True) -> None:
    """TensorBoard: a record per number."""
    table = _crc_table()
    with open(path, "wb") as file:
        file.write(_record(b"\x09" + struct.pack("<d", 1.79e9) + b"\x1a\x0dbrain.Event:2", table))
        for step, row in enumerate(_rows(steps)):
            head = b"\x09" + struct.pack("<d", 1.79e9 + step) + (b"\x10" + _varint(step) if step else b"")
            for name, value in row.items():
                inner = _field(1, name.encode()) + b"\x15" + struct.pack("<f", value)
                record = head + _field(5, _field(1, inner))
                file.write(_record(record, table if checked else None))


def write_wandb(path: Path, steps: int) -> None:
    """W&B: a record per step, over blocks of 32 KiB."""
    with open(path, "wb") as file:
        file.write(b":W&B\xe1\xbe\x00")
        at = 7
        for step, row in enumerate(_rows(steps)):
            numbers = {"_step": step, "_timestamp": 1.79e9 + step, **row}
            items = (_field(1, key.encode()) + _field(16, json.dumps(value).encode()) for key, value in numbers.items())
            data = _field(2, b"".join(_field(1, item) for item in items))
            first = True
            while data or first:
                room = 32768 - at % 32768
                if room < 7:
                    file.write(bytes(room))
                    at += room
                    continue
                part, data = data[: room - 7], data[room - 7 :]
                kind = bytes([(1 if not data else 2) if first else (4 if not data else 3)])
                crc = zlib.crc32(part, zlib.crc32(kind))
                file.write(struct.pack("<IH", crc, len(part)) + kind + part)
                at += 7 + len(part)
                first = False


def write_jsonl(path: Path, steps: int) -> None:
    with open(path, "w") as file:
        file.writelines(json.dumps({"step": step, **row}) + "\n" for step, row in enumerate(_rows(steps)))


def write_csv(path: Path, steps: int) -> None:
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["step", *NAMES])
        out.writerows([step, *row.values()] for step, row in enumerate(_rows(steps)))


def write_verl(path: Path, steps: int) -> None:
    """verl's console, with a ray prefix and a line of model text between."""
    with open(path, "w") as file:
        for step, row in enumerate(_rows(steps)):
            line = " - ".join(f"{name}:{value}" for name, value in row.items())
            file.write(f"\x1b[36m(TaskRunner pid=42)\x1b[0m step:{step} - {line}\n[prompt] step 3: so 1 + 1 = 2\n")


def write_trl(path: Path, steps: int) -> None:
    """TRL's console, with its progress bar."""
    with open(path, "w") as file:
        for step, row in enumerate(_rows(steps), 1):
            line = str(
                {"loss": "0.1", **{name: f"{value:.4g}" for name, value in row.items()}, "epoch": f"{step / 1e3}"}
            )
            file.write(f"\r  3%|3         | {step}/{steps} [00:10<05:00,  1.0s/it]\r{line}\n")


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "TensorBoard": write_events,
    "wandb": write_wandb,
    "JSON lines": write_jsonl,
    "CSV": write_csv,
    "verl console": write_verl,
    "TRL console": write_trl,
}


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(made) + bytes([value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _record(data: bytes, table: list[int] | None) -> bytes:
    length = struct.pack("<Q", len(data))
    if table is None:
        return length + bytes(4) + data + bytes(4)
    return length + _masked(length, table) + data + _masked(data, table)


def _masked(data: bytes, table: list[int]) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table
