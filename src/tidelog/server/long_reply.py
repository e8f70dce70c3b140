"""A reply with long strings or many entries: it is sent piece by piece, as the client takes it.

The first part leaves with the replies of its turn, the rest from here, straight from the strings themselves: nothing is
copied, and a client that does not read keeps alive only the values that it asked for. Entries of streams are encoded
when their turn has come, those of a node at a time, so others are served between two nodes. No command of the client
runs meanwhile, and messages wait behind the reply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog import limits
from tidelog.resp.encoder import Later, Part

_LOG: Final = logging.getLogger("tidelog")


class LongReply:
    """What is left to send of one connection's long reply."""

    __slots__ = ("_at", "_parts", "messages")

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._at = 0
        """How much of the first part has been sent."""
        self.messages: list[bytes] = []
        """What goes after it."""

    @property
    def is_over(self) -> bool:
        return not self._parts

    def begin(self, parts: list[Part]) -> bytes:
        """A reply in parts; returns the first, which leaves with the turn."""
        first = parts[0]
        assert isinstance(first, bytes)
        self._parts = parts[1:]
        return first

    @property
    def is_to_be_made(self) -> bool:
        """The next part is not there yet."""
        return isinstance(self._parts[0], Later)

    def make_part(self) -> bool:
        """Make it; false: that does not work, and there is no way to tell a client in the middle of a reply."""
        part = self._parts[0]
        if isinstance(part, Later):
            try:
                self._parts[0] = part.encoded()
            except Exception:
                _LOG.exception("the rest of a reply cannot be made")
                return False
        return True

    def send_piece(self, write: Callable[[memoryview], None]) -> bool:
        """Send the next piece; whether it was the last."""
        part = self._parts[0]
        assert isinstance(part, bytes)
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
