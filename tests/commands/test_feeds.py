"""CHANGEFEED's grammar and FEED's subcommands, without a server."""

from __future__ import annotations

import pytest

from tidelog.commands.feeds import _position_asked, _request
from tidelog.errors import CommandError
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.span import Span


def parse(text: str) -> ChangeFeedRequest:
    words = [b"" if word == '""' else word.encode() for word in text.split()]
    return _request([b"CHANGEFEED", *words], 3, 2)


def test_everything_at_once() -> None:
    found = parse(
        "name n shard 1 since 7 epoch 8 seen 6 until 9 key k prefix p span a b checkpoint 50 txn groups expiry "
        "onecheckpoint"
    )
    spans = [Span(b"k", b"k\0"), Span(b"p", b"q"), Span(b"a", b"b")]
    assert found == ChangeFeedRequest(spans, 3, "n", 1, 7, 8, 6, False, 9, 50, True, True, True, True)  # type: ignore[arg-type]


def test_what_is_not_said() -> None:
    assert parse('SPAN "" "" INITIAL') == ChangeFeedRequest([Span(b"", b"")], 3, is_initial=True)
    assert parse("KEY a KEY a") == ChangeFeedRequest([Span(b"a", b"a\0")], 3)
    assert parse("KEY KEY").spans == [Span(b"KEY", b"KEY\0")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("INITIAL", "ERR a feed needs at least one"),
        ("KEY", "ERR syntax error"),
        ("SPAN a", "ERR syntax error"),
        ("PREFIX", "ERR syntax error"),
        ("KEY a WHAT", "ERR syntax error"),
        ("KEY a TXN TXN", "ERR syntax error"),
        ("KEY a SINCE", "ERR syntax error"),
        ("KEY a SINCE x", "ERR value is not an integer"),
        ("KEY a SINCE -1", "ERR SINCE is negative"),
        ("KEY a UNTIL 99999999999999999999", "ERR value is not an integer"),
        ("KEY a SINCE 1 INITIAL", "ERR SINCE and INITIAL cannot be used together"),
        ("KEY a SINCE 1 EPOCH 2", "ERR EPOCH and SEEN come together"),
        ("KEY a EPOCH 2 SEEN 3", "ERR EPOCH and SEEN come together"),
        ("SPAN b a", "ERR SPAN 'b' 'a' ends before it begins"),
        ("KEY k SPAN \xe9 \xe9", r"ERR SPAN '\\xc3\\xa9' '\\xc3\\xa9' ends before it begins"),
        ("KEY a SHARD 2", "ERR there is no shard 2"),
        ("KEY a CHECKPOINT 1", "ERR CHECKPOINT is 10 to"),
        ("KEY a CHECKPOINT 99999999", "ERR CHECKPOINT is 10 to"),
    ],
)
def test_mistakes(text: str, error: str) -> None:
    with pytest.raises(CommandError, match=error):
        parse(text)


def test_a_name_is_text() -> None:
    with pytest.raises(CommandError, match="not UTF-8"):
        _request([b"CHANGEFEED", b"NAME", b"\xff", b"KEY", b"a"], 0, 1)


def test_what_a_position_is_asked() -> None:
    assert _position_asked([]) == (None, None)
    assert _position_asked([b"since", b"7", b"records", b"3"]) == (7, 3)
    assert _position_asked([b"SINCE", b"0", b"Behind"]) == (0, None)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SINCE", "ERR syntax error"),
        ("SINCE 1", "ERR syntax error"),
        ("BEHIND", "ERR syntax error"),
        ("SINCE x BEHIND", "ERR value is not an integer"),
        ("SINCE -1 BEHIND", "ERR SINCE is negative"),
        ("SINCE 1 BEHIND 2", "ERR syntax error"),
        ("SINCE 1 BEHIND RECORDS 2", "ERR syntax error"),
        ("SINCE 1 RECORDS", "ERR syntax error"),
        ("SINCE 1 RECORDS x", "ERR value is not an integer"),
        ("SINCE 1 RECORDS 0", "ERR RECORDS is not positive"),
        ("SINCE 1 RECORDS 2 BEHIND", "ERR syntax error"),
        ("UNTIL 1 BEHIND", "ERR syntax error"),
    ],
)
def test_mistakes_about_a_position(text: str, error: str) -> None:
    with pytest.raises(CommandError, match=error):
        _position_asked([word.encode() for word in text.split()])
