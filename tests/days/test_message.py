"""Messages: ids, days, and their forms."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.days.days_of_events import MAY_MS
from tidelog.days.message import (
    TIMESTAMP_MS_MAX,
    EventId,
    Message,
    day_of,
    fields_of,
    json_of_event,
    json_of_message,
    message_of_entry,
    message_of_json,
    parse_id,
)
from tidelog.errors import BadMessage, FormatError

U64 = st.integers(0, 2**64 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_ids_are_ordered_as_numbers() -> None:
    assert parse_id("9-5") < parse_id(b"10-0") < parse_id("10-18446744073709551615")
    assert str(EventId(10, 2)) == "10-2"


@pytest.mark.parametrize(
    "text", ["", "1", "1-", "-1", "1-2-3", "a-1", "18446744073709551616-0", "1-+1", "\u0661-0", " 1-0"]
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"id|64 bits"):
        parse_id(text)


@given(st.integers(0, TIMESTAMP_MS_MAX))
def test_the_day_is_the_utc_day(timestamp_ms: int) -> None:
    assert day_of(timestamp_ms) == datetime.fromtimestamp(timestamp_ms // 1000, UTC).date()


def test_the_day_changes_at_midnight_utc() -> None:
    assert (day_of(MAY_MS - 1), day_of(MAY_MS)) == (date(2024, 4, 30), date(2024, 5, 1))


@given(U64, U64, st.integers(0, TIMESTAMP_MS_MAX), st.binary())
def test_an_entry_is_read_back(ms: int, seq: int, timestamp_ms: int, event: bytes) -> None:
    message = Message(EventId(ms, seq), timestamp_ms, event)
    words = fields_of(message)
    assert message_of_entry(b"k", b"%d-%d" % (ms, seq), dict(zip(words[::2], words[1::2], strict=True))) == message


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"batch": b""},
        {b"event": b"", b"timestamp_ms": b"soon"},
        {b"event": b"", b"timestamp_ms": b"-1"},
        {b"event": b"", b"timestamp_ms": b"18446744073709551616"},
    ],
)
def test_an_entry_that_is_no_event_is_named(fields: dict[bytes, bytes]) -> None:
    with pytest.raises(FormatError, match=r"the-key.*5-1"):
        message_of_entry(b"the-key", b"5-1", fields)


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_a_line_is_read_back_and_the_event_is_the_text_that_stood_there(
    event: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(event, ensure_ascii=ascii_only, indent=indent)
    if not ascii_only and any(0xD800 <= ord(char) < 0xE000 for char in text):
        return  # no UTF-8
    line = f' {{ "timestamp_ms" : {MAY_MS}, "other": [1, {{}}], "event" : {text} , "id":"5-1"}} \r'
    message = message_of_json(line)
    assert message == (EventId(5, 1), MAY_MS, text.encode())
    printed = json_of_message(message)
    assert "\n" not in printed
    assert json.loads(printed) == {"id": "5-1", "timestamp_ms": MAY_MS, "event": event}


def test_numbers_and_order_are_kept() -> None:
    text = '{"b":1.10,"a":123456789012345678901234567890,"c":1e400,"b":2}'
    assert message_of_json(f'{{"id":"1-1","timestamp_ms":0,"event":{text}}}').event == text.encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "expected '{'"),
        ("[]", "expected '{'"),
        ("{", "name of a member"),
        ('{"id"}', "expected ':'"),
        ('{"id": }', "expected a value|Expecting value"),
        ('{"id": "1-1",}', "name of a member"),
        ('{"id": "1-1" "event": 1}', "expected ','"),
        ('{"id": "1-1", "timestamp_ms": 0, "event": {}} {}', "more text after"),
        ('{"id": "1-1", "event": {}}', "timestamp_ms is missing"),
        ('{"id": "1-1", "timestamp_ms": 0}', "event is missing"),
        ('{"timestamp_ms": 0, "event": {}}', "id is missing"),
        ('{"id": 1, "timestamp_ms": 0, "event": {}}', "id must be a text"),
        ('{"id": "1", "timestamp_ms": 0, "event": {}}', "not an id"),
        ('{"id": "0-0", "timestamp_ms": 0, "event": {}}', "larger than 0-0"),
        ('{"id": "1-1", "timestamp_ms": "0", "event": {}}', "whole number"),
        ('{"id": "1-1", "timestamp_ms": 1.5, "event": {}}', "whole number"),
        ('{"id": "1-1", "timestamp_ms": true, "event": {}}', "whole number"),
        ('{"id": "1-1", "timestamp_ms": -1, "event": {}}', "year 10000"),
        ('{"id": "1-1", "timestamp_ms": 0, "event": NaN}', "NaN is not JSON"),
        ('{"id": "1-1", "timestamp_ms": 0, "event": ' + "[" * 100_000, "nested too deeply"),
        ('{"id": "1-1", "timestamp_ms": 0, "event": ' + "[" * 100_000 + "}", "nested too deeply"),
        ('{"id": "1-1", "timestamp_ms": 01, "event": {}}', "expected"),
        ('{"id": "1-1", "timestamp_ms": 1, "event": {}}}', "more text after"),
        ('{"id": "1-1", "timestamp_ms": 1, "event": }', "value"),
    ],
)
def test_a_line_that_is_no_message_says_why(line: str, reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        message_of_json(line)


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (b"plain", '"plain"'),
        (b"\xff\x00", '{"base64": "/wA="}'),
        (b"{} {}", '"{} {}"'),
        (b'{\n"a":\r\n1}', '{ "a":  1}'),
    ],
)
def test_an_event_that_another_program_wrote_is_shown_as_json(event: bytes, shown: str) -> None:
    assert json_of_event(event) == shown
    json.loads(shown)
