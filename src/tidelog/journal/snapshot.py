"""Snapshots: the state at one moment, as a journal of its own.

    snapshots/
      snapshot-<point ts, 16 hex digits>/          complete: it got its name when all of it was durable
        meta.json                                  with the point: its ts and, per shard, the lsn that follows
        holders.json                               of an earlier version only: see `holders_file`
        shard-<n>/journal-....dj0, blob-....bin    whole values; every record is a transaction at the point's ts
      snapshot-....partial/                        half-written: ignored, and removed by the next one
      snapshot-....damaged/                        could not be read, and another took its place: as a partial one

Cold nodes of streams are not in it: it refers to them, and its meta.json lists the node files that it needs, with the
lengths that it needs of them. They lie in the shards' folders of the data directory, or of the backup that it is.

The frames and records are the journal's, so the same reader reads both. Lsns in it count its own records. Its first
records are the epochs. A record is a transaction by itself (they share one ts), so that reading it takes no more memory
than its largest record.

A snapshot becomes complete only after the journal is fsynced through its point, under every policy: what follows it is
then never older than the snapshot.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, SnapshotFailed, UnreadableRecord
from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.cycles import find_complete_cycle
from tidelog.journal.layout import (
    SNAPSHOTS,
    Meta,
    NodeFileLength,
    SnapshotPoint,
    make_shard_folders,
    read_meta,
    shard_folder,
    write_meta,
)
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.new_files import NewFiles
from tidelog.journal.node_files import NodeFile, NodePlace
from tidelog.journal.reader import LoadStrings, Part, Record, ShardReader
from tidelog.journal.record import FINISH, TS
from tidelog.journal.scan import IsKnown, ShardScan
from tidelog.journal.segment import FilePosition, blob_name
from tidelog.journal.shard_writer import ShardState, ShardWriter
from tidelog.journal.source import ShardSource
from tidelog.journal.staging import StagedBlob, StageJob
from tidelog.ports import Disk

_COMPLETE: Final = re.compile(r"snapshot-([0-9a-f]{16})")
_PARTIAL: Final = re.compile(r"snapshot-[0-9a-f]{16}\.(partial|damaged)")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A complete snapshot on disk."""

    path: str
    meta: Meta
    point: SnapshotPoint

    def read(
        self,
        disk: Disk,
        apply: Callable[[JournalTransaction, Callable[[Part, Record], bytes]], None],
        on_epoch: Callable[[control.Epoch], None],
        on_read: Callable[[int], None] | None = None,
        load_strings: LoadStrings | None = None,
        is_known: IsKnown | None = None,
    ) -> None:
        """Hand out its records, shard by shard. Damage raises `Corruption`: a snapshot has no tail to cut."""
        for shard, end in enumerate(self.check(disk, on_read, is_known)):
            source = self._source(disk, shard, on_read)
            self._read_shard(source, end, apply, on_epoch if shard == 0 else None, load_strings)

    def _read_shard(
        self,
        source: ShardSource,
        end: FilePosition | None,
        apply: Callable[[JournalTransaction, Callable[[Part, Record], bytes]], None],
        on_epoch: Callable[[control.Epoch], None] | None,
        load_strings: LoadStrings | None,
    ) -> None:
        reader = ShardReader(source, lambda: end, on_epoch)

        def apply_part(part: Part) -> None:
            apply(JournalTransaction(part.ts, [part]), lambda _, record: reader.payload_of(record))

        try:
            reader.seek_start()
            if load_strings is not None:
                reader.load(apply_part, load_strings)
            while (parts := reader.read()) is not None:
                for part in parts:
                    apply_part(part)
        except UnreadableRecord as error:
            raise reader.located(error) from None
        finally:
            reader.close()

    def epochs(self, disk: Disk) -> list[control.Epoch]:
        """The epochs that it knows, oldest first: they are its first records, and all that is read here."""
        source = self._source(disk, 0)
        epochs: list[control.Epoch] = []
        try:
            segments = source.segments()
            end = FilePosition(segments[-1], source.size(segments[-1])) if segments else None
            reader = ShardReader(source, lambda: end, epochs.append)
            reader.seek_start()
            while reader.read() == []:
                continue  # they take more than a frame
        finally:
            source.close()
        return epochs

    def check(
        self, disk: Disk, on_read: Callable[[int], None] | None = None, is_known: IsKnown | None = None
    ) -> tuple[FilePosition | None, ...]:
        """Prove that it is whole; returns where each shard's files end."""
        scans = []
        for shard in range(self.meta.shard_count):
            source = self._source(disk, shard, on_read)
            start = FilePosition(Lsn(0), 0) if source.segments() else None
            scans.append(ShardScan(source, self.meta.shard_count, start, Lsn(0), is_known))
        try:
            complete = find_complete_cycle(scans)
            for scan in scans:
                if scan.damage is not None:
                    raise scan.damage
            if complete.cycle != LAST_CYCLE or any(mark is None for mark in complete.marks):
                raise Corruption("the snapshot ends before its last mark", path=self.path)
            return tuple(mark.end if mark else None for mark in complete.marks)
        finally:
            for scan in scans:
                scan.close()

    def _source(self, disk: Disk, shard: int, on_read: Callable[[int], None] | None = None) -> ShardSource:
        folder = shard_folder(self.path, shard)
        return ShardSource(disk, folder, self.meta.geometry, ShardId(shard), on_read=on_read)

    def size(self, disk: Disk) -> int:
        """Bytes on disk."""
        return sum(self.size_of_shard(disk, shard) for shard in range(self.meta.shard_count))

    def size_of_shard(self, disk: Disk, shard: int) -> int:
        """The same of one shard."""
        total = 0
        folder = shard_folder(self.path, shard)
        for name in disk.list(folder):
            file = disk.open(f"{folder}/{name}", "read")
            total += file.size()
            file.close()
        return total


