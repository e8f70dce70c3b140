"""The writer: transactions in, cycles out.

    append ... append      records gather, per shard; nothing touches the disk (`appender`)
    write                  a cycle: one batch per dirty shard, each ended by a mark, written before it returns
    begin_sync             what a thread is to fsync, up to this cycle
      job.run              on any thread
    finish_sync            the durable ts moves up
    vouch                  marks alone, if none says yet how much is durable

Invariants:
- transactions are appended in order of `ts`, one at a time, and whole: a refused one leaves nothing behind;
- a mark is written with or after the data it vouches for, and names the newest cycle *known* to be synced;
- `visible` moves only at the end of a cycle, over all shards at once: with `always` when it is fsynced, otherwise when
  it is written;
- after ENOSPC the batch is kept and written again from its first byte (`write` tries again); new transactions are
  refused until that has worked. After any other failure of a write, and any failure of an fsync, the journal takes no
  more writes: what the kernel did with the pages is unknown, and a retry could report as durable what is not.

The writer belongs to one thread; only `SyncJob.run` and `StageJob.run` are for others.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from tidelog import limits
from tidelog.errors import InternalError, JournalFailed, JournalFull
from tidelog.hlc import HybridClock
from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal.appender import TransactionAppender
from tidelog.journal.durability import BlobExtent, FsyncPolicy, Resume, SyncJob, Visible
from tidelog.journal.layout import Meta, shard_folder, write_all
from tidelog.journal.open_files import OpenFiles
from tidelog.journal.operation import OperationTable
from tidelog.journal.ring import Ring
from tidelog.journal.segment import FilePosition, blob_name
from tidelog.journal.shard_writer import Batch, ShardWriter
from tidelog.journal.staging import StagedBlob, StageJob
from tidelog.journal.unwritten import changed_keys
from tidelog.ports import Disk

_FOR_NOW: Final = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""Errors of a write that pass: no space, and no descriptor for a new segment."""


def passes(error: OSError) -> bool:
    """Whether a write that failed may be tried again."""
    return error.errno in _FOR_NOW


