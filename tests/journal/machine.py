"""A small machine with one data directory, for the tests of the journal.

`Machine` holds a disk, a clock and the state that recovery replays; frames are tiny so that a few records cross their
edges. A *put* is `(shard, key, value)` in database 0, or `(shard, key, value, database)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.merge import JournalReader, JournalTransaction
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, FLUSHDB, START, VAL, core_table, decode_items, decode_pairs, encode_pairs
from tidelog.journal.reader import Part, Record
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.snapshot import Snapshot
from tidelog.journal.source import ShardSource
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

FOLDER: Final = "/data"
FRAME_BYTES: Final = 1024

Put = tuple[int, bytes, bytes] | tuple[int, bytes, bytes, int]
State = dict[tuple[int, int, bytes], bytes]
"""(shard, database, key) -> value."""


class Seen(NamedTuple):
    """A transaction as a reader hands it out, reduced to what was put."""

    ts: Ts
    puts: tuple[tuple[int, bytes, bytes, int], ...]


def apply_to(state: State, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
    """The naive store: what the operations of the journal itself do to a state."""
    for part in transaction.parts:
        for record in part.records:
            payload = payload_of(part, record)
            if record.opcode == VAL:
                for key, value in decode_pairs(payload):
                    state[part.shard, record.database, key] = value
            elif record.opcode == DEL:
                for key in decode_items(payload):
                    state.pop((part.shard, record.database, key), None)
            elif record.opcode == FLUSHDB:
                for place in [place for place in state if place[:2] == (part.shard, record.database)]:
                    del state[place]


def seen(transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> Seen:
    puts: list[tuple[int, bytes, bytes, int]] = []
    for part in transaction.parts:
        for record in part.records:
            if record.opcode != START:
                for key, value in decode_pairs(payload_of(part, record)):
                    puts.append((part.shard, key, value, record.database))
    return Seen(transaction.ts, tuple(puts))


class Machine:
    """A disk, a clock, and the journal that is open on them."""

    def __init__(
        self,
        *,
        seed: int = 0,
        shards: int = 2,
        frames_per_segment: int = 4,
        frame_bytes: int = FRAME_BYTES,
        policy: FsyncPolicy = FsyncPolicy.ALWAYS,
        ring_bytes_max: int = limits.RING_BYTES_MAX,
        retention: RetentionLimits | None = None,
        leads: bool = True,
    ) -> None:
        self.disk = SimulatedDisk(seed)
        self.clock = SimulatedClock()
        self.settings = Settings(
            Geometry(frame_bytes, frames_per_segment),
            shards,
            policy,
            ring_bytes_max,
            retention or RetentionLimits(),
        )
        self.state: State = {}
        """What the last recovery replayed."""
        self.replayed: list[Ts] = []
        self._epoch_id = 0
        self.journal: Journal = self.open(leads=leads)

    def open(self, *, leads: bool = True) -> Journal:
        """Open the directory, and take note of what is replayed."""
        self.state, self.replayed = {}, []
        self.journal = Journal.open(
            self.disk,
            FOLDER,
            self.clock,
            self.settings,
            apply=self._apply,
            new_epoch_id=self._new_epoch_id,
            leads=leads,
        )
        return self.journal

    def _apply(self, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
        self.replayed.append(transaction.ts)
        apply_to(self.state, transaction, payload_of)

    def _new_epoch_id(self) -> int:
        self._epoch_id += 1
        return self._epoch_id

    # --- writing ------------------------------------------------------------------------------------------------

    def append(self, *puts: Put) -> Ts:
        """One transaction, gathered and not written."""
        self.clock.advance(1000)
        ts = self.journal.hlc.next()
        self.journal.writer.append(ts, [_record(put) for put in puts])
        return ts

    def write(self, *puts: Put) -> Ts:
        ts = self.append(*puts)
        self.journal.writer.write()
        return ts

    def commit(self, *puts: Put) -> Ts:
        """One transaction, durable."""
        ts = self.write(*puts)
        self.journal.writer.sync()
        return ts

    def fill(self, count: int, *, shard: int = 0, size: int = 200, prefix: bytes = b"k") -> list[Ts]:
        """Many durable transactions of one record."""
        return [self.commit((shard, b"%s%04d" % (prefix, number), bytes(size))) for number in range(count)]

    def snapshot(self, state: State) -> Snapshot:
        """A snapshot of this state at this moment."""
        writer = self.journal.begin_snapshot()
        assert writer is not None
        for (shard, database, key), value in state.items():
            writer.add(ShardId(shard), VAL, encode_pairs([(key, value)]), None, database)
        return self.journal.finish_snapshot(writer)

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, since: int = 0) -> list[Seen]:
        """What a new reader sees."""
        reader = self.journal.reader_since(Ts(since))
        try:
            return self.read_on(reader)
        finally:
            reader.close()

    def read_on(self, reader: JournalReader) -> list[Seen]:
        return [seen(transaction, reader.payload_of) for transaction in reader.read()]

    def source(self, shard: int = 0) -> ShardSource:
        return ShardSource(self.disk, f"{FOLDER}/shard-{shard}", self.settings.geometry, ShardId(shard))

    def path(self, shard: int = 0, segment: int = 0) -> str:
        return self.source(shard).path(Lsn(segment))

    def segments(self, shard: int = 0) -> list[Lsn]:
        return self.source(shard).segments()


def _record(put: Put) -> NewRecord:
    shard, key, value, *database = put
    return NewRecord(ShardId(shard), VAL, encode_pairs([(key, value)]), None, database[0] if database else 0)


TABLE: Final = core_table()
