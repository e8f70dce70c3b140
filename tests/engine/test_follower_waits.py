"""WAIT and WAITAOF: until followers have what was written, the disk has it, or the time is over."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from tests.engine.blocked import BlockedClient, Server, in_loop
from tests.engine.roles import HandMadeRole
from tests.server.test_connection import turns
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy


class Led:
    """A server with two followers, and a client that has written."""

    def __init__(self, policy: FsyncPolicy = FsyncPolicy.EVERYSEC) -> None:
        self.server = Server(policy=policy)
        self.engine = self.server.engine
        self.role = HandMadeRole(self.engine)
        self.client = self.server.connect()
        self.now = Ts(0)
        """The ts of the newest write."""

    async def write(self) -> None:
        assert await self.client("SET", "k", "v") == b"OK"
        self.now = self.server.store.journal.writer.last_ts
        self.role.confirm(written=[Ts(self.now - 1)] * 2, durable=[Ts(self.now - 1)] * 2)

    async def wait(self, *words: bytes | str | int) -> BlockedClient:
        self.client.send(*words)
        await turns(6)
        return self.client

    async def replies(self) -> list[Any]:
        await turns(6)
        return self.client.replies()


@in_loop
async def test_enough_followers_have_it_already() -> None:
    led = Led()
    assert await led.client("WAIT", 0, 0) == 0
    await led.write()
    led.role.confirm(written=[led.now, Ts(led.now + 5)])
    assert await led.client("WAIT", 2, 0) == 2
    assert await led.client("WAIT", 1, 1000) == 2
    assert await led.client("WAIT", -1, 1000) == 2
    assert (led.role.waits, led.server.live_timers) == ([], 0)


@in_loop
async def test_it_waits_for_what_was_written_up_to_then() -> None:
    led = Led()
    await led.write()
    assert (await led.wait("WAIT", 2, 0)).is_blocked
    assert [(wait.ts, wait.count, wait.is_durable) for wait in led.role.waits] == [(led.now, 2, False)]
    assert len(led.engine.blocking) == 1
    other = led.server.connect()
    assert await other("SET", "k", "w") == b"OK"  # nobody waits for that
    led.role.confirm(written=[led.now, Ts(led.now - 1)])
    assert await led.replies() == []
    led.role.confirm(written=[led.now, led.now])
    assert await led.replies() == [2]
    assert (led.client.is_blocked, len(led.engine.blocking)) == (False, 0)
    assert await led.client("PING") == b"PONG"


@in_loop
async def test_what_a_client_sends_meanwhile_waits() -> None:
    led = Led()
    await led.write()
    await led.wait("WAIT", 2, 0)
    led.client.send("PING")
    assert await led.replies() == []
    led.role.confirm(written=[led.now, led.now])
    assert await led.replies() == [2, b"PONG"]


@in_loop
async def test_its_time_is_over() -> None:
    led = Led()
    await led.write()
    await led.wait("WAIT", 2, 500)
    led.role.confirm(written=[led.now, Ts(0)])
    await led.server.wait(499)
    assert await led.replies() == []
    await led.server.wait(1)
    assert await led.replies() == [1]
    assert (led.role.waits, led.server.live_timers) == ([], 0)


@in_loop
async def test_without_replication_only_time_ends_it() -> None:
    server = Server()
    client = server.connect()
    client.send("WAIT", 1, 100)
    await server.wait(99)
    assert client.is_blocked
    await server.wait(1)
    assert client.replies() == [0]


@pytest.mark.parametrize(
    ("reason", "expected"), [("TIMEOUT", 1), ("ERROR", "UNBLOCKED client unblocked via CLIENT UNBLOCK")]
)
def test_client_unblock(reason: str, expected: object) -> None:
    @in_loop
    async def run() -> None:
        led = Led()
        await led.write()
        await led.wait("WAIT", 2, 0)
        led.role.confirm(written=[led.now, Ts(0)])
        other = led.server.connect()
        assert await other("CLIENT", "UNBLOCK", led.client.session.id, reason) == 1
        assert await other("CLIENT", "UNBLOCK", led.client.session.id, reason) == 0
        (reply,) = await led.replies()
        assert (str(reply) if isinstance(reply, hiredis.ReplyError) else reply) == expected
        assert led.role.waits == []

    run()


@in_loop
async def test_a_client_that_goes_away_waits_no_more() -> None:
    led = Led()
    await led.write()
    await led.wait("WAIT", 2, 1000)
    led.client.disconnect()
    assert (led.role.waits, led.server.live_timers, len(led.engine.blocking)) == ([], 0, 0)


@in_loop
async def test_nobody_waits_inside_exec_and_scripts() -> None:
    led = Led()
    await led.write()
    led.role.confirm(written=[led.now, Ts(0)])
    assert await led.client("MULTI") == b"OK"
    await led.client("WAIT", 2, 0)
    await led.client("WAITAOF", 1, 2, 0)
    assert await led.client("EXEC") == [1, [0, 0]]
    assert await led.client("EVAL", "return redis.call('WAIT', 2, 0)", 0) == 1
    assert not led.client.is_blocked


@in_loop
async def test_the_disk_here_and_there() -> None:
    led = Led()
    await led.write()
    assert await led.client("WAITAOF", 0, 0, 0) == [0, 0]
    await led.wait("WAITAOF", 1, 1, 0)
    assert [(wait.ts, wait.count, wait.is_durable) for wait in led.role.waits] == [(led.now, 1, True)]
    led.role.confirm(written=[led.now, led.now], durable=[led.now, Ts(0)])
    assert await led.replies() == []
    led.server.store.journal.writer.sync()
    led.engine.on_durable()
    assert await led.replies() == [[1, 1]]


@in_loop
async def test_followers_that_had_it_count_though_they_are_gone() -> None:
    led = Led()
    await led.write()
    await led.wait("WAITAOF", 1, 1, 0)
    led.role.confirm(written=[led.now], durable=[led.now])
    led.role.confirm(written=[], durable=[])
    led.server.store.journal.writer.sync()
    led.engine.blocking.tick()  # as without `on_durable`
    assert await led.replies() == [[1, 0]]


@in_loop
async def test_the_disk_comes_first() -> None:
    led = Led()
    await led.write()
    await led.wait("WAITAOF", 1, 2, 0)
    led.server.store.journal.writer.sync()
    led.engine.on_durable()
    assert await led.replies() == []
    led.role.confirm(written=[led.now, led.now], durable=[led.now, led.now])
    assert await led.replies() == [[1, 2]]


@in_loop
async def test_a_leader_that_becomes_a_follower_ends_it() -> None:
    led = Led()
    await led.write()
    await led.wait("WAIT", 2, 0)
    led.role.follow(("leader", 1))
    (reply,) = await led.replies()
    assert str(reply).startswith("UNBLOCKED force unblock from blocking operation")
    assert led.client.transport.is_closed
    assert led.role.waits == []


@in_loop
async def test_a_server_that_stops_answers_nobody() -> None:
    led = Led()
    await led.write()
    await led.wait("WAIT", 2, 1000)
    led.client.send("SET", "k", "later")
    led.engine.blocking.close()
    await led.server.wait(2000)
    assert (led.client.replies(), led.client.is_blocked, led.role.waits) == ([], True, [])
