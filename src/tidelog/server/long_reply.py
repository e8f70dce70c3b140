"""A reply with long strings or many entries: it is sent piece by piece, as the client takes it.

The first part leaves with the replies of its turn, the rest from here, straight from the strings themselves: nothing is
copied, and a client that does not read keeps alive only the values that it asked for. Entries of streams are encoded
when their turn has come, those of a node at a time, so others are served between two nodes. No command of the client
runs meanwhile, and messages wait behind the reply.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tidelog import limits
from tidelog.resp.encoder import Later, ReplyPart

if TYPE_CHECKING:
    from tidelog.engine.fetching import Fetching

_LOG: Final = logging.getLogger("tidelog")


class LongReply:
    """What is left to send of one connection's long reply."""

    __slots__ = ("_at", "_parts", "messages")

    def __init__(self) -> None:
        self._parts: deque[ReplyPart] = deque()
        self._at = 0
        """How much of the first part has been sent."""
        self.messages: list[bytes] = []
        """What goes after it."""

    @property
    def is_over(self) -> bool:
        return not self._parts

    def begin(self, parts: list[ReplyPart]) -> bytes:
        """A reply in parts; returns the first, which leaves with the turn."""
        first = parts[0]
        assert isinstance(first, bytes)
        self._parts = deque(parts)
        self._parts.popleft()
        return first

    @property
    def is_to_be_made(self) -> bool:
        """The next part is not there yet."""
        return isinstance(self._parts[0], Later)

    def make(self, fetching: Fetching | None, done: Callable[[bool], None]) -> None:
        """Make it, and call `done`, perhaps before this returns. With false: that does not work, and there is no way to
        tell a client in the middle of a reply."""
        away = self._away()
        if away and fetching is not None:
            fetching.fetch_once(away, lambda error: done(not error and self._make_part()))
        else:
            done(self._make_part())

    def _away(self) -> list[Any]:
        """What has to be read from disk before: if that is anything, also for some parts after it."""
        found: list[Any] = []
        for part in islice(self._parts, limits.AHEAD_NODES_MAX):
            if isinstance(part, Later):
                found += part.away()
            if not found:
                break
        return found

    def _make_part(self) -> bool:
        part = self._parts[0] if self._parts else b""  # none: the client has gone meanwhile
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
            self._parts.popleft()
            self._at = 0
        write(piece)
        return not self._parts

    def take_messages(self) -> list[bytes]:
        messages, self.messages = self.messages, []
        return messages

    def clear(self) -> None:
        self._parts.clear()
        self.messages.clear()
