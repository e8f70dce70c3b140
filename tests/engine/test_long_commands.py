"""DELRANGE in a large database: in slices while others write, in one moment for all, and what is left is cleared."""

from __future__ import annotations

import random

import pytest

from tests.engine.blocked import BlockedClient, Server, in_loop
from tidelog import limits
from tidelog.feeds.span import Span
from tidelog.store.slots import slot_of


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is one step, and a slot is split early."""
    monkeypatch.setattr(limits, "RANGE_KEYS_AT_ONCE", 10)
    monkeypatch.setattr(limits, "RANGE_SLICE_US", 0)
    monkeypatch.setattr(limits, "SLOT_KEYS_SPLIT", 4)


async def answer(server: Server, client: BlockedClient, ms_max: int = 10_000) -> object:
    """The reply of a client that waits."""
    for _ in range(ms_max):
        replies = client.replies()
        if replies:
            [reply] = replies
            return reply
        await server.wait(1)
    raise AssertionError("no reply came")


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_others_write_meanwhile_and_it_is_one_moment(seed: int, shards: int) -> None:
    @in_loop
    async def run() -> None:
        rng = random.Random(seed)
        server = Server(shards)
        writer, remover = server.connect(), server.connect()
        known: dict[bytes, bytes] = {}

        async def write() -> None:
            key = rng.choice((b"{t}%d", b"k%d")) % rng.randrange(100)
            if rng.random() < 0.2:
                await writer("DEL", key)
                known.pop(key, None)
            else:
                value = b"%d" % rng.randrange(10**6)
                await writer("SET", key, value, *rng.choice(((), ("PX", 10**9))))
                known[key] = value

        for _ in range(200):
            await write()
        for span in (Span(b"k1", b"k5"), Span(b"{t}3", b"{t}7"), Span(b"k", b"")):
            remover.send("DELRANGE", span.start, span.end)
            assert remover.is_blocked
            gone = 0
            while len(server.engine.long_commands):
                assert await writer("DBSIZE") == len(known)
                await write()
                before = len([key for key in known if span.has(key)])
                await server.wait(1)
                gone = before
            assert await answer(server, remover) == gone > 0
            known = {key: value for key, value in known.items() if not span.has(key)}
            assert await writer("DBSIZE") == len(known)
            await server.wait(3000)  # for what is left to be cleared
            database = server.store.database(0)
            assert {key: database.peek(key) for key in database.all_keys()} == known
            assert database.expiries.keys() <= known.keys()
            assert server.live_timers == 0
        server.store.journal.writer.write()

    run()


@in_loop
async def test_a_key_that_comes_back_before_the_burial_keeps_its_own_expiry() -> None:
    server = Server()
    client = server.connect()
    for number in range(50):
        await client("SET", f"k{number}", 1, "PX", 10**9)
    client.send("DELPREFIX", "k")
    assert await answer(server, client) == 50
    now_ms = server.store.now_ms()
    await client("SET", "k1", 1)
    await client("SET", "k2", 1, "PXAT", now_ms + 5000)
    assert await client("PTTL", "k1") == -1
    await server.wait(3000)
    assert await client("PTTL", "k1") == -1
    assert server.store.database(0).expiries == {b"k2": now_ms + 5000}


@in_loop
async def test_in_multi_it_is_done_at_once() -> None:
    server = Server()
    client = server.connect()
    for number in range(50):
        await client("SET", f"k{number}", 1)
    await client("MULTI")
    await client("DELPREFIX", "k")
    await client("DBSIZE")
    assert await client("EXEC") == [50, 0]


@in_loop
async def test_a_client_that_goes_away_takes_its_command_along() -> None:
    server = Server()
    client, other = server.connect(), server.connect()
    for number in range(50):
        await client("SET", f"k{number}", 1)
    client.send("DELPREFIX", "k")
    client.disconnect()
    await server.wait(1000)
    assert await other("DBSIZE") == 50
    assert server.store.database(0).observer is None


@in_loop
async def test_what_follows_waits_for_it() -> None:
    server = Server()
    client = server.connect()
    for number in range(50):
        await client("SET", f"k{number}", 1)
    client.send("DELPREFIX", "k")
    client.send("DBSIZE")
    client.send("SET", "k1", 2)
    await server.wait(1000)
    assert client.replies() == [50, 0, b"OK"]


@in_loop
async def test_a_flush_and_another_range_come_in_between() -> None:
    server = Server()
    one, two, other = server.connect(), server.connect(), server.connect()
    for number in range(50):
        await other("SET", f"k{number}", 1)
    one.send("DELRANGE", "k1", "k3")
    two.send("DELRANGE", "k2", "k4")
    first, second = await answer(server, one), await answer(server, two)
    assert (first, second) == (22, 11)
    for number in range(50):
        await other("SET", f"k{number}", 1)
    one.send("DELPREFIX", "k")
    await server.wait(2)
    await other("FLUSHDB")
    await other("SET", "k7", 1)
    assert await answer(server, one) == 1
    assert await other("DBSIZE") == 0


@in_loop
async def test_keys_that_others_delete_at_once_are_not_counted() -> None:
    server = Server()
    one, other = server.connect(), server.connect()
    later = [key for key in (f"k{number}" for number in range(200)) if slot_of(key.encode()) > slot_of(b"b")]
    many = ["MULTI", "DELPREFIX {b}", "EXEC"]
    for others in (["FLUSHDB"], ["FLUSHDB", "SET {b}7 1"], many, [*many, "SET {b}7 1"]):
        for key in [*(f"{{b}}{number}" for number in range(50)), *later]:
            await other("SET", key, 1)
        one.send("DELPREFIX", "{b}")
        await server.wait(50)  # it has looked at the slot of these keys, and not yet at the last ones
        assert one.is_blocked
        for words in others:
            await other(*words.split())
        assert await answer(server, one) == ("SET {b}7 1" in others)
        assert await other("KEYS", "{b}*") == []
