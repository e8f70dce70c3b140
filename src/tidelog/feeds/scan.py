"""INITIAL: sends the values of now, slot by slot, each slot as it is when it is read.

The ts of a slot is that of the newest transaction when it was read. Afterwards the feed reads the journal from where
the scan began, and drops changes of a key up to the ts of its slot: the value that was read has them already. A slot is
read in one go, and its events are made in pieces.

FLUSHDB ends the scan: the feed finds it in the journal, and sends every change from there on. A range that is deleted
meanwhile is told between two slots: the slots before it were read with its keys, those after it without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tidelog import limits
from tidelog.feeds.feed import ChangeFeed
from tidelog.feeds.span import Span
from tidelog.ids import SLOT_COUNT, Ts
from tidelog.store.keyspace import Database
from tidelog.store.slots import next_filled, slot_of
from tidelog.store.store import Store
from tidelog.types.change import Change, expiry_change


class Scan:
    """The values of one feed's spans."""

    def __init__(self, store: Store, feed: ChangeFeed) -> None:
        self._writer = store.journal.writer
        self._types = store.types
        self._database: Database = store.database(feed.request.database)
        self._cleared_count = self._database.cleared_count
        self._feed = feed
        spans = feed.request.spans
        self._keys = [span.start for span in spans] if all(span.is_key for span in spans) else None
        """The only keys that are wanted; None: all that are in the spans."""
        first, last = (0, SLOT_COUNT - 1) if feed.request.shard is None else store.slots[feed.request.shard]
        self._end = last + 1
        wanted = set() if self._keys is None else {slot for slot in map(slot_of, self._keys) if first <= slot <= last}
        self._slots = sorted(wanted, reverse=True)
        """Of those keys; the next one is the last."""
        self._slot: int | None = first
        """The next one to read."""
        if self._keys is not None:
            self._slot = self._slots.pop() if self._slots else None
        self._ts = Ts(0)
        self._changes: Iterator[Change] = iter(())
        """Of the slot that was read last."""
        self._ranges: list[tuple[Ts, Span]] = []
        """Deleted since the last slot was read."""
        feed.begin_scan(SLOT_COUNT)

    def range_removed(self, ts: Ts, gone: Span) -> None:
        self._ranges.append((ts, gone))

    def step(self, events_max: int) -> bool:
        """Add some events, or pass over as many slots; false: there are no more."""
        feed, left = self._feed, events_max
        while left > 0:
            if feed.out_bytes >= limits.FEED_SENT_BYTES:
                break
            change = next(self._changes, None)
            if change is not None:
                feed.add_initial(self._ts, change)
                left -= 1
                continue
            slot = self._slot
            if slot is None or self._writer.last_ts != self._ts:
                feed.end_transaction(self._ts)  # what was read at one ts is whole
            if self._ranges and self._database.cleared_count == self._cleared_count:
                self._tell_ranges()
            if slot is None or self._database.cleared_count != self._cleared_count:
                feed.end_scan(is_whole=slot is None)
                return False
            left -= self._read(slot, left)
        return True

    def _tell_ranges(self) -> None:
        for ts, gone in self._ranges:
            self._feed.add_initial_range(ts, gone)
            self._feed.end_transaction(ts)
        self._ranges.clear()

    def _read(self, slot: int, slots_max: int) -> int:
        """Read a slot, with those after it that have no keys; returns how many."""
        self._ts = self._writer.last_ts
        found: list[Iterator[Change]] = []
        wanted = self._feed.interests
        for bucket in self._database.buckets(slot):
            for key in bucket if self._keys is None else self._keys:
                value = bucket.get(key)
                if value is not None and wanted.of(key):
                    its = self._types.of(value)
                    found.append(its.initial(key, value))
                    if its.initial_groups is not None and self._feed.request.has_groups:
                        found.append(its.initial_groups(key, value))
                    if self._feed.request.has_expiry and key in self._database.expiries:
                        found.append(iter([expiry_change(key, self._database.expiries[key])]))
        after = slot + 1
        if self._keys is not None:
            self._slot = self._slots.pop() if self._slots else None
        else:
            after = next_filled(self._database.slots, after, min(slot + slots_max, self._end))
            self._slot = after if after < self._end else None
        self._feed.scanned(slot, after, self._ts)
        self._changes = chain.from_iterable(found)
        return after - slot
