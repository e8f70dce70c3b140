"""Clients that wait, without sockets: a server on a simulated machine whose timers go by its clock."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import hiredis

from tests.engine.made import make_connections, make_engine
from tests.server.test_connection import Transport, turns
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

Word = bytes | str | int


class Timer:
    def __init__(self, due_us: int, call: Callable[[], None]) -> None:
        self.due_us = due_us
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class BlockedClient:
    """A client without a socket."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.session, self.transport = Connection(server.engine, server.turns, server.connections), Transport()
        made: Any = self.transport
        self.session.connection_made(made)
        self._reader = hiredis.Reader()

    def send(self, *words: Word) -> None:
        items = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"$%d\r\n%b\r\n" % (len(item), item) for item in items]
        self.session.data_received(b"*%d\r\n%b" % (len(items), b"".join(parts)))

    def replies(self) -> list[Any]:
        """What has come since somebody last looked."""
        self._reader.feed(self.transport.take())
        found = []
        while (reply := self._reader.gets()) is not False:
            found.append(reply)
        return found

    async def __call__(self, *words: Word) -> Any:
        """Send a command; its reply."""
        self.send(*words)
        await turns(6)
        (reply,) = self.replies()
        return reply

    def disconnect(self) -> None:
        self.transport.is_closed = True
        self.session.connection_lost(None)

    @property
    def is_blocked(self) -> bool:
        return self.session.is_blocked


class Server:
    """An engine on a simulated machine, with timers that go by its clock."""

    def __init__(
        self, shards: int = 1, password: bytes | None = None, policy: FsyncPolicy = FsyncPolicy.EVERYSEC
    ) -> None:
        self.clock, self.disk = SimulatedClock(), SimulatedDisk(1)
        self._settings = Settings(shard_count=shards, policy=policy)
        self.store = self._open()
        self.timers: list[Timer] = []
        self.engine = make_engine(self.store, self.clock, self, password)
        self.connections = make_connections(self.engine)
        self.turns = Turns(asyncio.get_running_loop(), self.store.journal, self.clock.monotonic_us)

    def _open(self) -> Store:
        return Store.open(self.disk, "/data", self.clock, self._settings, lambda: 1, Random(1))

    def call_soon(self, call: Callable[[], None], /) -> Timer:
        return self.call_later(0, call)

    def call_later(self, seconds: float, call: Callable[[], None], /) -> Timer:
        timer = Timer(self.clock.monotonic_us() + round(1e6 * seconds), call)
        self.timers.append(timer)
        return timer

    def connect(self) -> BlockedClient:
        return BlockedClient(self)

    async def wait(self, ms: int) -> None:
        """Let time pass; timers go off when they are due."""
        end_us = self.clock.monotonic_us() + 1000 * ms
        while True:
            set_timers = [timer for timer in self.timers if timer.call is not None and timer.due_us <= end_us]
            if not set_timers:
                break
            first = min(set_timers, key=lambda timer: timer.due_us)
            self.timers.remove(first)
            self.clock.advance(max(0, first.due_us - self.clock.monotonic_us()))
            assert first.call is not None
            first.call()
        self.timers = [timer for timer in self.timers if timer.call is not None]
        self.clock.advance(end_us - self.clock.monotonic_us())
        await turns(6)

    @property
    def live_timers(self) -> int:
        return sum(timer.call is not None for timer in self.timers)

    def stream(self, key: bytes = b"k") -> Stream:
        value = self.store.database(0).find(key)
        assert isinstance(value, Stream)
        return value

    def restart(self) -> Store:
        """The store that the next process has if this one is killed."""
        self.store.journal.writer.write()
        self.disk.kill()
        return self._open()

    def restarted(self, key: bytes = b"k") -> Stream:
        """The stream that the next process finds."""
        value = self.restart().database(0).find(key)
        assert isinstance(value, Stream)
        return value


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def main() -> None:
            await test(*arguments, **named)

        asyncio.run(main())

    return run
