"""wandb offline: `run.log` of one dict a step; its second process, wandb-core, writes the `.wandb` file.

The package has no reader of that file in Python, so `load` has one: LevelDB's log format (blocks of 32 KiB, a record in
one or more parts; checksums not looked at), each record parsed by wandb's own protobuf classes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import wandb
from benchmarks._loggers import Loaded, by_metric
from wandb.proto.wandb_internal_pb2 import HistoryItem, Record

BLOCK = 32 * 1024
HEAD = 7
"Bytes of the file's own header and of a part's: checksum, length, type."
FULL, LAST = 1, 4


class Run:
    """An offline run without console, system statistics, git and code."""

    def __init__(self, folder: Path) -> None:
        quiet = wandb.Settings(
            console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True, disable_code=True, silent=True
        )
        self._run = wandb.init(project="bench", dir=str(folder), mode="offline", settings=quiet)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()
        wandb.teardown()  # ends wandb-core: what it wrote is on disk, and its CPU time is counted as a child's


def start(folder: Path, variant: str) -> Run:
    return Run(folder)


def load(folder: Path, names: Sequence[str] | None) -> Loaded:
    wanted = None if names is None else set(names)
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    points: dict[str, list[tuple[int, float]]] = {}
    for data in records(path.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") != "history":
            continue
        step = record.history.step.num
        for item in record.history.item:
            name = item.key or item.nested_key[0]
            if not name.startswith("_") and (wanted is None or name in wanted):
                points.setdefault(name, []).append((step, number(item)))
    return by_metric(points)


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file, whole."""
    at, parts = HEAD, []
    while at + HEAD <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEAD:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if kind == 0:  # the rest of a block
            at += left
            continue
        at += HEAD
        parts.append(data[at : at + length])
        at += length
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = []


def number(item: HistoryItem) -> float:
    """The value in the field that this version filled."""
    return float(json.loads(item.value_json)) if item.value_json else float(item.number)
