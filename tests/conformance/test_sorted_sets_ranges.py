"""Sorted sets on Tidelog and on a real Redis: ranges by rank, score and member."""

from __future__ import annotations

import pytest

from tests.conformance.redis_oracle import Pair
from tidelog.types.sorted_members import COLUMNS_MEMBERS_MAX

SIZES = [0, 1, 10, COLUMNS_MEMBERS_MAX + 30]
PLACES = (0, 1, 5, 9, 10, 100, -1, -2, -9, -11, -1000, 9223372036854775807, -9223372036854775808)
BOUNDS = (
    "0", "(0", "-0", "3", "(3", "2.5", "(2.5", "49", "(49", "-inf", "+inf", "(-inf", "(+inf", "inf", "", "(", "0x3",
    "(0x3", " 3", "( 3", "1e999", "-1e999", "(1e999", "1e-999", "3\0x",
)  # fmt: skip
NO_BOUNDS = ("x", "(x", "3 ", "nan", "(nan", "((3", "[3", "3(", " ", "--3", "0x", "1_0")
LEX_BOUNDS = (
    "-", "+", "[a", "(a", "[c", "(c", "[zz", "(zz", "[", "(", "[aa", "(aa", "[b\0", "-\0x", "+\0", "[\xff", "(\xff",
)  # fmt: skip
NO_LEX_BOUNDS = ("a", "", "-x", "+x", "--", "++", "0", "]a", " [a", "1", "\0")
LIMITS = ((0, 3), (2, 3), (0, -1), (3, -1), (-1, 3), (-1, -1), (0, 0), (100, 5), (1, -7), (0, 9223372036854775807))


def scored(pair: Pair, count: int, key: str = "z") -> None:
    """Many equal scores, and infinite ones at both ends."""
    for i in range(count):
        pair.each("ZADD", key, (i * 7) % 50, f"m{i}")
    if count > 5:
        pair("ZADD", key, "inf", "top", "-inf", "bottom", 2.5, "mid", 0, "zero")


