"""Hashes on Tidelog and on a real Redis: every command, option and error, and what is journaled."""

from __future__ import annotations

import pytest

from tests.conformance.redis_oracle import SCAN_PAIRS, SHAPE, Pair

FLOATS = [
    "0", "-0", "+1", "1.", ".5", "-.5e1", "0.1", "0.2", "1e-17", "5e-18", "-3e-18", "1.5e-17",
    "2.5e-17", "3.0e3", "1e22", "123456789012345678901234567890.5", "9007199254740993",
    "9223372036854775807", "18446744073709551617", "1E4931", "1.1e4932", "1.2e4932", "1e5000",
    "1e-4940", "1e-4960", "1e-5000", "1e99999999999999999999", "0e99999999999999999999",
    "1e-99999999999999999999", "0x10", "0X1.8P1", "-0x.8", "0x1p-70", "0x1p16383", "0x1p16384",
    "0x1p99999999", "0x", "0x.", "inf", "-INF", "Infinity", "infi", "nan", "nan(1)", "", " 1", "1 ",
    "1e", "e1", "1e+", ".", "+", "1_0", "1,5", "1\x00", "0." + "3" * 5100, "0." + "3" * 5118,
    "9" * 4900,
]  # fmt: skip


def test_set_and_get(pair: Pair) -> None:
    assert pair("HSET", "h", "a", 1, "b", 2, "a", 3) == 2
    pair("HSET", "h", "a", 4, "c", 5)
    pair("HMSET", "h", "d", "", "", "empty field")
    pair("hset", "h", b"\x00\r\n\xff", b"\xff\x00")
    for command in ("HGET", "HEXISTS", "HSTRLEN"):
        for field in (b"a", b"", b"d", b"no", b"\x00\r\n\xff"):
            pair(command, "h", field)
            pair(command, "no", field)
    pair("HMGET", "h", "a", "no", "a", "d")
    pair("HMGET", "no", "a", "b")
    for command in ("HGETALL", "HKEYS", "HVALS", "HLEN"):
        pair(command, "h")
        pair(command, "no")


def test_order_of_fields(pair: Pair) -> None:
    pair("HSET", "h", "a", 1, "b", 2, "c", 3)
    pair("HSET", "h", "a", 9)
    pair("HDEL", "h", "b")
    pair("HSET", "h", "b", 8, "d", 7)
    pair("HINCRBY", "h", "c", 1)
    pair("HKEYS", "h")
    pair("HVALS", "h")


def test_setnx(pair: Pair) -> None:
    pair("HSETNX", "h", "f", 1)
    pair("HSETNX", "h", "f", 2)
    pair("HSETNX", "h", "g", 2)
    pair.same_state()


def test_delete(pair: Pair) -> None:
    pair("HSET", "h", "a", 1, "b", 2, "c", 3)
    assert pair("HDEL", "h", "a", "a", "no", "b") == 2
    pair("HDEL", "no", "a")
    pair("HDEL", "h", "c")
    assert pair("EXISTS", "h") == 0
    pair.same_state()


def test_increment(pair: Pair) -> None:
    pair("HINCRBY", "h", "n", 5)
    pair("HINCRBY", "h", "n", -7)
    pair(
        "HSET",
        "h",
        "max",
        2**63 - 1,
        "min",
        -(2**63),
        "text",
        "x",
        "float",
        "1.5",
        "space",
        " 1",
        "plus",
        "+1",
        "0",
        "00",
    )
    for field in ("max", "min", "text", "float", "space", "plus", "0", "new"):
        for by in ("1", "-1", "0", "01", "+1", "", "x", "1.0", str(2**63), str(-(2**63)), str(2**63 - 1), "-0"):
            pair("HINCRBY", "h", field, by)
    pair.same_state()


@pytest.mark.parametrize("by", FLOATS, ids=range(len(FLOATS)))
def test_increment_float(pair2: Pair, by: str) -> None:
    for value in (*FLOATS[:12], "1e4932", "-1e4932", "inf", "nan", "", "x", "0x10", "1" * 5200):
        pair2("HSET", "h", "f", value)
        pair2("HINCRBYFLOAT", "h", "f", by)
    pair2("HINCRBYFLOAT", "new", "f", by)
    pair2("HINCRBYFLOAT", "h", "new", by)
    pair2.same_state()


def test_increment_float_replies(pair: Pair) -> None:
    assert pair("HINCRBYFLOAT", "h", "f", "10.50") == b"10.5"
    assert pair("HINCRBYFLOAT", "h", "f", "0.1") == b"10.6"
    assert pair("HINCRBYFLOAT", "h", "f", "-10.6") == b"0"


def test_scan_of_a_small_hash(pair: Pair) -> None:
    pair("HSET", "h", "one", 1, "two", 2, "three", 3)
    for cursor in ("0", "1", "", "-1", "+7", "00", "007", b"0\x00x", "18446744073709551615"):
        pair("HSCAN", "h", cursor)
    for cursor in ("x", " 1", "1 ", "0x1", "1.0", "18446744073709551616", "-18446744073709551616", "--1", "-"):
        pair("HSCAN", "h", cursor)
        pair("HSCAN", "no", cursor)
    pair("HSCAN", "h", 0, "MATCH", "t*")
    pair("HSCAN", "h", 0, "match", "*", "count", 1)
    pair("HSCAN", "h", 0, "COUNT", 100, "MATCH", "*e", "MATCH", "o*")
    for options in (("COUNT", 0), ("COUNT", -1), ("COUNT", "x"), ("COUNT",), ("MATCH",), ("FOO",), ("FOO", 1),
                    ("TYPE", "hash"), ("COUNT", "x", "FOO"), ("COUNT", 1, "FOO"), ("COUNT", 2**63),
                    ("NOVALUES",)):  # fmt: skip
        pair("HSCAN", "h", 0, *options)
        pair("HSCAN", "no", 0, *options)


