"""Keys that have a time, and which of them comes first.

times    key -> absolute ms
heap     the same in order of time, with stale items that are skipped when they come up
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from tidelog import limits


class Deadlines:
    """One time for each of some keys of a database."""

    __slots__ = ("heap", "times")

    def __init__(self) -> None:
        self.times: dict[bytes, int] = {}
        self.heap: list[tuple[int, bytes]] = []

    def set(self, key: bytes, when_ms: int) -> None:
        self.times[key] = when_ms
        heappush(self.heap, (when_ms, key))
        if len(self.heap) > 2 * len(self.times) + limits.EXPIRY_STALE_MAX:
            self.heap = [(when, which) for which, when in self.times.items()]
            heapify(self.heap)

    def drop(self, key: bytes) -> None:
        """Fine if it has no time."""
        self.times.pop(key, None)

    def take_due(self, now_ms: int) -> bytes | None:
        """The key whose time came first, if it has come. The caller drops it or sets a new time."""
        heap = self.heap
        while heap and heap[0][0] <= now_ms:
            when, key = heappop(heap)
            if self.times.get(key) == when:
                return key
        return None
