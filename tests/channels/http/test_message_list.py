"""A body with several messages: contents stay as they are written, and nothing else is taken for a list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.channels.http.message_list import messages_in
from tidelog.errors import BadChannelInput, LimitExceeded, MessageTooLarge


def test_contents_stay_as_they_are_written() -> None:
    body = b' [ {"messageID" : "a" , "content" : {"b": 1.50, "a":[ 1e400 ]} },\n'
    body += b'{"content":"\\u00e9\xc3\xa9","messageID":"b"}]\n'
    assert [(each.id, each.content) for each in messages_in(body)] == [
        ("a", b'{"b": 1.50, "a":[ 1e400 ]}'),
        ("b", b'"\\u00e9\xc3\xa9"'),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b"[1]",
        b"[[]]",
        b"[{}]",
        b'[{"messageID":"a"}]',
        b'[{"content":1}]',
        b'[{"messageID":1,"content":1}]',
        b'[{"messageID":"a b","content":1}]',
        b'[{"messageID":"a","content":1,"more":2}]',
        b'[{"messageID":"a","messageID":"b","content":1}]',
        b'[{"messageID":"a","content":}]',
        b'[{"messageID":"a","content":NaN}]',
        b'[{"messageID":"a","content":1},]',
        b'[{"messageID":"a","content":1}',
        b'[{"messageID":"a","content":1}] x',
        b'[{"messageID":"a","content":1,}]',
        b'[{"messageID":"a","content":"\xff"}]',
        b'[{"messageID":"a","content":' + b"[" * 100_000,
    ],
)
def test_what_is_no_list(body: bytes) -> None:
    with pytest.raises(BadChannelInput):
        messages_in(body)


def test_bounds() -> None:
    most = [{"messageID": f"m{n}", "content": n} for n in range(limits.CHANNEL_PUBLISH_MESSAGES_MAX)]
    assert len(messages_in(json.dumps(most).encode())) == len(most)
    with pytest.raises(LimitExceeded):
        messages_in(json.dumps([*most, {"messageID": "m", "content": 1}]).encode())
    content = b'"' + b"x" * (limits.CHANNEL_MESSAGE_BYTES_MAX - 2) + b'"'
    assert messages_in(b'[{"messageID":"a","content":%b}]' % content)[0].content == content
    with pytest.raises(MessageTooLarge):
        messages_in(b'[{"messageID":"a","content":1%b}]' % (b"0" * limits.CHANNEL_MESSAGE_BYTES_MAX))


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(_JSON, min_size=1, max_size=5), st.sampled_from([None, 1, "\t"]))
def test_every_list_is_read(values: list[Any], indent: Any) -> None:
    rows = [{"messageID": f"m{n}", "content": value} for n, value in enumerate(values)]
    found = messages_in(json.dumps(rows, indent=indent).encode())
    assert [(each.id, each.value) for each in found] == [(row["messageID"], row["content"]) for row in rows]
