"""How ids are read; what Redis makes of them is compared in `tests/conformance`."""

from __future__ import annotations

import pytest

from tidelog.commands.stream_ids import (
    INVALID_ID,
    LARGEST_ID,
    any_id,
    first_of_interval,
    id_text,
    last_of_interval,
    parse_id,
    parse_open_id,
    strict_id,
)
from tidelog.errors import CommandError
from tidelog.streams.node import SEQ_MAX, pack_id


@pytest.mark.parametrize(
    ("word", "ms", "seq"),
    [
        (b"1-2", 1, 2),
        (b"1", 1, 9),
        (b"007-08", 7, 8),
        (b" +5-\t6", 5, 6),
        (b"5--06", 5, SEQ_MAX - 5),
        (b"%d-%d" % (SEQ_MAX, SEQ_MAX), SEQ_MAX, SEQ_MAX),
        (b"3\0-4", 3, 9),
    ],
)
def test_ids(word: bytes, ms: int, seq: int) -> None:
    assert parse_id(word, 9) == strict_id(word, 9) == pack_id(ms, seq)


@pytest.mark.parametrize(
    "word", [b"", b"-", b"+", b"x", b"1-", b"-1", b"1--1", b"1-2-3", b"%d" % (SEQ_MAX + 1), b"1" * 200]
)
def test_no_ids(word: bytes) -> None:
    assert parse_id(word) is None
    with pytest.raises(CommandError, match=INVALID_ID):
        strict_id(word)


def test_open_ids() -> None:
    assert parse_open_id(b"17-*") == 17
    assert [parse_open_id(word) for word in (b"*", b"-*", b"1-2", b"1--*", b"x-*")] == [None] * 5


def test_intervals() -> None:
    assert (any_id(b"-"), any_id(b"+")) == (0, LARGEST_ID)
    assert (first_of_interval(b"5"), last_of_interval(b"5")) == (pack_id(5, 0), pack_id(5, SEQ_MAX))
    assert (first_of_interval(b"(5-1"), last_of_interval(b"(5-1")) == (pack_id(5, 2), pack_id(5, 0))
    assert last_of_interval(b"(5-0") == pack_id(4, SEQ_MAX)
    for read, word in ((first_of_interval, b"(%d-%d" % (SEQ_MAX, SEQ_MAX)), (last_of_interval, b"(0-0")):
        with pytest.raises(CommandError, match="for the interval"):
            read(word)
    assert id_text(pack_id(5, 7)) == b"5-7"
