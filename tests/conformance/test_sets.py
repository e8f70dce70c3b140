"""Sets on Tidelog and on a real Redis: every command, option and error, and what is journaled."""

from __future__ import annotations

import pytest

from tests.conformance.redis_oracle import SCAN, SHAPE, UNORDERED, Pair


def test_add_and_remove(pair: Pair) -> None:
    assert pair("SADD", "s", "a", "b", "a", "", b"\x00\xff") == 4
    pair("SADD", "s", "a", "c")
    pair("SMEMBERS", "s", order=UNORDERED)
    pair("SCARD", "s")
    pair("SREM", "s", "a", "a", "no")
    pair("SREM", "no", "a")
    for key in ("s", "no"):
        pair("SMEMBERS", key, order=UNORDERED)
        pair("SCARD", key)
        for member in (b"a", b"b", b"", b"\x00\xff"):
            pair("SISMEMBER", key, member)
        pair("SMISMEMBER", key, "a", "b", "b", "")
    pair("SREM", "s", "b", "c", "", b"\x00\xff")
    assert pair("EXISTS", "s") == 0


def test_integers_are_members_like_others(pair: Pair) -> None:
    pair("SADD", "s", 1, 2, "03", "+4", "-0", 2**63)
    for member in ("1", "01", "3", "03", "4", "0", str(2**63)):
        pair("SISMEMBER", "s", member)
    pair.same_state()


def test_move(pair: Pair) -> None:
    pair("SADD", "s", "a", "b")
    pair("SADD", "t", "b", "c")
    pair("SET", "string", "x")
    for source, target, member in (
        ("s", "t", "a"), ("s", "t", "a"), ("s", "s", "b"), ("s", "s", "no"), ("no", "t", "a"), ("no", "string", "a"),
        ("s", "string", "a"), ("string", "s", "a"), ("s", "string", "no"), ("string", "string", "x"), ("no", "no", "a"),
        ("s", "t", "b"), ("t", "new", "a"), ("t", "new", "b"), ("t", "new", "c"),
    ):  # fmt: skip
        pair("SMOVE", source, target, member)
        pair.same_state()
    pair.restart()
    pair.same_state()


def test_pop(pair: Pair) -> None:
    pair("SADD", "s", *range(20))
    pair("SPOP", "s", order=SHAPE)
    pair("SPOP", "s", 5, order=SHAPE)
    pair("SPOP", "s", 0)
    pair("SCARD", "s")
    pair("SPOP", "s", 100, order=SHAPE)
    for count in ((), (0,), (3,)):
        pair("SPOP", "s", *count)
    pair("SADD", "s", 1)
    for bad in (("-1",), ("x",), ("1.5",), (str(2**63),), ("1", "2"), ("x", "y")):
        pair("SPOP", "s", *bad)
        pair("SPOP", "no", *bad)
    pair("SPOP", "s")
    pair.same_state()


def test_what_is_popped_is_gone(pair2: Pair) -> None:
    members = {b"%d" % n for n in range(50)}
    pair2("SADD", "s", *members)
    popped = []
    while members:
        _, ours = pair2.each("SPOP", "s", 3)
        assert len(set(ours)) == len(ours) == min(3, len(members))
        assert members.issuperset(ours)
        members.difference_update(ours)
        popped += ours
        pair2.restart()
        assert set(pair2.each("SMEMBERS", "s")[1]) == members
    assert popped != sorted(popped, key=int)


