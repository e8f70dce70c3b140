"""A new data directory from a backup: from a snapshot, or from a whole data directory up to some moment.

    read     the newest snapshot that is whole and not too young, then the journal after it, into a store without a
             journal; every byte is proved by its checksums on the way. Nodes of streams stay on disk (`restored_nodes`)
    write    that store as the one snapshot of a new directory, divided into as many shards as are wanted
    done     the new snapshot is read back and proved; only then the directory counts

While it is filled the directory has a file `restore-unfinished`, which comes first and goes last: a server refuses such
a directory, and the next restore into it begins anew. The history begins with the restored moment: a reader that wants
to resume from an earlier one is told that it is gone, and the first start begins an epoch of its own. The epochs before
it come along, and so do the places of named feeds: a reader that has seen nothing after that moment goes on, whatever
the number of shards, and one that has is told from where on its history was lost.

A restored directory is a database of its own, with an id that its first start gives it: its lsns count anew, and its
history goes on differently from that of the directory it came from, which may still be in use. Followers of the old one
must not take it for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, DirectoryInUse, LimitExceeded, UnreadableRecord
from tidelog.hlc import TsFile
from tidelog.ids import Lsn, Ts, slot_ranges
from tidelog.journal import layout
from tidelog.journal.beginning import before_first_lsn, has_beginning
from tidelog.journal.control import Epoch
from tidelog.journal.holders_file import read_holders_file
from tidelog.journal.layout import Meta, SnapshotPoint
from tidelog.journal.loader import RecoveryPlan, plan_recovery_from
from tidelog.journal.merge import JournalReader, JournalTransaction
from tidelog.journal.reader import Part, Record
from tidelog.journal.scan import ValidMark
from tidelog.journal.segment import list_segments, segment_bytes
from tidelog.journal.snapshot import Snapshot, SnapshotWriter, list_snapshot_paths, open_snapshot
from tidelog.journal.snapshot_nodes import listed_bytes, prove_nodes
from tidelog.ports import Disk, Lock
from tidelog.store.capture import Capture
from tidelog.store.new_directory import NewDirectory, check_target
from tidelog.store.restored_nodes import RestoredNodes, WillRead
from tidelog.store.slots import shards_by_slot
from tidelog.store.store import Store
from tidelog.types.hold import HOLD_OPCODES, SetHold

OnProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is, and how much there is."""


class Restored(NamedTuple):
    """The result of a restore."""

    path: str
    ts: Ts
    """The last transaction that is in it; 0: it is empty."""
    shard_count: int
    keys: int
    size_bytes: int
    snapshot_ts: Ts
    """The ts of the snapshot that it began with; 0: it began without one."""
    transactions: int
    """How many transactions of the journal followed the snapshot."""
    damaged: list[str]
    """Snapshots that could not be used, and why."""
    lost_nodes: int
    """Nodes of streams that the backup has lost: a repair found them damaged. Reads of their entries fail."""


def restore(
    disk: Disk,
    store: Store,
    source: str,
    target: str,
    *,
    shard_count: int | None = None,
    until: Ts | None = None,
    on_progress: OnProgress | None = None,
    source_disk: Disk | None = None,
    will_read: WillRead | None = None,
    database_id: str = "",
) -> Restored:
    """Fill a new directory. `store` is an empty one without a journal; `shard_count` None: as many as there were.

    `source_disk`: where the backup lies, if that is another disk, and far: then nothing is read of the journal after
    the moment that is wanted, and no nodes but those that are needed, of which `will_read` is told.
    `database_id`: the directory goes on as this database; "": it is one of its own.
    """
    is_far, source_disk = source_disk is not None, source_disk or disk
    if shard_count is not None and not 1 <= shard_count <= limits.SHARDS_MAX:
        raise LimitExceeded(f"{shard_count} shards: it must be 1 to {limits.SHARDS_MAX}")
    meta = layout.read_meta(source_disk, source)
    if source_disk.exists(f"{source}/{layout.RESTORING}"):
        raise DataDirectoryError(f"{source} was being filled by a restore that did not finish: it is not a backup")
    check_target(disk, target)
    slots = tuple(slot_ranges(shard_count or meta.shard_count))
    new = NewDirectory(disk, target, len(slots))
    nodes = RestoredNodes(disk, source_disk, store, target, shards_by_slot(slots), new.make, will_read)
    try:
        reading = _BackupReading(source_disk, store, nodes, source, meta, until, on_progress, is_far=is_far)
        reading.read()
        reading.settle_holds()
        new.make()
        keys, size = _fill(
            disk, store, nodes, target, Meta(meta.geometry, slots, database_id=database_id), reading, on_progress
        )
    finally:
        new.release()
    return Restored(
        target,
        reading.ts,
        len(slots),
        keys,
        size,
        reading.snapshot_ts,
        reading.transactions,
        reading.damaged,
        nodes.lost_count,
    )


# --- reading ------------------------------------------------------------------------------------------------------


