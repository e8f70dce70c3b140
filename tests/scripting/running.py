"""Scripts on an engine of a simulated machine, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import hiredis

from tests.engine.made import make_connections, make_engine
from tests.resp.wire import joined_parts
from tests.server.test_connection import Transport
from tidelog.engine.engine import LONG
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.scripting.scripts import Scripts, scripts_of
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

Word = bytes | str | int


class ScriptMachine:
    """An engine with one client, which runs scripts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, shards: int = 1) -> None:
        self.clock, self.disk = SimulatedClock(), SimulatedDisk(1)
        self._settings = Settings(shard_count=shards, policy=FsyncPolicy.NEVER)
        self.store = self._open()
        self.engine = make_engine(self.store, self.clock, loop)
        connections = make_connections(self.engine)
        self.session = Connection(self.engine, Turns(loop, self.store.journal, self.clock.monotonic_us), connections)
        transport: Any = Transport()
        self.session.connection_made(transport)

    def _open(self) -> Store:
        return Store.open(self.disk, "/data", self.clock, self._settings, lambda: 1, Random(1))

    @property
    def scripts(self) -> Scripts:
        return scripts_of(self.engine)

    def wire(self, *words: Word) -> bytes:
        """The reply to a command, as bytes."""
        arguments = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        data = self.engine.execute(self.session, arguments)
        assert data is not None
        return joined_parts(self.session.long_reply) if data is LONG else data

    def __call__(self, *words: Word) -> Any:
        """The reply to a command; an error is text that begins with a minus sign."""
        reader = hiredis.Reader()
        reader.feed(self.wire(*words))
        reply = reader.gets()
        return f"-{reply}" if isinstance(reply, hiredis.ReplyError) else reply

    def eval(self, script: Word, keys: Sequence[Word] = (), values: Sequence[Word] = ()) -> Any:
        return self("EVAL", script, len(keys), *keys, *values)

    def recovered(self) -> Store:
        """What a restart would find."""
        self.store.journal.writer.write()
        self.store.journal.close()
        return self._open()


@contextmanager
def script_machine(shards: int = 1) -> Iterator[ScriptMachine]:
    loop = asyncio.new_event_loop()
    try:
        yield ScriptMachine(loop, shards)
    finally:
        loop.close()
