"""The Parquet files of rollouts beside the segments: their columns, and how one is opened.

`rollout_index.py` reads the plain columns of a file into the index, `rollout_reader.py` the texts and token arrays of
one row. Both open it with `opened(run_dir, file)`: a name comes from a segment, so it is never trusted to stay inside
the run folder, and what a file holds is checked against the columns of `rollout_writer.py` before it is believed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from regimescope.monitor.errors import RolloutError
from regimescope.monitor.rollout_writer import ARRAYS, COLUMNS

TEXTS = ("prompt", "response")
PLAIN: Mapping[str, pa.DataType] = {name: getattr(pa, kind)() for name, kind in COLUMNS.items() if name not in TEXTS}
"Columns that become the index, with the type that a value must fit into; a narrower one is fine."
NEEDED = ("sample_id", "length")
"Those that are known of every row."
LISTS: Mapping[str, pa.DataType] = {name: pa.list_(getattr(pa, kind)()) for name, kind in ARRAYS.items()}
"Columns of one value per token."
OPTIONAL = ("tokens",)
"Columns that files of an older Recorder do not have."
_TYPES: Mapping[str, pa.DataType] = {**PLAIN, **dict.fromkeys(TEXTS, pa.string()), **LISTS}

BROKEN = (pa.ArrowException, OSError, ValueError, MemoryError)
"What reading a damaged file raises; text that is no UTF-8 is a ValueError."


@contextlib.contextmanager
def opened(run_dir: Path, file: str) -> Iterator[pq.ParquetFile]:
    """The file of this name, relative to the run folder. Raises RolloutError: not there, a name or a link that leaves
    the folder, no Parquet; also for what the block meets while it reads.
    """
    descriptor = _open(run_dir, file)
    try:
        with os.fdopen(descriptor, "rb") as source:
            yield pq.ParquetFile(source, page_checksum_verification=True)
    except BROKEN as error:
        raise RolloutError(f"{file} is no Parquet file that can be read: {one_line(error)}") from None


def check_columns(parquet: pq.ParquetFile, file: str, names: Iterable[str]) -> None:
    """Each of these columns is there once, with values of the right kind. Raises RolloutError."""
    schema = parquet.schema_arrow
    for name in names:
        at = schema.get_field_index(name)  # -1 also where two have the name
        if name in OPTIONAL and name not in schema.names:
            continue
        if at < 0:
            raise RolloutError(f"{file} has no column {name!r}, or two; it has {', '.join(schema.names)[:300]}")
        found, want = schema.field(at).type, _TYPES[name]
        if not _fits(found, want):
            raise RolloutError(f"{file} has {name!r} as {str(found)[:100]}: want {want}")


def one_line(error: BaseException) -> str:
    """An error of another library as part of a sentence."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:200] or type(error).__name__


def _fits(found: pa.DataType, want: pa.DataType) -> bool:
    types = pa.types
    if types.is_null(found):
        return True
    if types.is_dictionary(found):
        found = found.value_type
    if types.is_list(want):
        listed = types.is_list(found) or types.is_large_list(found)
        return listed and _fits(found.value_type, want.value_type)
    if types.is_string(want):
        return bool(types.is_string(found) or types.is_large_string(found))
    if types.is_boolean(want):
        return bool(types.is_boolean(found))
    return bool(types.is_integer(found) or (types.is_floating(want) and types.is_floating(found)))


def _open(run_dir: Path, file: str) -> int:
    """A descriptor of a plain file; no part of the way to it may be a link."""
    parts = PurePosixPath(file).parts
    if not parts or file.startswith("/") or ".." in parts or "\0" in file:
        raise RolloutError(f"{file[:200]!r} is no path inside the run folder")
    folder = -1
    try:
        folder = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(
            parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )  # a pipe of that name would block
    except FileNotFoundError:
        raise RolloutError(f"{file[:200]} is not there: deleted, moved, or not visible here yet") from None
    except (OSError, ValueError) as error:
        if _is_link(run_dir, parts):
            raise RolloutError(f"{file[:200]} is a link, or lies behind one: only files in the run are read") from None
        raise RolloutError(f"{file[:200]} cannot be opened: {one_line(error)}") from None
    finally:
        if folder >= 0:
            os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RolloutError(f"{file[:200]} is no plain file")
    return descriptor


def _is_link(run_dir: Path, parts: tuple[str, ...]) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return any(run_dir.joinpath(*parts[: n + 1]).is_symlink() for n in range(len(parts)))
    return False
