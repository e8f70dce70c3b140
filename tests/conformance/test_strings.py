"""Strings on Tidelog and on a real Redis: every command, option and error, and what is journaled."""

from __future__ import annotations

from itertools import product

import pytest

from tests.conformance.redis_oracle import InProcess, Pair, Socket

INTEGERS = ["0", "-0", "+1", "1", "-1", "01", "1.0", "1e2", "", " ", " 1", "1 ", "1\x00", "x", "0x10", "--1", "-",
            "9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809",
            "18446744073709551616", "9" * 30]  # fmt: skip
FLOATS = ["0", "-0", "+1", "1.", ".5", "-.5e1", "0.1", "0.2", "1e-17", "3.0e3", "1e22", "1e4931", "1e5000", "1e-5000",
          "9223372036854775807", "0x10", "inf", "-INF", "nan", "", " 1", "1 ", "1e", ".", "1,5", "1\x00",
          "x"]  # fmt: skip
TIMES = ["100", "0", "-1", "x", "", "1.5", "9223372036854775807", "9223372036854775", "9223372036854776",
         "-9223372036854775808", "9223372036854775808"]  # fmt: skip
WRITERS = ["SET k v", "SET k v XX", "SET k v NX", "SET k v GET", "SET k v KEEPTTL", "SET k v EX 100", "SETNX k v",
           "SETEX k 100 v", "PSETEX k 100000 v", "GETSET k v", "GETDEL k", "GETEX k", "GETEX k EX 100",
           "GETEX k PERSIST",
           "MSET k v l w", "MSETNX k v l w", "APPEND k v", "INCR k", "DECR k", "INCRBY k 5", "DECRBY k 5",
           "INCRBYFLOAT k 1.5", "SETRANGE k 1 v", "SETRANGE k 0 ", "GET k", "MGET k l", "STRLEN k", "GETRANGE k 0 -1",
           "SUBSTR k 0 -1"]  # fmt: skip


def words(command: str) -> list[str]:
    return command.split(" ")


# --- SET and its relatives --------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["missing", "there", "expiring", "hash"])
def test_set_with_every_pair_of_options(pair: Pair, there: str) -> None:
    options = [[], ["NX"], ["xx"], ["GET"], ["KEEPTTL"], ["EX", "100"], ["PX", "100000"], ["EXAT", "4000000000"],
               ["PXAT", "4000000000000"], ["EX", "200"], ["PERSIST"], ["junk"], ["EX"]]  # fmt: skip
    for one, other in product(options, options):
        pair.flush()
        if there == "hash":
            pair("HSET", "k", "f", "v")
        elif there != "missing":
            pair("SET", "k", "old", *(["EX", "5000"] if there == "expiring" else []))
        pair("SET", "k", "new", *one, *other)
        pair.same_state()


def test_set_with_three_options(pair2: Pair) -> None:
    options = [["NX"], ["XX"], ["GET"], ["KEEPTTL"], ["EX", "100"], ["EXAT", "4000000000"]]
    for chosen in product(options, repeat=3):
        for is_there in (False, True):
            pair2.flush()
            if is_there:
                pair2("SET", "k", "old", "EX", "5000")
            pair2("SET", "k", "new", *(word for option in chosen for word in option))
            pair2.same_state()


@pytest.mark.parametrize("unit", ["EX", "PX", "EXAT", "PXAT"])
def test_times(pair: Pair, unit: str) -> None:
    for time in TIMES:
        for command in (["SET", "k", "v"], ["GETEX", "k"]):
            pair("SET", "k", "old")
            pair(*command, unit, time)
            pair("GET", "k")
            pair("GETEX", "no", unit, time)
    for name in ("SETEX", "PSETEX"):
        for time in TIMES:
            pair("SET", "k", "old")
            pair(name, "k", time, "v")
            pair("GET", "k")
    pair.same_state()


def test_a_time_that_has_passed(pair: Pair) -> None:
    for command in (["SET", "k", "v", "EXAT", "1"], ["SET", "k", "v", "PXAT", "1000"], ["GETEX", "k", "EXAT", "1"],
                    ["GETEX", "k", "PXAT", "1"], ["SET", "k", "v", "PXAT", "1", "GET"]):  # fmt: skip
        pair("SET", "k", "old")
        pair(*command)
        for read in ("GET", "EXISTS", "TTL", "TYPE"):
            pair(read, "k")
        pair.same_state()


