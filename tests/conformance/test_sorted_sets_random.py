"""Sorted sets on Tidelog and on a real Redis: random sequences of commands, and what the journal makes of them.

Small sets are Hypothesis's: it finds and shrinks odd combinations. Sets around the size at which their representation
changes are filled from a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.redis_oracle import EXACT, SCAN_PAIRS, SHAPE, Argument, InProcess, Order, Pair, Socket

Words = list[Argument]

KEYS = st.sampled_from(["a", "b", "c", "d"])
INPUTS = st.lists(st.sampled_from(["a", "b", "c", "d", "set", "none"]), min_size=1, max_size=4)
MEMBERS = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"e", b"aa", b"A", b"7", b"\xff", b"\0", b"zz"])
SCORES: st.SearchStrategy[Argument] = st.sampled_from(
    [0, 1, 2, 3, -1, 1.5, 0.1, 0.2, 1e17, -1e300, "inf", "-inf", "-0", "x", "1e400", "0x3"]
)
BOUNDS = st.sampled_from(["-inf", "+inf", "0", "1", "(1", "2", "(2", "(0.1", "x", "(-inf", "-1", "1e17"])
LEX_BOUNDS = st.sampled_from(["-", "+", "[a", "(a", "[b", "(c", "[e", "(zz", "[", "x"])
PLACES = st.integers(-7, 7)


def command(name: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Words]:
    """A command whose words are those of its parts, one after the other; a part is a word or a list of words."""

    def joined(drawn: tuple[Any, ...]) -> Words:
        return [name, *(word for part in drawn for word in (part if isinstance(part, list) else [part]))]

    return st.tuples(*parts).map(joined)


def optional(*words: Argument) -> st.SearchStrategy[Words]:
    return st.sampled_from([[], list(words)])


def some(*words: str) -> st.SearchStrategy[Words]:
    """Any of the words, in any order."""
    return st.lists(st.sampled_from(words), max_size=3, unique=True).map(list)


PAIRS = st.lists(st.tuples(SCORES, MEMBERS), min_size=1, max_size=6).map(
    lambda items: [x for item in items for x in item]
)
LIMIT: st.SearchStrategy[Words] = st.one_of(st.just([]), st.tuples(PLACES, PLACES).map(lambda both: ["LIMIT", *both]))
COUNTED = INPUTS.map(lambda keys: [len(keys), *keys])


@st.composite
def algebra(draw: st.DrawFn, name: str, *, stores: bool, combines: bool) -> Words:
    keys = draw(INPUTS)
    words: Words = [name, *([draw(KEYS)] if stores else []), len(keys), *keys]
    if combines and draw(st.booleans()):
        words += ["WEIGHTS", *draw(st.lists(SCORES, min_size=len(keys), max_size=len(keys)))]
    if combines and draw(st.booleans()):
        words += ["AGGREGATE", draw(st.sampled_from(["SUM", "MIN", "MAX"]))]
    return words if stores else words + draw(optional("WITHSCORES"))


COMMANDS = st.one_of(
    command("ZADD", KEYS, some("NX", "XX", "GT", "LT", "CH"), PAIRS),
    command("ZADD", KEYS, some("NX", "XX", "GT", "LT", "CH"), PAIRS),
    command("ZADD", KEYS, PAIRS),
    command("ZADD", KEYS, some("XX", "GT", "LT", "NX"), st.just("INCR"), SCORES, MEMBERS),
    command("ZADD", KEYS, st.lists(MEMBERS, min_size=1).map(lambda members: [x for m in members for x in (5, m)])),
    command("ZINCRBY", KEYS, SCORES, MEMBERS),
    command("ZREM", KEYS, st.lists(MEMBERS, min_size=1, max_size=4).map(list)),
    command("ZCARD", KEYS),
    command("ZSCORE", KEYS, MEMBERS),
    command("ZMSCORE", KEYS, MEMBERS, MEMBERS),
    command("ZRANK", KEYS, MEMBERS),
    command("ZREVRANK", KEYS, MEMBERS),
    command("ZCOUNT", KEYS, BOUNDS, BOUNDS),
    command("ZLEXCOUNT", KEYS, LEX_BOUNDS, LEX_BOUNDS),
    command("ZRANGE", KEYS, PLACES, PLACES, some("REV", "WITHSCORES")),
    command("ZREVRANGE", KEYS, PLACES, PLACES, optional("WITHSCORES")),
    command("ZRANGE", KEYS, BOUNDS, BOUNDS, st.just("BYSCORE"), some("REV", "WITHSCORES"), LIMIT),
    command("ZRANGE", KEYS, LEX_BOUNDS, LEX_BOUNDS, st.just("BYLEX"), optional("REV"), LIMIT),
    command("ZRANGEBYSCORE", KEYS, BOUNDS, BOUNDS, optional("WITHSCORES"), LIMIT),
    command("ZREVRANGEBYSCORE", KEYS, BOUNDS, BOUNDS, optional("WITHSCORES"), LIMIT),
    command("ZRANGEBYLEX", KEYS, LEX_BOUNDS, LEX_BOUNDS, LIMIT),
    command("ZREVRANGEBYLEX", KEYS, LEX_BOUNDS, LEX_BOUNDS, LIMIT),
    command("ZRANGESTORE", KEYS, KEYS, PLACES, PLACES, optional("REV")),
    command("ZRANGESTORE", KEYS, KEYS, BOUNDS, BOUNDS, st.just("BYSCORE"), optional("REV"), LIMIT),
    command("ZRANGESTORE", KEYS, KEYS, LEX_BOUNDS, LEX_BOUNDS, st.just("BYLEX"), LIMIT),
    command("ZREMRANGEBYRANK", KEYS, PLACES, PLACES),
    command("ZREMRANGEBYSCORE", KEYS, BOUNDS, BOUNDS),
    command("ZREMRANGEBYLEX", KEYS, LEX_BOUNDS, LEX_BOUNDS),
    command("ZPOPMIN", KEYS, st.sampled_from([[], [0], [1], [3]])),
    command("ZPOPMAX", KEYS, st.sampled_from([[], [0], [1], [3]])),
    command("ZMPOP", COUNTED, st.sampled_from(["MIN", "MAX"]), st.sampled_from([[], ["COUNT", 2]])),
    command("ZRANDMEMBER", KEYS, st.sampled_from([[], [2], [-5], [3, "WITHSCORES"], [-2, "WITHSCORES"]])),
    command("ZSCAN", KEYS, st.just(0)),
    command("ZINTERCARD", COUNTED, st.sampled_from([[], ["LIMIT", 2]])),
    command("SADD", st.just("set"), MEMBERS),
    command("SREM", st.just("set"), MEMBERS),
    command("DEL", KEYS),
    algebra("ZUNION", stores=False, combines=True),
    algebra("ZINTER", stores=False, combines=True),
    algebra("ZDIFF", stores=False, combines=False),
    algebra("ZUNIONSTORE", stores=True, combines=True),
    algebra("ZINTERSTORE", stores=True, combines=True),
    algebra("ZDIFFSTORE", stores=True, combines=False),
)
ORDERS: dict[Argument, Order] = {"ZRANDMEMBER": SHAPE, "ZSCAN": SCAN_PAIRS}


def run(pair: Pair, commands: Sequence[Words]) -> None:
    for words in commands:
        pair(*words, order=ORDERS.get(words[0], EXACT))
    pair.same_state()
    pair.restart()
    pair.same_state()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(commands=st.lists(COMMANDS, min_size=5, max_size=40), protocol=st.sampled_from([2, 3]))
def test_small_sets(commands: list[Words], protocol: int, redis_peer: Socket) -> None:
    run(Pair(redis_peer, InProcess(shard_count=2), protocol), commands)


def drawn_command(draw: Random, *, one_score: bool) -> Words:
    """A command on a set of a few hundred members; by member only where all have one score."""
    key = draw.choice("ab")
    members = [f"m{draw.randrange(400):03}" for _ in range(draw.choice([1, 3, 40, 200]))]
    scores = [0 if one_score else draw.randrange(60) / 4 for _ in members]
    low, high = sorted(draw.choices(range(400), k=2))
    least, most = f"{draw.choice('[(')}m{low:03}", f"{draw.choice('[(')}m{high:03}"
    from_score, to_score = draw.choice(["", "("]) + str(low / 25), draw.choice(["", "("]) + str(high / 25)
    choices: list[Words] = [
        ["ZADD", key, "CH", *(part for pair in zip(scores, members, strict=True) for part in pair)],
        ["ZADD", key, *(part for pair in zip(scores, members, strict=True) for part in pair)],
        ["ZREM", key, *members],
        ["ZRANK", key, members[0]],
        ["ZREVRANK", key, members[0]],
        ["ZMSCORE", key, *members],
        ["ZRANGE", key, low, high, "WITHSCORES"],
        ["ZREVRANGE", key, low // 10, high // 10],
        ["ZCOUNT", key, from_score, to_score],
        ["ZRANGEBYSCORE", key, from_score, to_score, "LIMIT", low // 40, 20],
        ["ZREVRANGEBYSCORE", key, to_score, from_score, "WITHSCORES", "LIMIT", low // 40, 20],
        ["ZREMRANGEBYRANK", key, low // 2, low // 2 + high // 8],
        ["ZPOPMIN", key, low // 20],
        ["ZPOPMAX", key, low // 20],
        ["ZUNIONSTORE", "c", 2, "a", "b"],
        ["ZINTER", 2, "a", "b", "WITHSCORES"],
        ["ZDIFFSTORE", "c", 2, "a", "b"],
        ["ZRANGESTORE", "c", key, low, high],
    ]
    if one_score:
        choices += [
            ["ZLEXCOUNT", key, least, most],
            ["ZRANGEBYLEX", key, least, most],
            ["ZREVRANGEBYLEX", key, most, least, "LIMIT", 3, 20],
            ["ZREMRANGEBYLEX", key, least, f"[m{low + 9:03}"],
        ]
    else:
        choices += [["ZINCRBY", key, 0.25, members[0]], ["ZREMRANGEBYSCORE", key, from_score, str(low / 25 + 1)]]
    return draw.choice(choices)


@pytest.mark.parametrize("one_score", [False, True], ids=["scores", "names"])
@pytest.mark.parametrize("seed", range(4))
def test_sets_around_the_change_of_representation(seed: int, one_score: bool, redis_peer: Socket) -> None:
    draw = Random(seed)
    pair = Pair(redis_peer, InProcess(shard_count=1 + seed % 3), 2 + seed % 2)
    run(pair, [drawn_command(draw, one_score=one_score) for _ in range(400)])
