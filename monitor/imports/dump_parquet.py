"""Parquet files of completions, as TRL writes them: `is_completions(path)`, `parquet_records(path, notes)`.

Columns: step, prompt, completion, one for each reward function, advantage. Messages are joined to a text. pyarrow is
imported when such a file is met.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.rows import Notes

MAGIC = b"PAR1"
_BATCH = 256
_OTHERS = ("step", "prompt", "completion", "advantage")


def is_completions(path: Path) -> bool:
    """Whether the Parquet file has completions of steps. Raises ImportFailed: cut off, or no pyarrow."""
    return {"completion", "step"} <= set(_opened(path).schema_arrow.names)


def parquet_records(path: Path, notes: Notes) -> Iterator[Mapping[str, object]]:
    """A record per row. The reward is the column `reward`, or that of the only reward function: of several, the trainer
    weighs them in a way that the file does not tell. Raises ImportFailed.
    """
    file = _opened(path)
    names = file.schema_arrow.names
    numbers = [name for name in names if name not in _OTHERS and _is_number(file.schema_arrow.field(name).type)]
    reward = "reward" if "reward" in numbers else numbers[0] if len(numbers) == 1 else None
    if reward is None and numbers:
        notes.leave_out("files have several rewards and do not tell how they are weighed", ", ".join(numbers[:4]))
    wanted = [name for name in (*_OTHERS, *numbers) if name in names]
    try:
        for batch in file.iter_batches(batch_size=_BATCH, columns=wanted):
            for row in batch.to_pylist():
                row["prompt"], row["completion"] = _text(row.get("prompt")), _text(row.get("completion"))
                if reward is not None:
                    row["reward"] = row[reward] if reward == "reward" else row.pop(reward)
                yield row
    except (OSError, ValueError, MemoryError) as error:  # pyarrow's own errors are ValueErrors or OSErrors
        raise ImportFailed(f"{path} is a damaged Parquet file: {_one_line(error)}") from None


def _opened(path: Path) -> Any:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise ImportFailed(
            f"{path} is a Parquet file, which pyarrow reads: pip install 'regimescope[monitor]'"
        ) from None
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        what = _one_line(error)
        raise ImportFailed(f"{path} begins as a Parquet file and is none ({what}): is it complete?") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _is_number(kind: object) -> bool:
    return str(kind) in ("double", "float", "halffloat")


def _text(value: object) -> str | None:
    """A text as it is, messages one after the other: what a role says, without its name."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [item.get("content") if isinstance(item, dict) else item for item in value]
        return "\n".join(part for part in map(_text, parts) if part)
    if isinstance(value, dict):
        return _text(value.get("text"))
    return str(value)