def test_random_members(pair: Pair) -> None:
    pair("SADD", "s", "a", "b", "c")
    for key in ("s", "no"):
        pair("SRANDMEMBER", key, order=SHAPE)
        for count in (0, 1, 2, 3, 10, -1, -5, 2**63 - 1):
            pair("SRANDMEMBER", key, count, order=SHAPE)
        for bad in (("x",), ("",), (str(2**63),), (str(-(2**63)),), ("1", "2"), ("x", "y")):
            pair("SRANDMEMBER", key, *bad)
    pair("SRANDMEMBER", "s", 3, order=UNORDERED)
    assert len(set(pair.each("SRANDMEMBER", "s", 2)[1])) == 2
    assert set(pair.each("SRANDMEMBER", "s", -100)[1]) == {b"a", b"b", b"c"}
    assert {pair.each("SRANDMEMBER", "s")[1] for _ in range(100)} == {b"a", b"b", b"c"}
    assert pair.tidelog.call([b"SRANDMEMBER", b"s", b"-9223372036854775807"]) == b"-ERR value is out of range\r\n"


def test_algebra(pair: Pair) -> None:
    pair("SADD", "a", 1, 2, 3, 4, "x")
    pair("SADD", "b", 3, 4, 5, "x")
    pair("SADD", "c", *range(4, 100))
    for keys in (["a"], ["a", "b"], ["b", "a"], ["a", "b", "c"], ["c", "a", "b"], ["a", "a"], ["a", "no"], ["no", "a"],
                 ["no"], ["no", "no"], ["c", "a", "a"]):  # fmt: skip
        for command in ("SINTER", "SUNION", "SDIFF"):
            pair(command, *keys, order=UNORDERED)
            for target in ("target", "target", "a2"):
                pair(f"{command}STORE", target, *keys)
                pair.same_state()
        pair("SINTERCARD", len(keys), *keys)
        for limit in (0, 1, 2, 100):
            pair("SINTERCARD", len(keys), *keys, "LIMIT", limit)
    pair("SDIFFSTORE", "a", "a", "b")
    pair("SUNIONSTORE", "b", "a", "b", "c")
    pair("SINTERSTORE", "c", "c", "no")
    pair.same_state()
    pair.restart()
    pair.same_state()


def test_storing_replaces_whatever_is_there(pair: Pair) -> None:
    pair("SADD", "s", "a", "b")
    for command in ("SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE"):
        pair("SET", "t", "text", "EX", 100)
        pair(command, "t", "s")
        pair("TTL", "t")
        pair("SET", "t", "text", "EX", 100)
        pair(command, "t", "no")
        pair("SADD", "t", "z")
        pair("EXPIRE", "t", 100)
        pair(command, "t", "s")
        pair.same_state()
        pair.restart()
        pair.same_state()


@pytest.mark.parametrize("store", ["", "STORE t"])
@pytest.mark.parametrize("command", ["SUNION", "SINTER", "SDIFF"])
def test_algebra_on_wrong_types(pair: Pair, command: str, store: str) -> None:
    pair("SADD", "s", "a")
    pair("SET", "text", "a")
    pair("SADD", "t", "old")
    for keys in (["text"], ["s", "text"], ["text", "s"], ["no", "text"], ["text", "no"]):
        pair(*f"{command}{store}".split(), *keys)
    pair.same_state()


def test_intercard_errors(pair: Pair) -> None:
    pair("SADD", "s", "a")
    pair("SET", "text", "a")
    for arguments in ("0 s", "-1 s", "x s", "2 s", "1 s LIMIT", "1 s LIMIT -1", "1 s LIMIT x", "1 s FOO", "1 s FOO 1",
                      "1 s LIMIT 1 LIMIT 0", "1 s s", "1 text", "1 text LIMIT -1", "2 no text",
                      "2 text no", "1 s limit 1 x", "9223372036854775807 s", "9223372036854775808 s"):  # fmt: skip
        pair("SINTERCARD", *arguments.split())


def test_scan_of_a_small_set(pair: Pair) -> None:
    pair("SADD", "s", "one", "two", "three", "")
    pair("SSCAN", "s", 0, order=SCAN)
    for pattern in ("*", "**", "", "t*", "*e", "[ot]*", "?*", "\\two", "none"):
        pair("SSCAN", "s", 0, "MATCH", pattern, "COUNT", 100, order=SCAN)
    for arguments in (("x",), (0, "COUNT", 0), (0, "COUNT"), (0, "FOO", 1), (0, "TYPE", "set")):
        pair("SSCAN", "s", *arguments)
        pair("SSCAN", "no", *arguments)
    pair("SADD", "numbers", *range(500))
    pair("SSCAN", "numbers", 17, "COUNT", 1, "MATCH", "*7", order=SCAN)


