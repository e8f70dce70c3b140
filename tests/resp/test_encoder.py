"""Replies: every type in both protocols, byte for byte and as hiredis reads them back."""

from __future__ import annotations

import math
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.resp.wire import joined_parts
from tidelog import limits
from tidelog.resp.encoder import (
    NULL_ARRAY,
    ErrorReply,
    Later,
    Pairs,
    Push,
    Reply,
    SetReply,
    Spliced,
    Verbatim,
    Wire,
    encode,
    encode_error,
    encode_long,
    format_double,
)


def read(data: bytes) -> Any:
    """The one reply that these bytes are."""
    reader = hiredis.Reader()
    reader.feed(data)
    reply = reader.gets()
    assert not reader.has_data()
    return reply


@pytest.mark.parametrize(
    ("reply", "resp2", "resp3"),
    [
        ("OK", b"+OK\r\n", b"+OK\r\n"),
        ("", b"+\r\n", b"+\r\n"),
        (b"ab", b"$2\r\nab\r\n", b"$2\r\nab\r\n"),
        (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
        (b"\r\n", b"$2\r\n\r\n\r\n", b"$2\r\n\r\n\r\n"),
        (7, b":7\r\n", b":7\r\n"),
        (-(2**63), b":-9223372036854775808\r\n", b":-9223372036854775808\r\n"),
        (None, b"$-1\r\n", b"_\r\n"),
        (NULL_ARRAY, b"*-1\r\n", b"_\r\n"),
        (True, b":1\r\n", b"#t\r\n"),
        (False, b":0\r\n", b"#f\r\n"),
        (1.5, b"$3\r\n1.5\r\n", b",1.5\r\n"),
        (-0.0, b"$2\r\n-0\r\n", b",-0\r\n"),
        (math.inf, b"$3\r\ninf\r\n", b",inf\r\n"),
        (-math.inf, b"$4\r\n-inf\r\n", b",-inf\r\n"),
        (math.nan, b"$3\r\nnan\r\n", b",nan\r\n"),
        ([], b"*0\r\n", b"*0\r\n"),
        ([1, b"a", None, []], b"*4\r\n:1\r\n$1\r\na\r\n$-1\r\n*0\r\n", b"*4\r\n:1\r\n$1\r\na\r\n_\r\n*0\r\n"),
        ((1, "OK"), b"*2\r\n:1\r\n+OK\r\n", b"*2\r\n:1\r\n+OK\r\n"),
        ({b"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
        ({}, b"*0\r\n", b"%0\r\n"),
        (Pairs([(b"a", 1.0)]), b"*2\r\n$1\r\na\r\n$1\r\n1\r\n", b"*1\r\n*2\r\n$1\r\na\r\n,1\r\n"),
        (Pairs(), b"*0\r\n", b"*0\r\n"),
        (SetReply([b"a"]), b"*1\r\n$1\r\na\r\n", b"~1\r\n$1\r\na\r\n"),
        (Push([b"message", b"c", b"m"]), b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
         b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"),
        (Verbatim(b"text"), b"$4\r\ntext\r\n", b"=8\r\ntxt:text\r\n"),
        (Verbatim(b"", b"mkd"), b"$0\r\n\r\n", b"=4\r\nmkd:\r\n"),
        (ErrorReply("ERR no"), b"-ERR no\r\n", b"-ERR no\r\n"),
        ([ErrorReply("ERR no")], b"*1\r\n-ERR no\r\n", b"*1\r\n-ERR no\r\n"),
        (Wire(b"+OK\r\n:1\r\n"), b"+OK\r\n:1\r\n", b"+OK\r\n:1\r\n"),
    ],
    ids=repr,
)  # fmt: skip
def test_types(reply: Reply, resp2: bytes, resp3: bytes) -> None:
    assert encode(reply, 2) == resp2
    assert encode(reply, 3) == resp3


def test_what_is_no_reply() -> None:
    for wrong in (object(), {1, 2}, bytearray(b"x")):
        with pytest.raises(TypeError, match="a reply cannot be"):
            encode(wrong, 2)
        with pytest.raises(TypeError, match="a reply cannot be"):
            encode([wrong], 3)


@pytest.mark.parametrize("message", ["ERR a\r\nb", "ERR \n+OK", "ERR \r", "ERR \udcff\udc80", "ERR \u00e9"])
def test_an_error_is_one_line(message: str) -> None:
    data = encode_error(message)
    assert data.startswith(b"-")
    assert data.endswith(b"\r\n")
    assert data.count(b"\r") == data.count(b"\n") == 1
    assert encode(ErrorReply(message), 3) == data


def test_bytes_that_a_client_sent_come_back_in_an_error() -> None:
    assert encode_error(b"ERR \xff\x00".decode("utf-8", "surrogateescape")) == b"-ERR \xff\x00\r\n"


SCALARS = st.one_of(
    st.binary(max_size=20), st.integers(-(2**63), 2**63 - 1), st.none(), st.booleans(), st.floats(allow_nan=False)
)
REPLIES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.binary(max_size=5), inner, max_size=4),
        st.lists(st.binary(max_size=5), max_size=4).map(SetReply),
        st.lists(st.tuples(st.binary(max_size=5), st.floats(allow_nan=False)), max_size=4).map(Pairs),
    ),
    max_leaves=12,
)


def as_resp2(reply: Reply) -> Any:
    """What hiredis makes of a reply in RESP2."""
    if isinstance(reply, Pairs):
        return [as_resp2(item) for pair in reply for item in pair]
    if isinstance(reply, dict):
        return [as_resp2(item) for pair in reply.items() for item in pair]
    if isinstance(reply, list):
        return [as_resp2(item) for item in reply]
    if isinstance(reply, float):
        return format_double(reply)
    return int(reply) if isinstance(reply, bool) else reply


def as_resp3(reply: Reply) -> Any:
    if isinstance(reply, Pairs):
        return [[member, score] for member, score in reply]
    if isinstance(reply, dict):
        return {key: as_resp3(value) for key, value in reply.items()}
    if isinstance(reply, list):
        return [as_resp3(item) for item in reply]
    return reply


@given(REPLIES)
def test_replies_are_read_back(reply: Reply) -> None:
    assert read(encode([reply], 2)) == [as_resp2(reply)]
    assert read(encode([reply], 3)) == [as_resp3(reply)]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_come_back_exactly(number: float) -> None:
    assert float(format_double(number)) == number
    if number == int(number) and abs(number) < 10**17:
        assert format_double(number) == b"%.0f" % number


@pytest.mark.parametrize("protocol", [2, 3])
def test_long_strings_are_parts_of_their_own_and_not_copied(protocol: int) -> None:
    long = bytes(limits.LONG_REPLY_BYTES_MIN)
    for reply in (
        long,
        [b"a", long, 5, long],
        {b"f": long, b"g": b"h"},
        [[b"a"], [long, None]],
        Wire(b"+OK\r\n"),
        "OK",
    ):
        parts = encode_long(reply, protocol)
        assert joined_parts(parts) == encode(reply, protocol)
        assert all(part is long for part in parts if isinstance(part, bytes) and len(part) >= len(long))
        assert len(parts) == 1 + 2 * sum(part is long for part in parts)
    assert len(encode_long(long[1:], protocol)) == 1


class _Counted(Later):
    """Elements that know how often they were asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.times = 0

    def encoded(self) -> bytes:
        self.times += 1
        return self._data


def test_elements_for_later_are_parts_of_their_own() -> None:
    first, second = _Counted(b":1\r\n:2\r\n"), _Counted(b":3\r\n")
    reply = [b"a", Spliced([b"head"], [first, second], 3), b"z"]
    parts = encode_long(reply, 2)
    assert parts == [b"*3\r\n$1\r\na\r\n*4\r\n$4\r\nhead\r\n", first, second, b"$1\r\nz\r\n"]
    assert first.times == second.times == 0
    assert encode(reply, 2) == joined_parts(parts)
    assert encode_long(Spliced([], [second], 1), 2) == [b"*1\r\n", second]
    with_nulls = Spliced([b"head"], [second], 1, nulls_before=2, nulls_after=1)
    assert encode_long(with_nulls, 2) == [b"*5\r\n$4\r\nhead\r\n$-1\r\n$-1\r\n", second, b"$-1\r\n"]
    assert encode(with_nulls, 3) == b"*5\r\n$4\r\nhead\r\n_\r\n_\r\n:3\r\n_\r\n"
