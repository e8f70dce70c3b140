"""Random commands on hashes and sets: the same replies and the same state as Redis, also after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.redis_oracle import (
    SCAN,
    SCAN_PAIRS,
    UNORDERED,
    UNORDERED_PAIRS,
    Argument,
    InProcess,
    Order,
    Pair,
    Socket,
    decode,
    pack,
)

KEY = st.sampled_from([b"k1", b"k2", b"{k1}3", b"text", b"none"])
ITEM = st.sampled_from([b"a", b"b", b"c", b"", b"7", b"-1", b"1.5", b"\x00\xff", b"x" * 70])
NUMBER = st.sampled_from(
    ["0", "1", "-3", "9223372036854775807", "-9223372036854775808", "2.5", "1e3", "x", "inf", "0.1"]
)
PATTERN = st.sampled_from(["*", "a*", "?", "[a-c]", "[^a-c]*", "none"])
Step = tuple[tuple[Argument, ...], Order]


def some(strategy: st.SearchStrategy[Any], size: int = 6) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, min_size=1, max_size=size)


def command(name: str, *strategies: st.SearchStrategy[Any], order: Order = UNORDERED) -> st.SearchStrategy[Step]:
    """A step with this name; a strategy may give one argument or a list of them."""

    def flat(parts: tuple[Any, ...]) -> Step:
        words: list[Argument] = [name]
        for part in parts:
            words += part if isinstance(part, list) else [part]
        return tuple(words), order

    return st.tuples(*strategies).map(flat)


PAIRS = some(st.tuples(ITEM, ITEM)).map(lambda pairs: [item for pair in pairs for item in pair])
CARD_KEYS = some(KEY, 3).map(lambda keys: [len(keys), *keys])

ANY_KEY = [
    command("DEL", some(KEY, 2)),
    command("SET", KEY, ITEM),
    command("EXISTS", KEY),
    command("TYPE", KEY),
    command("PERSIST", KEY),
    command("EXPIRE", KEY, st.sampled_from([1000, 2000, -1])),
    command("RENAME", KEY, KEY),
]
HASHES = [
    command("HSET", KEY, PAIRS),
    command("HSET", KEY, PAIRS),
    command("HMSET", KEY, PAIRS),
    command("HMSET", KEY, some(ITEM, 4)),
    command("HSETNX", KEY, ITEM, ITEM),
    command("HGET", KEY, ITEM),
    command("HMGET", KEY, some(ITEM), order=lambda item: item),
    command("HDEL", KEY, some(ITEM)),
    command("HEXISTS", KEY, ITEM),
    command("HLEN", KEY),
    command("HSTRLEN", KEY, ITEM),
    command("HKEYS", KEY),
    command("HVALS", KEY),
    command("HGETALL", KEY, order=UNORDERED_PAIRS),
    command("HINCRBY", KEY, ITEM, NUMBER),
    command("HINCRBYFLOAT", KEY, ITEM, NUMBER),
    command("HSCAN", KEY, st.just(0), st.just("MATCH"), PATTERN, order=SCAN_PAIRS),
    command("HRANDFIELD", KEY, st.just(100)),
    command("HRANDFIELD", KEY, st.just(100), st.just("WITHVALUES"), order=UNORDERED_PAIRS),
]
SETS = [
    command("SADD", KEY, some(ITEM)),
    command("SADD", KEY, some(ITEM)),
    command("SREM", KEY, some(ITEM)),
    command("SMEMBERS", KEY),
    command("SISMEMBER", KEY, ITEM),
    command("SMISMEMBER", KEY, some(ITEM), order=lambda item: item),
    command("SCARD", KEY),
    command("SPOP", KEY),
    command("SPOP", KEY, st.integers(-1, 4)),
    command("SRANDMEMBER", KEY, st.just(100)),
    command("SMOVE", KEY, KEY, ITEM),
    command("SINTER", some(KEY, 3)),
    command("SUNION", some(KEY, 3)),
    command("SDIFF", some(KEY, 3)),
    command("SINTERSTORE", KEY, some(KEY, 3)),
    command("SUNIONSTORE", KEY, some(KEY, 3)),
    command("SDIFFSTORE", KEY, some(KEY, 3)),
    command("SINTERCARD", CARD_KEYS),
    command("SINTERCARD", CARD_KEYS, st.just("LIMIT"), st.integers(-1, 3)),
    command("SSCAN", KEY, st.just(0), st.just("MATCH"), PATTERN, order=SCAN),
]


def run(pair: Pair, step: Step) -> None:
    words, order = step
    if words[0] != "SPOP":
        pair(*words, order=order)
        return
    packed = pack(words)
    popped = decode(pair.tidelog.call(packed))
    members = popped if isinstance(popped, list) else [popped]
    if isinstance(popped, Exception) or members in ([], [None]):
        pair(*words)  # it has changed nothing, so once more does no harm
        return
    for member in members:  # Redis would draw others: let it remove the same
        assert decode(pair.redis.call([b"SREM", packed[1], member])) == 1


def check(redis_peer: Socket, steps: list[Step], protocol: int, shard_count: int) -> None:
    pair = Pair(redis_peer, InProcess(shard_count), protocol)
    pair("SET", "text", "7")
    for step in steps:
        run(pair, step)
    pair.same_state()
    pair.restart()
    pair.same_state()


@given(
    st.lists(st.one_of(*HASHES, *SETS, *ANY_KEY), min_size=1, max_size=60), st.sampled_from([2, 3]), st.integers(1, 3)
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_together(redis_peer: Socket, steps: list[Step], protocol: int, shard_count: int) -> None:
    check(redis_peer, steps, protocol, shard_count)


@pytest.mark.parametrize("family", [HASHES, SETS], ids=["hashes", "sets"])
@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_family(redis_peer: Socket, family: list[st.SearchStrategy[Step]], data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.one_of(*family), min_size=1, max_size=60))
    check(redis_peer, steps, data.draw(st.sampled_from([2, 3])), 1)


def scan_all(pair: Pair, command: str, count: int) -> list[bytes]:
    """Everything that a scan of `k` on Tidelog returns, while members come and go."""
    cursor, found = b"0", list[bytes]()
    while True:
        cursor, taken = decode(pair.tidelog.call([command.encode(), b"k", cursor, b"COUNT", b"%d" % count]))
        found += taken
        if cursor == b"0":
            return found
        name = b"%d" % len(found)
        if command == "HSCAN":
            pair.tidelog.call([b"HSET", b"k", b"new" + name, b"1"])
            pair.tidelog.call([b"HDEL", b"k", b"goes" + name])
        else:
            pair.tidelog.call([b"SADD", b"k", b"new" + name])
            pair.tidelog.call([b"SREM", b"k", b"goes" + name])


@pytest.mark.parametrize("count", [1, 10, 600])
def test_scans_of_large_collections(pair2: Pair, count: int) -> None:
    stays = [b"stays%d" % number for number in range(1000)]
    goes = [b"goes%d" % number for number in range(1000)]
    pair2("HSET", "k", *(word for field in stays + goes for word in (field, field + b"!")))
    fields = scan_all(pair2, "HSCAN", count)
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    assert all(values[field] == field + b"!" for field in stays)
    pair2("DEL", "k")
    pair2("SADD", "k", *stays, *goes)
    assert set(stays) <= set(scan_all(pair2, "SSCAN", count))


def test_a_scan_goes_on_after_a_restart(pair2: Pair) -> None:
    members = {b"%d" % number for number in range(1000)}
    pair2("SADD", "k", *members)
    cursor, found = decode(pair2.tidelog.call([b"SSCAN", b"k", b"0", b"COUNT", b"400"]))
    pair2.restart()
    cursor, more = decode(pair2.tidelog.call([b"SSCAN", b"k", cursor, b"COUNT", b"600"]))
    assert cursor == b"0"
    assert {*found, *more} == members
    assert len(found) + len(more) == 1000
