"""The edges of the engine: what the disk has no space for, or the journal no room, is refused before it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from random import Random
from typing import Any

import pytest

from tests.engine.made import make_connections, make_engine
from tests.server.test_connection import Transport, turns
from tests.store.changes import plain
from tidelog import limits
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.expiry import remove_due
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

Command = bytes | list[bytes]
"""Words, apart or in one line."""
SMALL = {
    "BATCH_BYTES_FULL": 2000,
    "TRANSACTION_BYTES_MAX": 20_000,
    "BATCH_BYTES_MAX": 30_000,
    "PAYLOAD_BYTES_MAX": 15_000,
    "BULK_BYTES_MAX": 1000,  # of what a string may grow to; the decoder has taken its own already
}
"""Limits that a test reaches quickly. An `ApplyFailed` anywhere ends a test: the process would stop."""
LARGE: Command = [b"SET", b"large", b"x" * 2500, b"PX", b"900000"]
"""More than a full batch; with an expiry it takes the general path."""


class Server:
    """An engine on a simulated disk, and one connection to it."""

    def __init__(self, shards: int = 1) -> None:
        self.clock, self.disk = SimulatedClock(), SimulatedDisk(1)
        self._settings = Settings(shard_count=shards, policy=FsyncPolicy.NEVER)
        self.store = self._open()
        self._engine = make_engine(self.store, self.clock, asyncio.get_running_loop())
        self._connections = make_connections(self._engine)
        self._turns = Turns(asyncio.get_running_loop(), self.store.journal, self.clock.monotonic_us)
        self._connect()

    def _connect(self) -> None:
        self.session, self.transport = Connection(self._engine, self._turns, self._connections), Transport()
        made: Any = self.transport
        self.session.connection_made(made)

    def connect(self) -> Server:
        """The same with another connection."""
        other = copy(self)
        other._connect()
        return other

    def _open(self) -> Store:
        return Store.open(self.disk, "/data", self.clock, self._settings, lambda: 1, Random(1))

    def receive(self, *commands: Command) -> list[bytes]:
        """The same, and what is to be answered at the end of the turn."""
        self.session.data_received(b"".join(_encoded(command) for command in commands))
        return self.session.out

    async def send(self, *commands: Command) -> list[bytes]:
        """Everything in one buffer; the lines of the replies."""
        self.receive(*commands)
        await turns(6)
        return self.take()

    def take(self) -> list[bytes]:
        return self.transport.take().split(b"\r\n")[:-1]

    def fill_disk(self) -> None:
        self.disk.capacity_bytes = self.disk.used_bytes

    def restarted(self) -> dict[bytes, Any]:
        """What the next process finds if this one is killed."""
        self.disk.capacity_bytes = None
        self.store.journal.writer.write()
        self.disk.kill()
        database = self._open().database(0)
        return {key: plain(database.find(key)) for key in database.all_keys()}

    def state(self) -> dict[bytes, Any]:
        database = self.store.database(0)
        return {key: plain(database.find(key)) for key in database.all_keys()}


def _encoded(command: Command) -> bytes:
    words = command.split() if isinstance(command, bytes) else command
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def small(test: Callable[[Server], Awaitable[None]]) -> Callable[[pytest.MonkeyPatch], None]:
    """Run a test on a loop, with small limits."""

    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        async def inside() -> None:
            server = Server()
            for name, value in SMALL.items():
                monkeypatch.setattr(limits, name, value)
            await test(server)
            assert server.state() == server.restarted()

        asyncio.run(inside())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@small
async def test_a_full_batch_on_a_full_disk_refuses_before_anything_happens(server: Server) -> None:
    server.fill_disk()
    replies = server.receive(LARGE, b"APPEND b 1", b"SET c 1", b"INCR n", b"STRLEN large")
    assert (replies[0], replies[4]) == (b"+OK\r\n", b":2500\r\n")
    assert all(reply.startswith(b"-MISCONF no space is left") for reply in replies[1:4])
    assert server.state().keys() == {b"large"}
    server.disk.capacity_bytes = None
    await asyncio.sleep(0.15)  # it is tried again
    later = await server.send(b"SET c 2")
    assert (later[0], later[4:]) == (b"+OK", [b":2500", b"+OK"])


@small
async def test_only_who_may_have_something_in_the_batch_waits_for_space(server: Server) -> None:
    server.fill_disk()
    assert await server.send(LARGE) == []
    others = server.connect()
    others.receive(b"PING", b"STRLEN large", b"SET c 1", b"APPEND c 1")
    await turns()
    told = others.take()
    assert told[:2] == [b"+PONG", b":2500"]
    assert all(line.startswith(b"-MISCONF no space is left") for line in told[2:])
    assert [each.transport.is_reading for each in (server, others)] == [False, True]
    server.disk.capacity_bytes = None
    await asyncio.sleep(0.15)
    assert server.take() == [b"+OK"]
    assert [each.transport.is_reading for each in (server, others)] == [True, True]
    assert await others.send(b"SET c 1") == [b"+OK"]


@small
async def test_who_writes_once_there_is_space_waits_if_there_is_none_again(server: Server) -> None:
    """Space comes back, and goes again, in the middle of a turn."""
    server.fill_disk()
    assert await server.send(LARGE) == []
    others = server.connect()
    others.receive(b"PING")
    server.disk.capacity_bytes = None
    server.store.journal.writer.write()
    server.fill_disk()
    others.receive(b"SET c 1")
    await turns()
    assert others.take() == []
    server.disk.capacity_bytes = None
    await asyncio.sleep(0.15)
    assert others.take() == [b"+PONG", b"+OK"]


@small
async def test_exec_on_a_full_disk_does_nothing(server: Server) -> None:
    server.fill_disk()
    server.receive(b"MULTI", b"SET a 1", b"APPEND b 1", b"EXEC", LARGE)
    assert server.receive(b"MULTI", b"SET a 2", b"EXEC")[-1].startswith(b"-EXECABORT")
    assert server.state()[b"a"] == b"1"


@small
async def test_what_expires_meanwhile_is_gone_and_stays_where_it_is(server: Server) -> None:
    """Reads remove what has expired, which the journal does not take now."""
    assert await server.send(b"SET a 1 PX 10", b"SET b 1 PX 10", b"SET c 1 PX 10") == [b"+OK"] * 3
    server.fill_disk()
    server.receive(LARGE)
    assert server.store.refusal is not None
    server.clock.advance(20_000)
    expected = {b"GET a": b"$-1\r\n", b"EXISTS b": b":0\r\n", b"WATCH c": b"+OK\r\n", b"KEYS a*": b"*0\r\n"}
    for command, reply in expected.items():
        assert server.receive(command)[-1] == reply
    assert remove_due(server.store) == 0
    assert server.state().keys() == {b"a", b"b", b"c", b"large"}
    server.disk.capacity_bytes = None
    server.store.journal.writer.write()
    assert remove_due(server.store) == 3


@small
async def test_randomkey_ends_when_nothing_can_be_removed(server: Server) -> None:
    await server.send(b"SET a 1 PX 10", b"SET b 1 PX 10")
    server.clock.advance(20_000)
    server.fill_disk()
    server.receive(LARGE)
    assert server.store.refusal is not None
    assert server.receive(*[b"RANDOMKEY"] * 9)[-9:] == [b"$5\r\nlarge\r\n"] * 9
    server.clock.advance(1_000_000_000)
    assert server.receive(b"RANDOMKEY")[-1] == b"$-1\r\n"


@small
async def test_large_and_small_commands_in_one_buffer(server: Server) -> None:
    """Hot commands after a general one that alone fills several batches, and the other way round."""
    large: Command = [b"SET", b"w", b"x" * 14_000]
    huge_key: Command = [b"INCR", b"y" * 14_000]
    buffers: list[list[Command]] = [
        [large, b"SET a 1", b"SET b 1"],
        [b"SET c 1", b"INCR n", large],
        [b"SET a 2", huge_key, b"INCR n"],
    ]
    for commands in buffers:
        replies = await server.send(*commands)
        assert len(replies) == len(commands)
        assert not [reply for reply in replies if reply.startswith(b"-")]


@small
async def test_commands_of_exec_that_are_too_much_are_refused_one_by_one(server: Server) -> None:
    await server.send([b"SET", b"s", b"x" * 6000])
    copies = [b"COPY s a", b"COPY s b", b"COPY s c", b"COPY s d"]
    replies = await server.send(b"MULTI", *copies, b"SET s 1", b"COPY s e", b"EXEC")
    too_large = b"-ERR a transaction is too large: at most 20000 bytes"
    assert replies[7:] == [b"*6", b":1", b":1", b":1", too_large, b"+OK", b":1"]
    assert server.state().keys() == {b"s", b"a", b"b", b"c", b"e"}


@small
async def test_a_command_that_is_too_much_alone_is_refused(server: Server) -> None:
    key = b"k" * 9000
    await server.send([b"SADD", key, b"a", b"b"], [b"HSET", b"h", b"f", b"x" * 14_000, b"g", b"y"])
    before = server.state()
    for command in ([b"SET", key, b"x" * 6500], [b"SUNIONSTORE", b"z" * 14_999, key], [b"RENAME", b"h", b"i" * 7000]):
        assert (await server.send(command))[0].startswith(b"-ERR a transaction is too large")
        assert server.state() == before
    assert await server.send(b"SET ok 1") == [b"+OK"]


@small
async def test_what_expired_counts_too(server: Server) -> None:
    """A command whose keys have expired first removes them; if there is no room for that, it does nothing either."""
    key = b"k" * 9000
    await server.send([b"HSET", key, b"f", b"v"], [b"PEXPIRE", key, b"10"], [b"SET", b"s", b"x" * 6000])
    server.clock.advance(20_000)
    hset: Command = [b"HSET", key, b"g", b"w"]
    hlen: Command = [b"HLEN", key]
    replies = await server.send(b"MULTI", b"COPY s a", b"COPY s b", hset, hlen, b"EXEC")
    assert replies[5:] == [b"*4", b":1", b":1", b"-ERR a transaction is too large: at most 20000 bytes", b":0"]
    assert server.state()[key] == {b"f": b"v"}
    assert await server.send(hset, hlen) == [b":1", b":1"]


@small
async def test_strings_have_a_largest_size(server: Server) -> None:
    problem = b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    grow = [b"APPEND s 12345", b"APPEND s 1", b"SETRANGE s 999 ab", b"SETRANGE t 999 a"]
    assert await server.send([b"SET", b"s", b"x" * 995], *grow) == [b"+OK", b":1000", problem, problem, b":1000"]
