"""Scripts and functions in the simulation of the store: an engine and one client on a store, without a loop.

The scripts do what they are told by their arguments, so that what they do is drawn like everything else: words of a
command, with their number before them, and then the next command.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Final

from tests.engine.made import NoLoop, make_connections, make_engine
from tidelog.scripting.plain_calls import PLAIN_CALLS
from tidelog.scripting.scripts import scripts_of
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock

_RUN: Final = b"""
local at = 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  redis.%b(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end
%b
"""
SCRIPTS: Final = (
    _RUN % (b"pcall", b"return at"),
    _RUN % (b"call", b"return at"),
    _RUN % (b"pcall", b"error('at the end')"),
)
"""A script that goes on after an error, one that ends there, and one that fails at last: what they did stays."""


@cache
def _closed_loop() -> asyncio.AbstractEventLoop:
    """It never runs: nothing is sent here."""
    loop = asyncio.new_event_loop()
    loop.close()
    return loop


class Scripted:
    """A client that runs scripts on a store, and changes and calls its libraries of functions."""

    def __init__(self, store: Store, clock: SimulatedClock) -> None:
        self._engine = make_engine(store, clock, NoLoop())
        turns = Turns(_closed_loop(), store.journal, clock.monotonic_us)
        self._session = Connection(self._engine, turns, make_connections(self._engine))
        host = scripts_of(self._engine)._host
        for name in PLAIN_CALLS:  # they make no operation that the model would be told of; another test compares them
            callee = host._find([name.encode()])
            assert callee is not None
            callee.plain = None

    def run(self, database: int, script: bytes, commands: list[list[bytes]], *, is_in_multi: bool) -> bytes:
        """Run a script that runs these commands, alone or between others in a transaction; its reply.

        `ApplyFailed`: the journal does not take what it did.
        """
        commands = [told(command) for command in commands]
        words = [word for command in commands for word in (b"%d" % len(command), *command)]
        called = [b"EVAL", script, b"0", *words]
        return self.transact(database, [commands[0], called, commands[-1]] if is_in_multi else [called])

    def transact(self, database: int, commands: list[list[bytes]]) -> bytes:
        """Run one command, or several in a transaction; the last reply. `ApplyFailed`: as `run`."""
        self._execute([b"SELECT", b"%d" % database])
        if len(commands) == 1:
            return self._execute(commands[0])
        for each in ([b"MULTI"], *commands):
            self._execute(each)
        return self._execute([b"EXEC"])

    def read(self, function: bytes) -> bytes:
        """What a function that only reads replies."""
        return self._execute([b"FCALL_RO", function, b"0"])

    def _execute(self, words: list[bytes]) -> bytes:
        reply = self._engine.execute(self._session, words)
        assert reply is not None, words
        return reply


def told(command: list[bytes]) -> list[bytes]:
    """The same, but a plain SET takes the long way: the short one has no operation that the model would be told of."""
    return [*command, b"KEEPTTL"] if command[0] == b"SET" and len(command) == 3 else command