class _BackupReading:
    """Reads a backup into a store."""

    def __init__(
        self,
        disk: Disk,
        store: Store,
        nodes: RestoredNodes,
        source: str,
        meta: Meta,
        until: Ts | None,
        on_progress: OnProgress | None,
        *,
        is_far: bool,
    ) -> None:
        self._disk = disk
        self._is_far = is_far
        self._is_beyond = _Moment(until).is_before if is_far and until is not None else None
        self._store = store
        self._nodes = nodes
        self._replay = nodes.spilling(store.replay)
        self._source = source
        self._meta = meta
        self._until = until
        self._is_known = store.types.operations.is_known
        self._on_progress = on_progress
        self._done = 0
        self._total = 0
        self._epochs: list[Epoch] = []
        self.ts = Ts(0)
        self.snapshot_ts = Ts(0)
        self.transactions = 0
        self.damaged: list[str] = []

    def _count(self, size: int) -> None:
        self._done += size
        if self._on_progress is not None:
            self._on_progress("reading", min(self._done, self._total), self._total)

    def read(self) -> None:
        self._store.slots = self._meta.slots
        if self._meta.point is not None:
            self._read_backup(Snapshot(self._source, self._meta, self._meta.point))
            return
        lock = _lock_if_used(self._disk, self._source)
        try:
            self._read_directory()
        finally:
            if lock is not None:
                lock.release()

    def _read_backup(self, snapshot: Snapshot) -> None:
        if self._until is not None and self._until != snapshot.point.ts:
            raise DataDirectoryError(
                f"{self._source} is a snapshot of ts {snapshot.point.ts} and holds no other moment: to restore "
                f"another, name a whole data directory"
            )
        self._total = 2 * snapshot.size(self._disk)
        self._read_snapshot(snapshot)

    def settle_holds(self) -> None:
        """Named holders are as if they had all moved just now. Those in the file of an earlier version come along."""
        named, now_us = self._store.holds.by_name, 1000 * self._store.now_ms()
        for holder in read_holders_file(self._disk, self._source):
            named.setdefault(holder.name, holder)
        for name, holder in named.items():
            if holder.ts > self.ts and not holder.epoch:  # it is to be told that it holds what is no more
                lived = [epoch.id for epoch in self._epochs if epoch.last_ts < holder.ts]
                holder = holder._replace(epoch=lived[-1] if lived else 0, seen=holder.ts)
            named[name] = holder._replace(moved_us=now_us)

    @property
    def data_ts(self) -> Ts:
        """The last transaction that feeds may tell of; those after it are about named holders only."""
        return self._store.holds.data_ts(self.ts)

    def epochs(self, shard_count: int) -> list[Epoch]:
        """Those that had begun by then, each once; before the first record of a journal with so many shards."""
        known = {epoch.id: epoch for epoch in self._epochs if epoch.last_ts <= self.ts}
        return [epoch._replace(lsns=(Lsn(0),) * shard_count) for epoch in known.values()]

    def _read_snapshot(self, snapshot: Snapshot) -> None:
        self._nodes.read_from(snapshot)
        snapshot.read(self._disk, self._replay, self._epochs.append, self._count, is_known=self._is_known)
        self.ts = self.snapshot_ts = snapshot.point.ts

    def _read_directory(self) -> None:
        snapshot = self._usable_snapshot()
        layout.check_shard_metas(self._disk, self._source, self._meta)
        plan = plan_recovery_from(self._disk, self._source, self._meta, snapshot, self._is_known, self._is_beyond)
        size = 0 if snapshot is None else snapshot.size(self._disk)
        self._total = 2 * size + _journal_bytes(self._disk, self._source, self._meta, plan)
        self._done = size if snapshot is not None else 0
        if snapshot is not None:
            self._read_snapshot(snapshot)
        self._read_journal(plan, snapshot)
        if snapshot is None and (before_ts := before_first_lsn(self._epochs)):
            raise DataDirectoryError(
                f"{self._source} was restored, and its journal begins after ts {before_ts}: without the snapshot of "
                f"that moment it shows none"
            )
        if self._until is not None and not self.ts:
            raise DataDirectoryError(f"{self._source} has nothing as old as ts {self._until}")

    def _usable_snapshot(self) -> Snapshot | None:
        """The newest one that is whole and not too young."""
        first_error: Corruption | None = None
        for path in reversed(list_snapshot_paths(self._disk, self._source)):
            try:
                snapshot = open_snapshot(self._disk, path)
                if self._until is not None and snapshot.point.ts > self._until:
                    continue
                snapshot.check(self._disk)
                if not self._is_far:  # otherwise those that are needed are proved as they come
                    prove_nodes(self._disk, snapshot)
                return snapshot
            except Corruption as error:
                first_error = first_error or error
                self.damaged.append(str(error))
        if has_beginning(self._disk, self._source, self._meta.shard_count):
            return None
        if first_error is not None:
            raise first_error
        raise DataDirectoryError(
            f"{self._source} has nothing as old as ts {self._until}: its journal and its snapshots begin later"
        )

    def _read_journal(self, plan: RecoveryPlan, snapshot: Snapshot | None) -> None:
        start = snapshot.point.lsns if snapshot is not None else (Lsn(0),) * self._meta.shard_count
        reader = JournalReader(
            self._disk,
            self._source,
            self._meta.geometry,
            self._meta.shard_count,
            lambda: plan.cuts,
            on_epoch=self._epochs.append,
            on_read=self._count,
        )
        try:
            reader.seek_lsns(start)
            for transaction in reader.read():
                if self._until is not None and transaction.ts > self._until:
                    self._take_holds(transaction, reader.payload_of)
                    continue
                self._replay(transaction, reader.payload_of)
                self.ts = transaction.ts
                self.transactions += 1
        except UnreadableRecord as error:
            raise reader.located(error) from None
        finally:
            reader.close()

    def _take_holds(self, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
        """How far a reader has come is not undone by a restore: after the moment that is restored, holds go on."""
        named = self._store.holds.by_name
        for part in transaction.parts:
            for record in part.records:
                if record.opcode in HOLD_OPCODES:
                    operation = self._store.types.operations.decode(record.opcode, payload_of(part, record), None)
                    if isinstance(operation, SetHold):
                        named[operation.holder.name] = operation.holder
                    else:
                        for name in operation.names:
                            named.pop(name, None)


class _Moment:
    """Ends a search for the last cycle behind the one that reaches a moment: transactions after it are left out."""

    def __init__(self, until: Ts) -> None:
        self._until = until
        self._reached = Ts(0)

    def is_before(self, marks: Sequence[ValidMark]) -> bool:
        """Whether it lies before a cycle with these marks."""
        if self._reached >= self._until:
            return True
        self._reached = max(self._reached, *(found.mark.last_ts for found in marks))
        return False


def _journal_bytes(disk: Disk, folder: str, meta: Meta, plan: RecoveryPlan) -> int:
    """How much of the journal will be read, roughly: whole segments."""
    total = 0
    for shard in range(meta.shard_count):
        path = layout.shard_folder(folder, shard)
        needed = plan.snapshot.point.lsns[shard] if plan.snapshot is not None else 0
        segments = list_segments(disk, path)
        for segment, after in zip(segments, [*segments[1:], None], strict=True):
            if after is None or after > needed:
                total += sum(segment_bytes(disk, path, segment))
    return total


def _lock_if_used(disk: Disk, folder: str) -> Lock | None:
    """Keep servers away from a directory that is read; a copy that cannot be written to needs no lock."""
    if not disk.exists(f"{folder}/{layout.LOCK}"):
        return None
    try:
        return layout.lock_directory(disk, folder)
    except DirectoryInUse:
        raise DirectoryInUse(
            f"a server has {folder} open: `tidelog snapshot` makes a backup of it while it runs"
        ) from None
    except OSError:
        return None


# --- writing ------------------------------------------------------------------------------------------------------


def _fill(
    disk: Disk,
    store: Store,
    nodes: RestoredNodes,
    target: str,
    meta: Meta,
    reading: _BackupReading,
    on_progress: OnProgress | None,
) -> tuple[int, int]:
    """Write the store as the one snapshot of the directory; returns how many keys and bytes it has."""
    ts = reading.ts
    store.slots = meta.slots
    store.owners = shards_by_slot(meta.slots)
    nodes.bring(None if on_progress is None else partial(on_progress, "nodes"))
    disk.make_folder(f"{target}/{layout.SNAPSHOTS}")
    keys = size = 0
    if ts:
        point = SnapshotPoint(ts, (Lsn(0),) * meta.shard_count)
        epochs = reading.epochs(meta.shard_count)
        snapshot = SnapshotWriter(disk, target, replace(meta, point=point), epochs)
        try:
            keys = _write_snapshot(store, snapshot, on_progress)
        except BaseException:
            snapshot.discard()
            raise
        made = open_snapshot(disk, snapshot.path)
        size = made.size(disk) + listed_bytes(made)
        read = 0

        def count(more: int) -> None:
            nonlocal read
            read += more
            if on_progress is not None:
                on_progress("checking", min(read, size), size)

        made.check(disk, count)
        prove_nodes(disk, made, count)
        erased = TsFile.open(disk, target, layout.ERASED)
        try:
            erased.store(reading.data_ts)  # nothing up to here is in the journal of this directory
        finally:
            erased.close()
    disk.sync_folder(target)
    layout.write_shard_metas(disk, target, meta)
    layout.write_meta(disk, target, meta)
    disk.remove(f"{target}/{layout.RESTORING}")
    disk.sync_folder(target)
    return keys, size


def _write_snapshot(store: Store, snapshot: SnapshotWriter, on_progress: OnProgress | None) -> int:
    capture = Capture(store, snapshot)
    while not capture.is_done:
        capture.visit(limits.RESTORE_KEYS_AT_ONCE)
        if on_progress is not None:
            on_progress("writing", capture.keys_written, capture.keys_total)
    snapshot.finish()
    return capture.keys_written
