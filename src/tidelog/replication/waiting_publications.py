"""Messages that were published and wait until a follower was sent all that happened before them.

They are in memory only, so there is a bound: what does not fit is dropped.
"""

from __future__ import annotations

from collections import deque

from tidelog import limits
from tidelog.ids import Ts


class WaitingPublications:
    """Those of one follower, as pieces."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Ts, bytes]] = deque()
        """Each with the ts after which it was published."""
        self._size_bytes = 0

    def add(self, ts: Ts, pieces: bytes) -> bool:
        """False: it is dropped, since too much waits already."""
        if self._size_bytes + len(pieces) > limits.REPLICATION_PUBLICATIONS_BYTES_MAX:
            return False
        self._waiting.append((ts, pieces))
        self._size_bytes += len(pieces)
        return True

    def take(self, ts: Ts) -> bytes:
        """Those before which nothing is missing any more, if all up to a ts was sent."""
        found = []
        while self._waiting and self._waiting[0][0] <= ts:
            found.append(self._waiting.popleft()[1])
        data = b"".join(found)
        self._size_bytes -= len(data)
        return data
