"""DELRANGE and DELPREFIX: what goes, what stays, and that it is one step for everybody."""

from __future__ import annotations

import random

import pytest

from tests.commands.running import Commands
from tidelog import limits
from tidelog.feeds.span import Span, span_of_prefix
from tidelog.journal.operation import DELRANGE, START


def names(commands: Commands) -> set[bytes]:
    return set(commands.store.database(0).all_keys())


@pytest.fixture(params=[1, 3])
def commands(request: pytest.FixtureRequest) -> Commands:
    return Commands(request.param)


def test_a_range_goes_and_its_end_stays(commands: Commands) -> None:
    commands("MSET", "a", 1, "b", 1, "b1", 1, "c", 1)
    commands("HSET", "bh", "f", "v")
    assert commands("DELRANGE", "b", "c") == 3
    assert names(commands) == {b"a", b"c"}
    assert commands("DELRANGE", "b", "") == 1
    assert commands("DBSIZE") == 1
    assert commands.quietly("DELRANGE", "b", "z") == 0


def test_a_prefix_goes(commands: Commands) -> None:
    commands("MSET", "user:1", 1, "user:2", 1, "user", 1, "user;", 1)
    commands("SET", b"\xff\xff1", 1)
    assert commands("DELPREFIX", "user:") == 2
    assert commands("DELPREFIX", b"\xff\xff") == 1
    assert names(commands) == {b"user", b"user;"}
    assert commands("DELPREFIX", "") == 2
    assert commands("DBSIZE") == 0


def test_a_range_that_is_none(commands: Commands) -> None:
    commands("SET", "b", 1)
    for start, end in (("b", "a"), ("b", "b")):
        refusal = commands.refused("DELRANGE", start, end)
        assert refusal == f"ERR the range from '{start}' to '{end}' ends before it begins"


def test_one_record_in_every_shard(commands: Commands) -> None:
    for number in range(500):
        commands("SET", f"k{number}", number)
    commands.store.journal.writer.write()
    since = commands.store.journal.writer.last_ts
    assert commands("DELPREFIX", "k") == 500
    commands.store.journal.writer.write()
    reader = commands.store.journal.reader_since(since)
    [transaction] = list(reader.read())
    assert [[record.opcode for record in part.records if record.opcode != START] for part in transaction.parts] == [
        [DELRANGE]
    ] * len(commands.store.slots)
    reader.close()


def test_what_has_expired_goes_too_and_does_not_count(commands: Commands) -> None:
    commands("SET", "k1", 1, "PX", 10)
    commands("SET", "k2", 1, "PX", 10_000)
    commands("SET", "k3", 1)
    commands.wait(20)
    assert commands("DELPREFIX", "k") == 2
    assert (names(commands), commands.store.database(0).expiries) == (set(), {})
    commands("SET", "k1", 1, "PX", 10)
    commands.wait(20)
    assert commands("DELRANGE", "k", "") == 0
    assert names(commands) == set()


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_deleting_each_key_would_be(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of slots with many keys, and after a restart."""
    monkeypatch.setattr(limits, "SLOT_KEYS_SPLIT", 4)
    rng = random.Random(seed)
    commands = Commands(rng.choice((1, 2)))
    known: dict[bytes, bytes] = {}
    for _ in range(300):
        key = rng.choice((b"{t}%d", b"%d", b"k\xff%d")) % rng.randrange(40)
        if rng.random() < 0.9:
            commands("SET", key, b"v", *rng.choice(((), ("PX", 100_000))))
            known[key] = b"v"
            continue
        span = rng.choice((span_of_prefix(key[:2]), Span(key, b""), Span(min(key, b"5"), max(key, b"5") + b"!")))
        gone = [each for each in known if span.has(each)]
        assert commands("DELRANGE", span.start, span.end) == len(gone)
        for each in gone:
            del known[each]
        database = commands.store.database(0)
        assert (names(commands), database.size) == (set(known), len(known))
        assert database.expiries.keys() <= known.keys()
    commands.restart()
    assert names(commands) == set(known)
