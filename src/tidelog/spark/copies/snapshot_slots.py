"""Which frames of a snapshot have the keys of some slots, so that a task need not read all of it.

A snapshot is written database by database, and slot by slot (`store.capture`). A record is one of these:

    strings      many in one record, which waits until it is full. Its first key came when the one before was written,
                 so whatever stands before that is of the slot of this key, or of earlier ones
    one key      written when its slot was visited: whatever stands before it is of that slot, or of earlier ones
    one string   may be either, and proves nothing

A snapshot of single strings is read as a whole, as nothing in it proves where a slot begins.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.ids import Lsn
from tidelog.journal.operation import VAL, OperationTable, pair_keys
from tidelog.journal.reader import Record, ShardReader
from tidelog.journal.record import BLOB
from tidelog.journal.segment import FilePosition
from tidelog.journal.source import ShardSource
from tidelog.spark.copies.wanted_keys import RecordFilter
from tidelog.store.slots import slot_of

Visit = tuple[int, int]
"""A database and a slot, in the order in which they are written."""


def first_lsn(source: ShardSource, end: FilePosition, table: OperationTable, wanted: Visit) -> Lsn:
    """From where on a shard of a snapshot has the keys of a slot and those after it. A few frames are read."""
    frames = [
        FilePosition(segment, at)
        for segment in source.segments()
        for at in range(0, source.size(segment), source.geometry.frame_bytes)
    ]
    first, behind = 0, len(frames)
    while behind - first > 1:
        middle = (first + behind) // 2
        if _is_before(source, end, table, frames[middle], wanted):
            first = middle
        else:
            behind = middle
    return source.frame_header(*frames[first]).lsn if first else Lsn(0)


def _is_before(
    source: ShardSource, end: FilePosition, table: OperationTable, frame: FilePosition, wanted: Visit
) -> bool:
    """Whether it is proved that all frames before one have only keys of slots before the wanted one."""
    strings = 0
    for record in _records(source, end, source.frame_header(*frame).lsn):
        if record.flags & BLOB:
            continue
        if record.opcode == VAL and record.expire_ms < 0:
            keys = pair_keys(record.payload)
            if len(keys) < 2:
                continue
            strings += 1
            if strings < 2:
                continue
        else:
            found = pair_keys(record.payload) if record.opcode == VAL else table.keys(record.opcode, record.payload)
            if not found:
                continue
            keys = list(found)
        if (record.database, slot_of(keys[0])) < wanted:
            return True
    return False


def _records(source: ShardSource, end: FilePosition, lsn: Lsn) -> Iterator[Record]:
    """Some records, from one on."""
    reader = ShardReader(source, lambda: end)
    reader.seek_lsn(lsn)
    found = False
    while not found and (parts := reader.read()) is not None:
        for part in parts:
            yield from part.records
            found = found or bool(part.records)


class SlotEnd:
    """Says which records are wanted, and when no more of them can come."""

    def __init__(self, keeps: RecordFilter, last: Visit) -> None:
        self._keeps = keeps
        self._last = last
        self.is_reached = False

    def wants(self, database: int, opcode: int, payload: bytes) -> bool:
        """Hot: asked of each record."""
        if self._keeps.wants(database, opcode, payload):
            return True
        if database > self._last[0]:
            self.is_reached = True
        elif opcode == VAL and database == self._last[0]:
            keys = pair_keys(payload)
            if len(keys) > 1 and (database, slot_of(keys[0])) > self._last:
                self.is_reached = True
        return False
