"""Sorted sets on Tidelog and on a real Redis: union, intersection and difference."""

from __future__ import annotations

import pytest

from tests.conformance.redis_oracle import Pair
from tidelog.types.sorted_members import COLUMNS_MEMBERS_MAX

READING = ("ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD")
STORING = ("ZUNIONSTORE to", "ZINTERSTORE to", "ZDIFFSTORE to")
INPUTS = (
    "1 a", "1 b", "1 s", "1 none", "2 a b", "2 b a", "2 a s", "2 s a", "2 a a", "3 a b c", "3 c b a", "3 s a c",
    "2 a none", "2 none a", "2 none nobody", "2 s s", "3 a none b", "2 i j", "3 i j a", "2 large a", "2 a large",
    "2 large large", "2 t s", "3 a a a", "4 c s a b",
)  # fmt: skip
ENDS = (
    "", "WITHSCORES", "WEIGHTS W", "AGGREGATE MIN", "AGGREGATE MAX", "aggregate sum",
    "WEIGHTS W AGGREGATE MIN WITHSCORES",
    "WITHSCORES AGGREGATE MAX weights W", "WITHSCORES WITHSCORES",
    "AGGREGATE MIN AGGREGATE MAX WITHSCORES", "LIMIT 1",
    "LIMIT 0", "LIMIT 2", "LIMIT 9223372036854775807", "LIMIT 1 LIMIT 0",
    # Refused, by most at least.
    "WEIGHTS", "WEIGHTS 1", "WEIGHTS W 1", "WEIGHTS x y z", "AGGREGATE", "AGGREGATE FOO", "AGGREGATE AVG WITHSCORES",
    "FOO", "WEIGHTS W WITHSCORES x", "LIMIT", "LIMIT -1", "LIMIT x", "LIMIT 1 WITHSCORES", "LIMIT 1 x", "x WITHSCORES",
)  # fmt: skip
WEIGHTS = ("2", "-1", "0.1", "0", "inf", "-inf", "1e308")


def given(pair: Pair) -> None:
    pair("ZADD", "a", 1, "x", 2, "y", 3, "z", 0.1, "p", "inf", "i")
    pair("ZADD", "b", 1, "y", 0.2, "p", 5, "q", "-inf", "i", 1e308, "h")
    pair("ZADD", "c", 0.3, "p", 9, "y", 1e308, "h", 7, "only")
    pair("SADD", "s", "x", "p", "t", "y")
    pair("SADD", "t", 1, 2, 3)
    pair("ZADD", "i", "inf", "m", 0, "n", "-0", "o")
    pair("ZADD", "j", "-inf", "m", 0, "n", 0, "o")
    for i in range(COLUMNS_MEMBERS_MAX + 20):
        pair.each("ZADD", "large", i / 7, f"l{i}")
    pair("ZADD", "large", 1.1, "x", 2.2, "y")
    pair("SET", "string", "v")


@pytest.mark.parametrize("command", READING + STORING)
def test_all_options_on_all_inputs(command: str, pair: Pair) -> None:
    given(pair)
    turn = 0
    for inputs in INPUTS:
        count = int(inputs.split()[0])
        for end in ENDS:
            weights = [WEIGHTS[(turn + i) % len(WEIGHTS)] for i in range(count)]
            turn += 1
            words = [word for each in end.split() for word in (weights if each == "W" else [each])]
            pair(*command.split(), *inputs.split(), *words)
        if command in STORING:
            pair.same_state()


@pytest.mark.parametrize("command", READING + STORING)
def test_numbers_of_keys(command: str, pair: Pair) -> None:
    given(pair)
    for inputs in (
        "0 a", "-1 a", "x a", "1.5 a", "2 a", "3 a b", "9223372036854775807 a", "9223372036854775808 a", "1 string",
        "2 a string", "2 none string", "0 string", "1 string FOO", "2 string a b", "1 a b", "2 a WITHSCORES",
    ):  # fmt: skip
        pair(*command.split(), *inputs.split())
        pair(*command.lower().split(), *inputs.split())
    pair.same_state()


@pytest.mark.parametrize("command", ["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"])
def test_what_is_stored_over(command: str, pair2: Pair) -> None:
    given(pair2)
    pair2(command, "string", 2, "a", "none")
    pair2(command, "s", 2, "s", "none")
    pair2.same_state()
    pair2("PEXPIRE", "b", 100000)
    pair2(command, "b", 2, "b", "b")
    pair2("PEXPIRE", "c", 100000)
    pair2(command, "c", 1, "c")
    pair2.same_state()
    pair2(command, "a", 2, "none", "none")
    pair2(command, "none", 1, "nobody")
    pair2(command, "large", 1, "large")
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_a_union_is_split_over_records(pair2: Pair) -> None:
    given(pair2)
    for start in range(0, 1500, 500):
        pair2("ZADD", "more", *(part for i in range(start, start + 500) for part in (i % 13, f"n{i}")))
    assert pair2.records("ZUNIONSTORE", "to", 2, "more", "large") > 2
    assert pair2.records("ZUNIONSTORE", "to", 2, "more", "large") > 3
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_sums_end_in_the_same_digits(pair: Pair) -> None:
    """Smaller sets come first, whatever the order of the arguments."""
    pair("ZADD", "one", 0.1, "m")
    pair("ZADD", "two", 0.7, "m", 1, "n")
    pair("ZADD", "three", 1e16, "m", 1, "n", 1, "o")
    pair("ZADD", "four", -1e16, "m", 1, "n", 1, "o", 1, "p")
    keys = ["one", "two", "three", "four"]
    for turn in range(4):
        turned = keys[turn:] + keys[:turn]
        for command in ("ZUNION", "ZINTER"):
            pair(command, 4, *turned, "WITHSCORES")
            pair(command, 4, *turned, "WEIGHTS", 0.1, 0.3, 0.7, 1.1, "WITHSCORES")
            pair(command, 4, *reversed(turned), "WITHSCORES")


def test_an_infinity_of_weight_zero(pair: Pair) -> None:
    """It is a zero where a sum begins, and not a number where it is added."""
    pair("ZADD", "one", 5, "m", -5, "n")
    pair("ZADD", "two", "inf", "m", "-inf", "n", 1, "o")
    pair("SADD", "set", "m", "n", "o", "p")
    for keys in (["one", "two"], ["two", "one"], ["two", "two"], ["two", "set"], ["one", "two", "set"]):
        for weights in ([0] * 3, [1, 0, 2], [0, 1, 2], [0, "inf", "-inf"]):
            for aggregate in ("SUM", "MIN", "MAX"):
                options = ["WEIGHTS", *weights[: len(keys)], "AGGREGATE", aggregate, "WITHSCORES"]
                pair("ZINTER", len(keys), *keys, *options)
                pair("ZUNION", len(keys), *keys, *options)
