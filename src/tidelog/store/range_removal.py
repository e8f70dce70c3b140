"""DELRANGE: which keys of a database go with a range of names, and what the dicts that they are in are replaced by.

Keys have no order in the keyspace, so every dict is looked at. A dict that loses keys is replaced by one without them,
or by none: to remove is then to swap some thousand dicts, whatever the number of keys, and a snapshot may go on
reading the old ones. It happens in one go, or so that others wait for no more than the swap:

    look        dict by dict, while others write; a dict of which a key changes is forgotten, and looked at again
    swap        what is left to look at, and then all dicts: for everybody one moment
    bury        the old dicts are freed, and the expiries of their keys dropped, dict by dict

Rejected: an index of keys in order, which every write would pay for; hiding a range and removing it later, which every
read would.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.ids import SLOT_COUNT
from tidelog.store.buckets import Buckets
from tidelog.store.slots import slot_of
from tidelog.types.effect import StoredValue

if TYPE_CHECKING:
    from tidelog.store.keyspace import Database

ALL_SLOTS: Final = (0, SLOT_COUNT - 1)
_NONE: Final[dict[bytes, int]] = {}
_NEVER: Final = 2**63
_SLOTS_PASSED_AT_ONCE: Final = 256
"""Slots that one step passes over if there is nothing to look at."""


class DictRemoval(NamedTuple):
    """One dict, and what is left of it."""

    before: dict[bytes, StoredValue]
    size: int
    """How many keys it had when it was looked at."""
    after: dict[bytes, StoredValue]
    """The same one if it loses nothing."""
    expiries: dict[bytes, int]
    """Of the keys that go ..."""
    soonest_ms: int
    """... and the first of them."""


_NOTHING: Final[dict[int, DictRemoval]] = {}


class RangeRemoval:
    """The keys from a start to before an end (empty: without an end) of some slots, first and last."""

    def __init__(self, database: Database, start: bytes, end: bytes, slots: tuple[int, int] = ALL_SLOTS) -> None:
        self.database = database
        self.start = start
        self.end = end
        self._slots = range(slots[0], slots[1] + 1)
        self._found: dict[int, dict[int, DictRemoval]] = {}
        """By slot, and the part of it."""
        self._again: dict[int, None] = {}
        """Slots that are to be looked at."""
        self._losing: dict[int, None] = {}
        """Slots of which a dict was found that loses keys."""
        self._gone = 0
        """How many keys go, as far as is known ..."""
        self._soonest_ms = _NEVER
        """... and no later than which of them expires first."""
        self._replaced_count = -1
        """Of the database when it was last looked at from the beginning."""
        self.is_buried_later = False
        """The caller takes the steps of `bury` once the keys are gone; false: nothing is left to do then."""

    def has(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end) and slot_of(key) in self._slots

    def _filled(self) -> dict[int, None]:
        """The slots that have keys; one that gets its first key later is told of by `forget`."""
        first, end = self._slots.start, self._slots.stop
        return dict.fromkeys(compress(self._slots, self.database.slots[first:end]))

    # --- looking ------------------------------------------------------------------------------------------------

    def look_at_rest(self) -> None:
        """Look at all dicts that are still to be looked at."""
        for _ in self.look():
            pass

    def look(self) -> Iterator[None]:
        """The same in steps of one dict at most; the database may change in between."""
        if self._replaced_count != self.database.replaced_count:  # the first look, a flush, or another range
            self._replaced_count = self.database.replaced_count
            self._again = dict.fromkeys(self._found) | self._filled()
        for passed, slot in enumerate(list(self._again)):
            if passed % _SLOTS_PASSED_AT_ONCE == 0:
                yield
            self._again.pop(slot, None)  # before it is looked at: it may change while others have their turn
            for part in self._parts_gone(slot):
                self._forget(slot, part)
                yield
            for part, bucket in enumerate(self.database.buckets(slot)):
                known = self._found.get(slot, _NOTHING).get(part)
                if known is None or known.before is not bucket or known.size != len(bucket):
                    self._forget(slot, part)
                    self._take(slot, part, self._look_at(bucket))
                    yield

    def _parts_gone(self, slot: int) -> list[int]:
        """Parts that were looked at and are there no more: the slot was emptied, and may have been filled again."""
        count = len(self.database.buckets(slot))
        return [part for part in self._found.get(slot, ()) if part >= count]

    def _take(self, slot: int, part: int, found: DictRemoval) -> None:
        self._found.setdefault(slot, {})[part] = found
        self._gone += found.size - len(found.after)
        if found.after is not found.before:
            self._losing[slot] = None
            self._soonest_ms = min(self._soonest_ms, found.soonest_ms)

    def _forget(self, slot: int, part: int) -> None:
        known = self._found.get(slot, _NOTHING).pop(part, None)
        if known is not None:
            self._gone -= known.size - len(known.after)

    def _look_at(self, bucket: dict[bytes, StoredValue]) -> DictRemoval:
        start, end, expiries = self.start, self.end, self.database.expiries
        gone = [key for key in bucket if start <= key < end] if end else [key for key in bucket if start <= key]
        if not gone:
            return DictRemoval(bucket, len(bucket), bucket, _NONE, _NEVER)
        dying = {key: expiries[key] for key in gone if key in expiries} if expiries else _NONE
        soonest_ms = min(dying.values(), default=_NEVER)
        if len(gone) == len(bucket):
            return DictRemoval(bucket, len(bucket), {}, dying, soonest_ms)
        after = bucket.copy()
        for key in gone:
            del after[key]
        return DictRemoval(bucket, len(bucket), after, dying, soonest_ms)

    def forget(self, key: bytes) -> None:
        """A key is about to change: its dict has to be looked at again."""
        slot = slot_of(key)
        bucket = self.database.slots[slot]
        self._forget(slot, bucket.part_of(key) if type(bucket) is Buckets else 0)
        self._again[slot] = None

    # --- what was found -----------------------------------------------------------------------------------------

    def count(self, now_ms: int) -> int:
        """How many keys go that have not expired yet."""
        if self._soonest_ms > now_ms:
            return self._gone
        found = (each for parts in self._found.values() for each in parts.values())
        return self._gone - sum(when <= now_ms for each in found for when in each.expiries.values())

    @property
    def is_empty(self) -> bool:
        """Nothing goes, not even what has expired."""
        return not self._gone

    def replacements(self) -> Iterator[tuple[int, Any, int, list[dict[bytes, int]]]]:
        """Slots that lose keys: what they are then, how many keys go, and the expiries of those."""
        slots, found = self.database.slots, self._found
        for slot in self._losing:
            bucket = slots[slot]
            if type(bucket) is dict:
                each = found[slot][0]
                if each.after is not bucket:
                    yield slot, each.after or None, each.size - len(each.after), [each.expiries]
            elif bucket is not None:
                parts = [found[slot][part] for part in range(len(bucket.dicts))]
                gone = sum(each.size - len(each.after) for each in parts)
                if gone:
                    after = bucket.replaced([each.after for each in parts])
                    yield slot, after if len(after) else None, gone, [each.expiries for each in parts]

    # --- afterwards ---------------------------------------------------------------------------------------------

    def bury(self) -> Iterator[None]:
        """Drop the expiries of keys that are gone, and free what they were in: one dict at a time."""
        database = self.database
        while self._found:
            _, parts = self._found.popitem()
            while parts:
                _, each = parts.popitem()
                for key, when in each.expiries.items():
                    if database.expiries.get(key) == when and database.peek(key) is None:
                        database.expiring.drop(key)
                del each
                yield