def test_scan_of_a_larger_hash_in_one_step(pair: Pair) -> None:
    pair("HSET", "h", *(f"{name}{n}" for n in range(100) for name in ("f", "v")))
    pair("HSCAN", "h", 0, "COUNT", 1, "MATCH", "f[1-4]?", order=SCAN_PAIRS)


def test_random_fields(pair: Pair) -> None:
    pair("HSET", "h", "a", 1, "b", 2, "c", 3)
    for key in ("h", "no"):
        pair("HRANDFIELD", key, order=SHAPE)
        for count in (0, 1, 2, 3, 10, -1, -5, 2**63 - 1):
            pair("HRANDFIELD", key, count, order=SHAPE)
        for count in (0, 1, 2, 3, 10, -1, -5):
            pair("HRANDFIELD", key, count, "withvalues", order=SHAPE)
        for bad in ("x", "1.5", "", str(2**63), str(-(2**63)), str(-(2**63) - 1)):
            pair("HRANDFIELD", key, bad)
            pair("HRANDFIELD", key, bad, "WITHVALUES")
        for count in (2**63 - 1, 2**62, -(2**62), -(2**63) + 1):
            pair("HRANDFIELD", key, count, "WITHVALUES")
        pair("HRANDFIELD", key, 1, "VALUES")
        pair("HRANDFIELD", key, 1, "WITHVALUES", "x")
        pair("HRANDFIELD", key, "x", "y", "z")
    assert sorted(pair("HRANDFIELD", "h", 10)) == [b"a", b"b", b"c"]
    assert len(set(pair.each("HRANDFIELD", "h", 2)[1])) == 2
    assert set(pair.each("HRANDFIELD", "h", -100)[1]) == {b"a", b"b", b"c"}


def test_drawing_with_repetition_is_bounded(pair2: Pair) -> None:
    """Redis would fill its memory."""
    pair2("HSET", "h", "a", 1)
    reply = pair2.tidelog.call([b"HRANDFIELD", b"h", b"-9223372036854775807"])
    assert reply == b"-ERR value is out of range\r\n"


@pytest.mark.parametrize(
    "command",
    ["HSET k f v", "HMSET k f v", "HSETNX k f v", "HGET k f", "HMGET k f", "HGETALL k", "HKEYS k", "HVALS k",
     "HDEL k f", "HEXISTS k f", "HLEN k", "HSTRLEN k f", "HINCRBY k f 1", "HINCRBY k f x", "HINCRBYFLOAT k f 1",
     "HINCRBYFLOAT k f x", "HINCRBYFLOAT k f inf", "HSCAN k 0", "HSCAN k x", "HSCAN k 0 FOO", "HRANDFIELD k",
     "HRANDFIELD k 1", "HRANDFIELD k x", "HRANDFIELD k 1 WITHVALUES", "HRANDFIELD k 0"],
)  # fmt: skip
def test_wrong_type(pair: Pair, command: str) -> None:
    pair("SET", "k", "text")
    assert pair.records(*command.split()) == 0
    pair("DEL", "k")
    pair("SADD", "k", "member")
    pair(*command.split())
    pair.same_state()


@pytest.mark.parametrize(
    "command",
    ["HSET k", "HSET k f", "HSET k f v g", "HMSET k f", "HMSET k f v g", "HSETNX k f", "HSETNX k f v w", "HGET k",
     "HGET k f g", "HMGET k", "HGETALL", "HGETALL k l", "HKEYS", "HVALS k x", "HDEL k", "HEXISTS k",
     "HEXISTS k f g", "HLEN", "HLEN k l", "HSTRLEN k", "HINCRBY k f", "HINCRBY k f 1 2", "HINCRBYFLOAT k f",
     "HSCAN k", "HRANDFIELD"],
)  # fmt: skip
def test_wrong_number_of_arguments(pair: Pair, command: str) -> None:
    pair(*command.split())
    pair("SET", "k", "text")
    assert pair.records(*command.split()) == 0


def test_only_changes_are_journaled(pair2: Pair) -> None:
    assert pair2.records("HSET", "h", "a", 1, "b", 2) == 1
    assert pair2.records("HSETNX", "h", "a", 1) == 0
    assert pair2.records("HDEL", "h", "no") == 0
    assert pair2.records("HDEL", "no", "a") == 0
    assert pair2.records("HINCRBY", "h", "a", 1) == 1
    assert pair2.records("HINCRBY", "h", "a", "x") == 0
    assert pair2.records("HGETALL", "h") == 0
    assert pair2.records("HDEL", "h", "a", "b") == 1


def test_a_large_hash_outlives_a_restart(pair2: Pair) -> None:
    pair2("HSET", "h", *(word for n in range(2000) for word in (f"field{n}", n)))
    pair2("HDEL", "h", *(f"field{n}" for n in range(0, 2000, 2)))
    pair2("HSET", "h", "big", "x" * 300_000)
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_expiry(pair: Pair) -> None:
    pair("HSET", "h", "f", 1)
    pair("PEXPIRE", "h", 50)
    pair("HSET", "h", "g", 2)
    pair.same_state()
    pair.wait(60)
    pair("HGETALL", "h")
    pair("HSET", "h", "new", 1)
    pair("PTTL", "h")
    pair.same_state()
    pair.restart()
    pair.same_state()
