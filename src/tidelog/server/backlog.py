"""The backlog of a client: what it has sent and the server has not run yet.

    commands    decoded; they run first
    decoder     may have more complete commands in it than it has returned (`RequestDecoder.is_behind`)
    received    bytes that are not decoded yet

Bytes are decoded a piece at a time, and only when all commands before them have been run: what fits a cache is fast,
and a command takes many times the memory of its bytes.
"""

from __future__ import annotations

from tidelog.resp.decoder import RequestDecoder
from tidelog.resp.exact import Words
from tidelog.server.hot import whole_transactions


class Backlog:
    """One client's."""

    __slots__ = ("_decoder", "commands", "received")

    def __init__(self, decoder: RequestDecoder) -> None:
        self._decoder = decoder
        self.commands: list[Words] = []
        self.received = bytearray()

    @property
    def is_empty(self) -> bool:
        return not (self.commands or self.received or self._decoder.is_behind)

    @property
    def size(self) -> int:
        """Bytes, without those that the decoder has."""
        return len(self.received) + sum(sum(map(len, command)) for command in self.commands)

    def put_back(self, commands: list[Words]) -> None:
        """These were taken and have to wait."""
        self.commands = commands + self.commands

    def take(self, piece_bytes: int) -> list[Words]:
        """The commands that are to be run next: those that were held, or those of the next piece."""
        commands, self.commands = self.commands, []
        if whole_transactions(commands):
            return commands
        # There are none, or only those of a MULTI whose EXEC is still to come: it runs faster as a whole.
        if self._decoder.is_behind:
            piece_bytes = 0  # what it has comes first, and nobody else counts what it has
        with memoryview(self.received) as received:
            piece = bytes(received[:piece_bytes])
        del self.received[:piece_bytes]
        commands += self._decoder.feed(piece)
        if self.received and self._decoder.error is None:
            end = whole_transactions(commands)
            self.commands = commands[end:]
            del commands[end:]
        return commands

    def clear(self) -> None:
        self.commands.clear()
        self.received.clear()