def named(pair: Pair, count: int, key: str = "z") -> None:
    """One score for all."""
    for i in range(count):
        pair.each("ZADD", key, 7, chr(97 + i % 26) * (1 + i // 26))
    if count > 5:
        pair("ZADD", key, 7, "", 7, b"\xff", 7, b"b\0")


# --- by rank ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", SIZES)
def test_by_rank(count: int, pair: Pair) -> None:
    scored(pair, count)
    for first in PLACES:
        for last in PLACES:
            pair("ZRANGE", "z", first, last)
            pair("ZREVRANGE", "z", first, last, "WITHSCORES")
            pair("ZRANGE", "z", first, last, "rev", "withscores")


@pytest.mark.parametrize("count", SIZES)
def test_removing_by_rank(count: int, pair2: Pair) -> None:
    for first in PLACES:
        for last in (0, 1, 5, -1, -2, -5, 1000):
            pair2.flush()
            scored(pair2, min(count, 12))
            pair2("ZREMRANGEBYRANK", "z", first, last)
            pair2.same_state()


# --- by score ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", SIZES)
def test_by_score(count: int, pair: Pair) -> None:
    scored(pair, count)
    for least in BOUNDS:
        for most in BOUNDS:
            pair("ZCOUNT", "z", least, most)
            pair("ZRANGEBYSCORE", "z", least, most)
            pair("ZREVRANGEBYSCORE", "z", most, least, "WITHSCORES")


@pytest.mark.parametrize("bound", NO_BOUNDS)
def test_what_is_no_score_range_is_refused(bound: str, pair2: Pair) -> None:
    pair2("ZADD", "z", 1, "a")
    pair2("SET", "s", "v")
    for key in ("z", "s", "none"):
        for bounds in ((bound, "1"), ("1", bound), (bound, bound)):
            assert str(pair2("ZCOUNT", key, *bounds)) == "ERR min or max is not a float"
            pair2("ZRANGEBYSCORE", key, *bounds)
            pair2("ZREVRANGEBYSCORE", key, *bounds, "LIMIT", 0, 1)
            pair2("ZRANGE", key, *bounds, "BYSCORE")
            pair2("ZREMRANGEBYSCORE", key, *bounds)
            pair2("ZRANGESTORE", "to", key, *bounds, "BYSCORE")


@pytest.mark.parametrize("count", [10, COLUMNS_MEMBERS_MAX + 30])
def test_limits(count: int, pair: Pair) -> None:
    scored(pair, count)
    for offset, limit in LIMITS:
        pair("ZRANGEBYSCORE", "z", "2", "(40", "LIMIT", offset, limit)
        pair("ZREVRANGEBYSCORE", "z", "40", "2", "limit", offset, limit, "WITHSCORES")
        pair("ZRANGE", "z", "2", "(40", "BYSCORE", "LIMIT", offset, limit, "WITHSCORES")
        pair("ZRANGE", "z", "(40", "2", "BYSCORE", "REV", "LIMIT", offset, limit)
        pair("ZRANGESTORE", "to", "z", "(40", "2", "BYSCORE", "REV", "LIMIT", offset, limit)
        pair("ZRANGESTORE", "to2", "z", "(40", "2", "BYSCORE", "LIMIT", offset, limit)
        pair.same_state()


@pytest.mark.parametrize("count", [1, 10, COLUMNS_MEMBERS_MAX + 30])
def test_removing_by_score(count: int, pair2: Pair) -> None:
    for bounds in (("-inf", "+inf"), ("(0", "3"), ("3", "(0"), ("(-inf", "(inf"), ("7", "7"), ("(7", "7")):
        pair2.flush()
        scored(pair2, count)
        pair2("ZREMRANGEBYSCORE", "z", *bounds)
        pair2.same_state()


# --- by member --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", SIZES)
def test_by_member(count: int, pair: Pair) -> None:
    named(pair, count)
    for least in LEX_BOUNDS:
        for most in LEX_BOUNDS:
            bounds = least.encode("latin-1"), most.encode("latin-1")
            pair("ZLEXCOUNT", "z", *bounds)
            pair("ZRANGEBYLEX", "z", *bounds)
            pair("ZREVRANGEBYLEX", "z", *bounds[::-1])


def test_by_member_where_scores_differ(pair2: Pair) -> None:
    """Not documented to mean anything; a walk over a small set is what Redis does."""
    members = [b"d", b"a", b"f", b"c", b"e", b"b"]
    pair2("ZADD", "z", *(part for score, member in enumerate(members) for part in (score // 2, member)))
    bounds = ["-", "+", *(mark + chr(97 + i) for mark in "[(" for i in range(7))]
    for least in bounds:
        for most in bounds:
            pair2("ZLEXCOUNT", "z", least, most)
            pair2("ZRANGEBYLEX", "z", least, most)
            pair2("ZREVRANGEBYLEX", "z", most, least)
            pair2("ZRANGE", "z", most, least, "BYLEX", "REV", "LIMIT", 1, 2)


@pytest.mark.parametrize("bound", NO_LEX_BOUNDS)
def test_what_is_no_range_of_members_is_refused(bound: str, pair2: Pair) -> None:
    pair2("ZADD", "z", 1, "a")
    pair2("SET", "s", "v")
    for key in ("z", "s", "none"):
        for bounds in ((bound, "+"), ("-", bound), (bound, bound)):
            assert str(pair2("ZLEXCOUNT", key, *bounds)) == "ERR min or max not valid string range item"
            pair2("ZRANGEBYLEX", key, *bounds)
            pair2("ZREVRANGEBYLEX", key, *bounds)
            pair2("ZRANGE", key, *bounds, "BYLEX")
            pair2("ZREMRANGEBYLEX", key, *bounds)
            pair2("ZRANGESTORE", "to", key, *bounds, "BYLEX", "REV")


@pytest.mark.parametrize("count", [1, 10, COLUMNS_MEMBERS_MAX + 30])
def test_limits_and_removing_by_member(count: int, pair2: Pair) -> None:
    for bounds in (("-", "+"), ("[b", "(e"), ("(b", "[e"), ("[e", "[b"), ("+", "-"), ("(b", "(b"), ("[b", "[b")):
        pair2.flush()
        named(pair2, count)
        for offset, limit in LIMITS:
            pair2("ZRANGEBYLEX", "z", *bounds, "LIMIT", offset, limit)
            pair2("ZREVRANGEBYLEX", "z", *bounds[::-1], "LIMIT", offset, limit)
            pair2("ZRANGE", "z", *bounds, "BYLEX", "LIMIT", offset, limit)
            pair2("ZRANGE", "z", *bounds[::-1], "REV", "BYLEX", "LIMIT", offset, limit)
        pair2("ZREMRANGEBYLEX", "z", *bounds)
        pair2.same_state()


# --- options ----------------------------------------------------------------------------------------------------

OPTIONS = (
    "BYSCORE", "BYLEX", "REV", "WITHSCORES", "LIMIT 0 1", "LIMIT 0 -1", "BYSCORE BYLEX", "BYLEX BYSCORE",
    "BYSCORE BYSCORE", "REV REV", "WITHSCORES WITHSCORES", "BYLEX WITHSCORES", "WITHSCORES BYLEX REV",
    "BYSCORE LIMIT 0", "BYSCORE LIMIT", "BYSCORE LIMIT x 1", "BYSCORE LIMIT 1 x", "LIMIT x y", "LIMIT 0 1 FOO",
    "BYSCORE LIMIT 0 1 LIMIT 1 2", "FOO", "BYRANK", "REV LIMIT 0 5", "BYSCORE REV WITHSCORES LIMIT 0 2",
    "LIMIT 0 1 BYSCORE", "BYLEX REV LIMIT 1 -1", "WITHSCORE", "BYLEX WITHSCORES LIMIT 0 1", "LIMIT 1 -1",
    "LIMIT 0 2 WITHSCORES",
)  # fmt: skip
COMMANDS = (
    "ZRANGE",
    "ZREVRANGE",
    "ZRANGEBYSCORE",
    "ZREVRANGEBYSCORE",
    "ZRANGEBYLEX",
    "ZREVRANGEBYLEX",
    "ZRANGESTORE to",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_options_in_all_commands(command: str, pair: Pair) -> None:
    pair("ZADD", "z", 1, "a", 2, "b", 3, "c")
    pair("ZADD", "n", 1, "a", 1, "b", 1, "c")
    pair("SET", "s", "v")
    for options in OPTIONS:
        for bounds in (("0", "2"), ("2", "0"), ("-", "+"), ("+", "-"), ("x", "y")):
            for key in ("z", "n", "none", "s"):
                pair(*command.split(), key, *bounds, *options.split())
                pair(*command.split(), key, *bounds, *options.lower().split())
    pair.same_state()


def test_zrangestore(pair: Pair) -> None:
    scored(pair, 20)
    pair("SET", "to", "a string")
    pair("PEXPIRE", "to", 100000)
    assert pair("ZRANGESTORE", "to", "z", 2, 5) == 4
    pair.same_state()
    assert pair("ZRANGESTORE", "z", "z", 2, 5, "REV") == 4
    pair("PEXPIRE", "z", 100000)
    pair("ZRANGESTORE", "z", "z", 1, 2)
    pair.same_state()
    assert pair("ZRANGESTORE", "to", "none", 0, -1) == 0
    pair("ZRANGESTORE", "to", "none", 0, -1)
    pair("ZADD", "to", 1, "a")
    assert pair("ZRANGESTORE", "to", "z", 50, 60) == 0
    pair("SET", "s", "v")
    pair("ZRANGESTORE", "s", "s", 0, -1)
    pair("ZRANGESTORE", "s", "none", 0, -1)
    pair("ZRANGESTORE", "to", "z", 0, "x")
    pair.same_state()
    pair.restart()
    pair.same_state()