def test_getex(pair: Pair) -> None:
    options = [["EX", "100"], ["PX", "100000"], ["EXAT", "4000000000"], ["PXAT", "4000000000000"], ["PERSIST"], ["NX"],
               ["GET"], ["KEEPTTL"], ["EX"], ["junk"], []]  # fmt: skip
    for one, other in product(options, options):
        for setting in ([], ["EX", "5000"]):
            pair.flush()
            pair("SET", "k", "v", *setting)
            pair("GETEX", "k", *one, *other)
            pair("GETEX", "no", *one, *other)
            pair.same_state()


def test_getset_and_getdel(pair: Pair) -> None:
    pair("GETSET", "k", "one")
    pair("EXPIRE", "k", 100)
    pair("GETSET", "k", "two")
    pair("TTL", "k")
    pair("GETDEL", "k")
    pair("GETDEL", "k")
    pair.same_state()


def test_many_at_once(pair: Pair) -> None:
    pair("SET", "c", "3", "EX", 100)
    pair("HSET", "h", "f", "v")
    pair("MSET", "a", 1, "b", 2, "a", 3, "c", 4, "h", 5)
    pair("MGET", "a", "b", "c", "h", "no", "a")
    pair("HSET", "i", "f", "v")
    pair("MGET", "i", "a")
    pair("MSETNX", "x", 1, "y", 2, "x", 3)
    pair("MSETNX", "z", 1, "x", 2)
    pair("MSETNX", "z", 1, "i", 2)
    pair.same_state()
    pair.restart()
    pair.same_state()


@pytest.mark.parametrize("shard_count", [1, 3])
def test_very_many_at_once(redis_peer: Socket, shard_count: int) -> None:
    pair = Pair(redis_peer, InProcess(shard_count), 2)
    pair("MSET", *(word for number in range(1500) for word in (f"key{number}", f"value{number}")))
    pair("MGET", *(f"key{number}" for number in range(1600)))
    pair("MSET", "big", "x" * 300_000, "bigger", "y" * 700_000)
    assert pair("DEL", *(f"key{number}" for number in range(0, 1500, 2)), "key0", "no") == 750
    pair.same_state()
    pair.restart()
    pair.same_state()


# --- numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [*INTEGERS, None, "9223372036854775806", "-9223372036854775807"])
def test_integers(pair: Pair, value: str | None) -> None:
    for command in (["INCR"], ["DECR"], *(["INCRBY", by] for by in INTEGERS), *(["DECRBY", by] for by in INTEGERS)):
        pair("DEL", "k")
        if value is not None:
            pair("SET", "k", value)
        pair(command[0], "k", *command[1:])
        pair("GET", "k")


@pytest.mark.parametrize("value", [*FLOATS, None])
def test_floats(pair2: Pair, value: str | None) -> None:
    for by in FLOATS:
        pair2("DEL", "k")
        if value is not None:
            pair2("SET", "k", value)
        pair2("INCRBYFLOAT", "k", by)
        pair2("GET", "k")


# --- parts of strings -------------------------------------------------------------------------------------------

INDEXES: list[int | str] = [0, 1, 2, 4, 5, 6, 100, -1, -2, -5, -6, -100, 2**63 - 1, -(2**63), "x", "", "1.5", 2**63]


@pytest.mark.parametrize("value", ["hello", "", None, "\u00e9\x00x"])
def test_getrange(pair2: Pair, value: str | None) -> None:
    if value is not None:
        pair2("SET", "k", value)
    for start, end in product(INDEXES, INDEXES):
        pair2("GETRANGE", "k", start, end)
    pair2("SUBSTR", "k", 1, 3)


