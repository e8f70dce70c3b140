"""What a feed asks for."""

from __future__ import annotations

from tidelog.client.request import FeedRequest, spans_of
from tidelog.feeds.span import Span


def test_spans() -> None:
    assert spans_of(None, None, ()) == ((b"", b""),)
    assert spans_of("user:", None, ()) == ((b"user:", b"user;"),)
    assert spans_of([b"a", "b"], b"k", [("x", b"")]) == ((b"a", b"b"), (b"b", b"c"), (b"k", b"k\0"), (b"x", b""))
    assert spans_of(b"a", None, [(b"a", b"b")]) == ((b"a", b"b"),)


def test_the_command() -> None:
    request = FeedRequest((Span(b"a", b"b"),), until=9, name="n", txn=True, groups=True, expiry=True, checkpoint_ms=50)
    assert request.command(["SINCE", 3]) == [
        *("CHANGEFEED", "SINCE", 3, "CHECKPOINT", 50, "NAME", "n", "UNTIL", 9, "TXN", "GROUPS", "EXPIRY"),
        *("SPAN", b"a", b"b"),
    ]
    assert FeedRequest((Span(b"", b""),), one_checkpoint=True).command([])[1] == "ONECHECKPOINT"
