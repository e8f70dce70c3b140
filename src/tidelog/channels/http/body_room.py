"""How many bytes of large bodies, of requests and of answers, this process holds at the same time.

A body is held while it arrives, while the backend is asked, and until the client has taken the answer. A client that
sends a large one slowly, or asks for one and does not read it, costs that much memory for as long as it likes. So large
bodies need room, of which there is only so much; a call that finds none is told to come back later. Small bodies need
none: there are no more of them than connections.
"""

from __future__ import annotations

from tidelog import limits
from tidelog.channels.http.answer import ComeBackLater


class TooManyBytes(ComeBackLater):
    """So many large bodies are under way that there is no room for another."""

    code = "tidelog.channels.too-many-bytes"


class BodyRoom:
    """The room that there is for large bodies."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Room for so many more bytes; `TooManyBytes` if there is none."""
        if self.held_bytes + size_bytes > limits.CHANNEL_BODIES_BYTES_MAX:
            raise TooManyBytes("too many large bodies are under way: come back later")
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
