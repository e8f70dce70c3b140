"""Data directories to look at: small frames, everything that a record can be, and a list of what was written."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, FLUSHDB, START, VAL, Start, core_table, encode_items, encode_pairs
from tidelog.journal.operation import encode_start as encode_start
from tidelog.journal.retention import RetentionLimits
from tidelog.ports import Disk
from tidelog.testing.clock import SimulatedClock

SHARDS: Final = 3
GEOMETRY: Final = Geometry(frame_bytes=4096, frames_per_segment=4)
UNKNOWN: Final = 0x7E
"""An opcode that this version does not know."""
BINARY_KEY: Final = b"\xff\x00key"
EXPIRE_MS: Final = 1_800_000_000_000


class Written(NamedTuple):
    """A record with an lsn, as it was appended."""

    shard: int
    lsn: int
    ts: int
    opcode: int
    database: int
    expire_ms: int | None
    payload: bytes


def open_journal(disk: Disk, folder: str, clock: SimulatedClock, *, shards: int = SHARDS) -> Journal:
    settings = Settings(GEOMETRY, shards, FsyncPolicy.EVERYSEC, retention=RetentionLimits(bytes_max=0))
    return Journal.open(disk, folder, clock, settings, apply=lambda _, __: None, new_epoch_id=lambda: 7)


def fill(
    disk: Disk,
    folder: str,
    *,
    transactions: int = 300,
    seed: int = 1,
    shards: int = SHARDS,
    snapshot: bool = False,
    sidecars: bool = False,
    close: bool = True,
    is_newer: bool = True,
) -> list[Written]:
    """Make a data directory; returns its records in the order of the journal, shard by shard.

    `is_newer`: as a newer version would, with records that this one does not know.
    """
    rng, clock = random.Random(seed), SimulatedClock()
    journal = open_journal(disk, folder, clock, shards=shards)
    written: list[Written] = []
    lsns = [0] * shards

    def note(ts: Ts, record: NewRecord) -> None:
        written.append(Written(record.shard, lsns[record.shard], ts, *_rest(record)))
        lsns[record.shard] += 1

    for number in range(transactions):
        clock.advance(1000)
        ts = journal.hlc.next()
        records = [_random_record(rng, shards, is_newer) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        touched = list(dict.fromkeys(record.shard for record in records))
        if len(touched) > 1:
            start = encode_start(Start(ts, touched))
            note(ts, NewRecord(records[0].shard, START, start, None, records[0].database))
        for record in records:
            note(ts, record)
        journal.writer.append(ts, records)
        if rng.random() < 0.3:
            journal.writer.write()
        if rng.random() < 0.2:
            journal.writer.sync()
        if snapshot and number == transactions // 2:
            _take_snapshot(journal)
    if sidecars:
        journal.writer.write()
        journal.make_sidecars(core_table(), 10_000)
    if close:
        journal.close()
    else:
        journal.writer.write()
        journal.writer.sync()
        journal.writer.abandon()
        journal._lock.release()  # as the end of a process would
    return sorted(written, key=lambda record: (record.shard, record.lsn))


def _take_snapshot(journal: Journal) -> None:
    snapshot = journal.begin_snapshot()
    assert snapshot is not None
    for shard in range(journal.meta.shard_count):
        snapshot.add(ShardId(shard), VAL, encode_pairs([(b"whole:%d" % shard, b"v" * 1500)]))
    journal.finish_snapshot(snapshot)


def _rest(record: NewRecord) -> tuple[int, int, int | None, bytes]:
    return record.opcode, record.database, record.expire_ms, record.payload


def _random_record(rng: random.Random, shards: int, is_newer: bool) -> NewRecord:
    shard, database = ShardId(rng.randrange(shards)), rng.choice([0, 0, 0, 2])
    kind = rng.random()
    key = rng.choice([BINARY_KEY, *(b"key:%d" % number for number in range(20))])
    if kind < 0.05:
        return NewRecord(shard, FLUSHDB, b"", None, database)
    if kind < 0.15:
        return NewRecord(shard, DEL, encode_items([key, b"other"]), None, database)
    if kind < 0.2:
        unknown = rng.randbytes(20)
        if is_newer:
            return NewRecord(shard, UNKNOWN, unknown, None, database)
        return NewRecord(shard, DEL, encode_items([unknown]), None, database)
    value = rng.choice([b"short", "gr\u00fc\u00df".encode(), rng.randbytes(100), b"x" * 900, b"w" * 3000])
    return NewRecord(shard, VAL, encode_pairs([(key, value)]), rng.choice([None, None, EXPIRE_MS]), database)


def flip_bit(disk: Disk, path: str, position: int) -> None:
    """Damage one byte of a file."""
    file = disk.open(path, "write")
    file.write(position, [bytes([file.read(position, 1)[0] ^ 0x10])])
    file.close()


def keys_of(record: Written) -> list[bytes] | None:
    named = core_table().keys(record.opcode, record.payload)
    return None if named is None else list(named)


def first_segment(shard: int) -> str:
    return f"shard-{shard}/journal-{Lsn(0):016x}.dj0"
