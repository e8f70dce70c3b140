"""A part of a history as a journal of its own: all transactions and epochs between two moments, under the same lsns.

It lies in a folder like a data directory (`meta.json`, one folder a shard), whose shards begin at the first lsn of the
part. Frames, marks and blob files are new, so nothing before the part comes along, and everything in it is proved by
its own checksums: `tidelog journal show` reads it like any other journal.

Memory: a batch, and the largest transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from tidelog import limits
from tidelog.errors import Corruption, InternalError
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.cycles import find_complete_cycle
from tidelog.journal.layout import Meta, make_shard_folders, shard_folder, write_meta
from tidelog.journal.loader import RecoveryPlan, start_scans
from tidelog.journal.merge import JournalReader, JournalTransaction
from tidelog.journal.new_files import NewFiles
from tidelog.journal.record import FINISH, TS
from tidelog.journal.shard_writer import ShardState, ShardWriter
from tidelog.ports import Disk


class Excerpt(NamedTuple):
    """What was written."""

    records: int
    """Of transactions after the ts that was asked about."""
    first_ts: Ts
    last_ts: Ts
    """Of the first and the last of those transactions; 0: there is none."""
    size_bytes: int
    """Of all that was written."""


def write_excerpt(
    disk: Disk,
    folder: str,
    meta: Meta,
    begin: RecoveryPlan,
    end: RecoveryPlan,
    known: Collection[int],
    target: str,
    since: Ts,
) -> Excerpt:
    """Write what `folder` has between two plans of it to a new folder; durable when it returns, and read back.

    `known`: the ids of the epochs that had begun before. `since`: transactions after it are counted.
    """
    epochs: deque[Epoch] = deque()

    def on_epoch(epoch: Epoch) -> None:
        if epoch.id not in known:
            epochs.append(epoch)

    reader = JournalReader(disk, folder, meta.geometry, meta.shard_count, lambda: end.cuts, on_epoch=on_epoch)
    writer = _ExcerptWriter(disk, target, meta, begin)
    records, first_ts, last_ts = 0, Ts(0), Ts(0)
    try:
        reader.seek_lsns(begin.lsns)
        for transaction in reader.read():
            while epochs and writer.has_reached(epochs[0]):
                writer.add_epoch(epochs.popleft(), transaction.ts)
            writer.add(transaction, reader)
            if transaction.ts > since:
                first_ts, last_ts = first_ts or transaction.ts, transaction.ts
                records += sum(len(part.records) for part in transaction.parts)
        for epoch in epochs:
            writer.add_epoch(epoch, end.last_ts)
        writer.finish()
    finally:
        writer.close()
        reader.close()
    _check(disk, target, meta, begin.lsns, end.lsns)
    return Excerpt(records, first_ts, last_ts, writer.bytes_written)


class _ExcerptWriter:
    """Writes transactions that were read as they were, whatever the frames that they lay in."""

    def __init__(self, disk: Disk, folder: str, meta: Meta, begin: RecoveryPlan) -> None:
        self._disk = disk
        self._folder = folder
        self._meta = meta
        self._cycle = begin.complete.cycle
        self._last_ts = begin.last_ts
        self._gathered = 0
        states = [ShardState(None, lsn, Ts(0), 0, 0, 0) for lsn in begin.lsns]
        self._shards = [ShardWriter(meta.geometry, meta.shard_count, state) for state in states]
        self._files = NewFiles(disk)
        make_shard_folders(disk, folder, meta.shard_count)

    @property
    def bytes_written(self) -> int:
        return self._files.bytes_written

    def has_reached(self, epoch: Epoch) -> bool:
        """Whether all that came before an epoch has been added."""
        return all(shard.next_lsn >= lsn for shard, lsn in zip(self._shards, epoch.lsns, strict=True))

    def add_epoch(self, epoch: Epoch, ts: Ts) -> None:
        """`ts` lies above all before it, and not above what follows."""
        for shard in self._shards:
            shard.add_epoch(epoch, ts)

    def add(self, transaction: JournalTransaction, reader: JournalReader) -> None:
        for part in transaction.parts:
            shard = self._shards[part.shard]
            for record in part.records:
                if record.lsn != shard.next_lsn:
                    raise InternalError(f"record {record.lsn} of shard {part.shard} follows {shard.next_lsn - 1}")
                payload = reader.payload_of(part, record)
                expire_ms = None if record.expire_ms < 0 else record.expire_ms
                shard.add(record.ts, record.opcode, record.flags & (TS | FINISH), payload, expire_ms, record.database)
                self._gathered += len(payload)
        self._last_ts = transaction.ts
        if self._gathered >= limits.SNAPSHOT_BATCH_BYTES:
            self._write()

    def _write(self) -> None:
        self._cycle = Cycle(self._cycle + 1)
        self._gathered = 0
        ends = [shard.next_lsn for shard in self._shards]
        for index, shard in enumerate(self._shards):
            if shard.is_dirty:
                batch = shard.end_batch(self._cycle, self._last_ts, Cycle(0), ends)
                self._files.put(shard_folder(self._folder, index), batch)

    def finish(self) -> None:
        """Make it durable; `meta.json` comes last."""
        self._write()
        self._files.sync()
        for shard in range(self._meta.shard_count):
            self._disk.sync_folder(shard_folder(self._folder, shard))
        write_meta(self._disk, self._folder, self._meta)

    def close(self) -> None:
        self._files.close()


def _check(disk: Disk, folder: str, meta: Meta, begin: tuple[Lsn, ...], end: tuple[Lsn, ...]) -> None:
    """Read it back: it may soon be the only copy."""
    scans = start_scans(disk, folder, meta, begin)
    try:
        complete = find_complete_cycle(scans)
        for scan in scans:
            if scan.damage is not None:
                raise scan.damage
        if complete.ends != end:
            raise Corruption(f"it was to end at lsns {end}, and ends at {complete.ends}", path=folder)
    finally:
        for scan in scans:
            scan.close()
