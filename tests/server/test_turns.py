"""The end of a turn on a full disk with `fsync always`: only replies that may tell of what may be lost wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from tests.engine.made import make_connections, make_engine
from tests.server.test_connection import Transport, turns
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

REFUSED = b"-MISCONF no space is left"


class Client:
    def __init__(self, server: Server) -> None:
        self.session = Connection(server.engine, server.turns, server.connections)
        self.transport = Transport()
        made: Any = self.transport
        self.session.connection_made(made)

    def receive(self, *lines: bytes) -> None:
        self.session.data_received(b"".join(line + b"\r\n" for line in lines))

    async def ask(self, *lines: bytes) -> list[bytes]:
        """The lines of what it is told at once."""
        self.receive(*lines)
        await turns(6)
        return self.take()

    def take(self) -> list[bytes]:
        return self.transport.take().split(b"\r\n")[:-1]


class Server:
    """An engine on a simulated disk."""

    def __init__(self, policy: FsyncPolicy = FsyncPolicy.ALWAYS, shards: int = 1) -> None:
        self.clock, self.disk = SimulatedClock(), SimulatedDisk(1)
        settings = Settings(shard_count=shards, policy=policy)
        self.store = Store.open(self.disk, "/data", self.clock, settings, lambda: 1, Random(1))
        loop = asyncio.get_running_loop()
        self.engine = make_engine(self.store, self.clock, loop)
        self.connections = make_connections(self.engine)
        self.turns = Turns(loop, self.store.journal, self.clock.monotonic_us)

    def connect(self) -> Client:
        return Client(self)

    async def fill(self, *lines: bytes) -> Client:
        """Let the disk be full, and a client wait for what it wrote then."""
        self.disk.capacity_bytes = self.disk.used_bytes
        writer = self.connect()
        assert await writer.ask(*lines) == []
        assert not writer.transport.is_reading
        return writer

    async def make_space(self) -> None:
        self.disk.capacity_bytes = None
        await asyncio.sleep(0.15)  # it is tried again
        await turns(6)


def in_loop(test: Callable[[Server], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def inside() -> None:
            await test(Server())

        asyncio.run(inside())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_loop
async def test_what_cannot_be_lost_is_answered(server: Server) -> None:
    client = server.connect()
    assert await client.ask(b"SET b 1", b"HSET h f v") == [b"+OK", b":1"]
    writer = await server.fill(b"SET a 1")
    for _ in range(2):
        assert await client.ask(b"PING") == [b"+PONG"]
        assert await client.ask(b"GET b", b"HGET h f", b"GET none") == [b"$1", b"1", b"$1", b"v", b"$-1"]
        told = await client.ask(b"SET a 2", b"SET c 2", b"INCR b", b"FLUSHALL", b"NOSUCH", b"GET")
        assert all(line.startswith(REFUSED) for line in told[:4])
        assert all(line.startswith(b"-ERR") for line in told[4:])
        assert (await client.ask(b"CLIENT ID", b"ECHO hi", b"CONFIG GET port"))[0] == b":1"
        assert await client.ask(b"MULTI", b"GET b", b"EXEC") == [b"+OK", b"+QUEUED", b"*1", b"$1", b"1"]
        assert await client.ask(b"INFO stats") != []
    assert client.transport.is_reading
    await server.make_space()
    assert writer.take() == [b"+OK"]
    assert await client.ask(b"GET a", b"SET c 1") == [b"$1", b"1", b"+OK"]


@pytest.mark.parametrize(
    ("written", "asked", "told"),
    [
        (b"SET a 1", b"GET a", [b"$1", b"1"]),
        (b"SET a 1", b"EXISTS x a", [b":1"]),
        (b"SET a 1", b"DBSIZE", [b":2"]),
        (b"SET a 1", b"KEYS a*", [b"*1", b"$1", b"a"]),
        (b"DEL b", b"GET b", [b"$-1"]),
        (b"EXPIRE b 1000", b"TTL b", [b":1000"]),
        (b"RENAME b a", b"GET b", [b"$-1"]),
        (b"HSET h f v", b"HGET h f", [b"$1", b"v"]),
        (b"SADD s m", b"SINTERCARD 2 x s", [b":0"]),
        (b"XADD s 1-1 f v", b"XLEN s", [b":1"]),
        (b"TWRITE s tag entry", b"TREAD s 9 1", [b"*0"]),
        (b"FLUSHALL", b"GET other", [b"$-1"]),
    ],
)
def test_what_may_be_lost_is_not_told(written: bytes, asked: bytes, told: list[bytes]) -> None:
    @in_loop
    async def run(server: Server) -> None:
        client = server.connect()
        assert await client.ask(b"SET b 1") == [b"+OK"]
        writer = await server.fill(written)
        assert await client.ask(b"PING") == [b"+PONG"]
        assert await client.ask(asked) == []
        assert not client.transport.is_reading
        assert await server.connect().ask(b"PING") == [b"+PONG"]
        await server.make_space()
        assert client.take() == told
        assert len(writer.take()) >= 1
        assert client.transport.is_reading

    run()


@in_loop
async def test_replies_of_one_client_stay_in_order(server: Server) -> None:
    await server.fill(b"SET a 1")
    client = server.connect()
    assert await client.ask(b"PING", b"GET a", b"PING") == []
    assert await client.ask(b"ECHO later") == []  # it is not read from: TLS may still have had some
    await server.make_space()
    assert client.take() == [b"+PONG", b"$1", b"1", b"+PONG", b"$5", b"later"]


@in_loop
async def test_who_asks_in_the_turn_that_finds_the_disk_full(server: Server) -> None:
    """The writers wait, the others do not."""
    clients = [server.connect() for _ in range(6)]
    await clients[0].ask(b"SET b 1")
    server.disk.capacity_bytes = server.disk.used_bytes
    for client, line in zip(clients, (b"SET a 1", b"PING", b"GET b", b"GET a", b"DBSIZE", b"INCR n"), strict=True):
        client.receive(line)
    await turns(6)
    assert [client.take() for client in clients] == [[], [b"+PONG"], [b"$1", b"1"], [], [], []]
    assert [client.transport.is_reading for client in clients] == [False, True, True, False, False, False]
    await server.make_space()
    assert [client.take() for client in clients] == [[b"+OK"], [], [], [b"$1", b"1"], [b":2"], [b":1"]]


@in_loop
async def test_a_transaction_over_several_turns(server: Server) -> None:
    early, watching, plain = server.connect(), server.connect(), server.connect()
    assert await early.ask(b"MULTI", b"GET a") == [b"+OK", b"+QUEUED"]
    assert await watching.ask(b"WATCH a", b"MULTI", b"PING") == [b"+OK", b"+OK", b"+QUEUED"]
    assert await plain.ask(b"MULTI", b"GET b") == [b"+OK", b"+QUEUED"]
    await server.fill(b"SET a 1")
    assert [await client.ask(b"EXEC") for client in (early, watching)] == [[], []]
    assert await plain.ask(b"EXEC") == [b"*1", b"$-1"]
    assert await plain.ask(b"GET c") == [b"$-1"]
    await server.make_space()
    assert [client.take() for client in (early, watching)] == [[b"*1", b"$1", b"1"], [b"*-1"]]


@in_loop
async def test_clients_that_wait_for_a_key(server: Server) -> None:
    """They are told that nothing came, if nothing of it may be lost."""
    clients = [server.connect() for _ in range(2)]
    await clients[0].ask(b"XADD s 1-1 f v", b"XADD other 1-1 f v")
    for client, key in zip(clients, (b"s", b"other"), strict=True):
        assert await client.ask(b"XREAD BLOCK 50 STREAMS %b 1-1" % key) == []
    await server.fill(b"XADD s 1-2 f v")
    await asyncio.sleep(0.1)
    await turns(6)
    assert [client.take() for client in clients] == [[], [b"*-1"]]
    await server.make_space()
    assert b"1-2" in clients[0].take()


@in_loop
async def test_a_large_value(server: Server) -> None:
    client = server.connect()
    await client.ask(b"SET b 1")
    server.disk.capacity_bytes = server.disk.used_bytes
    writer, value = server.connect(), b"x" * 1_000_000
    writer.session.data_received(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n%b\r\n" % (len(value), value))
    await turns(60)
    assert writer.take() == []
    assert await client.ask(b"GET b") == [b"$1", b"1"]
    assert await client.ask(b"STRLEN a") == []
    await server.make_space()
    assert (writer.take(), client.take()) == ([b"+OK"], [b":1000000"])


def test_several_shards() -> None:
    async def run() -> None:
        server = Server(shards=4)
        client = server.connect()
        await client.ask(*[b"SET b%d 1" % number for number in range(20)])
        writer = await server.fill(*[b"SET a%d 1" % number for number in range(20)])
        assert await client.ask(*[b"GET b%d" % number for number in range(20)]) == [b"$1", b"1"] * 20
        readers = [server.connect() for _ in range(20)]
        assert [await reader.ask(b"GET a%d" % number) for number, reader in enumerate(readers)] == [[]] * 20
        await server.make_space()
        assert [reader.take() for reader in readers] == [[b"$1", b"1"]] * 20
        assert writer.take() == [b"+OK"] * 20

    asyncio.run(run())


@pytest.mark.parametrize("policy", [FsyncPolicy.EVERYSEC, FsyncPolicy.NEVER])
def test_other_policies_let_only_the_turn_that_finds_it_wait(policy: FsyncPolicy) -> None:
    async def run() -> None:
        server = Server(policy)
        writer, other = server.connect(), server.connect()
        server.disk.capacity_bytes = server.disk.used_bytes
        writer.receive(b"SET a 1")
        assert await other.ask(b"PING", b"GET b") == [b"+PONG", b"$-1"]
        assert writer.take() == []
        assert await other.ask(b"GET a") == [b"$1", b"1"]
        await server.make_space()
        assert writer.take() == [b"+OK"]

    asyncio.run(run())
