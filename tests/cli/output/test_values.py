"""Bytes, times, ranges and operations, as they are printed and read."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.output.values import (
    bytes_to_text,
    parse_moment,
    parse_number,
    parse_range,
    printable,
    time_of,
    time_or_number,
    value_to_json,
    value_to_text,
)
from tidelog.ids import U64_MAX
from tidelog.journal.operation import Del, FlushDb, Val
from tidelog.resp.json_form import bytes_to_json


@given(st.one_of(st.binary(), st.text().map(lambda text: text.encode(errors="surrogatepass"))))
def test_json_keeps_every_byte(data: bytes) -> None:
    found = json.loads(json.dumps(bytes_to_json(data)))
    back = found.encode() if isinstance(found, str) else base64.b64decode(found["base64"])
    assert back == data


@given(st.binary(max_size=200))
def test_text_is_one_printable_line(data: bytes) -> None:
    text = bytes_to_text(data)
    assert text.isprintable()
    assert text.startswith('"')
    assert len(data) <= 48 or f"({len(data)} bytes)" in text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", '""'),
        (b"user:1", '"user:1"'),
        ("grün".encode(), '"grün"'),
        (b'a"b\\c', '"a\\"b\\\\c"'),
        (b"\x1b[31m\n\xff", '"\\x1b[31m\\n\\xff"'),
        (b"x" * 49, '"' + "x" * 48 + '"… (49 bytes)'),
        (b"x" * 47 + "ü".encode(), '"' + "x" * 47 + '"… (49 bytes)'),
    ],
)
def test_bytes_for_people(data: bytes, text: str) -> None:
    assert bytes_to_text(data) == text


def test_printable_leaves_text_alone() -> None:
    assert printable("plain, ü, 漢") == "plain, ü, 漢"
    assert printable("a\nb\x07\u202e") == "a\\nb\\x07\\u202e"


@pytest.mark.parametrize(
    ("ts", "time"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_700_000_000_000_123, "2023-11-14T22:13:20.000123Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, None),
        (U64_MAX, None),
        (None, None),
    ],
)
def test_times(ts: int | None, time: str | None) -> None:
    assert time_of(ts) == time
    assert time_or_number(ts) == (time or ("-" if ts is None else str(ts)))


@given(st.integers(0, 253_402_300_799_999_999))
def test_a_time_that_is_printed_can_be_given_back(ts: int) -> None:
    time = time_of(ts)
    assert time is not None
    assert parse_moment(time) == ts


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("0", 0),
        ("1700000000000123", 1_700_000_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000_000),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000_000),
        ("2023-11-14", 1_699_920_000_000_000),
        ("20231114", 1_699_920_000_000_000),
    ],
)
def test_moments(text: str, ts: int) -> None:
    assert parse_moment(text) == ts


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "1e6", "2023-13-01", "1969-12-31", str(U64_MAX + 1), "٣٣٣٣٣"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither|64 bits"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("text", "bounds"),
    [("3..7", (3, 7)), ("3..", (3, U64_MAX)), ("..7", (0, 7)), ("5", (5, 5)), ("5..5", (5, 5))],
)
def test_ranges(text: str, bounds: tuple[int, int]) -> None:
    assert parse_range(text, parse_number) == bounds


@pytest.mark.parametrize("text", ["..", "", "7..3", "a..b", "1...2", "1-2", "-1..2"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|number|empty"):
        parse_range(text, parse_number)


class Pair(NamedTuple):
    key: bytes
    size: int | None


@dataclass
class Thing:
    name: bytes
    pairs: list[Pair]
    table: dict[bytes, float]


def test_operations_of_any_shape_become_json_and_text() -> None:
    thing = Thing(b"\xff", [Pair(b"a", 1), Pair(b"b", None)], {b"k": 1.5})
    assert value_to_json(thing) == {
        "name": {"base64": "/w=="},
        "pairs": [{"key": "a", "size": 1}, {"key": "b", "size": None}],
        "table": [["k", 1.5]],
    }
    assert value_to_text(thing) == 'name="\\xff" pairs=[key="a" size=1, key="b"] table=[["k", 1.5]]'
    assert value_to_json(Val([(b"k", b"v")], None)) == {"pairs": [["k", "v"]], "expire_ms": None}
    assert value_to_json(Del([b"a", b"b"])) == {"keys": ["a", "b"]}
    assert value_to_json(FlushDb()) == {}
    assert value_to_text(Del([b"%d" % number for number in range(10)])).endswith(', "7", … 2 more]')