@pytest.mark.parametrize(
    "command",
    ["SADD k a", "SREM k a", "SMEMBERS k", "SISMEMBER k a", "SMISMEMBER k a b", "SCARD k", "SPOP k", "SPOP k 1",
     "SPOP k x", "SPOP k 0", "SRANDMEMBER k", "SRANDMEMBER k 1", "SRANDMEMBER k x", "SRANDMEMBER k 0", "SSCAN k 0",
     "SSCAN k x", "SSCAN k 0 FOO", "SINTERCARD 1 k"],
)  # fmt: skip
def test_wrong_type(pair: Pair, command: str) -> None:
    pair("SET", "k", "text")
    assert pair.records(*command.split()) == 0
    pair("DEL", "k")
    pair("HSET", "k", "f", "v")
    pair(*command.split())
    pair.same_state()


@pytest.mark.parametrize(
    "command",
    ["SADD", "SADD k", "SREM k", "SMEMBERS", "SMEMBERS k l", "SISMEMBER k", "SISMEMBER k a b", "SMISMEMBER k",
     "SCARD", "SCARD k l", "SPOP", "SRANDMEMBER", "SMOVE k l", "SMOVE k l m n", "SINTER", "SUNION", "SDIFF",
     "SINTERSTORE k", "SUNIONSTORE k", "SDIFFSTORE k", "SINTERCARD", "SINTERCARD 1", "SSCAN k"],
)  # fmt: skip
def test_wrong_number_of_arguments(pair: Pair, command: str) -> None:
    assert pair.records(*command.split()) == 0


def test_only_changes_are_journaled(pair2: Pair) -> None:
    assert pair2.records("SADD", "s", "a", "b") == 1
    assert pair2.records("SADD", "s", "a", "b") == 0
    assert pair2.records("SREM", "s", "no") == 0
    assert pair2.records("SMOVE", "s", "s", "a") == 0
    assert pair2.records("SMOVE", "s", "t", "no") == 0
    assert pair2.records("SMOVE", "s", "t", "a") == 2
    assert pair2.records("SADD", "s", "a") == 1
    assert pair2.records("SMOVE", "s", "t", "a") == 1
    assert pair2.records("SINTERSTORE", "new", "s", "t") == 0
    assert pair2.records("SUNIONSTORE", "new", "s", "t") == 1
    assert pair2.records("SUNIONSTORE", "new", "s", "t") == 2
    assert pair2.records("SINTERSTORE", "new", "s", "t") == 1
    assert pair2.records("SPOP", "no") == 0
    assert pair2.records("SPOP", "s", 0) == 0
    assert pair2.records("SPOP", "s", 10) == 1
    assert pair2.records("SRANDMEMBER", "t") == 0


def test_a_large_set_outlives_a_restart(pair2: Pair) -> None:
    pair2("SADD", "s", *range(2000))
    pair2("SREM", "s", *range(0, 2000, 2))
    pair2("SUNIONSTORE", "t", "s", "s")
    pair2("SADD", "s", "x" * 300_000)
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_expiry(pair: Pair) -> None:
    pair("SADD", "s", "a")
    pair("PEXPIRE", "s", 50)
    pair("SADD", "s", "b")
    pair("SADD", "t", "a")
    pair.same_state()
    pair.wait(60)
    pair("SMOVE", "s", "t", "a")
    pair("SUNIONSTORE", "u", "s", "t")
    pair("SADD", "s", "new")
    pair("PTTL", "s")
    pair.same_state()
    pair.restart()
    pair.same_state()
