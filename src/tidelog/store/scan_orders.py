"""The order in which HSCAN, SSCAN and ZSCAN walk a large collection while it changes.

Members are walked in the order of their CRC32. A cursor is the smallest hash that has not been returned yet, 1 to
2^32 - 1; 0 begins and ends a scan. It depends on nothing but the members, so it stays good after a restart, and on a
follower. A member that is there from the first call to the last has one hash, which some slice covers: it is never
missed. Members of the same hash are never parted.

Sorting a collection anew for every slice would make a scan quadratic, so the order made by the first call is kept for
those that follow, which then cost what they return. It may be out of date: the caller leaves out members that are gone
since, and newer members are missing, which SCAN permits. The first call of a scan always makes a new one, so an order
is never older than the scans that use it, whatever became of the key. It can be dropped at any time: with the last
slice, after `SCAN_ORDER_MS_MAX`, and when there are too many; if it is asked for again, a new one is made.
"""

from __future__ import annotations

from collections.abc import Collection
from zlib import crc32

import numpy as np

from tidelog import limits

DatabaseKey = tuple[int, bytes]
"""Database and key."""

_HASH_MAX = 2**32 - 1


class ScanOrder:
    """The members of one collection at one moment."""

    __slots__ = ("_hashes", "_members", "_positions", "made_ms")

    def __init__(self, members: Collection[bytes], now_ms: int) -> None:
        self._members = list(members)
        """In any order."""
        hashes = np.fromiter(map(crc32, self._members), np.uint32, len(self._members))
        self._positions = np.argsort(hashes, kind="stable")
        """Where the members stand, in the order of their hashes."""
        self._hashes = hashes[self._positions]
        self.made_ms = now_ms

    def __len__(self) -> int:
        return len(self._members)

    def take(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """At least `count` members from a cursor on, if there are as many, and the cursor after them."""
        if cursor > _HASH_MAX:
            return 0, []
        hashes = self._hashes
        start = int(np.searchsorted(hashes, np.uint32(cursor), "left"))
        end = min(start + count, len(hashes))
        following = 0
        if end < len(hashes):
            last = hashes[end - 1]
            end = int(np.searchsorted(hashes, last, "right"))
            following = int(last) + 1 if end < len(hashes) else 0
        members = self._members
        return following, [members[position] for position in self._positions[start:end].tolist()]


class ScanOrders:
    """The orders of the scans that are under way. They are no state: all may be dropped at any time."""

    def __init__(self) -> None:
        self._by_place: dict[DatabaseKey, ScanOrder] = {}
        """The one that was made first comes first."""

    def __len__(self) -> int:
        return len(self._by_place)

    def take(
        self, place: DatabaseKey, members: Collection[bytes], cursor: int, count: int, now_ms: int
    ) -> tuple[int, list[bytes]]:
        """The next members, of which some may be gone by now, and the cursor after them; 0: there are no more."""
        order = self._by_place.get(place) if cursor else None
        if order is None:
            self._by_place.pop(place, None)
            order = ScanOrder(members, now_ms)
            self._by_place[place] = order
            self._make_room(now_ms)
        following, taken = order.take(cursor, count)
        if not following:
            self._by_place.pop(place, None)
        return following, taken

    def _make_room(self, now_ms: int) -> None:
        """Drop what is too old or too much; the newest stays."""
        orders = self._by_place
        size = sum(map(len, orders.values()))
        for place, order in list(orders.items())[:-1]:
            is_old = not 0 <= now_ms - order.made_ms <= limits.SCAN_ORDER_MS_MAX
            if is_old or len(orders) > limits.SCAN_ORDERS_MAX or size > limits.SCAN_ORDER_MEMBERS_MAX:
                size -= len(order)
                del orders[place]