@pytest.mark.parametrize("value", ["hello", "", None])
def test_setrange(pair: Pair, value: str | None) -> None:
    for offset in (0, 1, 4, 5, 6, 10, 100, -1, 2**29 - 2, 2**29, 2**29 + 1, 2**32, 2**63 - 1, -(2**63), 2**63, "x", ""):
        for patch in ("", "ab", "\x00", "abcdefgh"):
            if offset == 2**29 - 2 and patch in ("ab", "\x00"):
                continue  # 512 MiB: it would be taken
            pair("DEL", "k")
            if value is not None:
                pair("SET", "k", value)
            pair("SETRANGE", "k", offset, patch)
            pair("GET", "k")
            pair("EXISTS", "k")


def test_append_and_strlen(pair: Pair) -> None:
    for value in ("", "a", "\x00", "b" * 100, ""):
        pair("APPEND", "k", value)
        pair("STRLEN", "k")
    pair("APPEND", "empty", "")
    pair("EXISTS", "empty")
    pair("STRLEN", "no")
    pair.same_state()


def test_what_changes_in_place_keeps_its_expiry(pair: Pair) -> None:
    pair("SET", "k", "10", "EX", 1000)
    for command in (
        "INCR k",
        "DECR k",
        "INCRBY k 5",
        "DECRBY k 3",
        "INCRBYFLOAT k 1.5",
        "APPEND k 1",
        "SETRANGE k 0 7",
    ):
        pair(*words(command))
        pair.same_state()
        assert pair("TTL", "k") > 900
    pair.restart()
    pair.same_state()
    for command in ("SET k 1", "GETSET k 1", "MSET k 1"):
        pair("SET", "k", "10", "EX", 1000)
        pair(*words(command))
        assert pair("TTL", "k") == -1


# --- what all have in common ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", WRITERS)
def test_wrong_type(pair: Pair, command: str) -> None:
    for make in ("HSET k f v", "SADD k m", "ZADD k 1 m"):
        pair("DEL", "k", "l")
        pair(*words(make))
        pair(*words(command))
        pair.same_state()
    pair.restart()
    pair.same_state()


@pytest.mark.parametrize("command", WRITERS)
def test_expired(pair: Pair, command: str) -> None:
    """What has expired is as if it were not there, and is journaled as deleted before what is new."""
    pair("SET", "k", "5", "PX", 20)
    pair("HSET", "l", "f", "v")
    pair("PEXPIRE", "l", 20)
    pair.wait(40)
    pair(*words(command))
    pair.same_state()
    pair.restart()
    pair.same_state()


@pytest.mark.parametrize("command", WRITERS)
def test_wrong_number_of_arguments(pair: Pair, command: str) -> None:
    given = words(command)
    pair("SET", "k", "text")
    for count in range(1, len(given)):
        pair(*given[:count])
    pair(*given, "x")
    pair(*given, "x", "y")
    pair(given[0].lower(), *given[1:], "x", "y", "z")


def test_any_bytes(pair: Pair) -> None:
    key, value = bytes(range(256)), bytes(range(255, -1, -1)) * 40
    pair("SET", key, value)
    pair("GET", key)
    pair("SET", "", "")
    pair("GET", "")
    pair("APPEND", key, value)
    pair("GETRANGE", key, 250, 300)
    pair.same_state()
    pair.restart()
    pair.same_state()


def test_only_changes_are_journaled(pair2: Pair) -> None:
    assert pair2.records("SET", "k", "v") == 1
    for command in ("GET k", "SET k w NX", "SET l w XX", "SETNX k w", "MSETNX k 1 l 2", "GETEX k", "GETEX k PERSIST",
                    "GETDEL l", "SETRANGE k 0 ", "INCR k", "INCRBYFLOAT k 1", "MGET k l", "STRLEN k", "SET k v EX x",
                    "SETEX k 0 v", "MSET k", "APPEND k"):  # fmt: skip
        assert pair2.records(*words(command)) == 0, command
    assert pair2.records("APPEND", "k", "w") == 1
    assert pair2.records("SET", "k", "w", "GET") == 1
    assert pair2.records("GETEX", "k", "EX", 100) == 1
    assert pair2.records("GETEX", "k", "PERSIST") == 1
    assert pair2.records("GETDEL", "k") == 1
    pair2("HSET", "k", "f", "v")
    assert pair2.records("SET", "k", "v") == 2  # a value of another type is deleted first
