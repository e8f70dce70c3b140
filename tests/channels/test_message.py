"""Messages and their bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.channels.message import ChannelMessage, body_of, made_message, message_in, message_of
from tidelog.errors import BadChannelInput, MessageTooLarge

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(JSON.filter(lambda value: "\\ud" not in json.dumps(value)))
def test_a_message_is_what_its_body_holds(value: Any) -> None:
    message = message_of("msg-1", value)
    assert message.value == value
    assert message_in(body_of(message)) == message
    assert json.loads(body_of(message)) == {"id": "msg-1", "content": value}


def test_a_body_is_as_the_document_has_it() -> None:
    message = made_message("msg123", b'  { "text": "hello!" }\n')
    assert body_of(message) == b'{"id":"msg123","content":{ "text": "hello!" }}'


@pytest.mark.parametrize("content", [b"1.50", b'{"a": 1, "a": 2}', b'"\\"}"', b"[1e400]"])
def test_a_trail_before_it_leaves_the_content_as_it_is(content: bytes) -> None:
    assert message_in(b'{"trail":"5f0c6e1b9a37","id":"msg123","content":%b}' % content) == ("msg123", content)


@pytest.mark.parametrize(
    "body",
    [
        b'{ "id": "msg123", "content": { "text": "hello!" } }',
        b'{"content": {"text": "hello!"}, "more": 1, "id": "msg123"}',
    ],
)
def test_bodies_of_other_programs_are_read(body: bytes) -> None:
    assert message_in(body) == ChannelMessage("msg123", b'{"text":"hello!"}')


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b'{"id":"a"}', b'{"id":1,"content":1}', b'{"id":"a.b","content":1}', b"\xff", b"[" * 5000],
)
def test_what_is_no_message_is_none(body: bytes) -> None:
    assert message_in(body) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" ",
        b"{",
        b"nul",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"'a'",
        b"\xff",
        b'"\n"',
        b"1 2",
        "1".encode("utf-16"),
    ],
)
def test_content_that_is_not_json_is_refused(content: bytes) -> None:
    with pytest.raises(BadChannelInput, match="the message m is not JSON: "):
        made_message("m", content)


def test_content_that_would_exhaust_the_parser_is_refused() -> None:
    with pytest.raises(BadChannelInput, match="nested too deeply"):
        made_message("m", b"[" * 100_000 + b"]" * 100_000)
    assert made_message("m", b"9" * 100_000).content == b"9" * 100_000


def test_a_value_that_cannot_be_json_is_refused() -> None:
    for value in (object(), float("nan"), {1j: 1}):
        with pytest.raises(BadChannelInput, match="cannot be JSON"):
            message_of("m", value)


def test_the_size_of_a_message_is_bounded() -> None:
    largest = b'"%b"' % (b"x" * (limits.CHANNEL_MESSAGE_BYTES_MAX - 2))
    for content in (largest, largest[:-2] + b'"'):
        assert made_message("m", content).content == content
    with pytest.raises(MessageTooLarge, match="a message has at most 1048576 bytes; m has 1048577"):
        made_message("m", largest + b" ")
