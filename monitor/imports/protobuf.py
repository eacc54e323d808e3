"""The fields of a protobuf message, without its schema: as much as event files and `.wandb` files need.

for number, value in fields(data): ...     value: int of a varint, bytes of everything else
"""

from __future__ import annotations

from collections.abc import Iterator

_FIXED = {1: 8, 5: 4}
"Wire type -> bytes."
_BYTES = 2


class Malformed(ValueError):
    """These bytes are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this place, and the place behind it. Raises Malformed.

    >>> varint(bytes([0x96, 0x01]), 0)
    (150, 2)
    """
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
            if shift > 63:
                raise Malformed("a varint of more than ten bytes")
    except IndexError:
        raise Malformed("cut in a varint") from None


def to_varint(value: int) -> bytes:
    """The bytes of a number from 0 on.

    >>> to_varint(150).hex()
    '9601'
    """
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def signed(value: int) -> int:
    """A varint as int64."""
    return value - (1 << 64) if value >> 63 else value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field in order, repeated ones as often as they come. Raises Malformed."""
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        if key < 0x80:
            at += 1
        else:
            key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = varint(data, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise Malformed(f"wire type {kind}")
        if at + size > end:
            raise Malformed("cut in a field")
        yield key >> 3, data[at : at + size]
        at += size


def texts(data: bytes, *numbers: int) -> dict[int, str]:
    """The last text of these fields, where they are there. Raises Malformed."""
    return {
        number: value.decode("utf-8", "replace")
        for number, value in fields(data)
        if number in numbers and isinstance(value, bytes)
    }
