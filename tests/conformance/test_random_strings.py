"""Random commands on strings and keys of any type, with expiry: the same replies and the same state as Redis, on one
shard and on three, also after restarts in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.redis_oracle import EXACT, SCAN, UNORDERED, Argument, InProcess, Item, Order, Pair, Socket

KEYS: Final = [b"k1", b"k2", b"{k1}3", b"", b"other", b"none"]
KEY = st.sampled_from(KEYS)
VALUE = st.sampled_from(
    [b"a", b"", b"7", b"-1", b"1.5", b"\x00\xff\r\n", b"x" * 70, b"9223372036854775807", b"07", b"1e3"]
)
NUMBER = st.sampled_from(
    ["0", "1", "-3", "9223372036854775807", "-9223372036854775808", "2.5", "1e3", "x", "", "inf", "0.1"]
)
INDEX = st.sampled_from(["0", "1", "3", "70", "-1", "-3", "x", "600000000"])
PATTERN = st.sampled_from(["*", "k*", "?", "[k-o]*", "{*", "", "none"])
CONDITION = st.sampled_from([[], [], [], ["NX"], ["XX"], ["GET"], ["NX", "GET"], ["XX", "NX"]])
KEEPING = st.sampled_from(
    [[], [], ["KEEPTTL"], ["EX", "1000"], ["PX", "2000000"], ["EXAT", "4000000000"], ["PXAT", "4000000000001"],
     ["EX", "0"], ["PXAT", "1"], ["EX", "1000", "KEEPTTL"], ["EX", "x"]]
)  # fmt: skip
LIMIT = st.sampled_from([[], [], ["NX"], ["XX"], ["GT"], ["LT"], ["XX", "LT"], ["NX", "GT"], ["no"]])
SECONDS = st.sampled_from(["1000", "2000", "3000", "-1", "0", "x", "9223372036854775807"])

Step = Callable[[Pair], None]


def near(item: Item) -> Any:
    """A time, but for what passed between the two; `same_state` compares expiries."""
    return (item.mark, min(int(item.value), 0)) if item.mark == ":" else item


def some(strategy: st.SearchStrategy[Any], size: int = 4) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, min_size=1, max_size=size)


def command(name: str, *strategies: st.SearchStrategy[Any], order: Order = EXACT) -> st.SearchStrategy[Step]:
    """A step with this name; a strategy may give one argument or a list of them."""

    def step(parts: tuple[Any, ...]) -> Step:
        words: list[Argument] = [*name.split()]
        for part in parts:
            words += part if isinstance(part, list) else [part]
        return Named(" ".join(map(str, words)), lambda pair: pair(*words, order=order))

    return st.tuples(*strategies).map(step)


class Named:
    """A step that says what it is."""

    def __init__(self, name: str, run: Step) -> None:
        self._name = name
        self._run = run

    def __repr__(self) -> str:
        return self._name

    def __call__(self, pair: Pair) -> None:
        self._run(pair)


def expire(keys: list[bytes]) -> Step:
    """Keys expire, and nobody has come across it yet. Nothing happens in between: real time runs, ours does not."""

    def run(pair: Pair) -> None:
        for key in keys:
            pair("PEXPIRE", key, 1)
        pair.wait(3)

    return Named(f"{keys} expire", run)


PAIRS = some(st.tuples(KEY, VALUE)).map(lambda pairs: [item for pair in pairs for item in pair])

STRINGS = [
    command("SET", KEY, VALUE, CONDITION, KEEPING),
    command("SET", KEY, VALUE, KEEPING, CONDITION),
    command("SETNX", KEY, VALUE),
    command("SETEX", KEY, SECONDS, VALUE),
    command("GET", KEY),
    command("GETSET", KEY, VALUE),
    command("GETDEL", KEY),
    command("GETEX", KEY, st.one_of(KEEPING, st.just(["PERSIST"]))),
    command("MGET", some(KEY)),
    command("MSET", PAIRS),
    command("MSET", some(VALUE)),
    command("MSETNX", PAIRS),
    command("APPEND", KEY, VALUE),
    command("STRLEN", KEY),
    command("INCR", KEY),
    command("DECRBY", KEY, NUMBER),
    command("INCRBY", KEY, NUMBER),
    command("INCRBYFLOAT", KEY, NUMBER),
    command("GETRANGE", KEY, INDEX, INDEX),
    command("SETRANGE", KEY, INDEX, VALUE),
]
ANY_KEY = [
    command("DEL", some(KEY)),
    command("UNLINK", KEY),
    command("EXISTS", some(KEY)),
    command("TOUCH", some(KEY)),
    command("TYPE", KEY),
    command("EXPIRE", KEY, SECONDS, st.sampled_from([[], [], ["NX"], ["XX"], ["NX", "GT"]])),
    command("EXPIREAT", KEY, st.sampled_from(["4000000000", "4000000001", "1", "x"]), LIMIT),
    command("PEXPIREAT", KEY, st.sampled_from(["4000000000500", "4000000000499", "-5"]), LIMIT),
    command("TTL", KEY, order=near),
    command("EXPIRETIME", KEY, order=near),
    command("PERSIST", KEY),
    command("RENAME", KEY, KEY),
    command("RENAMENX", KEY, KEY),
    command("COPY", KEY, KEY, st.sampled_from([[], ["REPLACE"], ["DB", "0"], ["DB", "3"], ["DB", "3", "REPLACE"]])),
    command("MOVE", KEY, st.sampled_from(["0", "3", "16"])),
    command("KEYS", PATTERN, order=UNORDERED),
    command("SCAN 0 COUNT 100 MATCH", PATTERN, order=SCAN),
    command("SCAN 0 COUNT 100 TYPE", st.sampled_from(["string", "hash", "junk"]), order=SCAN),
    command("OBJECT REFCOUNT", KEY, order=lambda item: item.mark),
]
OTHERS = [command("HSET", KEY, VALUE, VALUE), command("SADD", KEY, some(VALUE)), command("ZADD", KEY, NUMBER, VALUE)]
TIME = st.lists(KEY, min_size=1, max_size=3, unique=True).map(expire)
RESTART = st.just(Named("restart", lambda pair: pair.restart()))


@given(
    st.lists(st.one_of(*STRINGS, *ANY_KEY, *OTHERS, TIME, RESTART), min_size=1, max_size=60),
    st.sampled_from([2, 3]),
    st.sampled_from([1, 3]),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_together(redis_peer: Socket, steps: list[Step], protocol: int, shard_count: int) -> None:
    check(redis_peer, steps, protocol, shard_count)


@given(st.lists(st.one_of(*STRINGS, *STRINGS, TIME, RESTART), min_size=1, max_size=60), st.sampled_from([1, 3]))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_strings(redis_peer: Socket, steps: list[Step], shard_count: int) -> None:
    check(redis_peer, steps, 2, shard_count)


def check(redis_peer: Socket, steps: list[Step], protocol: int, shard_count: int) -> None:
    pair = Pair(redis_peer, InProcess(shard_count), protocol)
    pair("HSET", "other", "f", "v")
    for step in steps:
        pair.tidelog.clock.advance(max(time.time_ns() // 1000 - pair.tidelog.clock.wall_us(), 0))
        step(pair)
    pair.same_state()
    pair.restart()
    pair.same_state()
