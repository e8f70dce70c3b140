"""Hot commands of lists do what the general path does, and share records where nobody can tell."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.server.test_hot import Side, run_one
from tidelog import limits
from tidelog.server.hot_lists import HotLists
from tidelog.types.list_value import list_of

NAMES = (b"LPUSH", b"RPUSH", b"LPOP", b"RPOP", b"BLPOP", b"BRPOP", b"LRANGE", b"LLEN")


def random_command(rng: random.Random) -> list[bytes]:
    key = b"l%d" % rng.randrange(3)
    element = rng.choice([b"", b"abc", b"def", rng.randbytes(rng.choice([1, 150, 3000]))])
    index = [rng.choice([b"0", b"1", b"-1", b"-3", b"100", b"-100", b"07", b"x", b"", b"-", b"-0", b"9" * 19])] * 2
    index[1] = rng.choice([b"-1", b"2", b"1000", b"-2", b"0"])
    return rng.choice(
        [
            [rng.choice([b"LPUSH", b"RPUSH", b"lpush"]), key, element],
            [rng.choice([b"LPUSH", b"RPUSH"]), key, element],
            [b"RPUSH", key, element, b"more"],
            [rng.choice([b"LPOP", b"RPOP", b"rpop"]), key],
            [rng.choice([b"LPOP", b"RPOP"]), key],
            [b"LPOP", key, b"2"],
            [rng.choice([b"BLPOP", b"BRPOP"]), key, b"l%d" % rng.randrange(3), b"no", b"1"],
            [rng.choice([b"BLPOP", b"BRPOP", b"blpop"]), *rng.choice([[key], [key, b"0"], [key, b"x"], [key, b"0.1"]])],
            [b"LRANGE", key, *index],
            [b"LLEN", key],
            [b"LLEN"],
            [b"RPUSH", key],
            rng.choice([[b"DEL", key], [b"PEXPIRE", key, b"500"], [b"SET", key, b"text"], [b"LTRIM", key, b"0", b"9"]]),
        ]
    )


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed < 3 else pytest.mark.long) for seed in range(8)])
def test_hot_and_general_agree(seed: int, shards: int, protocol: int) -> None:
    rng = random.Random(seed)
    ours, theirs = Side(shards), Side(shards)
    lists = HotLists(ours.store, 0, protocol)
    hot = lists.reads() | lists.writes()
    taken: Counter[bytes] = Counter()
    for _ in range(200):
        commands = [each for _ in range(rng.randrange(1, 9)) for each in [random_command(rng)] * rng.choice([1, 1, 9])]
        at = 0
        while at < len(commands):
            run = hot.get(commands[at][0])
            out: list[bytes] = []
            begun, at = at, run(commands, at, out) if run is not None else at
            if at == begun:
                out = ours.general(commands[at : at + 1], protocol)
                at += 1
            else:
                taken[commands[begun][0]] += at - begun
            assert b"".join(out) == b"".join(theirs.general(commands[begun:at], protocol)), commands[begun:at]
        ours.clock.advance(rng.choice([0, 50_000, 600_000]))
        theirs.clock.set_wall(ours.clock.wall_us())
        assert ours.state() == theirs.state()
    assert min(taken[name] for name in NAMES) > 20
    expected = ours.state()
    ours.store.journal.close()
    ours.store = ours.opened()
    assert ours.state() == expected, "and the journal has it all"


@pytest.fixture
def side() -> Side:
    return Side(1)


def record_count(side: Side) -> int:
    side.store.journal.writer.write()
    return side.store.journal.writer.written.lsns[0]


def test_a_run_on_one_list_is_one_record(side: Side) -> None:
    hot = HotLists(side.store, 0, 2).writes()
    before = record_count(side)
    assert run_one(hot, *[[b"RPUSH", b"k", b"x"]] * 5, [b"RPUSH", b"l", b"x"]) == (
        5,
        [b":%d\r\n" % n for n in range(1, 6)],
    )
    assert record_count(side) == before + 1
    assert run_one(hot, *[[b"LPOP", b"k"]] * 7) == (5, [b"$1\r\nx\r\n"] * 5)
    assert record_count(side) == before + 2
    assert side.store.database(0).find(b"k") is None
    assert run_one(hot, *[[b"LPOP", b"k"]] * 2) == (1, [b"$-1\r\n"])
    assert record_count(side) == before + 2


def test_a_push_for_a_client_that_waits_is_a_run_by_itself(side: Side) -> None:
    database = side.store.database(0)
    database.waiting.add(b"k")
    hot = HotLists(side.store, 0, 2).writes()
    assert run_one(hot, *[[b"RPUSH", b"k", b"x"]] * 5) == (1, [b":1\r\n"])
    assert list(side.store.signals) == [(0, b"k")]
    side.store.signals.clear()
    assert run_one(hot, *[[b"RPUSH", b"k", b"x"]] * 5)[0] == 1
    assert list(side.store.signals) == [(0, b"k")]
    side.store.signals.clear()
    assert run_one(hot, [b"LPOP", b"k"])[0] == 1
    assert not side.store.signals, "there is nothing new for anybody"


def test_changes_are_told_to_observers_before_they_happen(side: Side) -> None:
    hot = HotLists(side.store, 0, 2).writes()
    database = side.store.database(0)
    seen: list[list[bytes] | None] = []

    def note(_database: object, key: bytes | None) -> None:
        value = database.peek(key or b"")
        seen.append(None if value is None else list(value))

    database.observer = note
    run_one(hot, *[[b"LPUSH", b"k", b"x"]] * 2)
    run_one(hot, [b"LPUSH", b"k", b"y"])
    run_one(hot, *[[b"RPOP", b"k"]] * 2)
    assert seen == [None, [b"x", b"x"], [b"y", b"x", b"x"]]
    run_one(hot, [b"RPOP", b"k"])
    assert seen[3] == [b"y"]
    assert database.size == 0


def test_what_is_large_takes_the_general_path(side: Side) -> None:
    lists = HotLists(side.store, 0, 2)
    hot = lists.reads() | lists.writes()
    large = bytes(limits.HOT_VALUE_BYTES_MAX + 1)
    assert run_one(hot, [b"RPUSH", b"k", large])[0] == 1  # up to the size of a record
    assert run_one(hot, [b"RPUSH", b"k", bytes(limits.RECORD_SPLIT_BYTES)]) == (0, [])
    assert run_one(hot, [b"RPUSH", b"k", b"small"])[0] == 1
    assert run_one(hot, *[[b"RPOP", b"k"]] * 2) == (1, [b"$5\r\nsmall\r\n"])
    assert run_one(hot, [b"RPOP", b"k"]) == (0, [])
    side.store.database(0).put(b"l", list_of([b"x"] * (limits.HOT_RANGE_ELEMENTS_MAX + 1)))
    assert run_one(hot, [b"LRANGE", b"l", b"0", b"-1"]) == (0, [])
    assert run_one(hot, [b"LRANGE", b"l", b"0", b"-2"])[0] == 1
    side.store.database(0).put(b"m", list_of([large] * 100))
    assert run_one(hot, [b"LRANGE", b"m", b"0", b"-1"]) == (0, [])
    taken, out = run_one(hot, *[[b"LRANGE", b"m", b"0", b"49"]] * 10)
    assert taken == len(out) < 10
    assert limits.REPLIES_BYTES_HELD < sum(map(len, out)) < 2 * limits.REPLIES_BYTES_HELD


def test_the_first_list_of_several_is_popped(side: Side) -> None:
    hot = HotLists(side.store, 0, 2).writes()
    run_one(hot, *[[b"RPUSH", b"k", b"x"]] * 2)
    run_one(hot, [b"RPUSH", b"l", b"y"])
    assert run_one(hot, *[[b"BLPOP", b"no", b"l", b"k", b"0"]] * 2) == (1, [b"*2\r\n$1\r\nl\r\n$1\r\ny\r\n"])
    assert side.store.database(0).find(b"l") is None
    assert run_one(hot, [b"BRPOP", b"l", b"k", b"10"]) == (1, [b"*2\r\n$1\r\nk\r\n$1\r\nx\r\n"])
    for command in ([b"BLPOP", b"l", b"0"], [b"BLPOP", b"k", b"-1"], [b"BLPOP", b"k"], [b"BLPOP", b"k", b"0.5"]):
        assert run_one(hot, command) == (0, [])


def test_nothing_is_written_while_the_journal_refuses(side: Side) -> None:
    hot = HotLists(side.store, 0, 2).writes()
    run_one(hot, [b"LPUSH", b"k", b"x"])
    side.store.journal.writer.refusal = RuntimeError("no space")
    assert run_one(hot, [b"LPUSH", b"k", b"x"]) == run_one(hot, [b"LPOP", b"k"]) == (0, [])
    assert run_one(hot, [b"BLPOP", b"k", b"0"]) == (0, [])
