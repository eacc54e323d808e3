"""Rows of a query as a table for people, as CSV or as JSON lines; what `regimescope sql` and `export` print and write.

Nothing vanishes: a missing value is the word NULL (in JSON null), numbers that are not finite are the wire's words NaN,
Infinity and -Infinity (in JSON strings), times are UTC in ISO 8601. A float is written with as many digits as bring it
back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from regimescope.monitor.cells import cell
from regimescope.monitor.wire import spell

Row = Sequence[object]

NULL = "NULL"
_WORDS = {NULL, "NaN", "Infinity", "-Infinity"}


def as_table(names: Sequence[str], rows: Sequence[Row]) -> str:
    """Columns side by side, numbers to the right; a character that a terminal would obey is shown escaped."""
    cells = [[_printable(text(value)) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [[_printable(n) for n in names], *cells]) for i in range(len(names))]
    right = [_numeric(row[i] for row in rows) for i in range(len(names))]
    head = [_printable(name) for name in names]
    lines = [head, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def csv_lines(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """RFC 4180 lines without their newline, the header first. A text that spells one of the words above is quoted, the
    missing value and the number are not; what a spreadsheet would run gets an apostrophe.
    """
    yield ",".join(_quoted(name) for name in names)
    for row in rows:
        yield ",".join(_quoted(cell(value)) if isinstance(value, str) else _field(value) for value in row)


def json_lines(names: Sequence[str], rows: Iterable[Row], parse: Iterable[int] = ()) -> Iterator[str]:
    """One object a row. `parse`: positions of columns whose text is JSON and becomes part of the object; of two columns
    of one name the second is called `name_2`.
    """
    keys, nested = unique(names), set(parse)
    for row in rows:
        values = (json_value(json.loads(v) if i in nested and isinstance(v, str) else v) for i, v in enumerate(row))
        yield json.dumps(dict(zip(keys, values, strict=True)), ensure_ascii=False)


def unique(names: Sequence[str]) -> list[str]:
    """The names, each once."""
    found: list[str] = []
    for name in names:
        number, key = 1, name
        while key in found:
            number += 1
            key = f"{name}_{number}"
        found.append(key)
    return found


def text(value: object) -> str:
    """A value in words, as the head of this file says."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if value - value == 0 else spell(value)  # a value that is not finite leaves nan
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(json_value(value), ensure_ascii=False)
    return str(value)


def json_value(value: object) -> object:
    """A value in JSON's own types."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if value - value == 0 else spell(value)
    if isinstance(value, Mapping):
        return {text(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return text(value)


def _iso(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _numeric(values: Iterable[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in known)


def _printable(cell: str) -> str:
    if cell.isprintable():
        return cell
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cell)


def _field(value: object) -> str:
    shown = text(value)
    return f'"{shown.replace(chr(34), chr(34) * 2)}"' if any(c in shown for c in ',"\r\n') else shown


def _quoted(value: str) -> str:
    return f'"{value}"' if value == "" or value in _WORDS else _field(value)
