"""What a client may ask Flight for, and what it is told otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.flight.request import RangeEnd, ReadRequest, parse_criteria, parse_read
from tidelog.streams.node import SEQ_MAX, pack_id


def parse(**fields: Any) -> ReadRequest:
    return parse_read(json.dumps(fields).encode())


def test_ranges() -> None:
    assert parse(stream="a") == ReadRequest(b"a")
    assert parse(stream_base64="AP8=", database=3) == ReadRequest(b"\0\xff", 3)
    found = parse(stream="a", **{"from": {"offset": 5}, "to": {"id": "7-8"}}, count=9)
    assert found == ReadRequest(b"a", 0, RangeEnd(offset=5), RangeEnd(number=pack_id(7, 8)), 9)


def test_a_time_and_a_short_id_include_their_whole_millisecond() -> None:
    for place in ({"time": 7}, {"id": "7"}):
        found = parse(stream="a", **{"from": place, "to": place})
        assert found.first == RangeEnd(number=pack_id(7, 0))
        assert found.last == RangeEnd(number=pack_id(7, SEQ_MAX))


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(b"a"),
        ReadRequest(b"\xff\0", 15, RangeEnd(offset=3), RangeEnd(number=pack_id(5, 6)), 0),
        ReadRequest(b"", 1, RangeEnd(number=pack_id(SEQ_MAX, SEQ_MAX)), RangeEnd(offset=2**62)),
        ReadRequest(b"a", is_packed=True),
        ReadRequest(b"a", size_bytes_max=1),
    ],
)
def test_a_ticket_is_parsed_to_the_same(request_: ReadRequest) -> None:
    assert parse_read(request_.ticket()) == request_


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "JSON object"),
        (b"[1]", "JSON object"),
        (b"[" * 50_000, "JSON object"),
        (b"\xff", "JSON object"),
        (b" " * (limits.FLIGHT_REQUEST_BYTES_MAX + 1), "at most"),
        (b"{}", "must name one stream"),
        (b'{"stream": 5}', "must name one stream"),
        (b'{"stream": "a", "stream_base64": "YQ=="}', "must name one stream"),
        (b'{"stream_base64": "!"}', "not base64"),
        (b'{"stream": "a", "strem": 1}', "no field 'strem'"),
        (b'{"stream": "a", "database": 16}', "database must be a number from 0 to 15"),
        (b'{"stream": "a", "database": true}', "database must be a number"),
        (b'{"stream": "a", "count": -1}', "count must be a number"),
        (b'{"stream": "a", "bytes": 0}', "bytes must be a number from 1"),
        (b'{"stream": "a", "packed": 1}', "packed must be true or false"),
        (b'{"stream": "a", "from": 1}', "from must have one of offset, id and time"),
        (b'{"stream": "a", "from": {"offset": 1, "id": "1-1"}}', "from must have one of"),
        (b'{"stream": "a", "to": {"offset": -1}}', "to.offset must be a number"),
        (b'{"stream": "a", "to": {"id": "x-1"}}', "to.id must be an id such as"),
        (b'{"stream": "a", "to": {"id": "1-18446744073709551616"}}', "to.id must be an id such as"),
        (b'{"stream": "a", "to": {"when": 1}}', "to must have one of"),
    ],
)
def test_bad_requests(data: bytes, says: str) -> None:
    with pytest.raises(ClientError, match=says):
        parse_read(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"stream": "\\ud800"}',
        '{"stream_base64": "\u00e9"}'.encode(),
        b'{"stream": "a", "from": {"id": "%s"}}' % (b"9" * 5000),
        b'{"stream": "a", "to": {"id": "1-%s"}}' % (b"9" * 5000),
        b'{"stream": "a", "to": {"id": "1-18446744073709551616"}}',
    ],
)
def test_text_that_python_itself_refuses(data: bytes) -> None:
    with pytest.raises(ClientError):
        parse_read(data)


@pytest.mark.parametrize("data", [b"{", b"[]", b"7", b'{"database": 16}', b"\xff"])
def test_no_criteria(data: bytes) -> None:
    with pytest.raises(ClientError):
        parse_criteria(data)


def test_criteria() -> None:
    assert parse_criteria(b"") == 0
    assert parse_criteria(b'{"database": 3}') == 3
