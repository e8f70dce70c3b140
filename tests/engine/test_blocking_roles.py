"""A change of role on an open engine: who waits to write is told, who waits to read waits on, and nothing expires."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from tests.engine.blocked import BlockedClient, Server, in_loop
from tests.engine.roles import MASTER_DOWN, NO_REPLICAS, READ_ONLY, HandMadeRole
from tests.server.test_connection import turns
from tidelog import limits
from tidelog.store.dead_letters import PendingExpiry
from tidelog.store.expiry import remove_due
from tidelog.streams.node import TAGGED
from tidelog.streams.operations import StreamAppend

UNBLOCKED = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
LEADER = ("leader", 6399)
WRITES: list[tuple[str | int, ...]] = [
    ("BLPOP", "list", "other", 0),
    ("BRPOP", "list", 5),
    ("BLMOVE", "list", "other", "LEFT", "RIGHT", 0),
    ("BRPOPLPUSH", "list", "other", 0),
    ("BLMPOP", 0, 1, "list", "LEFT"),
    ("BZPOPMIN", "zset", 0),
    ("BZPOPMAX", "zset", 0),
    ("BZMPOP", 0, 1, "zset", "MIN"),
    ("XREADGROUP", "GROUP", "g", "me", "BLOCK", 0, "STREAMS", "s", ">"),
    ("TREAD", "s", 0, 10, "GROUP", "t", "BLOCK", 0),
]
READS: list[tuple[str | int, ...]] = [
    ("XREAD", "BLOCK", 0, "STREAMS", "s", "$"),
    ("XREAD", "BLOCK", 100_000, "STREAMS", "s", "$"),
    ("TREAD", "s", 2, 10, "BLOCK", 0),
]


async def made() -> tuple[Server, HandMadeRole, BlockedClient]:
    server = Server()
    role = HandMadeRole(server.engine)
    client = server.connect()
    await client("TWRITE", "s", "tag", "first")
    await client("XGROUP", "CREATE", "s", "g", "$")
    await client("TGROUP", "s", "t", "START", 2)
    return server, role, client


async def waiting(server: Server, command: tuple[str | int, ...]) -> BlockedClient:
    client = server.connect()
    client.send(*command)
    await turns(6)
    assert client.is_blocked, command
    return client


def errors(client: BlockedClient) -> list[str]:
    return [str(reply) for reply in client.replies() if isinstance(reply, hiredis.ReplyError)]


async def receive(server: Server, tag: bytes, offset: int) -> None:
    """As if the leader had sent an entry."""
    server.store.is_follower = False
    transaction = server.store.begin()
    transaction.run([StreamAppend(b"s", offset, transaction.now_ms + offset, 0, TAGGED, [tag], [b"entry"])])
    server.store.commit(transaction)
    server.store.is_follower = True
    server.engine.serve_received()
    await turns(6)


@pytest.mark.parametrize("command", WRITES, ids=lambda command: command[0])
def test_one_that_waits_to_write_is_told_and_cut_off(command: tuple[str | int, ...]) -> None:
    @in_loop
    async def run() -> None:
        server, role, _ = await made()
        client = await waiting(server, command)
        client.send("SET", "later", "v")
        role.follow(LEADER)
        await turns(6)
        assert errors(client) == [UNBLOCKED]
        assert client.transport.is_closed
        assert (len(server.engine.blocking), server.live_timers) == (0, 0)
        again = server.connect()
        assert str(await again(*command)) == READ_ONLY

    run()


@pytest.mark.parametrize("command", READS, ids=str)
def test_one_that_waits_to_read_is_served_by_what_the_leader_writes(command: tuple[str | int, ...]) -> None:
    @in_loop
    async def run() -> None:
        server, role, _ = await made()
        client = await waiting(server, command)
        role.follow(LEADER)
        await turns(6)
        assert (client.replies(), client.is_blocked) == ([], True)
        later = await waiting(server, command)
        await receive(server, b"second", 2)
        for each in (client, later):
            (reply,) = each.replies()
            assert b"second" in str(reply).encode()

    run()


@in_loop
async def test_old_data_serves_nobody() -> None:
    server, role, _ = await made()
    role.follow(LEADER)
    client = await waiting(server, READS[0])
    role.refuse(READ_ONLY, MASTER_DOWN)
    await receive(server, b"second", 2)
    assert (client.replies(), client.is_blocked) == ([], True)
    role.refuse(READ_ONLY)
    server.engine.blocking.tick()
    await turns(6)
    assert len(client.replies()) == 1


@in_loop
async def test_too_few_followers_let_clients_wait_on() -> None:
    server, role, client = await made()
    popping = await waiting(server, WRITES[0])
    role.refuse(NO_REPLICAS)
    assert str(await client("RPUSH", "list", "a")) == NO_REPLICAS
    assert popping.is_blocked
    role.refuse(None)
    await client("RPUSH", "list", "a")
    await turns(6)
    assert popping.replies() == [[b"list", b"a"]]


@in_loop
async def test_a_long_command_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RANGE_KEYS_AT_ONCE", 10)
    server, role, client = await made()
    for at in range(100):
        await client("SET", f"k{at}", "v")
    remover = await waiting(server, ("DELRANGE", "k", "l"))
    role.follow(LEADER)
    await server.wait(1000)
    assert errors(remover) == [UNBLOCKED]
    assert remover.transport.is_closed
    assert await client("EXISTS", "k1", "k99") == 2


@in_loop
async def test_hot_commands_look_again() -> None:
    _, role, client = await made()
    commands: list[tuple[str | int, ...]] = [
        ("SET", "k", "v"),
        ("INCR", "n"),
        ("TWRITE", "s", "tag", "entry"),
        ("LPUSH", "list", "a"),
        ("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">"),
        ("TREAD", "s", 0, 10, "GROUP", "t"),
    ]
    await client("SET", "k", "old")
    role.follow(LEADER)
    assert {str(await client(*command)) for command in commands} == {READ_ONLY}
    assert (await client("GET", "k"), len(await client("TREAD", "s", 1, 10))) == (b"old", 1)
    role.refuse(READ_ONLY, MASTER_DOWN)
    assert {str(await client(*command)) for command in (("GET", "k"), ("LLEN", "list"))} == {MASTER_DOWN}
    role.lead()
    assert [each for each in [await client(*command) for command in commands] if isinstance(each, Exception)] == []


@in_loop
async def test_nothing_expires_on_a_follower_and_all_is_read_as_expired() -> None:
    server, role, client = await made()
    await client("SET", "k", "v", "PX", 100)
    await client("TWRITE", "s", "tag", "second")
    await client("TREAD", "s", 0, 10, "GROUP", "t", "RETRY", 50, 100)
    role.follow(LEADER)
    before = server.store.journal.writer.last_ts
    await server.wait(200)
    assert (remove_due(server.store), PendingExpiry(server.store).run()) == (0, 0)
    for command in (("GET", "k"), ("EXISTS", "k"), ("TTL", "k"), ("TYPE", "k"), ("WATCH", "k"), ("MGET", "k")):
        await client(*command)
    server.engine.blocking.tick()
    assert server.store.journal.writer.last_ts == before
    assert (await client("GET", "k"), await client("TTL", "k"), await client("DBSIZE")) == (None, -2, 2)
    assert len(server.stream(b"s").groups[b"t"].pending) == 1
    role.lead()
    assert (remove_due(server.store), PendingExpiry(server.store).run()) == (1, 1)
    assert await client("DBSIZE") == 1


@in_loop
async def test_a_leader_that_was_deposed_makes_no_transaction() -> None:
    server, role, client = await made()
    await client("SET", "k", "v", "PX", 100)
    popping = await waiting(server, WRITES[0])
    role.refuse("READONLY this server was a leader, and a newer one is known")
    before = server.store.journal.writer.last_ts
    await server.wait(200)
    assert errors(popping) == [UNBLOCKED]
    assert (remove_due(server.store), await client("GET", "k")) == (0, None)
    assert server.store.journal.writer.last_ts == before


@in_loop
async def test_named_feeds_are_the_leaders() -> None:
    server, role, client = await made()
    await client("SET", "k", "v")
    position: Any = await client("FEED", "POSITION")
    named, plain = server.connect(), server.connect()
    named.send("CHANGEFEED", "NAME", "mine", "SINCE", position[0][1], "KEY", "k")
    plain.send("CHANGEFEED", "SINCE", position[0][1], "KEY", "k")
    await server.wait(100)
    named.replies(), plain.replies()
    assert await client("FEED", "ACK", "mine", position[0][1]) == b"OK"
    role.follow(LEADER)
    await server.wait(100)
    assert errors(named) == [READ_ONLY]
    assert named.transport.is_closed
    assert (errors(plain), plain.transport.is_closed) == ([], False)
    for command in (
        ("CHANGEFEED", "NAME", "mine", "KEY", "k"),
        ("CHANGEFEED", "NAME", "new", "SINCE", 0, "KEY", "k"),
        ("FEED", "ACK", "mine", position[0][1]),
        ("FEED", "DROP", "mine"),
    ):
        assert str(await client(*command)) == READ_ONLY, command
    assert str(await client("CHANGEFEED", "NAME", "mine")).startswith("ERR a feed needs")
    of_key = server.connect()
    of_key.send("CHANGEFEED", "KEY", "NAME")
    await server.wait(100)
    assert errors(of_key) == []
    held: Any = await client("FEED", "HOLDS")
    assert b"mine" in held[0]
    role.refuse(NO_REPLICAS)
    assert str(await client("FEED", "ACK", "mine", position[0][1])) == NO_REPLICAS
    role.lead()
    server.engine.gate.hold_writes(500)  # as for a handover
    again = server.connect()
    again.send("CHANGEFEED", "NAME", "mine", "KEY", "k")
    client.send("FEED", "ACK", "mine", position[0][1])
    await server.wait(100)
    assert (server.engine.feeding.figures().named_lag_ms, client.replies()) == ({}, [])
    server.engine.gate.hold_writes(0)
    await server.wait(100)
    assert (list(server.engine.feeding.figures().named_lag_ms), client.replies()) == (["mine"], [b"OK"])
    again.disconnect()
    assert await client("FEED", "ACK", "mine", position[0][1]) == b"OK"
    assert await client("FEED", "DROP", "mine") == b"OK"
