"""What a request for a feed says; what comes of it is tested in tests/integration/test_http_feed.py."""

from __future__ import annotations

import pytest

from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.span import Span
from tidelog.gateway.feed import BadQuery, read_query
from tidelog.ids import Ts


def test_nothing_said_is_everything_from_now_on() -> None:
    assert read_query(b"", None) == ChangeFeedRequest(spans=[Span(b"", b"")])


def test_everything_said() -> None:
    query = b"key=a%00%ff&key=b&prefix=user:&span=x,y&span=z,&since=7&db=3&checkpoint=50&expiry=1"
    assert read_query(query, None) == ChangeFeedRequest(
        spans=[Span(b"a\0\xff", b"a\0\xff\0"), Span(b"b", b"b\0"), Span(b"user:", b"user;"), *_SPANS],
        since=Ts(7),
        database=3,
        checkpoint_ms=50,
        has_expiry=True,
    )


_SPANS = [Span(b"x", b"y"), Span(b"z", b"")]


def test_a_place_that_was_sent_before() -> None:
    there = ChangeFeedRequest(spans=[Span(b"", b"")], since=Ts(7), epoch=8, seen=Ts(6))
    assert read_query(b"since=7-8-6", None) == there
    assert read_query(b"", "7-8-6") == there
    assert read_query(b"initial=1", "7-8-6") == there
    assert read_query(b"since=5", "7-8-6") == there
    assert read_query(b"initial=1", None).is_initial
    assert read_query(b"initial=1", "").is_initial
    assert not read_query(b"initial=0", None).is_initial


@pytest.mark.parametrize(
    ("query", "last_event_id"),
    [
        (b"since=", None),
        (b"since=-1", None),
        (b"since=1-2", None),
        (b"since=\xd9\xa1", None),
        (b"since=99999999999999999999", None),
        (b"since=1&since=2", None),
        (b"since=1&initial=1", None),
        (b"initial=yes", None),
        (b"db=16", None),
        (b"checkpoint=1", None),
        (b"span=a", None),
        (b"span=b,a", None),
        (b"span=a,b,c", None),
        (b"span=a%2Cb,c", None),
        (b"until=x", None),
        (b"until=99999999999999999999", None),
        (b"name=", None),
        (b"name=%ff", None),
        (b"txn=2", None),
        (b"onecheckpoint=yes", None),
        (b"shard=1", None),
        (b"", "x"),
        (b"", "1-2-3-4"),
    ],
)
def test_what_makes_no_sense(query: bytes, last_event_id: str | None) -> None:
    with pytest.raises(BadQuery):
        read_query(query, last_event_id)