class JournalWriter(TransactionAppender):
    """Writes one data directory. See the module for its invariants."""

    def __init__(
        self, disk: Disk, folder: str, meta: Meta, resume: Resume, hlc: HybridClock, policy: FsyncPolicy, ring: Ring
    ) -> None:
        shards = [ShardWriter(meta.geometry, meta.shard_count, state) for state in resume.shards]
        super().__init__(shards, hlc, resume.last_ts)
        self._disk = disk
        self._folders = [shard_folder(folder, shard) for shard in range(meta.shard_count)]
        self._frame_bytes = meta.geometry.frame_bytes
        self.policy = policy
        self._ring = ring
        self._cycle = resume.cycle
        self._synced_cycle = resume.synced_cycle
        self._data_cycle = self._vouched_cycle = resume.cycle
        """The newest cycle that has more than marks, and the newest that a mark names as synced."""
        self._pending: list[tuple[ShardId, Batch]] | None = None
        """A cycle that is not written yet: only while it is being written, or after ENOSPC."""
        self._failed = False
        self._files = OpenFiles(disk)
        self._unsynced_bytes = 0
        self.bytes_written = 0
        """Since it was opened, blobs among them."""
        self._stage_jobs: list[StageJob] = []
        self._sync_in_flight = False
        self._last_sync_us = 0
        self.sealed: list[tuple[ShardId, FilePosition]] = []
        """Frames that were filled and have no sidecar yet; the journal takes them out."""
        self._written = Visible(
            resume.cycle,
            resume.last_ts,
            tuple(state.next_lsn for state in resume.shards),
            tuple(state.end for state in resume.shards),
        )
        self._visible = self._written
        self._durable = self._written
        self._blob_extents: list[BlobExtent] | None = None
        """Of cycles that are written; None: nobody asks for them."""

    # --- where things stand -------------------------------------------------------------------------------------

    @property
    def visible(self) -> Visible:
        """How far readers may see."""
        return self._visible

    @property
    def written(self) -> Visible:
        """The end of the last cycle, seen or not."""
        return self._written

    @property
    def written_places(self) -> tuple[tuple[int, int, int], ...]:
        """Per shard, where that is (`SnapshotPoint.places`); only right after `write`."""
        return tuple(shard.place for shard in self._shards)

    @property
    def written_ts(self) -> Ts:
        """The newest transaction that survives the death of this process."""
        return self._written.ts

    @property
    def durable(self) -> Visible:
        """The end of the newest cycle that survives the death of the machine."""
        return self._durable

    @property
    def durable_ts(self) -> Ts:
        """The newest transaction that survives the death of the machine."""
        return self._durable.ts

    @property
    def synced_cycle(self) -> Cycle:
        return self._synced_cycle

    @property
    def is_full(self) -> bool:
        """There was no space; `write` tries again."""
        return self._pending is not None and not self._failed

    def unwritten_keys(self, table: OperationTable) -> frozenset[bytes] | None:
        """The keys that the cycle changes which there was no space for; None: it may change any."""
        return changed_keys(self._pending or (), self._frame_bytes, table)

    @property
    def is_syncing(self) -> bool:
        """An fsync is under way: it must finish before the journal can be closed."""
        return self._sync_in_flight

    @property
    def has_failed(self) -> bool:
        return self._failed

    @property
    def unsynced_bytes(self) -> int:
        """Written and not yet fsynced."""
        return self._unsynced_bytes

    @property
    def has_backlog(self) -> bool:
        """The disk does not keep up: take no more transactions until a sync has finished."""
        return self.policy is not FsyncPolicy.NEVER and self._unsynced_bytes >= limits.UNSYNCED_BYTES_MAX

    # --- large values -------------------------------------------------------------------------------------------

    def begin_stage(self, shard: ShardId, size: int, make: Callable[[], bytes]) -> StageJob:
        """Make a large value and write it before its record (`staging`); `OSError` if there is no file for it."""
        return self._begin_stage(shard, self._place(shard, size, limits.STAGED_HEAD_BYTES_MAX), lambda: (make(),))

    def begin_stage_received(self, shard: ShardId, pieces: Sequence[bytes]) -> StageJob:
        """The same for a whole payload that was received in pieces."""
        return self._begin_stage(shard, self._place(shard, sum(map(len, pieces)), 0), lambda: pieces)

    def _place(self, shard: ShardId, size: int, head_bytes: int) -> FilePosition:
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        return self._shards[shard].reserve(size, head_bytes)

    def _begin_stage(self, shard: ShardId, position: FilePosition, make: Callable[[], Sequence[bytes]]) -> StageJob:
        folder, fsyncs = self._folders[shard], self.policy is not FsyncPolicy.NEVER
        path = self._files.get(folder, f"{folder}/{blob_name(position.segment)}").path
        job = StageJob(self._disk, path, StagedBlob(shard, position), make, fsyncs=fsyncs)
        self._stage_jobs.append(job)
        return job

    @property
    def is_staging(self) -> bool:
        """A large value is being written: it must be finished before the journal can be closed."""
        return bool(self._stage_jobs)

    def finish_stage(self, job: StageJob) -> None:
        """The job has run. After a failed fsync the journal takes no more writes."""
        self._stage_jobs.remove(job)
        if job.sync_error is not None and not self._failed:
            self._fail("an fsync", job.sync_error)

    def can_refer_to(self, staged: StagedBlob) -> bool:
        """Whether a record that is appended now can refer to a value; otherwise it is written again."""
        return self._shards[staged.shard].can_refer_to(staged)

    def note_blob_extents(self) -> bool:
        """Note from now on which bytes of blob files records refer to, for whoever copies these files as they grow.

        The first to take are those of all that was written before, per shard. False: a large value is being written,
        and nobody knows what is in its place; try again later. Only right after `write`.
        """
        if self._stage_jobs:
            return False
        self._blob_extents = [
            BlobExtent(self._cycle, ShardId(index), FilePosition(Lsn(segment), 0), blob_end)
            for index, (segment, _, blob_end) in enumerate(self.written_places)
            if blob_end
        ]
        return True

    def take_blob_extents(self, cycle: Cycle) -> list[BlobExtent]:
        """Those of cycles up to this one, which are not noted any more."""
        if (noted := self._blob_extents) is None:
            return []
        count = bisect_right(noted, cycle, key=lambda extent: extent.cycle)
        taken, self._blob_extents = noted[:count], noted[count:]
        return taken

    def forget_blob_extents(self) -> None:
        """Note no more."""
        self._blob_extents = None

    # --- cycles -------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write what has gathered, over all shards. Returns when every byte is with the operating system.

        `JournalFull`: nothing is lost, the same call tries again later. `JournalFailed`: writes end here.
        """
        if self._failed and self.refusal is not None:
            raise self.refusal.with_traceback(None)
        if self._pending is None:
            dirty = [ShardId(index) for index, shard in enumerate(self._shards) if shard.is_dirty]
            if not dirty:
                return
            self._end_batches(dirty)
            self._data_cycle = self._cycle
        self._write_pending()

    def vouch(self) -> None:
        """Write marks if what is synced is named by none, so that damage in it is not taken for a torn tail.

        For a moment without writes: the next batch says the same. Marks need no others, so this ends by itself.
        """
        if (
            self._vouched_cycle >= min(self._data_cycle, self._synced_cycle)
            or self._failed
            or self._pending is not None
        ):
            return
        if not any(shard.is_dirty for shard in self._shards):
            self._end_all()
            self._write_pending()

    def _end_all(self) -> None:
        """End a batch of every shard that has files, whether or not there is anything in it."""
        self._end_batches([ShardId(index) for index, end in enumerate(self._written.ends) if end is not None])

    def _end_batches(self, shards: Sequence[ShardId]) -> None:
        self._cycle = Cycle(self._cycle + 1)
        self._vouched_cycle = self._synced_cycle
        ends = [shard.next_lsn for shard in self._shards]
        self._pending = [
            (shard, self._shards[shard].end_batch(self._cycle, self._last_ts, self._synced_cycle, ends))
            for shard in shards
        ]

    def _write_pending(self) -> None:
        assert self._pending is not None
        path = ""
        try:
            for shard, batch in self._pending:
                folder = self._folders[shard]
                for whale in batch.blobs:
                    path = f"{folder}/{blob_name(whale.position.segment)}"
                    write_all(self._files.get(folder, path), whale.position.at, [whale.payload])
                for write in batch.writes:
                    path = self._files.path_of(folder, write.position.segment)
                    write_all(self._files.get(folder, path), write.position.at, write.chunks)
        except OSError as error:
            if not passes(error):
                self._fail(f"writing {path}", error)
            self.refusal = JournalFull(
                f"no space is left for {path} ({error.strerror}): writes are refused until there is (nothing that was "
                f"accepted is lost)",
                errno=error.errno or 0,
            )
            raise self.refusal from error
        self._cycle_written(self._pending)

    def _cycle_written(self, batches: list[tuple[ShardId, Batch]]) -> None:
        ends = list(self._written.ends)
        size = 0
        for shard, batch in batches:
            for write in batch.writes:
                self._ring.add(shard, write.position, write.chunks)
                for chunk in write.chunks:
                    size += len(chunk)
            for whale in batch.blobs:
                size += len(whale.payload)
                if self._blob_extents is not None:
                    extent_bytes = len(whale.payload) + whale.staged_bytes
                    self._blob_extents.append(BlobExtent(self._cycle, shard, whale.position, extent_bytes))
            self.bytes_written += batch.staged_bytes
            ends[shard] = batch.end
            if batch.sealed:
                self.sealed += [(shard, position) for position in batch.sealed]
                self._files.close_rolled_over(self._folders[shard], batch.end, is_syncing=self._sync_in_flight)
        self._unsynced_bytes += size
        self.bytes_written += size
        self._pending = None
        self.refusal = None
        self.batch_bytes = 0
        self._written = Visible(self._cycle, self._last_ts, self.next_lsns, tuple(ends))
        if self.policy is not FsyncPolicy.ALWAYS:
            self._visible = self._written

    def _fail(self, what: str, error: OSError) -> NoReturn:
        self._failed = True
        self.refusal = JournalFailed(
            f"{what} failed ({error}): the journal takes no more writes until a restart, which recovers what is durable"
        )
        raise self.refusal from error

    # --- durability ---------------------------------------------------------------------------------------------

    def sync_is_due(self, monotonic_us: int) -> bool:
        """Whether the policy wants an fsync now."""
        if self._sync_in_flight or self._failed:
            return False
        if self.policy is FsyncPolicy.ALWAYS:
            return bool(self._files.dirty)
        return monotonic_us - self._last_sync_us >= limits.SYNC_EVERY_US

    def begin_sync(self, monotonic_us: int = 0, *, everything: bool = False) -> SyncJob | None:
        """What is to be fsynced now; None: nothing, or an fsync is under way. `everything`: also with `never`."""
        if self._sync_in_flight or self._failed:
            return None
        self._last_sync_us = monotonic_us
        try:
            renews_clock = self._hlc.begin_renewal()
        except JournalFailed as error:
            self._failed, self.refusal = True, error
            raise
        files, folders = self._files.begin_sync(with_files=everything or self.policy is not FsyncPolicy.NEVER)
        if not files and not folders and not renews_clock:
            return None
        self._sync_in_flight = True
        return SyncJob(
            self._written.cycle if files else self._synced_cycle,
            self._written,
            files,
            folders,
            self._unsynced_bytes if files else 0,
            renews_clock,
            self._disk,
            self._hlc,
        )

    def finish_sync(self, job: SyncJob, error: OSError | None = None) -> None:
        """The job has run. After an error the journal takes no more writes."""
        self._sync_in_flight = False
        self._files.end_sync()
        # Both fsync blob files, and the system may have told only the other of pages that it gave up.
        error = next((each.sync_error for each in self._stage_jobs if each.sync_error is not None), error)
        if error is not None:
            self._fail("an fsync", error)
        if job.renews_clock:
            self._hlc.finish_renewal()
        if job.files:
            self._synced_cycle = job.cycle
            self._durable = job.visible
            self._unsynced_bytes -= job.size
            if self.policy is FsyncPolicy.ALWAYS:
                self._visible = job.visible

    def sync(self, *, everything: bool = True) -> None:
        """Fsync here and now what was written; not while a job is under way."""
        if self._sync_in_flight:
            raise InternalError("an fsync is under way: finish it before beginning another")
        if self._failed and self.refusal is not None:
            raise self.refusal.with_traceback(None)
        job = self.begin_sync(self._last_sync_us, everything=everything)
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            self.finish_sync(job, error)
        else:
            self.finish_sync(job)

    def close(self) -> None:
        """Stop in order: everything is written, synced, and said to be so by closing marks."""
        if self._sync_in_flight:
            raise InternalError("an fsync is under way: finish it before closing the journal")
        try:
            self.write()
            self.sync()
            self._end_all()
            self._write_pending()
            self.sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files and leave everything as it lies on disk, as a crash would."""
        self.refusal = self.refusal or JournalFailed("the journal is closed")
        self._failed = True
        self._files.close()
