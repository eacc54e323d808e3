"""Writes one rank's rollouts as Parquet files beside its segments: `rollouts/s00000120-r00003-<start>.parquet`.

A file is written as `.tmp` and renamed, and only then its line goes into the segment: what a line names is there and
whole. What a process that was killed left as `.tmp` the next one of its rank removes. pyarrow is imported when a
Recorder that was asked for rollouts starts.
"""

from __future__ import annotations

import errno
import operator
import os
import queue
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from regimescope.monitor.errors import RecorderError
from regimescope.monitor.rollouts import Rollout, RolloutOptions, choose

FOLDER = "rollouts"
WAITING = 2
"Steps whose rows may be in memory, the one that is being written included."
COLUMNS = {
    "sample_id": "int64",
    "group_id": "int64",
    "env": "string",
    "prompt": "string",
    "response": "string",
    "reward": "float64",
    "advantage": "float64",
    "correct": "bool_",
    "length": "int32",
    "finish_reason": "string",
    "repetition": "float64",
    "update": "int16",
    "revision": "int64",
    "weight_version": "int64",
    "lag": "int32",
    "pick": "string",
}
"Plain columns and their Arrow types."
ARRAYS = {
    "token_ids": "int32",
    "logp_old": "float32",
    "logp_new": "float32",
    "entropy": "float32",
    "weight": "float32",
    "bucket": "uint8",
    "tokens": "string",
}
"Columns of one value per token, and the Arrow type of a value."
TEXTS = ("prompt", "response", "token_ids", "tokens")
_DICTIONARY = ["env", "prompt", "finish_reason", "pick", "tokens.list.element"]
"Columns with few different values; the last one is what Parquet calls the items of `tokens`."

Record = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parquet:
    arrow: Any
    "The module pyarrow."
    write_table: Callable[..., None]
    "Of pyarrow.parquet."


class RolloutWriter:
    """Chooses and writes. `wants` and `reserve` are the caller's; `write` is the writer's, one at a time."""

    def __init__(self, run_dir: Path, options: RolloutOptions, *, rank: int, ranks: int) -> None:
        """Makes the folder and removes what this rank left half-written. Raises RecorderError."""
        self._parquet = _import()
        self._run_dir, self._options, self._rank = run_dir, options, rank
        self._budget = options.max_bytes // ranks
        self._full = False
        self.start_ns = 0
        "Start in the name of the segment; set before the first write."
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()  # re-entrant, unlike a semaphore: signal handlers
        for _ in range(WAITING):
            self._places.put(None)
        try:
            self._encoded((), (), None)  # what this pyarrow cannot do is found out here
        except Exception as error:
            raise RecorderError(
                f"pyarrow {self._parquet.arrow.__version__} cannot write rollouts: {error}; pip install -U pyarrow"
            ) from None
        folder = run_dir / FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            self._bytes = _swept(folder, rank)
        except OSError as error:
            raise RecorderError(
                f"cannot keep rollouts in {folder}: {error.strerror}; make it writable, or leave rollouts=None"
            ) from None

    def wants(self, step: int) -> bool:
        """Whether rows of this step are kept."""
        return not self._full and step % self._options.every == 0

    def reserve(self) -> bool:
        """Take one of the places for rows that wait; `write` gives it back."""
        try:
            self._places.get_nowait()
        except queue.Empty:
            return False
        return True

    def write(self, step: int, update: int | None, rows: Sequence[Rollout], record: Record) -> Record | None:
        """Choose and write; the line that says so, or the event that there is no more room (None after it).

        Raises RecorderError for what cannot be written; then nothing is left behind.
        """
        try:
            return None if self._full else self._write(step, update, rows, record)
        except OSError as error:
            raise RecorderError(f"cannot write rollouts of step {step}: {error}") from None
        except Exception as error:  # pyarrow, and rows of any kind
            raise RecorderError(f"rollouts of step {step}: {type(error).__name__}: {error}") from None
        finally:
            self._places.put(None)

    def _write(self, step: int, update: int | None, rows: Sequence[Rollout], record: Record) -> Record:
        chosen = choose(rows, self._options.limit, step=step, rank=self._rank)
        for _, row in chosen:
            _check_lengths(row)
        data = self._encoded([row for _, row in chosen], [pick for pick, _ in chosen], update)
        if self._bytes + len(data) > self._budget:
            self._full = True
            room = {"bytes": self._bytes, "of_this_rank": self._budget, "max_bytes": self._options.max_bytes}
            return {**record, "k": "event", "kind": "rollouts_full", "data": room}
        name = f"s{step:08d}-r{self._rank:05d}-{self.start_ns}.parquet"
        _place(self._run_dir / FOLDER / name, data)
        self._bytes += len(data)
        return {**record, "file": f"{FOLDER}/{name}", "rows": len(chosen)}

    def _encoded(self, rows: Sequence[Rollout], picks: Sequence[str], update: int | None) -> memoryview:
        """The bytes of the Parquet file."""
        pa, hidden = self._parquet.arrow, () if self._options.texts else TEXTS
        columns: dict[str, Any] = {}
        for name, kind in COLUMNS.items():
            values: list[Any] = [*picks] if name == "pick" else [getattr(row, name) for row in rows]
            if name in hidden:
                values = [None] * len(rows)
            elif name == "update":
                values = [update if value is None else value for value in values]
            convert: Any = _text if kind == "string" else operator.index if kind.startswith("int") else None
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            columns[name] = pa.array(values, getattr(pa, kind)())
        for name, kind in ARRAYS.items():
            columns[name] = _lists(pa, [None if name in hidden else getattr(row, name) for row in rows], kind)
        sink = pa.BufferOutputStream()
        self._parquet.write_table(
            pa.table(columns), sink, compression="zstd", use_dictionary=_DICTIONARY,
            write_statistics=False, write_page_checksum=True, store_schema=False,
        )  # fmt: skip
        return memoryview(sink.getvalue())


