"""OBJECT ENCODING on Tidelog and on a real Redis: at the bounds, over them and back, and with other bounds.

A copy is not among these: Redis copies the encoding with the value, and Tidelog makes the value anew (COPY, RENAME,
MOVE).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.redis_7_2 import encoding_of_set
from tests.conformance.redis_oracle import EXACT, Pair, pack

BOUNDS = {
    "hash-max-listpack-entries": ("hash_entries", 6),
    "hash-max-listpack-value": ("hash_value", 10),
    "zset-max-listpack-entries": ("zset_entries", 6),
    "zset-max-listpack-value": ("zset_value", 10),
    "set-max-intset-entries": ("set_intset_entries", 6),
}


@pytest.fixture(params=["default", "small"])
def bounded(pair: Pair, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """With Redis's default bounds, or small ones."""
    bounds = pair.tidelog.store.bounds
    before = {name: getattr(bounds, attribute) for name, (attribute, _) in BOUNDS.items()}
    for name, (attribute, small) in BOUNDS.items():
        assert pair.redis.call(pack(("CONFIG", "GET", name))).split(b"\r\n")[-2] == b"%d" % before[name]
        if request.param == "small":
            setattr(bounds, attribute, small)
            pair.redis.call(pack(("CONFIG", "SET", name, small)))
    yield pair
    for name, (attribute, _) in BOUNDS.items():
        setattr(bounds, attribute, before[name])
        pair.redis.call(pack(("CONFIG", "SET", name, before[name])))


def encoding(pair: Pair, key: str) -> None:
    pair("OBJECT", "ENCODING", key, order=encoding_of_set if key == "s" else EXACT)


@pytest.mark.parametrize(
    ("make", "unmake"),
    [
        (lambda n: ["HSET", "h", f"f{n}", "v"], lambda n: ["HDEL", "h", f"f{n}"]),
        (lambda n: ["HINCRBY", "h", f"f{n}", n], lambda n: ["HDEL", "h", f"f{n}"]),
        (lambda n: ["HSETNX", "h", f"f{n}", n], lambda n: ["HDEL", "h", f"f{n}"]),
        (lambda n: ["ZADD", "z", n, f"m{n}"], lambda n: ["ZREM", "z", f"m{n}"]),
        (lambda n: ["ZINCRBY", "z", n, f"m{n}"], lambda n: ["ZREM", "z", f"m{n}"]),
        (lambda n: ["SADD", "s", n], lambda n: ["SREM", "s", n]),
    ],
    ids=["HSET", "HINCRBY", "HSETNX", "ZADD", "ZINCRBY", "SADD"],
)
def test_over_the_number_of_entries_and_back(bounded: Pair, make: Any, unmake: Any) -> None:
    key = make(0)[1]
    for number in range(520):
        bounded(*make(number))
        if number < 20 or number > 120:
            encoding(bounded, key)
    for number in range(1, 520):
        bounded(*unmake(number))
        if number > 500 or number % 50 == 0:
            encoding(bounded, key)
    bounded("DEL", key)
    bounded(*make(1))
    encoding(bounded, key)


@pytest.mark.parametrize("size", [9, 10, 11, 63, 64, 65, 255, 256, 500])
@pytest.mark.parametrize(
    ("make", "unmake"),
    [
        (["HSET", "h", "f", "X"], ["HSET", "h", "f", "1"]),
        (["HSET", "h", "a", "1", "f", "X"], ["HSET", "h", "f", "1"]),
        (["HSET", "h", "X", "1"], ["HDEL", "h", "X"]),
        (["HSETNX", "h", "X", "1"], ["HDEL", "h", "X"]),
        (["ZADD", "z", "1", "X"], ["ZREM", "z", "X"]),
        (["ZADD", "z", "1", "a", "2", "X"], ["ZREM", "z", "X"]),
        (["ZINCRBY", "z", "1", "X"], ["ZREM", "z", "X"]),
        (["SADD", "s", "X"], ["SREM", "s", "X"]),
    ],
    ids=lambda words: "-".join(words),
)
def test_over_the_size_of_an_entry_and_back(bounded: Pair, size: int, make: list[str], unmake: list[str]) -> None:
    long, key = "x" * size, make[1]
    for first in (["HSET", "h", "e", "1"], ["ZADD", "z", "1", "e"], ["SADD", "s", "1"]):
        bounded(*first)
    for words in (make, unmake, make, unmake):
        bounded(*[long if word == "X" else word for word in words])
        encoding(bounded, key)
    bounded.same_state()


@pytest.mark.parametrize("seed", range(4))
def test_random_changes(bounded: Pair, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(400):
        number, size = chance.randrange(12), chance.choice([1, 1, 1, 1, 1, 11, 65])
        word, value = f"{number}", "x" * size
        steps: list[list[Any]] = [
            ["HSET", "h", word, value],
            ["HSET", "h", word, "1", word + "a", value],
            ["HDEL", "h", word, word + "a"],
            ["HINCRBYFLOAT", "h", word + "n", "1.5"],
            ["ZADD", "z", number, word],
            ["ZADD", "z", number, value + word, 1, "a"],
            ["ZREM", "z", word, value + word, "a"],
            ["ZPOPMIN", "z"],
            ["ZUNIONSTORE", "z", 1, "z"],
            ["SADD", "s", word],
            ["SADD", "s", word, value],
            ["SREM", "s", word, value],
            ["DEL", chance.choice("hzs")],
        ]
        bounded(*chance.choice(steps))
        for key in "hzs":
            encoding(bounded, key)
    bounded.same_state()


def test_sets_as_redis_7_2_has_them(pair: Pair) -> None:
    """No such Redis to compare with: what `t_set.c` of 7.2 does."""

    def ours(*words: Any) -> Any:
        return pair.each(*words)[1]

    def told() -> Any:
        return ours("OBJECT", "ENCODING", "s")

    ours("SADD", "s", *range(127))
    assert told() == b"intset"
    ours("SADD", "s", "x")
    assert told() == b"listpack"
    ours("SREM", "s", "x")
    assert told() == b"listpack"
    ours("SADD", "s", "y")
    assert told() == b"listpack"
    ours("SADD", "s", "z")
    assert told() == b"hashtable"
    ours("SREM", "s", *range(127))
    assert told() == b"hashtable"
    ours("DEL", "s")
    ours("SADD", "s", *range(128))
    assert told() == b"intset"
    ours("SADD", "s", "x")
    assert told() == b"hashtable"
    ours("DEL", "s")
    ours("SADD", "s", "x" * 65)
    assert told() == b"hashtable"


def test_a_restart_makes_the_same_changes_again(pair: Pair) -> None:
    pair("HSET", "h", "f", "x" * 65)
    pair("HSET", "h", "f", "1")
    pair("ZADD", "z", 1, "x" * 65, 2, "a")
    pair("ZREM", "z", "x" * 65)
    for _ in range(2):
        encoding(pair, "h")
        encoding(pair, "z")
        pair.restart()
