"""Commands on a store of a simulated machine, without a server."""

from __future__ import annotations

from typing import Any, Final

import hiredis

from tests.store.made import Machine
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.engine.would_block import WouldBlock
from tidelog.errors import CommandError
from tidelog.resp.encoder import ErrorReply, encode
from tidelog.streams.stream import Stream

TABLE: Final = command_table()
WAITS: Final = "it waits"
"""Instead of a reply: the client would begin to wait."""


class Commands(Machine):
    """Runs commands, each a transaction; replies as hiredis reads them."""

    protocol = 2

    def __call__(self, *words: bytes | str | int) -> Any:
        arguments = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        transaction = self.store.begin(0)
        transaction.may_wait = True
        try:
            reply = run_command(find_command(TABLE, arguments), transaction, arguments)
        except CommandError as error:
            reply = ErrorReply(str(error))
        except WouldBlock:
            self.store.commit(transaction)
            return WAITS
        self.store.commit(transaction)
        reader = hiredis.Reader()
        reader.feed(encode(reply, self.protocol))
        return reader.gets()

    def refused(self, *words: bytes | str | int) -> str:
        """The error of a command that is refused and changes nothing."""
        before = self.store.journal.writer.batch_bytes
        reply = self(*words)
        assert isinstance(reply, hiredis.ReplyError), reply
        assert self.store.journal.writer.batch_bytes == before
        return str(reply)

    def quietly(self, *words: bytes | str | int) -> Any:
        """The reply of a command that journals nothing."""
        before = self.store.journal.writer.batch_bytes
        reply = self(*words)
        assert self.store.journal.writer.batch_bytes == before
        return reply

    def stream(self, key: bytes = b"k") -> Stream:
        value = self.store.database(0).find(key)
        assert isinstance(value, Stream)
        return value

    def wait(self, ms: int) -> None:
        self.clock.advance(1000 * ms)

    def offsets(self, *words: bytes | str | int) -> list[int | None]:
        """The offsets of the entries that a TREAD gives; None for an evicted one."""
        return [None if entry is None else entry[0] for entry in self(*words)]
