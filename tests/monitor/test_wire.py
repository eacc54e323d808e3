"""The wire format: what goes in comes out, and nothing but whole, standard JSON lines goes out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.monitor.errors import WireError, WireVersionError
from regimescope.monitor.wire import decode, encode, number, plain

floats = st.floats(allow_nan=True, allow_infinity=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def standard_json(line: bytes) -> object:
    """As a reader sees it that knows no NaN."""

    def refuse(word: str) -> object:
        raise AssertionError(f"not standard JSON: {word}")

    return json.loads(line, parse_constant=refuse)


def test_golden_line() -> None:
    record = {
        "v": 1,
        "k": "step",
        "q": 8,
        "t": 1790000032.2,
        "s": 0,
        "m": {"reward_mean": (0.42, 16), "kl": math.nan, "ü": -math.inf},
    }
    line = '{"v":1,"k":"step","q":8,"t":1790000032.2,"s":0,"m":{"reward_mean":[0.42,16],"kl":"NaN","ü":"-Infinity"}}\n'
    assert encode(record) == line.encode()


@given(st.dictionaries(st.text(), values, max_size=5))
def test_every_record_is_one_line_of_standard_json(fields: dict[str, object]) -> None:
    line = encode({**fields, "v": 1, "k": "event"})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    standard_json(line)
    assert decode(line)["k"] == "event"


@given(floats)
def test_numbers_round_trip(value: float) -> None:
    back = number(decode(encode({"v": 1, "k": "step", "x": value}))["x"])
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_bare_words_of_other_writers_are_read(word: str) -> None:
    value = number(decode(b'{"v":1,"k":"step","x":' + word.encode() + b"}")["x"])
    assert repr(value) == repr(float(word))


def test_values_of_other_libraries_are_taken() -> None:
    class Tensor:
        """Has __index__ and __float__, like a tensor of one element; the first refuses a fraction."""

        def __index__(self) -> int:
            raise TypeError("only integer tensors")

        def __float__(self) -> float:
            return math.inf

    record: Mapping[str, object] = {
        "v": 1,
        "k": "step",
        "a": Tensor(),
        "b": Fraction(1, 4),
        "c": MappingProxyType({"d": {1}}),
    }
    assert decode(encode(record)) == {"v": 1, "k": "step", "a": "Infinity", "b": 0.25, "c": {"d": [1]}}


def test_lone_surrogates_and_newlines_stay_in_their_line() -> None:
    assert decode(encode({"v": 1, "k": "event", "text": "a\ud800\n\x00b"}))["text"] == "a?\n\x00b"


def test_what_has_no_json_form_is_an_error() -> None:
    loop: list[object] = []
    loop.append(loop)
    for value in (object(), loop, 1j):
        with pytest.raises(WireError, match="kind 'event'"):
            encode({"v": 1, "k": "event", "x": value})


def test_plain_is_a_deep_copy() -> None:
    inner = [1.0, math.nan]
    copy = plain({"a": inner})
    inner.append(2.0)
    assert copy == {"a": [1.0, "NaN"]}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{",
        b"[]",
        b"3",
        b'{"v":1}',
        b'{"k":"step"}',
        b'{"v":"1","k":"step"}',
        b'{"v":true,"k":"step"}',
        b'{"v":1,"k":2}',
        b"\xff",
        b"\x00\x00",
        b'{"v":1,"k":"step"',
        b"[" * 100_000,
        b'{"v":1,"k":"e","x":' + b"9" * 5000 + b"}",
    ],
)
def test_garbage_is_a_wire_error(line: bytes) -> None:
    with pytest.raises(WireError):
        decode(line)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_a_wire_error(data: bytes) -> None:
    try:
        record = decode(data)
    except WireError:
        return
    assert isinstance(record["k"], str)


def test_a_newer_version_names_what_to_do() -> None:
    with pytest.raises(WireVersionError, match=r"wire version 2.*pip install -U regimescope"):
        decode(b'{"v":2,"k":"step"}')


@pytest.mark.parametrize("value", [None, "1", "nan", "inf", [], {}, 10**400])
def test_no_number(value: object) -> None:
    with pytest.raises(WireError):
        number(value)
