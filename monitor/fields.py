"""Values of a wire line, checked: each function returns a Python value or raises WireError naming the key.

Used by `header_reader.py` and `lines.py`; what the keys mean is theirs to know.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from regimescope.monitor.catalog import json_text
from regimescope.monitor.errors import WireError
from regimescope.monitor.wire import number, plain

MAX_SMALL = 65_535
"Largest update, rank and number of ranks."
MAX_COUNT = (1 << 32) - 1
"Most that a bin of a histogram holds."

_MAX_STEP = (1 << 62) - 1
MAX_TIME = 32_503_680_000.0  # the year 3000: a clock beyond it is no clock

Record = Mapping[str, object]
T = TypeVar("T")


def whole(value: object, name: str, most: int = _MAX_STEP) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise WireError(f"{name} = {value!r} is no whole number of 0 to {most}")
    return value


def update_of(record: Record) -> int | None:
    return None if record.get("u") is None else whole(record["u"], "u", MAX_SMALL)


def time_of(record: Record) -> float | None:
    value = record.get("t")
    return float(value) if isinstance(value, int | float) and 0 <= value < MAX_TIME else None


def text_of(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise WireError(f"{name} = {value!r} is no text")
    return value


def optional_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def list_of(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise WireError(f"{name} is no list")
    return value


def object_of(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise WireError(f"{name} is no object")
    return value


def wholes(value: object, name: str, most: int = _MAX_STEP) -> list[int]:
    """A list of whole numbers. Most lines have nothing else, which is seen at once; else each is looked at."""
    values = list_of(value, name)
    if set(map(type, values)) == {int}:
        found = cast(list[int], values)
        if min(found) >= 0 and max(found) <= most:
            return found
    return [whole(x, name, most) for x in values]


def numbers(value: object, name: str) -> list[float]:
    """A list of numbers, in the same way."""
    values = list_of(value, name)
    return cast(list[float], values) if set(map(type, values)) == {float} else [number(x) for x in values]


def per_bucket(record: Record, column: str, size: int) -> list[object]:
    """An array with an element per bucket; a column that an older recorder does not write is zeros."""
    values = list_of(record.get(column, [0] * size if column == "clamped" else None), column)
    if len(values) != size:
        raise WireError(f"{column} has {len(values)} elements for {size} buckets")
    return values


def dense(values: Sequence[T], index: Sequence[int], bins: int, zero: T) -> list[T]:
    """A sparse column as one value per bin; `index`: checked positions below `bins`."""
    if len(values) != len(index):
        raise WireError(f"{len(index)} bins with {len(values)} values")
    dense = [zero] * bins
    for position, value in zip(index, values, strict=True):
        dense[position] = value
    return dense


def json_of(value: object) -> str | None:
    return None if value is None else json_text(plain(value))


def checked_json(value: object, read: Callable[[Mapping[str, object]], object]) -> str | None:
    """The JSON of a part of the header that `read` accepts. Raises BoundsError."""
    if value is None:
        return None
    read(object_of(value, "header"))
    return json_of(value)


def uuid_of(value: object) -> str:
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise WireError(f"{value!r} is no UUID") from None
