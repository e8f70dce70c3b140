"""One database: a dict a slot, made when its first key comes.

A slot's dict is what SCAN, snapshots and initial scans of feeds visit in one step, so it must stay small: past
`SLOT_KEYS_SPLIT` keys (keys that share a tag) it is split into buckets by a hash of the key, doubling as it grows.

    slots[slot]    None | dict | Buckets      key -> value
    expiring       keys that expire, and when
    alarms         keys in whose values something falls due by itself, and when the first of it does
    ruled          keys of streams that keep only some of their entries by themselves

Nothing here reads a clock: an expired key is there until an operation removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tidelog import limits
from tidelog.ids import SLOT_COUNT, Ts
from tidelog.journal.node_files import NodeFiles
from tidelog.journal.retention import Holder
from tidelog.store.buckets import Buckets
from tidelog.store.deadlines import Deadlines
from tidelog.store.holds import NamedHolds
from tidelog.store.libraries import Libraries
from tidelog.store.range_removal import RangeRemoval
from tidelog.store.slots import Positions, slot_of, slots_of
from tidelog.store.uses import KeyUses
from tidelog.types.effect import StoredValue
from tidelog.types.encoding_bounds import EncodingBounds


class Database:
    """The keys of one database, over all shards."""

    __slots__ = (
        "_signals",
        "alarms",
        "all",
        "bounds",
        "cleared_count",
        "cooling_lines",
        "expiries",
        "expiring",
        "holds",
        "libraries",
        "node_files",
        "number",
        "observer",
        "on_range",
        "on_replaced",
        "replaced_count",
        "ruled",
        "size",
        "slots",
        "uses",
        "waiting",
    )

    def __init__(
        self,
        number: int,
        signals: dict[tuple[int, bytes], bool] | None = None,
        uses: KeyUses | None = None,
        libraries: Libraries | None = None,
        holds: NamedHolds | None = None,
        bounds: EncodingBounds | None = None,
        node_files: NodeFiles | None = None,
    ) -> None:
        self.number = number
        self.all: Sequence[Database] = ()
        """Those of the store, by number; empty: this one is alone."""
        self.waiting: set[bytes] = set()
        """Keys that somebody waits for; a change of one is noted in the store's `signals`."""
        self._signals = signals if signals is not None else {}
        self.uses = uses if uses is not None else KeyUses()
        """Told of every key that a client looks for."""
        self.libraries = libraries if libraries is not None else Libraries()
        """Of the store, not of this database. So are the next."""
        self.holds = holds if holds is not None else NamedHolds()
        self.bounds = bounds if bounds is not None else EncodingBounds()
        self.node_files = node_files
        self.cooling_lines: list[Any] = []
        """For every slot, where its streams' nodes get in line to become cold; empty: they do not."""
        self.slots: list[Any] = [None] * SLOT_COUNT
        self.expiring = Deadlines()
        self.expiries = self.expiring.times
        """Key -> absolute ms. Hot: kept at hand."""
        self.alarms = Deadlines()
        """Pending entries that expire (`dead_letters`). A time may be too early, and its key of another type then."""
        self.ruled: dict[bytes, None] = {}
        """Streams with a rule (`streams/retention`). One whose key was given another value may still be there."""
        self.size = 0
        """How many keys there are."""
        self.cleared_count = 0
        """How often all of them went at once."""
        self.replaced_count = 0
        """How often dicts were replaced by others: with all keys, or with those of a range."""
        self.observer: Callable[[Database, bytes | None], None] | None = None
        """Told of a key before it changes (None: of all): for WATCH and snapshots."""
        self.on_range: Callable[[Database, RangeRemoval], None] | None = None
        """Told of a range before it goes: for WATCH."""
        self.on_replaced: Callable[[Database, int, Any, list[dict[bytes, int]]], None] | None = None
        """Told of a slot whose dict is about to be replaced: the slot, the dict, which nobody changes any more, and
        the expiries of those of its keys that go. For snapshots."""

    def __len__(self) -> int:
        return self.size

    def beside(self, number: int) -> Database:
        return self if number == self.number else self.all[number]

    def cooling_line(self, key: bytes) -> Any:
        return self.cooling_lines[slot_of(key)] if self.cooling_lines else None

    def find(self, key: bytes) -> StoredValue | None:
        return self.find_at(slot_of(key), key)

    def find_at(self, slot: int, key: bytes) -> StoredValue | None:
        """As `find`, for a key whose slot is known. Hot."""
        uses = self.uses
        uses.by_slot[slot] = uses.now_ticks
        bucket = self.slots[slot]
        if isinstance(bucket, dict):
            return bucket.get(key)
        return None if bucket is None else bucket.get(key)

    def peek(self, key: bytes) -> StoredValue | None:
        """As `find`, but it does not count as a use of the key."""
        bucket = self.slots[slot_of(key)]
        return None if bucket is None else bucket.get(key)

    def change(self, key: bytes) -> StoredValue | None:
        self.touch(key)
        return self.peek(key)

    def touch(self, key: bytes) -> None:
        """The value of a key is about to change: clients that watch or wait for it, and a snapshot, are told. Hot."""
        self.observe(key)
        if self.waiting and key in self.waiting:
            self._signals.setdefault((self.number, key), False)

    def _signal_new(self, key: bytes) -> None:
        """A key that somebody waits for was not there, and is now: that is what counts for the order of `signals`."""
        place = self.number, key
        if not self._signals.get(place, False):
            self._signals.pop(place, None)
            self._signals[place] = True

    def observe(self, key: bytes) -> None:
        """As `touch`, for a change that gives clients that wait for the key nothing to read. Hot."""
        if self.observer is not None:
            self.observer(self, key)

    def put(self, key: bytes, value: StoredValue, expire_ms: int | None = None) -> None:
        self.put_at(slot_of(key), key, value, expire_ms)

    def put_at(self, slot: int, key: bytes, value: StoredValue, expire_ms: int | None = None) -> None:
        """As `put`, for a key whose slot is known. Hot."""
        self.touch(key)
        bucket = self.slots[slot]
        if isinstance(bucket, dict) and key in bucket:  # most writes
            bucket[key] = value
            if expire_ms is not None or key in self.expiries:
                self._set_expiry(key, expire_ms)
            return
        if bucket is None:
            bucket = self.slots[slot] = {}
        if key not in bucket:
            if self.waiting and key in self.waiting:
                self._signal_new(key)
            self.size += 1
            if len(bucket) >= limits.SLOT_KEYS_SPLIT and type(bucket) is dict:
                bucket = self.slots[slot] = Buckets(bucket)
        bucket[key] = value
        if expire_ms is not None or key in self.expiries:
            self._set_expiry(key, expire_ms)

    def load(self, data: bytes, keys: Positions, values: Positions, ends: Positions) -> None:
        """Put strings that lie in `data`, each `data[key:value]` -> `data[value:end]`, without an expiry.

        Hot: what `put` does for each of them, for the many that are loaded while nobody observes and no key expires.
        Slot by slot, because a slot that was just used is in the processor's cache; a key's own order is kept. Keys are
        counted, and large slots split, once and not for each.
        """
        if self.observer is not None or self.expiries or len(keys) < limits.LOADED_AT_ONCE_MIN:
            for start, middle, end in zip(keys.tolist(), values.tolist(), ends.tolist(), strict=True):
                self.put(data[start:middle], data[middle:end])
            return
        of_keys = slots_of(data, keys, values)
        order = np.argsort(of_keys, kind="stable")
        of_keys = of_keys[order]
        edges = np.flatnonzero(np.diff(of_keys, prepend=SLOT_COUNT, append=SLOT_COUNT)).tolist()
        starts, middles, stops = keys[order].tolist(), values[order].tolist(), ends[order].tolist()
        slots = self.slots
        for slot, first, last in zip(of_keys[edges[:-1]].tolist(), edges[:-1], edges[1:], strict=True):
            bucket = slots[slot]
            before = 0 if bucket is None else len(bucket)
            if bucket is None:
                bucket = slots[slot] = {}
            for start, middle, end in zip(starts[first:last], middles[first:last], stops[first:last], strict=True):
                bucket[data[start:middle]] = data[middle:end]
            self.size += len(bucket) - before
            if len(bucket) > limits.SLOT_KEYS_SPLIT and type(bucket) is dict:
                slots[slot] = Buckets(bucket)

    def remove(self, key: bytes) -> None:
        slot = slot_of(key)
        bucket = self.slots[slot]
        if bucket is None or key not in bucket:
            return
        self.touch(key)
        del bucket[key]
        self.size -= 1
        self.expiring.drop(key)
        self.alarms.drop(key)
        self.ruled.pop(key, None)
        if not bucket:
            self.slots[slot] = None

    def set_expiry(self, key: bytes, expire_ms: int | None) -> None:
        if self.peek(key) is None:
            return
        self.observe(key)
        self._set_expiry(key, expire_ms)

    def _set_expiry(self, key: bytes, expire_ms: int | None) -> None:
        if expire_ms is None:
            self.expiring.drop(key)
        else:
            self.expiring.set(key, expire_ms)

    def wake_at(self, key: bytes, when_ms: int) -> None:
        """Something in the value of a key falls due by itself. Hot."""
        before = self.alarms.times.get(key)
        if before is None or when_ms < before:
            self.alarms.set(key, when_ms)

    def note_rule(self, key: bytes, *, has_rule: bool) -> None:
        if has_rule:
            self.ruled[key] = None
        else:
            self.ruled.pop(key, None)

    def clear(self, slots: tuple[int, int] = (0, SLOT_COUNT - 1)) -> None:
        """Every key is gone, or every key of a shard's slots (first and last)."""
        if self.observer is not None:
            self.observer(self, None)
        for key in self.waiting:
            self._signals.setdefault((self.number, key), False)
        self.cleared_count += 1
        self.replaced_count += 1
        first, last = slots
        if (first, last) == (0, SLOT_COUNT - 1):
            self.slots = [None] * SLOT_COUNT
            self.expiring, self.alarms, self.ruled, self.size = Deadlines(), Deadlines(), {}, 0
            self.expiries = self.expiring.times
            return
        gone = [key for bucket in self.slots[first : last + 1] if bucket is not None for key in bucket]
        self.slots[first : last + 1] = [None] * (last - first + 1)
        self.size -= len(gone)
        for key in gone:
            self.expiring.drop(key)
            self.alarms.drop(key)
            self.ruled.pop(key, None)

    def put_library(self, name: bytes, code: bytes) -> None:
        self.libraries.put(name, code)

    def remove_library(self, name: bytes) -> None:
        self.libraries.remove(name)

    def put_hold(self, holder: Holder, data_ts: Ts) -> None:
        self.holds.put(holder, data_ts)

    def remove_hold(self, name: str, data_ts: Ts) -> None:
        self.holds.remove(name, data_ts)

    def remove_range(self, removal: RangeRemoval) -> None:
        """Every key from a start to before an end is gone, or those of a shard's slots. The dicts that they were in are
        replaced, not changed. It must have been looked at."""
        if self.on_range is not None:
            self.on_range(self, removal)
        self.replaced_count += 1
        for key in [key for key in self.waiting if removal.has(key) and self.peek(key) is not None]:
            self._signals.setdefault((self.number, key), False)
        for slot, bucket, gone, expiries in removal.replacements():
            if self.on_replaced is not None:
                self.on_replaced(self, slot, self.slots[slot], expiries)
            self.slots[slot] = bucket
            self.size -= gone
            if not removal.is_buried_later:
                for key in chain.from_iterable(expiries):
                    self.expiring.drop(key)
        for key in [key for key in self.alarms.times if removal.has(key)]:
            self.alarms.drop(key)
        for key in [key for key in self.ruled if removal.has(key)]:
            del self.ruled[key]

    def buckets(self, slot: int) -> list[dict[bytes, StoredValue]]:
        """The dicts of a slot: what is visited in one step."""
        bucket = self.slots[slot]
        if bucket is None:
            return []
        return bucket.dicts if type(bucket) is Buckets else [bucket]

    def all_keys(self) -> Iterator[bytes]:
        """Every key; the database must not change meanwhile."""
        for bucket in filter(None, self.slots):
            yield from bucket
