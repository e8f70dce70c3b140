"""A connection that goes on with another engine, as those do that came while the data was being loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from tests.engine.made import make_engine
from tests.server.test_connection import Transport, turns
from tidelog import limits
from tidelog.engine.engine import Engine
from tidelog.engine.gate import LOADING
from tidelog.engine.sessions import Sessions
from tidelog.journal.journal import Settings
from tidelog.server.connection import Connection
from tidelog.server.connections import Connections
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

REFUSED = b"-" + LOADING.encode() + b"\r\n"


class Served:
    """An engine that loads, or has loaded; `sessions` are those of both."""

    def __init__(self, clock: SimulatedClock, sessions: Sessions, *, is_loading: bool) -> None:
        loop = asyncio.get_running_loop()
        store = Store.open(SimulatedDisk(1), "/data", clock, Settings(), lambda: 1, Random(1))
        self.engine: Engine = make_engine(store, clock, loop)
        self.engine.sessions = sessions
        self.engine.gate.is_loading = is_loading
        self.turns = Turns(loop, store.journal, clock.monotonic_us)


class Server:
    """A client of an engine that loads, and the engine that takes over."""

    def __init__(self) -> None:
        clock, sessions = SimulatedClock(), Sessions()
        self.loading = Served(clock, sessions, is_loading=True)
        self.loaded = Served(clock, sessions, is_loading=False)
        engine = self.loading.engine
        self.connections = Connections(sessions, clock, engine.metrics, engine.password)
        self.client, self.transport = self.make(), Transport()
        self.client.connection_made(self.transport)  # type: ignore[arg-type]

    def make(self) -> Connection:
        return Connection(self.loading.engine, self.loading.turns, self.connections)

    def take_over(self) -> None:
        self.loading.turns.end_now()
        self.client.move_to(self.loaded.engine, self.loaded.turns)

    async def ask(self, request: bytes) -> bytes:
        self.client.data_received(request)
        await turns(6)
        return self.transport.take()


def in_loop(test: Callable[[Server], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def inside() -> None:
            await test(Server())

        asyncio.run(inside())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_loop
async def test_hot_and_other_commands_wait_for_the_data(server: Server) -> None:
    assert await server.ask(b"SET a 1\r\nGET a\r\nINCR n\r\nEXPIRE a 5\r\nPING\r\n") == REFUSED * 5
    assert await server.ask(b"MULTI\r\nSET a 1\r\nEXEC\r\n") == (
        b"+OK\r\n" + REFUSED + b"-EXECABORT Transaction discarded because of previous errors.\r\n"
    )
    server.take_over()
    assert await server.ask(b"SET a 1\r\nGET a\r\n") == b"+OK\r\n$1\r\n1\r\n"
    assert server.client.is_plain
    assert server.loading.engine.store.database(0).size == 0
    assert server.loaded.engine.store.database(0).size == 1


@in_loop
async def test_what_was_answered_before_leaves_before_anything_else_runs(server: Server) -> None:
    server.client.data_received(b"ECHO early\r\n")
    server.take_over()
    assert server.transport.take() == b"$5\r\nearly\r\n"
    server.client.data_received(b"SET a 1\r\n")
    assert server.loaded.engine.store.journal.writer.batch_bytes > 0
    assert server.transport.take() == b""
    await turns(6)
    assert server.transport.take() == b"+OK\r\n"


@in_loop
async def test_what_waits_for_its_go_goes_on_with_the_data(server: Server) -> None:
    much = b"ECHO hi\r\n" * (limits.TURN_PIECES_MAX * limits.RECEIVED_PIECE_BYTES // 9 + 1000)
    server.client.data_received(much + b"SET a 1\r\nGET a\r\n")
    assert server.client.backlog_bytes > 0
    server.take_over()
    await turns(100)
    assert server.transport.take().endswith(b"$2\r\nhi\r\n+OK\r\n$1\r\n1\r\n")
    assert server.client.backlog_bytes == 0
    assert server.transport.is_reading


@in_loop
async def test_watched_keys_count_as_changed(server: Server) -> None:
    assert await server.ask(b"WATCH a\r\nMULTI\r\nECHO hi\r\n") == b"+OK\r\n+OK\r\n+QUEUED\r\n"
    server.take_over()
    assert await server.ask(b"EXEC\r\n") == b"*-1\r\n"
    assert await server.ask(b"MULTI\r\nECHO hi\r\nEXEC\r\n") == b"+OK\r\n+QUEUED\r\n*1\r\n$2\r\nhi\r\n"


@in_loop
async def test_a_monitor_goes_on(server: Server) -> None:
    assert (await server.ask(b"MONITOR\r\n")).startswith(b"+OK\r\n")
    server.take_over()
    assert not server.loading.engine.monitors.sessions
    other, transport = Connection(server.loaded.engine, server.loaded.turns, server.connections), Transport()
    other.connection_made(transport)  # type: ignore[arg-type]
    other.data_received(b"SET a 1\r\n")
    await turns(6)
    assert server.transport.take().endswith(b'"SET" "a" "1"\r\n')


@in_loop
async def test_who_shook_hands_meanwhile_is_served_by_the_new_one(server: Server) -> None:
    late: Any = server.make()
    server.connections.serving = server.loaded.engine, server.loaded.turns
    transport = Transport()
    late.connection_made(transport)
    late.data_received(b"SET a 1\r\n")
    await turns(6)
    assert transport.take() == b"+OK\r\n"
    assert server.loaded.engine.store.database(0).size == 1
