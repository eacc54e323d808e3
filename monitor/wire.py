"""The wire format of segments: one JSON object a line, UTF-8, with `v` (version) and `k` (kind).

`encode` writes a line, `decode` reads one, `number` turns a value of the wire into a float: non-finite numbers travel
as the strings "NaN", "Infinity" and "-Infinity", so that every JSON reader takes the line. What the kinds hold:
docs/embedding.md. Standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import SupportsFloat, SupportsIndex

from regimescope import __version__
from regimescope.monitor.errors import WireError, WireVersionError

WIRE_VERSION = 1
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _scalar(value: object) -> float | int:
    """A number of another library (numpy, a tensor of one element) as a Python number. TypeError for anything else."""
    if isinstance(value, SupportsIndex):
        try:
            return value.__index__()
        except TypeError:  # a float tensor has __index__, too, and refuses it
            pass
    if isinstance(value, SupportsFloat):
        return float(value)
    raise TypeError(f"a {type(value).__name__} is no number, text, list or mapping")


def plain(value: object) -> object:
    """A copy of `value` in JSON's own types; non-finite numbers become their strings.

    Raises TypeError for what has no JSON form, RecursionError for what contains itself.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else spell(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return plain(_scalar(value))


def spell(value: float) -> str:
    """The wire's string for a non-finite number."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_fast = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_scalar).encode


def encode(record: Mapping[str, object]) -> bytes:
    """One line of the wire, newline included. Raises WireError for a value that has no JSON form.

    >>> encode({"v": 1, "k": "step", "m": {"kl_ref": float("nan")}})
    b'{"v":1,"k":"step","m":{"kl_ref":"NaN"}}\\n'
    """
    try:
        try:
            text = _fast(record)
        except (ValueError, TypeError):  # a non-finite number or a mapping that is no dict: the slow, thorough way
            text = _fast(plain(record))
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a record of kind {record.get('k')!r} cannot be written as JSON: {error}") from None
    return text.encode("utf-8", "replace") + b"\n"  # a lone surrogate has no UTF-8 form


def decode(line: bytes) -> dict[str, object]:
    """The object of one line, values as they are on the wire (pass numbers through `number`).

    Raises WireError for a line that is no wire record, WireVersionError for one that only a newer regimescope reads.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, a number of more digits than Python converts
        raise WireError(f"not a JSON line: {error}") from None
    if not isinstance(record, dict):
        raise WireError(f"a JSON {type(record).__name__}, where a wire line is an object")
    version = record.get("v")
    if not isinstance(version, int) or isinstance(version, bool) or not isinstance(record.get("k"), str):
        raise WireError("no wire line: `v` (a whole number) or `k` (a text) is missing")
    if version < 1:
        raise WireError(f"wire version {version}: they count from 1")
    if version > WIRE_VERSION:
        writer = record.get("writer")  # of a header: the version that is known to read it
        by = f" of {writer[:60]!r}" if isinstance(writer, str) else ""
        raise WireVersionError(
            f"wire version {version}{by}, this regimescope ({__version__}) reads up to {WIRE_VERSION}: "
            "install a newer one (pip install -U regimescope)"
        )
    return record


def number(value: object) -> float:
    """A number of the wire as a float; the three strings become nan, inf and -inf.

    Raises WireError for anything else.
    """
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            raise WireError("a whole number too large for a float") from None
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    raise WireError(f"{value!r} is no number of the wire")