LAST_CYCLE: Final = Cycle(2**63)
"""The cycle of the marks that end a snapshot: its batches before have small numbers, so an end cannot be mistaken."""


def list_snapshots(disk: Disk, folder: str) -> list[Snapshot]:
    """The complete snapshots of a data directory, oldest first."""
    return [open_snapshot(disk, path) for path in list_snapshot_paths(disk, folder)]


def snapshot_path(folder: str, ts: Ts) -> str:
    """Where the complete snapshot of a moment lies."""
    return f"{folder}/{SNAPSHOTS}/snapshot-{ts:016x}"


def snapshot_ts(path: str) -> Ts:
    """The moment of a complete snapshot, by its path."""
    found = _COMPLETE.fullmatch(path.rpartition("/")[2])
    assert found is not None
    return Ts(int(found[1], 16))


def list_snapshot_paths(disk: Disk, folder: str) -> list[str]:
    """Where the complete snapshots of a data directory lie, oldest first."""
    parent = f"{folder}/{SNAPSHOTS}"
    if not disk.exists(parent):
        return []
    return [f"{parent}/{name}" for name in disk.list(parent) if _COMPLETE.fullmatch(name)]


def newest_snapshot(disk: Disk, folder: str) -> Snapshot | None:
    paths = list_snapshot_paths(disk, folder)
    return open_snapshot(disk, paths[-1]) if paths else None


def open_snapshot(disk: Disk, path: str) -> Snapshot:
    meta = read_meta(disk, path)
    if meta.point is None:
        raise DataDirectoryError(f"{path} is a data directory, not a snapshot")
    return Snapshot(path, meta, meta.point)


def listed_node_files(disk: Disk, folder: str) -> list[NodeFileLength]:
    """What the complete snapshots of a data directory need. One that cannot be read hides what it needs: it raises."""
    return [each for snapshot in list_snapshots(disk, folder) for each in snapshot.point.node_files]


