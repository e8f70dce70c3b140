"""Groups: readers that share a stream. Each entry goes to one of them, and is pending until it is acknowledged.

One group serves both families of commands. Its cursor is kept in both coordinates: the next entry is the first whose
offset lies after `last_offset` *and* whose id lies after `last_id`. A command that sets one of them leaves the other
where it excludes nothing; a delivery moves both.

Pending entries are kept in order of delivery (a redelivered one goes to the end). So of those that fall due again by
themselves the first in line is due first, as long as all readers ask for the same retry time.

    delivered --ack--> gone
        |  ^
        |  +-- due again: delivered to another reader, at the end of the line
        +--expired--> gone, or moved to the dead-letter stream
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.streams.pending_ids import PendingIds

NO_CONSUMER: Final = b""
"""The name of all readers with TREAD."""
UNKNOWN: Final = -1
"""How many entries a group has read, if that cannot be said."""


class Pending:
    """An entry that was delivered and not acknowledged. It is replaced and never changed, so that copies share it."""

    __slots__ = ("consumer", "delivered_ms", "deliveries", "expire_ms", "id", "retry_after_ms")

    def __init__(
        self, number: int, consumer: bytes, delivered_ms: int, deliveries: int, retry_after_ms: int, expire_ms: int
    ) -> None:
        self.id = number
        """Also if the entry is gone from the stream."""
        self.consumer = consumer
        self.delivered_ms = delivered_ms
        self.deliveries = deliveries
        self.retry_after_ms = retry_after_ms
        """After its delivery, it is due again; 0: never."""
        self.expire_ms = expire_ms
        """Absolute; 0: never."""

    @property
    def due_ms(self) -> int:
        """When something happens to it by itself; 0: never."""
        retry_ms = self.delivered_ms + self.retry_after_ms if self.retry_after_ms else 0
        if retry_ms and self.expire_ms:
            return min(retry_ms, self.expire_ms)
        return retry_ms or self.expire_ms


class Consumer:
    """A reader with a name (XREADGROUP)."""

    __slots__ = ("active_ms", "pending_count", "seen_ms")

    def __init__(self, seen_ms: int, active_ms: int = -1) -> None:
        self.seen_ms = seen_ms
        """When it last tried to do something."""
        self.active_ms = active_ms
        """When it last was given something or claimed it; -1: never."""
        self.pending_count = 0

    def copy(self) -> Consumer:
        made = Consumer(self.seen_ms, self.active_ms)
        made.pending_count = self.pending_count
        return made


class Group:
    """One group of a stream."""

    __slots__ = (
        "_ids",
        "consumers",
        "dead_letter",
        "deliveries_max",
        "due",
        "entries_read",
        "last_id",
        "last_offset",
        "pending",
        "pending_max",
    )

    def __init__(self, last_offset: int = 0, last_id: int = 0, entries_read: int = UNKNOWN) -> None:
        self.last_offset = last_offset
        self.last_id = last_id
        self.entries_read = entries_read
        """As Redis counts them, for `lag`."""
        self.pending_max = 0
        """No new entry is given out while as many are pending; 0: the default."""
        self.dead_letter = b""
        """The stream that takes what expires or was delivered too often; empty: nothing does."""
        self.deliveries_max = 0
        self.pending: dict[int, Pending] = {}
        """By offset, in order of delivery."""
        self.due: dict[int, Pending] = {}
        """Those of them that are due some time, in the same order."""
        self.consumers: dict[bytes, Consumer] = {}
        self._ids: PendingIds | None = None

    @property
    def ack_offset(self) -> int:
        """Everything below it is acknowledged."""
        return min(self.pending, default=self.last_offset + 1)

    def add(self, offset: int, pending: Pending) -> None:
        """A delivery, or one more of the same entry: it goes to the end."""
        self.remove(offset)
        self.pending[offset] = pending
        if self._ids is not None:
            self._ids.add(pending.id, offset)
        if pending.due_ms:
            self.due[offset] = pending
        consumer = self.consumers.get(pending.consumer)
        if consumer is not None:
            consumer.pending_count += 1

    def deliver(
        self,
        consumer: bytes,
        times_ms: tuple[int, int, int],
        cursor: tuple[int, int, int],
        offsets: list[int],
        ids: list[int],
        *,
        keeps: bool,
    ) -> None:
        """New entries go to a reader, which has to acknowledge them if it `keeps` them.

        `times_ms`: now, after how long they are due again, when they expire. `cursor`: the offset and id of the last
        entry, and how many the group has read then. Hot.
        """
        self.last_offset, self.last_id, self.entries_read = cursor
        self._see(consumer, times_ms[0], keeps=keeps)
        if keeps and offsets:
            self._pend(offsets, ids, consumer, times_ms)

    def _see(self, name: bytes, now_ms: int, *, keeps: bool) -> None:
        """A consumer was given something, which it keeps until it acknowledges it."""
        if name != NO_CONSUMER:
            consumer = self.consumers.get(name)
            if consumer is None:
                consumer = self.consumers[name] = Consumer(now_ms)
            consumer.seen_ms = now_ms
            if keeps:
                consumer.active_ms = now_ms

    def _pend(self, offsets: list[int], ids: list[int], consumer_name: bytes, times_ms: tuple[int, int, int]) -> None:
        now_ms, retry_after_ms, expire_ms = times_ms
        pending, is_due = self.pending, bool(retry_after_ms or expire_ms)
        count = len(offsets)
        for index in range(count):
            offset = offsets[index]
            if offset in pending:  # the cursor was set back
                self.remove(offset)
            made = pending[offset] = Pending(ids[index], consumer_name, now_ms, 1, retry_after_ms, expire_ms)
            if is_due:
                self.due[offset] = made
        if self._ids is not None:
            self._ids.add_all(ids, offsets)
        consumer = self.consumers.get(consumer_name)
        if consumer is not None:
            consumer.pending_count += count

    def remove(self, offset: int) -> Pending | None:
        """An entry is acknowledged, or given up: it is no longer pending."""
        pending = self.pending.pop(offset, None)
        if pending is not None:
            if self._ids is not None:
                self._ids.remove(pending.id)
            self.due.pop(offset, None)
            consumer = self.consumers.get(pending.consumer)
            if consumer is not None:
                consumer.pending_count -= 1
        return pending

    def acknowledge(self, offsets: Sequence[int]) -> None:
        """As `remove` for each of them. Hot."""
        pending, due, ids = self.pending, self.due, self._ids
        for index in range(len(offsets)):
            offset = offsets[index]
            gone = pending.pop(offset, None)
            if gone is None:
                continue
            if ids is not None:
                ids.remove(gone.id)
            if due:
                due.pop(offset, None)
            consumer = self.consumers.get(gone.consumer)
            if consumer is not None:
                consumer.pending_count -= 1

    def offset_of(self, number: int) -> int | None:
        """The offset of a pending entry, by its id."""
        return self.ids.offsets.get(number)

    @property
    def ids(self) -> PendingIds:
        """Pending entries by id; made when somebody first asks."""
        if self._ids is None:
            self._ids = PendingIds((pending.id, offset) for offset, pending in self.pending.items())
        return self._ids

    def remove_consumer(self, name: bytes) -> int:
        """Remove a consumer and its pending entries; returns how many entries those were."""
        gone = [offset for offset, pending in self.pending.items() if pending.consumer == name]
        for offset in gone:
            self.remove(offset)
        self.consumers.pop(name, None)
        return len(gone)

    def copy(self) -> Group:
        made = Group(self.last_offset, self.last_id, self.entries_read)
        made.pending_max, made.deliveries_max = self.pending_max, self.deliveries_max
        made.dead_letter = self.dead_letter
        made.pending, made.due = dict(self.pending), dict(self.due)
        made.consumers = {name: consumer.copy() for name, consumer in self.consumers.items()}
        return made
