"""What a full sync does on disk, in `sync/`: files of a snapshot, and beside them a journal.

Node files that the snapshot lists come under names as if they lay inside of it. They go to the shards' folders, beside
the journal, where they belong once this is the data directory.

Every method but `is_there` is for the thread of a `DiskQueue`: nothing here is touched by two at once, and the loop
touches none of it. So the writer of the journal belongs to that thread, and may wait for the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidelog import limits
from tidelog.errors import LinkMisused
from tidelog.hlc import HybridClock, TsFile
from tidelog.ids import Cycle, Ts
from tidelog.journal import layout
from tidelog.journal.durability import FsyncPolicy, Resume
from tidelog.journal.layout import write_json
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.node_format import node_file_id, shard_of_inner_path
from tidelog.journal.replacement import is_replacing, remove_folder
from tidelog.journal.ring import Ring
from tidelog.journal.scan import IsKnown
from tidelog.journal.shard_writer import ShardState
from tidelog.journal.snapshot import open_snapshot, snapshot_path
from tidelog.journal.snapshot_nodes import prove_nodes
from tidelog.journal.staging import StagedBlob
from tidelog.journal.writer import JournalWriter
from tidelog.ports import Clock, Disk, File
from tidelog.replication.incoming import LongTransaction, Whole
from tidelog.replication.message import EpochBegins, FullSync, Reached

PROGRESS: Final = "progress.json"


class LandingDisk:
    """One folder `sync/`, for one full sync after the other."""

    def __init__(self, disk: Disk, folder: str, clock: Clock) -> None:
        self._disk = disk
        self._folder = folder
        self._sync = f"{folder}/{layout.SYNC}"
        self._clock = clock
        self._files: dict[str, File] = {}
        """Those that are open, by their names."""
        self._unsynced = 0
        """Bytes of files that were written since the last fsync."""
        self._writer: JournalWriter | None = None
        self._hlc: HybridClock | None = None
        self.written = Reached(Ts(0), ())
        """How far the journal goes; the loop reads it when the thread has written."""

    def is_there(self) -> bool:
        return self._disk.exists(self._sync)

    # --- files --------------------------------------------------------------------------------------------------

    def begin(self, ts: Ts, *, keeps_files: bool) -> None:
        """Make the folders of a snapshot, and drop the journal of the last link: it is sent again."""
        disk = self._disk
        if not keeps_files:
            self.remove()
        disk.make_folder(self._sync)
        for name in disk.list(self._sync):
            if name.startswith("shard-"):
                self._remove_files(f"{self._sync}/{name}", are_nodes=False)
        disk.make_folder(f"{self._sync}/{layout.SNAPSHOTS}")
        self._remove_others(ts)
        disk.make_folder(snapshot_path(self._sync, ts))
        disk.sync_folder(f"{self._sync}/{layout.SNAPSHOTS}")
        disk.sync_folder(self._sync)
        disk.sync_folder(self._folder)

    def _remove_others(self, ts: Ts) -> None:
        """A link that ended before the thread came to its `begin` has left files of another snapshot."""
        disk, parent, kept = self._disk, f"{self._sync}/{layout.SNAPSHOTS}", snapshot_path(self._sync, ts)
        others = [path for name in disk.list(parent) if (path := f"{parent}/{name}") != kept]
        if others:
            self._remove_progress()
        for path in others:
            remove_folder(disk, path)
        for name in disk.list(self._sync) if others else ():
            if name.startswith("shard-"):
                self._remove_files(f"{self._sync}/{name}", are_nodes=True)

    def _remove_progress(self) -> None:
        """Durably, before the files that it calls whole: another process would not write them again."""
        path = f"{self._sync}/{PROGRESS}"
        if self._disk.exists(path):
            self._disk.remove(path)
            self._disk.sync_folder(self._sync)

    def _remove_files(self, folder: str, *, are_nodes: bool) -> None:
        """Either the node files of a shard, or all others."""
        for name in self._disk.list(folder):
            if (node_file_id(name) is not None) == are_nodes:
                self._disk.remove(f"{folder}/{name}")
        self._disk.sync_folder(folder)

    def write(self, ts: Ts, name: str, position: int, data: bytes) -> None:
        """A piece of a file."""
        file = self._file(ts, name)
        layout.write_all(file, position, [data])
        self._unsynced += len(data)
        if self._unsynced >= limits.LANDING_SYNC_BYTES:
            # Little by little: otherwise much would be left to do at the end, and the kernel slow down everybody.
            file.sync()
            self._unsynced = 0

    def _file(self, ts: Ts, name: str) -> File:
        """Open for writing; folders on the way are made."""
        if name not in self._files:
            folder = self._home(ts, name)
            path = f"{folder}/{name}"
            for each in name.split("/")[:-1]:
                folder = f"{folder}/{each}"
                self._disk.make_folder(folder)
            if not self._disk.exists(path):
                self._disk.open(path, "create").close()
            self._files[name] = self._disk.open(path, "write")
        return self._files[name]

    def _home(self, ts: Ts, name: str) -> str:
        """The folder that the name of a file begins in."""
        return snapshot_path(self._sync, ts) if shard_of_inner_path(name) is None else self._sync

    def end_file(self, ts: Ts, name: str, size: int) -> None:
        """All of a file is there: make it durable."""
        file = self._file(ts, name)
        file.truncate(size)
        file.sync()
        file.close()
        del self._files[name]
        folder = self._home(ts, name)
        self._disk.sync_folder(f"{folder}/{name}".rpartition("/")[0])
        self._disk.sync_folder(folder)

    def write_progress(self, ts: Ts, files: Sequence[tuple[str, int, int]]) -> None:
        """Files that are whole, with their sizes and checksums: what another process may go on with."""
        write_json(self._disk, f"{self._sync}/{PROGRESS}", {"ts": ts, "files": [list(each) for each in files]})

    # --- the journal --------------------------------------------------------------------------------------------

    def open_journal(self, full: FullSync, database_id: str) -> None:
        """The snapshot says how its journal is to be laid out."""
        meta = replace(
            layout.read_meta(self._disk, snapshot_path(self._sync, full.ts)), point=None, database_id=database_id
        )
        if meta.shard_count != len(full.lsns):
            raise LinkMisused(f"a snapshot of {meta.shard_count} shards, and a history of {len(full.lsns)}")
        layout.make_shard_folders(self._disk, self._sync, meta.shard_count)
        layout.write_shard_metas(self._disk, self._sync, meta)
        layout.write_meta(self._disk, self._sync, meta)
        self._hlc = HybridClock(self._clock, TsFile.open(self._disk, self._sync, layout.CLOCK))
        states = tuple(ShardState(None, lsn, Ts(0), 0, 0, 0) for lsn in full.lsns)
        resume = Resume(states, Cycle(0), Cycle(0), full.ts)
        self._writer = JournalWriter(
            self._disk, self._sync, meta, resume, self._hlc, FsyncPolicy.EVERYSEC, Ring(meta.shard_count, 0)
        )

    def append(self, history: Sequence[Whole]) -> None:
        """Some of the history after the snapshot."""
        writer = self._writer
        assert writer is not None
        for whole in history:
            if isinstance(whole, JournalTransaction):
                if writer.batch_bytes >= limits.BATCH_BYTES_FULL:
                    writer.write()
                writer.append_received(whole)
            elif isinstance(whole, LongTransaction):
                self._append_long(writer, whole)
            elif isinstance(whole, EpochBegins):
                writer.append_epoch(whole.epoch, writer.last_ts or whole.epoch.first_ts)

    def _append_long(self, writer: JournalWriter, long: LongTransaction) -> None:
        """Its large payloads are written first, by the way that a follower of an open store takes."""
        writer.write()
        blobs: dict[tuple[int, int], StagedBlob] = {}
        for shard, record, _, pieces in long.payloads:
            job = writer.begin_stage_received(shard, pieces)
            job.run()
            writer.finish_stage(job)
            if job.error is not None:
                raise job.error
            blobs[shard, record.lsn] = job.blob
        writer.append_received(long.transaction, blobs)

    def write_journal(self) -> None:
        """Write what was appended."""
        assert self._writer is not None
        self._writer.write()
        self.written = Reached(self._writer.written.ts, self._writer.written.lsns)
        if self._writer.unsynced_bytes >= limits.LANDING_SYNC_BYTES:
            self._writer.sync()

    # --- the end ------------------------------------------------------------------------------------------------

    def finish(self, ts: Ts, is_known: IsKnown) -> None:
        """All has come: prove the snapshot, and close the journal. Nothing is left to be made durable afterwards.

        `Corruption`: a start would refuse the snapshot, so it may not take the place of what is there. Files have the
        checksums that the leader made when it sent them; if they had rotted before, only reading them tells. Nodes are
        read too: a start would not look at them, and reads of clients would fail one day.
        """
        snapshot = open_snapshot(self._disk, snapshot_path(self._sync, ts))
        snapshot.check(self._disk, is_known=is_known)
        prove_nodes(self._disk, snapshot)
        assert self._writer is not None
        assert self._hlc is not None
        self._writer.close()
        self._hlc.close(clean=False)
        self._writer = self._hlc = None
        erased = TsFile.open(self._disk, self._sync, layout.ERASED)
        erased.store(ts)
        erased.close()
        self._disk.sync_folder(self._sync)

    def close(self) -> None:
        """Close everything, and leave it as it lies there."""
        if self._writer is not None:
            self._writer.abandon()
        if self._hlc is not None:
            self._hlc.close(clean=False)
        self._writer = self._hlc = None
        for file in self._files.values():
            file.close()
        self._files.clear()

    def remove(self) -> None:
        """Nothing of it is wanted; but what is about to take the place of the data here is not touched."""
        if self.is_there() and not is_replacing(self._disk, self._folder):
            self._remove_progress()
            remove_folder(self._disk, self._sync)
            self._disk.sync_folder(self._folder)
