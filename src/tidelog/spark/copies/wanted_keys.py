"""Which keys of a database are wanted of a moment, so that only their records are decoded and held.

A stream that was copied (RENAME, COPY, MOVE within a shard) is a record that names the stream it was copied from, and
has none of its entries. So whoever wants the copy needs the other stream as well, up to then: it is an *other* key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.ids import SLOT_COUNT
from tidelog.journal.operation import START, VAL, OperationTable, decode_pairs, encode_pairs, pair_keys
from tidelog.journal.sidecar import FrameSummary
from tidelog.store.glob import matcher
from tidelog.store.slots import slot_of

_LAST_SLOT: Final = SLOT_COUNT - 1


@dataclass(frozen=True)
class WantedKeys:
    """Keys of one database. All conditions hold. It travels to the executors."""

    database: int = 0
    prefix: bytes = b""
    among: frozenset[bytes] | None = None
    """None: any."""
    pattern: bytes | None = None
    """A glob; None: any."""
    first_slot: int = 0
    last_slot: int = _LAST_SLOT
    others: frozenset[tuple[int, bytes]] = frozenset()
    """Databases and keys of streams that wanted ones were copied from."""

    def test(self) -> Callable[[bytes], bool]:
        """Says of a key of the database whether it is wanted; not of others."""
        prefix, among, first, last = self.prefix, self.among, self.first_slot, self.last_slot
        fits = None if self.pattern is None else matcher(self.pattern)
        has_slots = first > 0 or last < _LAST_SLOT

        def test(key: bytes) -> bool:
            return (
                key.startswith(prefix)
                and (among is None or key in among)
                and (fits is None or fits(key))
                and (not has_slots or first <= slot_of(key) <= last)
            )

        return test

    def slots(self) -> tuple[int, int]:
        """The first and the last slot that a wanted key of the database may be in."""
        if not self.among:
            return self.first_slot, self.last_slot
        slots = {slot_of(key) for key in self.among}
        return max(self.first_slot, min(slots)), min(self.last_slot, max(slots))

    def within(self, slots: tuple[int, int]) -> WantedKeys:
        return replace(self, first_slot=max(self.first_slot, slots[0]), last_slot=min(self.last_slot, slots[1]))

    def plus(self, others: set[tuple[int, bytes]]) -> WantedKeys:
        return replace(self, others=self.others | others)

    def may_be_in(self, summary: FrameSummary) -> bool:
        """False: a frame has no record about a wanted key, or about another one that is needed."""
        return any(
            summary.may_hold_key(span.start) if span.is_key else summary.may_hold_span(span.start, span.end)
            for span in self._spans()
        )

    def _spans(self) -> Sequence[Span]:
        others = [span_of_key(key) for _, key in self.others]
        if self.among is not None:
            return [*(span_of_key(key) for key in self.among), *others]
        return [span_of_prefix(self.prefix), *others]

    @property
    def has_spans(self) -> bool:
        """Whether summaries of frames can help."""
        return bool(self.prefix) or self.among is not None


class RecordFilter:
    """Says which records concern wanted keys, and cuts out what does not."""

    def __init__(self, wanted: WantedKeys, table: OperationTable) -> None:
        self._database = wanted.database
        self._test = wanted.test()
        self._others: dict[int, set[bytes]] = {}
        for database, key in wanted.others:
            self._others.setdefault(database, set()).add(key)
        self._table = table

    def wants(self, database: int, opcode: int, payload: bytes) -> bool:
        """Hot: asked of each record."""
        others = self._others.get(database)
        if others is None and database != self._database:
            return False
        if opcode == START:
            return False
        keys = pair_keys(payload) if opcode == VAL else self._table.keys(opcode, payload)
        if keys is None:
            return True
        return any(self._has(database, key, others) for key in keys)

    def _has(self, database: int, key: bytes, others: set[bytes] | None) -> bool:
        return (database == self._database and self._test(key)) or (others is not None and key in others)

    def cut(self, database: int, payload: bytes) -> bytes:
        """The payload of a `val` without strings that are not wanted."""
        others = self._others.get(database)
        pairs = decode_pairs(payload)
        kept = [pair for pair in pairs if self._has(database, pair[0], others)]
        return payload if len(kept) == len(pairs) else encode_pairs(kept)