def _import() -> _Parquet:
    try:
        found = _Parquet(arrow=import_module("pyarrow"), write_table=import_module("pyarrow.parquet").write_table)
    except ImportError as error:
        raise RecorderError(
            f"rollouts are written by pyarrow ({error}): pip install 'regimescope[rollouts]', or leave rollouts=None"
        ) from None
    return found


def _swept(folder: Path, rank: int) -> int:
    """Remove what this rank left as `.tmp`; bytes of its files that are whole."""
    size, own = 0, f"-r{rank:05d}-"
    with os.scandir(folder) as entries:
        for entry in entries:
            if own not in entry.name:
                continue
            if entry.name.endswith(".parquet.tmp"):
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)
            elif entry.name.endswith(".parquet"):
                size += entry.stat(follow_symlinks=False).st_size
    return size


def _place(path: Path, data: memoryview) -> None:
    """Write beside and rename. Raises OSError; then nothing is left behind."""
    if path.exists():
        raise FileExistsError(f"{path.name} is there already: hand over all rollouts of a step in one call")
    beside = path.with_name(path.name + ".tmp")
    path.parent.mkdir(exist_ok=True)  # somebody may have cleared it away
    try:
        with open(beside, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def _check_lengths(row: Rollout) -> None:
    for name in ARRAYS:
        values = getattr(row, name)
        if values is not None and len(values) != row.length:
            raise ValueError(
                f"sample_id {row.sample_id}: {name} has {len(values)} values, where length is {row.length}: "
                "one per token, the end token included"
            )


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8 form


def _lists(pa: Any, rows: Iterable[Any], kind: str) -> Any:
    """An Arrow array of lists, null where a row has none. Raises pyarrow's errors for values that do not fit."""
    offsets: list[int | None] = []
    parts, end = [], 0
    for row in rows:
        offsets.append(None if row is None else end)
        if row is None:
            continue
        part = pa.array([_text(value) for value in row] if kind == "string" else _values(row))
        if "int" in kind and len(part) and not pa.types.is_integer(part.type):
            raise TypeError(f"{part.type} values, where whole numbers are wanted")
        parts.append(part.cast(kind))
        end += len(part)
    values = pa.concat_arrays(parts) if parts else pa.array([], kind)
    return pa.ListArray.from_arrays(pa.array([*offsets, end], "int32"), values)


def _values(row: Any) -> Any:
    """What pyarrow reads: numpy arrays and lists; tensors and array.array as lists."""
    if isinstance(row, list | tuple) or type(row).__name__ == "ndarray":
        return row
    return row.tolist() if hasattr(row, "tolist") else list(row)
