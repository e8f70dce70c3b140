"""Sorted sets on Tidelog and on a real Redis: setting scores, looking up, popping, drawing, scanning."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.conformance.redis_oracle import (
    SCAN_PAIRS,
    SHAPE,
    UNORDERED,
    UNORDERED_PAIRS,
    Argument,
    Pair,
    command_rows,
    decode,
    pack,
)
from tidelog import limits
from tidelog.engine.table import Command
from tidelog.types.sorted_members import COLUMNS_MEMBERS_MAX

FAMILY = [row for row in command_rows() if row.handler.__module__.startswith("tidelog.commands.sorted_set")]
SCORES = (
    "0", "-0", "+0", "1", "-1", "1.5", "-1.5e3", "1e21", "1e22", "123456789012345678", "1e17", "99999999999999999",
    "4611686018427387904", "4611686018427388928", "-4611686018427387904", "0.1", ".5", "5.", "1e-7", "3.0e0", "1e308",
    "1.7976931348623157e308", "4.9e-324", "1e-320", "inf", "+inf", "-inf", "INF", "Infinity", "-iNfInItY", "0x10",
    "0X1p-3", "-0x.8", "0x1.8p3", "0x0p99999", "0e-999", "00012", "1E5", "1E+5", "9007199254740993",
    "0x0p99999999999999999999", "0e99999999999999999999", "-0x0.0p-99999", "0x.0000p5", "0x1.fffffffffffff8p0", "0x0e5",
)  # fmt: skip
NO_SCORES = (
    "", " ", "a", "nan", "-nan", "NaN(1)", "1a", "1 ", " 1", "\t1", "1e", "e5", ".", "+", "-", "--1", "1e400", "-1e400",
    "1e-400", "-1e-400", "0x", "0xg", "0x1p", "0x1p99999", "0x1p-99999", "1_000", "in", "infi", "1,5", "(1", "1\0",
    "inf ", "0x1.8p3x", "0x1p99999999999999999999", "-0x1p-99999999999999999999",
    "1e99999999999999999999", "0x0e0p-99999",
)  # fmt: skip


def filled(pair: Pair, count: int, key: str = "z") -> None:
    """A set of members m0, m1 ... with many equal scores."""
    for start in range(0, count, 500):
        pair("ZADD", key, *(part for i in range(start, min(count, start + 500)) for part in ((i * 7) % 50, f"m{i}")))


def test_all_commands_are_there() -> None:
    assert len(FAMILY) == 35


def test_keys_that_are_counted_stand_where_redis_finds_them(pair2: Pair) -> None:
    for row in FAMILY:
        if row.keys.count_at:
            words = ["w"] * row.keys.count_at + ["2", "a", "b", "x"]
            words[0] = row.name
            theirs = decode(pair2.redis.call(pack(["COMMAND", "GETKEYS", *words])))
            target = [b"w"] if row.keys.first else []
            assert theirs == [*target, b"a", b"b"], row.name


@pytest.mark.parametrize("row", FAMILY, ids=lambda row: row.name)
def test_another_type_is_refused(row: Command, pair2: Pair) -> None:
    pair2("SET", "k", "v")
    words: dict[str, Sequence[Argument]] = {
        "ZADD": ["k", 1, "a"], "ZINCRBY": ["k", 1, "a"], "ZRANGESTORE": ["to", "k", 0, -1],
        "ZMPOP": [1, "k", "MIN"], "BZMPOP": [1, 1, "k", "MIN"], "BZPOPMIN": ["k", 0], "BZPOPMAX": ["k", 0],
        "ZSCAN": ["k", 0], "ZPOPMIN": ["k"], "ZPOPMAX": ["k"],
        "ZRANDMEMBER": ["k"], "ZCARD": ["k"], "ZLEXCOUNT": ["k", "-", "+"], "ZREMRANGEBYLEX": ["k", "-", "+"],
        "ZRANGEBYLEX": ["k", "-", "+"], "ZREVRANGEBYLEX": ["k", "+", "-"],
        **dict.fromkeys(["ZREM", "ZSCORE", "ZMSCORE", "ZRANK", "ZREVRANK"], ("k", "a")),
        **dict.fromkeys(["ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"], (1, "k")),
        **dict.fromkeys(["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"], ("to", 1, "k")),
    }  # fmt: skip
    assert str(pair2(row.name, *words.get(row.name, ("k", 0, -1)))).startswith("WRONGTYPE")
    assert pair2("GET", "k") == b"v"


@pytest.mark.parametrize("row", FAMILY, ids=lambda row: row.name)
def test_the_number_of_arguments_is_checked(row: Command, pair2: Pair) -> None:
    assert "wrong number" in str(pair2(row.name, *["0"] * (abs(row.arity) - 2)))
    if row.arity > 0:
        assert "wrong number" in str(pair2(row.name, *["0"] * row.arity))


# --- setting scores ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", SCORES)
def test_scores_are_read_and_printed(score: str, pair: Pair) -> None:
    assert pair("ZADD", "z", score, "m") == 1
    pair("ZSCORE", "z", "m")
    pair("ZMSCORE", "z", "m", "nobody")
    pair("ZRANGE", "z", 0, -1, "WITHSCORES")
    pair("ZSCAN", "z", 0)
    pair("ZINCRBY", "z", score, "other")
    pair("ZINCRBY", "z", "0.25", "other")
    pair("ZADD", "z", "INCR", score, "m")
    pair("ZUNION", 1, "z", "WEIGHTS", score, "WITHSCORES")
    pair("ZCOUNT", "z", score, score)
    pair("ZCOUNT", "z", f"({score}", "inf")
    pair.restart()
    pair.same_state()


@pytest.mark.parametrize("score", NO_SCORES)
def test_what_is_no_score_is_refused(score: str, pair2: Pair) -> None:
    pair2("ZADD", "z", 1, "m")
    assert str(pair2("ZADD", "z", score, "m")) == "ERR value is not a valid float"
    pair2("ZADD", "z", 5, "n", score, "m")
    pair2("ZADD", "z", "INCR", score, "m")
    pair2("ZINCRBY", "z", score, "m")
    assert str(pair2("ZUNION", 1, "z", "WEIGHTS", score)) == "ERR weight value is not a float"
    pair2.same_state()


def test_a_long_text_is_refused_at_once(pair2: Pair) -> None:
    for text in (
        "1" * 500_000 + "x",
        "0x" + "1" * 500_000 + "x",
        "1." + "0" * 500_000 + "x",
        "1e" + "0" * 500_000 + "x",
    ):
        assert "not a valid float" in str(pair2("ZADD", "z", text, "m"))
        assert "not a float" in str(pair2("ZCOUNT", "z", text, text))


def test_a_negative_zero_in_a_large_set_is_where_we_differ(pair2: Pair) -> None:
    """Redis drops the sign in a listpack only; here it is always dropped."""
    filled(pair2, COLUMNS_MEMBERS_MAX + 1)
    pair2("ZADD", "z", "-0", "zero")
    assert pair2.each("ZSCORE", "z", "zero") == (b"-0", b"0")


def test_zadd_adds_and_updates(pair: Pair) -> None:
    assert pair("ZADD", "z", 1, "a", 2, "b") == 2
    assert pair("ZADD", "z", 1, "a", 3, "b", 4, "c") == 1
    assert pair("ZADD", "z", "CH", 1, "a", 4, "b", 5, "c", 6, "d") == 3
    assert pair("ZADD", "z", "ch", "CH", 1, "a", 4, "b") == 0
    assert pair("ZADD", "z", "CH", 7, "a", 8, "a", 7, "new", 8, "new") == 4
    assert pair("ZADD", "z", 1, "") == 1
    pair.same_state()


def test_zadd_with_conditions(pair: Pair) -> None:
    assert pair("ZADD", "z", "XX", 1, "a") == 0
    assert pair("ZADD", "z", "XX", "INCR", 1, "a") is None
    assert pair("ZADD", "z", "NX", 1, "a", 2, "b") == 2
    for condition in ("NX", "XX", "GT", "LT", "XX GT", "LT XX CH", "GT CH", "nx ch", "lt"):
        for score in (0, 1, 2, 3):
            pair("ZADD", "z", *condition.split(), score, "a", score, "b", score, f"{condition}{score}")
            pair("ZADD", "z", *condition.split(), "INCR", score, "a")
            pair("ZADD", "z", "INCR", *condition.split(), -score, "b")
            pair("ZADD", "z", *condition.split(), "INCR", score, f"i{condition}{score}")
        pair.same_state()


def test_zadd_refuses_what_does_not_go_together(pair2: Pair) -> None:
    for options in (
        "NX XX", "XX NX", "GT LT", "NX GT", "LT NX", "NX XX GT", "GT LT NX XX", "NX XX INCR", "GT LT INCR",
    ):  # fmt: skip
        pair2("ZADD", "z", *options.split(), 1, "a")
        pair2("ZADD", "z", *options.split(), 1, "a", 2, "b")
        pair2("ZADD", "z", *options.split(), "x", "a")
        pair2("ZADD", "z", *options.split(), 1)
    assert "single increment" in str(pair2("ZADD", "z", "INCR", 1, "a", 2, "b"))
    pair2("ZADD", "z", "INCR", "x", "a", 2, "b")
    pair2("ZADD", "z", "INCR", 1, "a", 2)
    for arguments in (
        ["NX", "XX"],
        ["1", "a", "2"],
        ["CH", "CH"],
        ["CH", "INCR", "NX"],
        ["FOO", "1", "a"],
        ["1", "NX"],
    ):
        pair2("ZADD", "z", *arguments)
    pair2("ZADD", "z", "1", "NX", "2", "XX")
    pair2("SET", "s", "v")
    pair2("ZADD", "s", "x", "a")
    pair2("ZADD", "s", "NX", "XX", 1, "a")
    pair2("ZADD", "s", "XX", 1, "a")
    pair2.same_state()


def test_zincrby(pair: Pair) -> None:
    assert pair("ZINCRBY", "z", "1.5", "a") is not None
    pair("ZINCRBY", "z", "-3", "a")
    pair("ZINCRBY", "z", "0", "a")
    pair("ZINCRBY", "z", "-0", "new")
    pair("ZINCRBY", "z", "NX", "NX")
    pair("ZINCRBY", "z", "NX", "a")
    pair("ZINCRBY", "z", "1", "NX")
    pair("ZADD", "z", "inf", "up", "-inf", "down")
    assert "NaN" in str(pair("ZINCRBY", "z", "-inf", "up"))
    assert "NaN" in str(pair("ZADD", "z", "INCR", "inf", "down"))
    pair("ZADD", "z", "XX", "GT", "INCR", "inf", "down")
    pair("ZINCRBY", "z", "inf", "up")
    pair("ZINCRBY", "z", "1e308", "huge")
    pair("ZINCRBY", "z", "1e308", "huge")
    pair.same_state()


def test_nothing_is_journaled_when_nothing_changes(pair2: Pair) -> None:
    assert pair2.records("ZADD", "z", 0, "a", 2, "b") == 1
    for command in (
        "ZADD z 0 a", "ZADD z -0 a", "ZADD z NX 5 a", "ZADD z XX 5 c", "ZADD z GT -1 a", "ZADD z CH 3 b 2 b",
        "ZINCRBY z 0 a", "ZADD z LT INCR 1 a", "ZREM z c", "ZREM none a", "ZPOPMIN none", "ZPOPMAX z 0",
        "ZMPOP 1 none MIN",     "ZREMRANGEBYSCORE z 5 6", "ZREMRANGEBYRANK z 5 6", "ZREMRANGEBYLEX z [x +",
        "ZUNIONSTORE to 1 none",     "ZRANGESTORE to z 7 8", "ZADD z x a",
    ):  # fmt: skip
        assert pair2.records(*command.split()) == 0, command
    assert pair2.records("ZADD", "z", 3, "b", 4, "b", 5, "c") == 1
    assert pair2.records("ZREM", "z", "a", "b", "c") == 1
    pair2.same_state()


def test_scores_keep_the_expiry_of_the_key(pair2: Pair) -> None:
    pair2("ZADD", "z", 1, "a", 2, "b")
    pair2("PEXPIRE", "z", 100000)
    pair2("ZADD", "z", 1, "c")
    pair2("ZREM", "z", "a")
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_an_expired_set_is_not_there(pair2: Pair) -> None:
    pair2("ZADD", "z", 1, "a", 2, "b")
    pair2("ZADD", "to", 1, "old")
    pair2("PEXPIRE", "z", 20)
    pair2("PEXPIRE", "to", 20)
    pair2.wait(60)
    assert pair2("ZCARD", "z") == 0
    assert pair2("ZINCRBY", "z", 5, "a") == b"5"
    assert pair2("ZRANGESTORE", "to", "z", 0, -1) == 1
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


# --- removing and looking up ------------------------------------------------------------------------------------


def test_zrem(pair: Pair) -> None:
    pair("ZADD", "z", 1, "a", 2, "b", 3, "c")
    assert pair("ZREM", "z", "a", "a", "x") == 1
    assert pair("ZREM", "z", "b", "c", "b") == 2
    assert pair("EXISTS", "z") == 0
    assert pair("ZREM", "z", "b") == 0


@pytest.mark.parametrize("count", [0, 3, COLUMNS_MEMBERS_MAX, COLUMNS_MEMBERS_MAX + 1, 700])
def test_looking_up(count: int, pair: Pair) -> None:
    filled(pair, count)
    assert pair("ZCARD", "z") == count
    for member in ("m0", "m1", "m2", f"m{count - 1}", "x", ""):
        pair("ZSCORE", "z", member)
        pair("ZRANK", "z", member)
        pair("ZREVRANK", "z", member)
    pair("ZMSCORE", "z", "m1", "x", "m1", "m2")


# --- popping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ZPOPMIN", "ZPOPMAX"])
def test_zpop(command: str, pair: Pair) -> None:
    assert pair(command, "z") == []
    assert pair(command, "z", 5) == []
    pair("ZADD", "z", 1, "a", 1.5, "b", 1.5, "c", "inf", "d", "-inf", "e", 3, "f")
    for arguments in ([], [0], [1], [2], [-1], ["x"], ["1.0"], ["9223372036854775808"], [1, 1], ["x", "y"]):
        pair(command, "z", *arguments)
    pair.same_state()
    pair(command, "z", "9223372036854775807")
    assert pair("EXISTS", "z") == 0
    pair("SET", "s", "v")
    for arguments in ([], [0], [1], [-1], [1, 1]):
        pair(command, "s", *arguments)
        pair(command, "none", *arguments)


@pytest.mark.parametrize("where", ["MIN", "max"])
def test_zmpop(where: str, pair: Pair) -> None:
    pair("ZADD", "z", 1, "a", 1.5, "b", 2, "c", 3, "d", 4, "e")
    pair("ZADD", "y", 1, "a")
    pair("SET", "s", "v")
    for command in (
        "1 z W", "2 none z W", "2 y z W COUNT 5", "2 y z W count 2", "1 z W COUNT 0", "1 z W COUNT -1", "1 z W COUNT x",
        "1 z W COUNT", "1 z W COUNT 1 COUNT 1", "1 z W COUNT x COUNT 1", "1 z W COUNT 1 x", "1 z W FOO 1", "1 z",
        "1 z FOO", "0 z W", "-1 z W", "x z W", "5 z W", "2 z W", "1 none W", "1 none W COUNT 3", "2 none s W",
        "2 s z W", "2 z s W", "1 s W COUNT 0", "9223372036854775807 z W", "1 z W COUNT 9223372036854775807", "1 z W",
    ):  # fmt: skip
        pair("ZMPOP", *(where if word == "W" else word for word in command.split()))
        pair.same_state()


def test_popping_a_large_set(pair2: Pair) -> None:
    filled(pair2, 1500)
    pair2("ZPOPMIN", "z", 3)
    pair2("ZPOPMAX", "z", 700)
    pair2("ZMPOP", 1, "z", "MIN", "COUNT", 600)
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


# --- drawing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 300])
def test_zrandmember(count: int, pair: Pair) -> None:
    filled(pair, count)
    pair("ZRANDMEMBER", "z", order=SHAPE)
    for drawn in (0, 1, 2, count - 1, -1, -2, -count - 5):
        for arguments in ([drawn], [drawn, "WITHSCORES"], [drawn, "withscores"]):
            reply = pair("ZRANDMEMBER", "z", *arguments, order=SHAPE)
            if len(arguments) == 1:
                assert drawn < 0 or len(set(reply)) == len(reply)
            members = (
                reply if len(arguments) == 1 else [each[0] for each in reply] if pair.protocol == 3 else reply[::2]
            )
            assert all(pair("ZSCORE", "z", member) is not None for member in members)
    for drawn in (count, count + 1, 9223372036854775807 // 2):
        pair("ZRANDMEMBER", "z", drawn, order=UNORDERED)
        pair("ZRANDMEMBER", "z", drawn, "WITHSCORES", order=UNORDERED_PAIRS)


def test_zrandmember_refuses(pair: Pair) -> None:
    pair("ZADD", "z", 1, "a")
    pair("SET", "s", "v")
    for key in ("z", "none", "s"):
        pair("ZRANDMEMBER", key)
        for arguments in (
            "x", "1.5", "1 FOO", "1 WITHSCORES x", "x FOO", "-9223372036854775808", "-9223372036854775808 WITHSCORES",
            "9223372036854775807 WITHSCORES", "-4611686018427387904 WITHSCORES", "9223372036854775808", "1 WITHSCORES",
            "0",
        ):  # fmt: skip
            pair("ZRANDMEMBER", key, *arguments.split())


def test_drawing_without_end_is_where_we_differ(pair2: Pair) -> None:
    """Redis would answer with as many as asked for."""
    pair2("ZADD", "z", 1, "a")
    refused = pair2.tidelog.call([b"ZRANDMEMBER", b"z", b"%d" % -(limits.DRAWN_MEMBERS_MAX + 1)])
    assert refused == b"-ERR value is out of range\r\n"


def test_drawing_reaches_every_member(pair2: Pair) -> None:
    filled(pair2, 200)
    reply = pair2("ZRANDMEMBER", "z", -5000, order=SHAPE)
    assert len(set(reply)) == 200


# --- scanning ---------------------------------------------------------------------------------------------------


def test_zscan_of_a_small_set(pair: Pair) -> None:
    filled(pair, 30)
    pair("ZADD", "z", 0.1, "frac", 1e17, "big", "inf", "inf")
    for arguments in (
        "0", "0 COUNT 3", "0 MATCH m1*", "0 MATCH *", "0 MATCH m[12] COUNT 100", "5", "0 COUNT 0", "0 COUNT -1",
        "0 COUNT x", "0 FOO", "0 MATCH", "0 FOO 1", "x", "-1", "0 TYPE zset", "0 NOVALUES",
    ):  # fmt: skip
        for key in ("z", "none"):
            pair("ZSCAN", key, *arguments.split(), order=SCAN_PAIRS)
    pair("SET", "s", "v")
    pair("ZSCAN", "s", "x")
    pair("ZSCAN", "s", "0", "FOO")


def test_zscan_prints_scores_as_they_are_stored(pair: Pair) -> None:
    """A whole score in a listpack is printed in figures; past 128 members, or with a long one, it no longer is."""
    pair("ZADD", "z", 1e17, "a", 2**62, "b", 2**62 + 1024, "c", -(2**62), "d", 1e22, "e", 1.5e17, "f", "-0", "g")
    pair("ZSCAN", "z", 0, order=SCAN_PAIRS)
    pair("ZADD", "z", 1, "x" * 65)
    pair("ZSCAN", "z", 0, order=SCAN_PAIRS)


def test_zscan_of_a_large_set(pair2: Pair) -> None:
    filled(pair2, 2000)
    seen: dict[bytes, bytes] = {}
    cursor = b"0"
    steps = 0
    while steps == 0 or cursor != b"0":
        _, (cursor, items) = pair2.each("ZSCAN", "z", cursor, "COUNT", 100)
        seen.update(zip(items[::2], items[1::2], strict=True))
        steps += 1
    assert steps > 1
    assert len(seen) == 2000
    assert seen[b"m9"] == b"13"
