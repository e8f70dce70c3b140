"""Keys that have a time, and which of them comes first.

    times      key -> absolute ms
    far        a long span of time -> the keys whose time is in it, in the order in which they came
    near       the same for short spans, once their long span has begun
    soon       the keys of short spans that have begun, with their times, as a heap

So a key waits in a list, in 8 bytes; a heap of all keys with their times took ten times as much. Spans and heap may
hold stale keys, whose time is another or none: they are passed over when they come up, and thrown away when there are
too many.

A span may begin with a million keys, and moving them on would hold up others. So `take_due` moves no more than
`_MOVED_MAX` keys before it answers, and answers None as long as there are more.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from tidelog import limits

_NEAR_MS: Final = 1 << 16
"""About a minute ..."""
_FAR_MS: Final = 1 << 22
"""... and 64 of them."""
_MOVED_MAX: Final = 20_000

Spans = dict[int, list[bytes]]
"""The number of a span, counted from the epoch -> keys."""


class Deadlines:
    """One time for each of some keys of a database."""

    __slots__ = ("_count", "_far_order", "_near_order", "_now_ms", "far", "near", "soon", "times")

    def __init__(self) -> None:
        self.times: dict[bytes, int] = {}
        self.far: Spans = {}
        self.near: Spans = {}
        self.soon: list[tuple[int, bytes]] = []
        self._far_order: list[int] = []
        """The spans of `far`, as a heap."""
        self._near_order: list[int] = []
        self._now_ms = -1
        """Spans that begin before have begun: what comes for them is moved on at once."""
        self._count = 0
        """How many keys wait somewhere, stale ones included."""

    def set(self, key: bytes, when_ms: int) -> None:
        before = self.times.get(key)
        self.times[key] = when_ms
        if before is not None and self._waits_with(before, when_ms):
            return
        self._count += 1
        self._wait(key, when_ms)
        if self._count > 2 * len(self.times) + limits.EXPIRY_STALE_MAX:
            self._begin_anew()

    def drop(self, key: bytes) -> None:
        """Fine if it has no time."""
        self.times.pop(key, None)

    def clear(self) -> None:
        """No key has a time."""
        self.times.clear()
        self._begin_anew()

    def take_due(self, now_ms: int) -> bytes | None:
        """The key whose time came first, if it has come. The caller drops it or sets a new time."""
        self._now_ms = max(self._now_ms, now_ms)
        room = self._move_on(self.far, self._far_order, _FAR_MS, _MOVED_MAX)
        if self._move_on(self.near, self._near_order, _NEAR_MS, room) == 0:
            return None
        soon = self.soon
        while soon and soon[0][0] <= now_ms:
            when, key = heappop(soon)
            self._count -= 1
            if self.times.get(key) == when:
                return key
        return None

    def waiting(self) -> frozenset[tuple[int, bytes]]:
        """The keys that will come up, with their times; for tests."""
        found = [(when, key) for when, key in self.soon if self.times.get(key) == when]
        for spans, length_ms in ((self.far, _FAR_MS), (self.near, _NEAR_MS)):
            for span, keys in spans.items():
                timed = [(self.times[key], key) for key in keys if key in self.times]
                found += [(when, key) for when, key in timed if when // length_ms == span]
        return frozenset(found)

    @property
    def count(self) -> int:
        """How many keys wait, stale ones included."""
        return self._count

    def _waits_with(self, before_ms: int, when_ms: int) -> bool:
        """Whether a key with the first of the times is in the list where one with the other goes."""
        now_ms = self._now_ms
        if when_ms // _FAR_MS > now_ms // _FAR_MS:
            return before_ms // _FAR_MS == when_ms // _FAR_MS
        return when_ms // _NEAR_MS > now_ms // _NEAR_MS and before_ms // _NEAR_MS == when_ms // _NEAR_MS

    def _wait(self, key: bytes, when_ms: int) -> None:
        now_ms = self._now_ms
        if when_ms // _FAR_MS > now_ms // _FAR_MS:
            _append(self.far, self._far_order, when_ms // _FAR_MS, key)
        elif when_ms // _NEAR_MS > now_ms // _NEAR_MS:
            _append(self.near, self._near_order, when_ms // _NEAR_MS, key)
        else:
            heappush(self.soon, (when_ms, key))

    def _move_on(self, spans: Spans, order: list[int], length_ms: int, room: int) -> int:
        """Move the keys of spans that have begun, at most so many; returns how many more it could have been."""
        while order and order[0] <= self._now_ms // length_ms and room:
            keys = spans[order[0]]
            while keys and room:
                key = keys.pop()
                room -= 1
                when = self.times.get(key)
                if when is not None and when // length_ms == order[0]:
                    self._wait(key, when)
                else:
                    self._count -= 1
            if not keys:
                del spans[heappop(order)]
        return room

    def _begin_anew(self) -> None:
        """Forget what is stale."""
        self.far, self.near, self.soon = {}, {}, []
        self._far_order, self._near_order = [], []
        self._count = len(self.times)
        for key, when in self.times.items():
            self._wait(key, when)


def _append(spans: Spans, order: list[int], span: int, key: bytes) -> None:
    keys = spans.get(span)
    if keys is None:
        spans[span] = [key]
        heappush(order, span)
    else:
        keys.append(key)
