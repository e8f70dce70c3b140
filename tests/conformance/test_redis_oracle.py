"""The harness sees what it is there to see: replies that differ, in whatever way."""

from __future__ import annotations

import pytest

from tests.conformance.redis_oracle import (
    EXACT,
    SCAN,
    SCAN_PAIRS,
    SHAPE,
    UNORDERED,
    UNORDERED_PAIRS,
    Order,
    Pair,
    parse,
)

AB, BA = b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"*2\r\n$1\r\nb\r\n$1\r\na\r\n"
ABC, CAB = b"*3\r\n:1\r\n:2\r\n:3\r\n", b"*3\r\n:3\r\n:1\r\n:2\r\n"
PAIRS, SWAPPED, CROSSED = (
    b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
    b"*4\r\n:3\r\n:4\r\n:1\r\n:2\r\n",
    b"*4\r\n:1\r\n:4\r\n:3\r\n:2\r\n",
)
MAP, MAP_SWAPPED = b"%" + PAIRS.replace(b"*4", b"2"), b"%" + SWAPPED.replace(b"*4", b"2")


@pytest.mark.parametrize(
    ("order", "one", "other"),
    [
        (EXACT, b"+OK\r\n", b"$2\r\nOK\r\n"),
        (EXACT, b"$-1\r\n", b"*-1\r\n"),
        (EXACT, b"*0\r\n", b"*-1\r\n"),
        (EXACT, b":1\r\n", b"$1\r\n1\r\n"),
        (EXACT, b"#t\r\n", b":1\r\n"),
        (EXACT, b"-ERR a\r\n", b"-ERR b\r\n"),
        (EXACT, AB, BA),
        (EXACT, AB, AB.replace(b"*", b"~", 1)),
        (UNORDERED, AB, AB.replace(b"*", b"~", 1)),
        (UNORDERED, AB, AB.replace(b"b", b"a")),
        (UNORDERED, MAP, b"%" + CROSSED.replace(b"*4", b"2")),
        (UNORDERED_PAIRS, PAIRS, CROSSED),
        (SCAN, b"*2\r\n$1\r\n0\r\n" + AB, b"*2\r\n$1\r\n1\r\n" + AB),
        (SCAN_PAIRS, b"*2\r\n$1\r\n0\r\n" + PAIRS, b"*2\r\n$1\r\n0\r\n" + CROSSED),
        (SHAPE, AB, ABC),
        (SHAPE, b"$1\r\na\r\n", b"$-1\r\n"),
        (SHAPE, b"-ERR a\r\n", b"-ERR b\r\n"),
    ],
)
def test_different(order: Order, one: bytes, other: bytes) -> None:
    assert order(parse(one)[0]) != order(parse(other)[0])


@pytest.mark.parametrize(
    ("order", "one", "other"),
    [
        (EXACT, MAP, MAP_SWAPPED),
        (UNORDERED, AB, BA),
        (UNORDERED, ABC, CAB),
        (UNORDERED_PAIRS, PAIRS, SWAPPED),
        (UNORDERED_PAIRS, b"*2\r\n" + AB + BA, b"*2\r\n" + BA + AB),
        (UNORDERED_PAIRS, MAP, MAP_SWAPPED),
        (SCAN, b"*2\r\n$1\r\n0\r\n" + AB, b"*2\r\n$1\r\n0\r\n" + BA),
        (SCAN_PAIRS, b"*2\r\n$1\r\n0\r\n" + PAIRS, b"*2\r\n$1\r\n0\r\n" + SWAPPED),
        (SHAPE, AB, BA),
    ],
)
def test_the_same(order: Order, one: bytes, other: bytes) -> None:
    assert order(parse(one)[0]) == order(parse(other)[0])


def test_state_that_differs_is_seen(pair: Pair) -> None:
    pair("SADD", "s", "a")
    pair.same_state()
    pair.tidelog.call([b"SADD", b"s", b"b"])
    with pytest.raises(AssertionError):
        pair.same_state()
    pair.flush()
    pair.same_state()
    pair("HSET", "h", "f", "v")
    pair.tidelog.call([b"EXPIRE", b"h", b"100"])
    with pytest.raises(AssertionError):
        pair.same_state()
    pair.redis.call([b"EXPIRE", b"h", b"100"])
    pair.same_state()


def test_replies_that_differ_are_seen(pair: Pair) -> None:
    pair.redis.call([b"SADD", b"s", b"a"])
    with pytest.raises(AssertionError, match="SCARD"):
        pair("SCARD", "s")
