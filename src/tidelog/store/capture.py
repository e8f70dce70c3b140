"""A snapshot of one moment, written while the store goes on: no fork, no stop.

The slots of all databases are visited in short steps. Before a transaction first changes a key that was not visited
yet, the key is kept as it was: strings by reference, collections as a copy one level deep, a key that was not there as
absent. A visit writes the kept value of a key, or the current one if none was kept; afterwards the key may change
freely. FLUSH leaves the old dicts to the capture and goes on with new ones, and so does DELRANGE with the dicts that
lose keys.

    a step    a slot; of a slot with many keys one part: those whose hash has the same low bits; of a large collection
              one record; a large value, which may be written on another thread (`begin_large`)

A slot is divided by the number of buckets that it has when its turn comes. It may be split further, emptied or filled
again meanwhile: which part a key belongs to depends on the key alone, so that it is known whether it was visited.

Plain strings, which most keyspaces consist of, share records: they are written and loaded many at a time. Whoever reads
only some slots of a snapshot depends on this order (`spark.copies.snapshot_slots`): a record of strings is written when
the next string does not fit into it, and everything else when its slot is visited.

Commands that run meanwhile pay one lookup for each change, and a copy for the first change of a collection.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog import limits
from tidelog.ids import SLOT_COUNT, ShardId
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.snapshot import SnapshotWriter
from tidelog.journal.staging import StageJob
from tidelog.store.buckets import Buckets
from tidelog.store.keyspace import Database
from tidelog.store.slots import next_filled, slot_of
from tidelog.types.effect import StoredValue
from tidelog.types.hold import SetHold
from tidelog.types.library import LibLoad

if TYPE_CHECKING:
    from tidelog.store.store import Store

_SLOTS_PASSED_AT_ONCE: Final = 256
"""Slots without keys that one step passes over."""

_NO_EXPIRIES: Final[dict[bytes, int]] = {}

Kept = dict[bytes, tuple[StoredValue | None, int | None]]
"""Keys as they were, with their expiries; value None: it was not there. Hot: plain tuples."""


class _Frozen(NamedTuple):
    """The contents of a database at the moment when it was flushed."""

    slots: list[Any]
    expiries: dict[bytes, int]


class _LargeValue(NamedTuple):
    """A record that ends with a large value."""

    shard: ShardId
    opcode: int
    head: bytes
    """What stands before it in the payload."""
    value: bytes
    expire_ms: int | None
    database: int
    following: list[tuple[ShardId, int, bytes, int | None]]
    """Records of the same key that come after it, such as its expiry: shard, opcode, payload and expiry."""


class Capture:
    """The moment at which it was made, written step by step."""

    def __init__(self, store: Store, snapshot: SnapshotWriter) -> None:
        self._store = store
        self._databases = store.databases
        self.snapshot = snapshot
        self._owners = store.owners
        """For every slot, its shard."""
        self._types = store.types
        self._number = 0
        """The database that is being visited ..."""
        self._slot = 0
        """... its first slot that has not been ..."""
        self._part = 0
        """... and of that, the first part."""
        self._mask = 0
        """How many parts it has, less one."""
        self._kept: dict[int, Kept] = {}
        """Database and slot (`_place`) -> its keys that have changed since."""
        self._kept_of_parts: list[Kept] = []
        """The same for the slot that is being visited, if it has parts."""
        self._frozen: dict[int, _Frozen] = {}
        self._frozen_slots: dict[int, tuple[Any, dict[bytes, int]]] = {}
        """Database and slot -> what was in it when keys of it went with a range, and the expiries of those."""
        self._pairs: list[tuple[bytes, bytes]] = []
        """Plain strings that will share a record."""
        self._pairs_bytes = 0
        self._pairs_shard = ShardId(0)
        self._large: deque[Iterator[Any]] = deque()
        """Operations of large collections that are not written yet."""
        self._large_values: deque[_LargeValue] = deque()
        """What was visited and is not written yet."""
        self.keys_written = 0
        self.keys_total = sum(database.size for database in self._databases)
        self._add([LibLoad(name, code) for name, code in store.libraries.codes.items()])
        data_ts = store.holds.data_ts(snapshot.point.ts)
        self._add([SetHold(holder, data_ts) for holder in store.holds.by_name.values()])
        self._skip_empty()
        snapshot.keys = 0

    @property
    def is_done(self) -> bool:
        return self._is_visited and not self._large_values

    @property
    def _is_visited(self) -> bool:
        return self._number >= len(self._databases)

    # --- while the store goes on --------------------------------------------------------------------------------

    def observe(self, database: Database, key: bytes | None) -> None:
        """A key is about to change; None: all of the database. Hot while a snapshot is made."""
        number = database.number
        if number < self._number or number in self._frozen:
            return
        if key is None:
            self._frozen[number] = _Frozen(database.slots, database.expiries)
            return
        slot = slot_of(key)
        if number == self._number and slot <= self._slot:
            if slot < self._slot:
                return
            if self._mask:
                part = zlib.crc32(key) & self._mask
                if part >= self._part:
                    self._keep(self._kept_of_parts[part], database, slot, key)
                return
        place = number * SLOT_COUNT + slot
        kept = self._kept.get(place)
        if kept is None:
            kept = self._kept[place] = {}
        self._keep(kept, database, slot, key)

    def freeze(self, database: Database, slot: int, bucket: Any, expiries: list[dict[bytes, int]]) -> None:
        """The dict of a slot is about to be replaced, and will not change any more; `expiries`: of keys that go."""
        number = database.number
        if number < self._number or number in self._frozen or (number == self._number and slot < self._slot):
            return
        gone = expiries[0] if len(expiries) == 1 else {key: each[key] for each in expiries for key in each}
        place = number * SLOT_COUNT + slot
        known = self._frozen_slots.get(place)
        if known is not None:  # another range of it: what the first has left is in its dict, too
            bucket, gone = known[0], gone | known[1]
        self._frozen_slots[place] = bucket, gone

    def _keep(self, kept: Kept, database: Database, slot: int, key: bytes) -> None:
        if key not in kept:
            bucket, gone = self._bucket_of(database, slot)
            value = None if bucket is None else bucket.get(key)
            if value is not None and type(value) is not bytes:
                value = self._types.of(value).copy(value)
            kept[key] = value, gone[key] if key in gone else database.expiries.get(key)

    def _bucket_of(self, database: Database, slot: int) -> tuple[Any, dict[bytes, int]]:
        """The dict of a slot that has what the slot had, and expiries that it had and the database has no more."""
        found = self._frozen_slots.get(database.number * SLOT_COUNT + slot)
        if found is not None:
            return found
        frozen = self._frozen.get(database.number)
        return (database.slots if frozen is None else frozen.slots)[slot], _NO_EXPIRIES

    # --- visiting -----------------------------------------------------------------------------------------------

    def visit(self, keys_max: int) -> None:
        """Take steps until about so many keys are written."""
        enough = self.keys_written + keys_max
        while not self.is_done and self.keys_written < enough:
            self.step()

    def step(self) -> None:
        """The next short piece of work."""
        if self._large_values:
            self.begin_large().run()
            self.end_large()
            return
        if self._large:
            self._write_piece()
            return
        database = self._databases[self._number]
        frozen = self._frozen.get(self._number)
        expiries = database.expiries if frozen is None else frozen.expiries
        bucket, gone = self._bucket_of(database, self._slot)
        if self._part == 0 and type(bucket) is Buckets:
            self._divide(bucket)
        if self._mask:
            kept, self._kept_of_parts[self._part] = self._kept_of_parts[self._part], {}
            self._visit_keys(kept, _part_of(bucket, self._part, self._mask), expiries, gone)
        else:
            kept = self._kept.pop(self._place, {})
            self._visit_keys(kept, () if bucket is None else (bucket,), expiries, gone)
        self._part += 1
        if not self._large:
            self._go_on()

    @property
    def _place(self) -> int:
        return self._number * SLOT_COUNT + self._slot

    def _divide(self, bucket: Buckets) -> None:
        """A slot with many keys is visited in as many parts as it has buckets now."""
        self._mask = len(bucket.dicts) - 1
        self._kept_of_parts = [{} for _ in bucket.dicts]
        for key, was in self._kept.pop(self._place, {}).items():
            self._kept_of_parts[zlib.crc32(key) & self._mask][key] = was

    def _visit_keys(
        self,
        kept: Kept,
        dicts: Iterable[dict[bytes, StoredValue]],
        expiries: dict[bytes, int],
        gone: dict[bytes, int],
    ) -> None:
        shard = self._owners[self._slot]
        if shard != self._pairs_shard:
            self._write_pairs()
            self._pairs_shard = shard
        for key, (value, expire_ms) in kept.items():
            if value is not None:
                self._write(key, value, expire_ms)
        for part in dicts:
            if not expiries and not kept and not gone and set(map(type, part.values())) == {bytes}:
                self._gather_all(list(part.items()))
                continue
            for key, value in part.items():
                if key not in kept:
                    self._write(key, value, gone[key] if key in gone else expiries.get(key))

    def _gather_all(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """The same for plain strings alone. Hot."""
        size = self._pairs_bytes + sum(map(len, chain.from_iterable(pairs)))
        if size <= limits.RECORD_SPLIT_BYTES and len(self._pairs) + len(pairs) <= limits.RECORD_MEMBERS_MAX:
            self._pairs += pairs
            self._pairs_bytes = size
            self.keys_written += len(pairs)
        else:
            for key, value in pairs:
                self._write(key, value, None)

    def _go_on(self) -> None:
        """To the next part, slot or database that may have something."""
        if self._part <= self._mask:
            return
        database = self._databases[self._number]
        slots = self._frozen[self._number].slots if self._number in self._frozen else database.slots
        self._part = self._mask = 0
        self._kept_of_parts = []
        self._frozen_slots.pop(self._place, None)
        first = self._slot + 1
        self._slot = next_filled(slots, first, min(first + _SLOTS_PASSED_AT_ONCE, SLOT_COUNT))
        if self._kept or self._frozen_slots:
            base, kept, frozen = self._number * SLOT_COUNT, self._kept, self._frozen_slots
            passed = range(first, self._slot)
            self._slot = next((slot for slot in passed if base + slot in kept or base + slot in frozen), self._slot)
        if self._slot == SLOT_COUNT:
            self._write_pairs()
            self._number, self._slot = self._number + 1, 0
            self._skip_empty()
            self.snapshot.keys = self.keys_written

    def _skip_empty(self) -> None:
        while not self._is_visited:
            database = self._databases[self._number]
            has_kept = self._number in self._frozen or any(
                place // SLOT_COUNT == self._number for place in chain(self._kept, self._frozen_slots)
            )
            if database.size or has_kept:
                return
            self._number += 1

    @property
    def has_short_steps(self) -> bool:
        """It is not done, and the next step is a short one."""
        return not (self._is_visited or self._large_values)

    # --- large values -------------------------------------------------------------------------------------------

    @property
    def has_large(self) -> bool:
        """The next step is to write a large value."""
        return bool(self._large_values)

    def begin_large(self) -> StageJob:
        """What is to be run to write it, on any thread; then `end_large`."""
        value = self._large_values[0]
        return self.snapshot.begin_stage(value.shard, value.value)

    def end_large(self) -> None:
        value = self._large_values.popleft()
        self.snapshot.add_staged(value.opcode, value.head, value.expire_ms, value.database)
        for shard, opcode, payload, expire_ms in value.following:
            self.snapshot.add(shard, opcode, payload, expire_ms, value.database)

    # --- writing ------------------------------------------------------------------------------------------------

    def _write(self, key: bytes, value: StoredValue, expire_ms: int | None) -> None:
        """Hot."""
        self.keys_written += 1
        if type(value) is not bytes:
            if len(value) > limits.RECORD_MEMBERS_MAX:
                self._large.append(self._types.pieces_of(key, value, expire_ms))
            else:
                self._add(self._types.kept_of(key, value, expire_ms))
        elif expire_ms is not None or len(value) >= limits.STAGED_BYTES_MIN:
            self._add(self._types.operations_of(key, value, expire_ms))
        else:
            size = self._pairs_bytes + len(key) + len(value)
            if size > limits.RECORD_SPLIT_BYTES or len(self._pairs) >= limits.RECORD_MEMBERS_MAX:
                self._write_pairs()
                size = len(key) + len(value)
            self._pairs.append((key, value))
            self._pairs_bytes = size

    def _write_pairs(self) -> None:
        if self._pairs:
            self.snapshot.add(self._pairs_shard, VAL, encode_pairs(self._pairs), None, self._number)
            self._pairs.clear()
        self._pairs_bytes = 0

    def _write_piece(self) -> None:
        operation = next(self._large[0], None)
        if operation is not None:
            self._add([operation])
            return
        self._large.popleft()
        if not self._large:
            self._go_on()

    def _add(self, operations: Iterable[Any]) -> None:
        """Write the operations of a key, in their order: what follows a large value waits for it."""
        awaited: _LargeValue | None = None
        for operation in operations:
            expire_ms = getattr(operation, "expire_ms", None)
            for place in getattr(operation, "places", ()):
                self.snapshot.refer_to(place)
            effect = self._store.effect_of[type(operation)]
            if effect.kind.last is not None and len(effect.kind.last(operation)) >= limits.STAGED_BYTES_MIN:
                found = self._store.split_large(effect, operation)
                if found is not None:
                    what = effect.kind.opcode, found[1], effect.kind.last(operation)
                    awaited = _LargeValue(found[0], *what, expire_ms, self._number, [])
                    self._large_values.append(awaited)
                    continue
            for shard, opcode, payload in self._store.encode(effect, operation):
                if len(payload) >= limits.STAGED_BYTES_MIN:
                    awaited = _LargeValue(shard, opcode, b"", payload, expire_ms, self._number, [])
                    self._large_values.append(awaited)
                elif awaited is not None:
                    awaited.following.append((shard, opcode, payload, expire_ms))
                else:
                    self.snapshot.add(shard, opcode, payload, expire_ms, self._number)


def _part_of(bucket: Any, part: int, mask: int) -> list[dict[bytes, StoredValue]]:
    """The keys of one part of a slot, which may have been split further, emptied or begun anew since it was divided."""
    if bucket is None:
        return []
    if type(bucket) is Buckets and len(bucket.dicts) > mask:
        return bucket.dicts[part :: mask + 1]
    dicts = bucket.dicts if type(bucket) is Buckets else [bucket]
    return [{key: value for key, value in each.items() if zlib.crc32(key) & mask == part} for each in dicts]
