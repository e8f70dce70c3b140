"""Groups: readers that share a stream. Each entry goes to one of them, and is pending until it is acknowledged.

One group serves both families of commands. Its cursor is kept in both coordinates: the next entry is the first whose
offset lies after `last_offset` *and* whose id lies after `last_id`. A command that sets one of them leaves the other
where it excludes nothing; a delivery moves both.

Pending entries are kept in order of delivery (a redelivered one goes to the end). So of those that fall due again by
themselves the first in line is due first, as long as all readers ask for the same retry time. When they expire does not
depend on what stands before them: that is a list of its own.

    delivered --ack--> gone
        |  ^
        |  +-- due again: delivered to another reader, at the end of the line
        +--expired--> gone, or moved to the dead-letter stream
        +--its entry is evicted or deleted--> gone

An entry that was delivered with XREADGROUP stays pending when its entry goes, as in Redis, but counts for no limit.
Nothing here reads a clock: an expired entry is pending until an operation removes it, and callers leave it out.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from tidelog.streams.expiries import PendingExpiries
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
    def retry_ms(self) -> int:
        """When it is due again; 0: never."""
        return self.delivered_ms + self.retry_after_ms if self.retry_after_ms else 0

    def has_expired(self, now_ms: int) -> bool:
        return 0 < self.expire_ms <= now_ms


class Consumer:
    """A reader with a name (XREADGROUP)."""

    __slots__ = ("active_ms", "pending_count", "polled_ms", "seen_ms")

    def __init__(self, seen_ms: int, active_ms: int = -1) -> None:
        self.seen_ms = seen_ms
        """When it last tried to do something, as far as that is journaled ..."""
        self.polled_ms = 0
        """... and when it has found nothing since. Not a part of the state: a restart forgets it."""
        self.active_ms = active_ms
        """When it last was given something or claimed it; -1: never."""
        self.pending_count = 0

    @property
    def last_seen_ms(self) -> int:
        """When it last tried to do something."""
        return max(self.seen_ms, self.polled_ms)

    def copy(self) -> Consumer:
        made = Consumer(self.seen_ms, self.active_ms)
        made.pending_count, made.polled_ms = self.pending_count, self.polled_ms
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
        "expiries",
        "last_id",
        "last_offset",
        "lost",
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
        """Those of them that are due again some time, in the same order."""
        self.expiries: PendingExpiries | None = None
        """When those of them expire that do; None: none ever did."""
        self.lost: set[int] = set()
        """Those of them whose entries are gone. Only consumers (X) have such."""
        self.consumers: dict[bytes, Consumer] = {}
        self._ids: PendingIds | None = None

    @property
    def ack_offset(self) -> int:
        """Everything below it is acknowledged."""
        return min(self.pending, default=self.last_offset + 1)

    def add(self, offset: int, pending: Pending) -> None:
        """A delivery, or one more of the same entry: it goes to the end."""
        before = self.remove(offset)
        self.pending[offset] = pending
        if self._ids is not None:
            self._ids.add(pending.id, offset)
        if pending.retry_after_ms:
            self.due[offset] = pending
        if pending.expire_ms and (before is None or before.expire_ms != pending.expire_ms):
            self._expire([offset], pending.expire_ms)
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
        pending = self.pending
        count = len(offsets)
        for index in range(count):
            offset = offsets[index]
            if offset in pending:  # the cursor was set back
                self.remove(offset)
            made = pending[offset] = Pending(ids[index], consumer_name, now_ms, 1, retry_after_ms, expire_ms)
            if retry_after_ms:
                self.due[offset] = made
        if expire_ms:
            self._expire(offsets, expire_ms)
        if self._ids is not None:
            self._ids.add_all(ids, offsets)
        consumer = self.consumers.get(consumer_name)
        if consumer is not None:
            consumer.pending_count += count

    def _expire(self, offsets: list[int], expire_ms: int) -> None:
        """Entries that were just made pending expire at a time."""
        if self.expiries is None:
            self.expiries = PendingExpiries()
        self.expiries.add(expire_ms, offsets, self.pending)

    def expired(self, now_ms: int) -> list[int]:
        """The offsets of pending entries that have expired, in the order in which they did."""
        return [] if self.expiries is None else self.expiries.expired(now_ms, self.pending)

    def has_expired(self, now_ms: int) -> bool:
        """Whether there is any. Hot."""
        return self.expiries is not None and 0 < self.expiries.first_ms(self.pending) <= now_ms

    def lose_entries(self, offsets: Sequence[int]) -> None:
        """Entries are gone from the stream: what a reader with TREAD was given of them is no longer pending."""
        pending = self.pending
        if len(offsets) <= len(pending):
            found = [offset for offset in offsets if offset in pending]
        else:
            gone: Container[int] = offsets if isinstance(offsets, range) else set(offsets)
            found = [offset for offset in pending if offset in gone]
        for offset in found:
            if pending[offset].consumer == NO_CONSUMER:
                self.remove(offset)
            else:
                self.lost.add(offset)

    def remove(self, offset: int) -> Pending | None:
        """An entry is acknowledged, or given up: it is no longer pending."""
        pending = self.pending.pop(offset, None)
        if pending is not None:
            if self._ids is not None:
                self._ids.remove(pending.id)
            self.due.pop(offset, None)
            self.lost.discard(offset)
            consumer = self.consumers.get(pending.consumer)
            if consumer is not None:
                consumer.pending_count -= 1
        return pending

    def acknowledge(self, offsets: Sequence[int]) -> None:
        """As `remove` for each of them. Hot."""
        pending, due, lost, ids = self.pending, self.due, self.lost, self._ids
        for index in range(len(offsets)):
            offset = offsets[index]
            gone = pending.pop(offset, None)
            if gone is None:
                continue
            if ids is not None:
                ids.remove(gone.id)
            if due:
                due.pop(offset, None)
            if lost:
                lost.discard(offset)
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
        made.pending, made.due, made.lost = dict(self.pending), dict(self.due), set(self.lost)
        made.expiries = None if self.expiries is None else self.expiries.copy()
        made.consumers = {name: consumer.copy() for name, consumer in self.consumers.items()}
        return made
