"""A snapshot of a moment while the store goes on: no fork, no stop.

The slots of all databases are visited in slices. Before a transaction first changes a key in a slot that was not
visited yet, the key is kept as it was: strings by reference, collections as a copy one level deep, a key that was not
there as absent. A slot that is visited gives what was kept of it and otherwise what is there; afterwards its keys may
change freely. FLUSH leaves the old dicts to the capture and goes on with new ones.

So the cost of a snapshot for others is one look a change, and a copy for the first change of a collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tidelog.ids import SLOT_COUNT
from tidelog.journal.snapshot import SnapshotWriter
from tidelog.store.keyspace import Database
from tidelog.store.slots import slot_of
from tidelog.types.effect import Value
from tidelog.types.whole import copy_value, whole_value


class Kept(NamedTuple):
    """A key as it was; value None: it was not there."""

    value: Value | None
    expire_ms: int | None


class _Frozen(NamedTuple):
    """What a database held when it was flushed."""

    slots: list[Any]
    expiries: dict[bytes, int]


class Capture:
    """The moment at which it was made, written slice by slice."""

    def __init__(
        self, databases: list[Database], snapshot: SnapshotWriter, encode: Callable[[Any], list[tuple[Any, int, bytes]]]
    ) -> None:
        self._databases = databases
        self.snapshot = snapshot
        self._encode = encode
        self._number = 0
        """The database that is being visited ..."""
        self._slot = 0
        """... and its first slot that has not been."""
        self._kept: dict[tuple[int, int], dict[bytes, Kept]] = {}
        """Database and slot -> keys that have changed since."""
        self._frozen: dict[int, _Frozen] = {}
        self.keys_written = 0

    @property
    def is_done(self) -> bool:
        return self._number >= len(self._databases)

    def observe(self, database: Database, key: bytes | None) -> None:
        """A key is about to change; None: all of the database."""
        number = database.number
        if number < self._number or number in self._frozen:
            return
        if key is None:
            self._frozen[number] = _Frozen(database.slots, database.expiries)
            return
        slot = slot_of(key)
        if number == self._number and slot < self._slot:
            return
        kept = self._kept.setdefault((number, slot), {})
        if key not in kept:
            value = database.find(key)
            kept[key] = Kept(copy_value(value) if value is not None else None, database.expiries.get(key))

    def visit(self, keys_max: int) -> None:
        """Write the next slots, until about so many keys are written."""
        enough = self.keys_written + keys_max
        while not self.is_done and self.keys_written < enough:
            for key, kept in self._take_slot():
                if kept.value is not None:
                    self._write(key, kept)
            self._slot += 1
            if self._slot == SLOT_COUNT:
                self._number, self._slot = self._number + 1, 0
                self._skip_empty()

    def _skip_empty(self) -> None:
        while not self.is_done:
            database = self._databases[self._number]
            has_kept = self._number in self._frozen or any(number == self._number for number, _ in self._kept)
            if database.size or has_kept:
                return
            self._number += 1

    def _take_slot(self) -> Iterator[tuple[bytes, Kept]]:
        """The keys of the next slot as they were."""
        database = self._databases[self._number]
        slots, expiries = self._frozen.get(self._number, (database.slots, database.expiries))
        changed = self._kept.pop((self._number, self._slot), {})
        yield from changed.items()
        for key in slots[self._slot] or ():
            if key not in changed:
                yield key, Kept(slots[self._slot].get(key), expiries.get(key))

    def _write(self, key: bytes, kept: Kept) -> None:
        for operation in whole_value(key, kept.value, kept.expire_ms):
            expire_ms = getattr(operation, "expire_ms", None)
            for shard, opcode, payload in self._encode(operation):
                self.snapshot.add(shard, opcode, payload, expire_ms, self._number)
        self.keys_written += 1
