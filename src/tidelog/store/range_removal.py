"""DELRANGE: which keys of a database go with a range of names, and what the dicts that they are in are replaced by.

Keys have no order in the keyspace, so every dict is looked at. A dict that loses keys is replaced by one without them,
or by none: to remove is then to swap some thousand dicts, whatever the number of keys, and a snapshot may go on
reading the old ones. A database can be looked at step by step while others write (`step`, `forget`), or at once.

    found[slot, part]   a dict as it was when it was looked at; forgotten when a key of it changes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.ids import SLOT_COUNT
from tidelog.store.buckets import Buckets
from tidelog.store.slots import slot_of
from tidelog.types.effect import StoredValue

if TYPE_CHECKING:
    from tidelog.store.keyspace import Database

ALL_SLOTS: Final = (0, SLOT_COUNT - 1)
_NONE: Final[dict[bytes, int]] = {}


class DictRemoval(NamedTuple):
    """One dict, and what is left of it."""

    before: dict[bytes, StoredValue]
    size: int
    """How many keys it had when it was looked at."""
    after: dict[bytes, StoredValue]
    """The same one if it loses nothing."""
    expiries: dict[bytes, int]
    """Of the keys that go."""


class RangeRemoval:
    """The keys from a start to before an end (empty: without an end) of some slots, first and last."""

    def __init__(self, database: Database, start: bytes, end: bytes, slots: tuple[int, int] = ALL_SLOTS) -> None:
        self._database = database
        self.start = start
        self.end = end
        self._slots = range(slots[0], slots[1] + 1)
        self._found: dict[tuple[int, int], DictRemoval] = {}

    def has(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end) and slot_of(key) in self._slots

    # --- looking ------------------------------------------------------------------------------------------------

    def look_at_rest(self) -> None:
        """Look at all dicts that are still to be looked at."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """The same, one dict at a time."""
        for slot in self._slots:
            for part, bucket in enumerate(self._database.buckets(slot)):
                known = self._found.get((slot, part))
                if known is None or known.before is not bucket or known.size != len(bucket):
                    self._found[slot, part] = self._look(bucket)
                    yield

    def _look(self, bucket: dict[bytes, StoredValue]) -> DictRemoval:
        start, end, expiries = self.start, self.end, self._database.expiries
        gone = [key for key in bucket if start <= key < end] if end else [key for key in bucket if start <= key]
        if not gone:
            return DictRemoval(bucket, len(bucket), bucket, _NONE)
        dying = {key: expiries[key] for key in gone if key in expiries} if expiries else _NONE
        if len(gone) == len(bucket):
            return DictRemoval(bucket, len(bucket), {}, dying)
        after = bucket.copy()
        for key in gone:
            del after[key]
        return DictRemoval(bucket, len(bucket), after, dying)

    def forget(self, key: bytes) -> None:
        """A key is about to change: its dict has to be looked at again."""
        slot = slot_of(key)
        bucket = self._database.slots[slot]
        self._found.pop((slot, bucket.part_of(key) if type(bucket) is Buckets else 0), None)

    # --- what was found -----------------------------------------------------------------------------------------

    def count(self, now_ms: int) -> int:
        """How many keys go that have not expired yet."""
        return sum(
            each.size - len(each.after) - sum(when <= now_ms for when in each.expiries.values())
            for each in self._found.values()
        )

    @property
    def is_empty(self) -> bool:
        """Nothing goes, not even what has expired."""
        return all(each.after is each.before for each in self._found.values())

    def replacements(self) -> Iterator[tuple[int, Any, int, dict[bytes, int]]]:
        """Slots that lose keys: what they are then, how many keys go, and those of them that expire."""
        for slot in self._slots:
            bucket = self._database.slots[slot]
            if bucket is None:
                continue
            parts = [self._found[slot, part] for part in range(len(self._database.buckets(slot)))]
            if all(each.after is each.before for each in parts):
                continue
            gone = sum(each.size - len(each.after) for each in parts)
            expiries = {key: when for each in parts for key, when in each.expiries.items()}
            after = bucket.replaced([each.after for each in parts]) if type(bucket) is Buckets else parts[0].after
            yield slot, after if len(after) else None, gone, expiries