class SnapshotWriter:
    """Writes one snapshot. The store adds its values in any order; `finish` makes it count.

    `add` writes to disk now and then; nothing is fsynced before `finish`. `abandon` leaves a half-written one.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        meta: Meta,
        epochs: Sequence[control.Epoch],
        damaged: set[str] | None = None,
    ) -> None:
        """`meta`: of the directory, with the point. `damaged`: the paths of snapshots that it may take the place of."""
        self._disk = disk
        self._damaged = set() if damaged is None else damaged
        self._meta = meta
        point = self.point
        self._parent = f"{folder}/{SNAPSHOTS}"
        self.path = snapshot_path(folder, point.ts)
        self._partial = f"{self.path}.partial"
        self._files = NewFiles(disk)
        self._cycle = 0
        self._gathered = 0
        self._staged_bytes = 0
        self.keys: int | None = None
        """How many keys it has, and ..."""
        self.places: tuple[tuple[int, int, int], ...] | None = None
        """... where the journal ended (`SnapshotPoint`), if the store says so."""
        self._node_files: dict[NodeFile, int] = {}
        """Those that it refers to, and up to where."""
        self.is_open = True
        """Values may be added; false once it is finished, has failed or was abandoned."""
        self._is_given_up = False
        self._stage_job: StageJob | None = None
        """Writes a large value, on another thread."""
        try:
            remove_partial_snapshots(disk, folder)
            disk.make_folder(self._parent)
            make_shard_folders(disk, self._partial, meta.shard_count)
        except OSError as error:
            raise self._failed(error) from error
        state = ShardState(None, Lsn(0), Ts(0), 0, 0, 0)
        self._shards = [ShardWriter(meta.geometry, meta.shard_count, state) for _ in meta.slots]
        for epoch in epochs[-limits.EPOCHS_KEPT_MAX :]:
            for shard in self._shards:
                shard.add_epoch(epoch, point.ts)

    @property
    def point(self) -> SnapshotPoint:
        assert self._meta.point is not None
        return self._meta.point

    def refer_to(self, place: NodePlace) -> None:
        """A record names a node: its file is listed, and stays as long as this one is in the making (`release`)."""
        file = place.file
        if file not in self._node_files:
            file.pins += 1
        self._node_files[file] = max(self._node_files.get(file, 0), place.end)

    def release(self) -> None:
        """It is on disk, or given up: it needs no files any more, beside those that it lists. Twice is fine."""
        for file in self._node_files:
            file.pins -= 1
        self._node_files.clear()

    @property
    def bytes_written(self) -> int:
        return self._files.bytes_written + self._staged_bytes

    def add(self, shard: ShardId, opcode: int, payload: bytes, expire_ms: int | None = None, database: int = 0) -> None:
        """One record with a whole value, or a part of one."""
        self._shards[shard].add(self.point.ts, opcode, TS | FINISH, payload, expire_ms, database)
        self._gathered += len(payload)
        if self._gathered >= limits.SNAPSHOT_BATCH_BYTES:
            self._cycle += 1
            self._write(Cycle(self._cycle), [shard for shard in self._shards if shard.is_dirty])

    def begin_stage(self, shard: ShardId, value: bytes) -> StageJob:
        """Write a large value before its record, on any thread (`staging`); one at a time."""
        position = self._shards[shard].reserve(len(value), limits.STAGED_HEAD_BYTES_MAX)
        path = f"{shard_folder(self._partial, shard)}/{blob_name(position.segment)}"
        try:
            self._files.make(path)  # the thread finds it there
        except OSError as error:
            raise self._failed(error) from error
        self._stage_job = StageJob(self._disk, path, StagedBlob(shard, position), lambda: (value,), fsyncs=True)
        return self._stage_job

    def add_staged(self, opcode: int, head: bytes, expire_ms: int | None, database: int) -> None:
        """The record of the value that was staged last, which follows a head."""
        job, self._stage_job = self._stage_job, None
        assert job is not None
        if job.error is not None:
            raise self._failed(job.error) from job.error
        shard = self._shards[job.blob.shard]
        shard.add_staged(self.point.ts, opcode, TS | FINISH, head, job.blob, expire_ms, database)
        self._gathered += len(head)
        self._staged_bytes += job.blob.size

    def _write(self, cycle: Cycle, shards: Sequence[ShardWriter]) -> None:
        ends = [shard.next_lsn for shard in self._shards]
        for index, shard in enumerate(self._shards):
            if shard in shards:
                batch = shard.end_batch(cycle, self.point.ts, Cycle(0), ends)
                try:
                    self._files.put(shard_folder(self._partial, index), batch)
                except OSError as error:
                    raise self._failed(error) from error
        self._gathered = 0

    def finish(self) -> Snapshot:
        """Make it durable and give it its name. The journal must be fsynced through the point before.

        On any thread, as long as no other uses this object meanwhile, except for `give_up`.
        """
        self._write(LAST_CYCLE, self._shards)
        listed = tuple(NodeFileLength(file.shard, file.id, length) for file, length in self._node_files.items())
        point = replace(self.point, keys=self.keys, places=self.places, node_files=listed)
        self._meta = replace(self._meta, point=point)
        try:
            self._files.sync(self._check_wanted)
            self.abandon()
            for shard in range(self._meta.shard_count):
                self._disk.sync_folder(shard_folder(self._partial, shard))
            write_meta(self._disk, self._partial, self._meta)
            if self.path in self._damaged and self._disk.exists(self.path):
                self._replace_damaged()
            else:
                self._disk.rename(self._partial, self.path)
                self._disk.sync_folder(self._parent)
        except OSError as error:
            raise self._failed(error) from error
        return Snapshot(self.path, self._meta, self.point)

    def _replace_damaged(self) -> None:
        """There is one of this moment already, which cannot be read."""
        old = f"{self.path}.damaged"
        self._disk.rename(self.path, old)
        self._disk.rename(self._partial, self.path)
        self._disk.sync_folder(self._parent)
        self._damaged.discard(self.path)
        with contextlib.suppress(OSError):  # the next one, or the next start, removes it otherwise
            remove_tree(self._disk, old)

    def _check_wanted(self) -> None:
        if self._is_given_up:
            raise OSError(errno.ECANCELED, "it is no longer wanted", self._partial)

    def _failed(self, error: OSError) -> SnapshotFailed:
        self.abandon()
        with contextlib.suppress(OSError):  # the next one, or the next start, removes it otherwise
            remove_tree(self._disk, self._partial)
        return SnapshotFailed(f"the snapshot {self.path} was given up ({error}); what was there before still counts")

    def give_up(self) -> None:
        """Let what is under way on another thread fail soon."""
        self._is_given_up = True
        if self._stage_job is not None:
            self._stage_job.is_given_up = True

    def discard(self) -> None:
        """Close and remove it: nothing of it stays. Fine after it has failed."""
        self.abandon()
        with contextlib.suppress(OSError):  # as above
            if self._disk.exists(self._partial):
                remove_tree(self._disk, self._partial)

    def abandon(self) -> None:
        """Close the files."""
        self.is_open = False
        self._files.close()


def remove_partial_snapshots(disk: Disk, folder: str) -> None:
    """Remove what crashes left half-written."""
    parent = f"{folder}/{SNAPSHOTS}"
    if not disk.exists(parent):
        return
    for name in disk.list(parent):
        if _PARTIAL.fullmatch(name):
            remove_tree(disk, f"{parent}/{name}")
    disk.sync_folder(parent)


def remove_snapshot(disk: Disk, path: str) -> None:
    """Remove a snapshot; it stops being one before its first file goes."""
    parent = path.rpartition("/")[0]
    partial = f"{path}.partial"
    disk.rename(path, partial)
    disk.sync_folder(parent)
    remove_tree(disk, partial)
    disk.sync_folder(parent)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a snapshot's folder: shards' folders and plain files, no deeper."""
    for name in disk.list(path):
        inner = f"{path}/{name}"
        if name.startswith("shard-"):
            for leaf in disk.list(inner):
                disk.remove(f"{inner}/{leaf}")
        disk.remove(inner)
    disk.remove(path)
