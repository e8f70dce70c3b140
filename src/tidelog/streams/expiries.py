"""The pending entries of a group that expire, by time.

    times      1000, 1010, 1500 ...        in order, each once
    offsets    1000 -> [1, 2, 3] ...       what was delivered to expire then

Entries that are delivered together expire together, and mostly in the order of delivery: adding them is one step at the
end. An acknowledged entry stays listed until its time comes or most of what is listed is gone. So the entries
themselves say what is true: an offset counts only if it is pending with that very time.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog import limits

if TYPE_CHECKING:
    from tidelog.streams.group import Pending


class PendingExpiries:
    """When pending entries expire. `pending` is always that of the group."""

    __slots__ = ("_count", "_offsets", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._offsets: dict[int, list[int]] = {}
        self._count = 0
        """Offsets that are listed."""

    def __len__(self) -> int:
        """How many are listed, with those that are stale."""
        return self._count

    def add(self, expire_ms: int, offsets: list[int], pending: dict[int, Pending]) -> None:
        """Entries, already pending, expire at a time."""
        self._list(expire_ms, offsets)
        if self._count > 2 * len(pending) + limits.PENDING_STALE_MAX:
            self._relist(pending.items())

    def _list(self, expire_ms: int, offsets: list[int]) -> None:
        listed = self._offsets.get(expire_ms)
        if listed is not None:
            listed += offsets
        else:
            self._offsets[expire_ms] = offsets[:]
            if self._times and expire_ms < self._times[-1]:
                insort(self._times, expire_ms)
            else:
                self._times.append(expire_ms)
        self._count += len(offsets)

    def _relist(self, items: Iterable[tuple[int, Pending]]) -> None:
        self._times, self._offsets, self._count = [], {}, 0
        for offset, each in items:
            if each.expire_ms:
                self._list(each.expire_ms, [offset])

    def first_ms(self, pending: dict[int, Pending]) -> int:
        """When the first of them expires; 0: none does. What is stale before it is forgotten."""
        times = self._times
        gone = 0
        for expire_ms in times:
            listed = self._offsets[expire_ms]
            while listed and not _expires_at(pending, listed[-1], expire_ms):
                listed.pop()
                self._count -= 1
            if listed:
                break
            del self._offsets[expire_ms]
            gone += 1
        if gone:
            del times[:gone]
        return times[0] if times else 0

    def first_after_ms(self, now_ms: int, pending: dict[int, Pending]) -> int:
        """When the first that has not expired does; 0: none does."""
        first_ms = self.first_ms(pending)
        if not 0 < first_ms <= now_ms:
            return first_ms
        times = self._times
        for at in range(bisect_right(times, now_ms), len(times)):
            for offset in self._offsets[times[at]]:
                if _expires_at(pending, offset, times[at]):
                    return times[at]
        return 0

    def expired(self, now_ms: int, pending: dict[int, Pending]) -> list[int]:
        """The offsets of those that have expired and are still pending, in the order in which they did."""
        found: list[int] = []
        for expire_ms in self._times:
            if expire_ms > now_ms:
                break
            found += sorted({each for each in self._offsets[expire_ms] if _expires_at(pending, each, expire_ms)})
        return found

    def copy(self) -> PendingExpiries:
        made = PendingExpiries()
        made._times, made._count = self._times[:], self._count
        made._offsets = {expire_ms: offsets[:] for expire_ms, offsets in self._offsets.items()}
        return made


def _expires_at(pending: dict[int, Pending], offset: int, expire_ms: int) -> bool:
    found = pending.get(offset)
    return found is not None and found.expire_ms == expire_ms
