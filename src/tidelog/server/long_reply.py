"""A reply with long strings: it is sent piece by piece, as the client takes it.

The first part leaves with the replies of its turn, the rest from here, straight from the strings themselves: nothing is
copied, and a client that does not read keeps alive only the values that it asked for. No command of the client runs
meanwhile, and messages wait behind the reply.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog import limits


class LongReply:
    """What is left to send of one connection's long reply."""

    __slots__ = ("_at", "_parts", "messages")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0
        """How much of the first part has been sent."""
        self.messages: list[bytes] = []
        """What goes after it."""

    @property
    def is_over(self) -> bool:
        return not self._parts

    def begin(self, parts: list[bytes]) -> bytes:
        """A reply in parts; returns the first, which leaves with the turn."""
        self._parts = parts[1:]
        return parts[0]

    def send_piece(self, write: Callable[[memoryview], None]) -> bool:
        """Send the next piece; whether it was the last."""
        part = self._parts[0]
        piece = memoryview(part)[self._at : self._at + limits.SENT_PIECE_BYTES]
        self._at += len(piece)
        if self._at == len(part):
            del self._parts[0]
            self._at = 0
        write(piece)
        return not self._parts

    def take_messages(self) -> list[bytes]:
        messages, self.messages = self.messages, []
        return messages

    def clear(self) -> None:
        self._parts.clear()
        self.messages.clear()
