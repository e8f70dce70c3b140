"""A data directory that is open: the one place where the parts of the journal are put together.

Journal.open      lock, recover, replay, begin an epoch unless the last stop was clean
writer            transactions in
reader            transactions out, from a ts or from lsns
begin_snapshot    the state of now, to be filled in by whoever keeps it
erase             what retention no longer wants
close             a clean stop
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidelog import limits
from tidelog.errors import ClientError, Corruption, DataDirectoryError, InternalError, TooOld
from tidelog.hlc import HybridClock, TsFile
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import layout
from tidelog.journal.control import Epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import Meta, SnapshotPoint
from tidelog.journal.loader import Apply, Plan, cut_tails, plan_recovery, replay
from tidelog.journal.merge import JournalReader
from tidelog.journal.operation import OperationTable
from tidelog.journal.retention import Holders, RetentionLimits, Segment, list_erasable, plan_erasure
from tidelog.journal.ring import Ring
from tidelog.journal.segment import list_segments, remove_segment
from tidelog.journal.sidecar import Sidecars
from tidelog.journal.snapshot import (
    Snapshot,
    SnapshotWriter,
    list_snapshot_paths,
    open_snapshot,
    remove_partial_snapshots,
    remove_snapshot,
    snapshot_path,
)
from tidelog.journal.source import ShardSource
from tidelog.journal.writer import JournalWriter
from tidelog.ports import Clock, Disk, Lock


@dataclass(frozen=True, slots=True)
class Settings:
    """How a data directory is opened. The first two only count when it is made."""

    geometry: Geometry = field(default_factory=Geometry)
    shard_count: int = 1
    policy: FsyncPolicy = FsyncPolicy.EVERYSEC
    ring_bytes_max: int = limits.RING_BYTES_MAX
    retention: RetentionLimits = field(default_factory=RetentionLimits)


class Journal:
    """An open data directory."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        clock: Clock,
        settings: Settings,
        lock: Lock,
        meta: Meta,
        hlc: HybridClock,
        writer: JournalWriter,
        ring: Ring,
        plan: Plan,
        epochs: list[Epoch],
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._settings = settings
        self._lock = lock
        self._ring = ring
        self._erased = TsFile.open(disk, folder, layout.ERASED)
        self.meta = meta
        self.hlc = hlc
        self.writer = writer
        self.recovered = plan
        """What was found when it was opened."""
        self.epochs = epochs
        """Oldest first; the last is ours."""
        self.holders = Holders(disk, folder)
        self._snapshot: SnapshotWriter | None = None
        """The one that was begun last."""
        self._begin_ts = self._find_begin_ts()

    @classmethod
    def open(
        cls, disk: Disk, folder: str, clock: Clock, settings: Settings, *, apply: Apply, new_epoch_id: Callable[[], int]
    ) -> Journal:
        """Open a data directory, making it if it is missing or empty, and replay what it holds into `apply`."""
        folder = posixpath.normpath(folder)  # the parent of `data/` is to be the parent
        try:
            disk.make_folder(folder)
        except OSError as error:
            raise DataDirectoryError(f"{folder} cannot be used as a data directory: {error}") from error
        lock = layout.lock_directory(disk, folder)
        hlc = writer = None
        try:
            meta = _read_or_create(disk, folder, settings)
            hlc = HybridClock(clock, TsFile.open(disk, folder, layout.CLOCK))
            plan = plan_recovery(disk, folder, meta)
            resume = cut_tails(disk, folder, meta, plan)
            remove_partial_snapshots(disk, folder)
            epochs = replay(disk, folder, meta, plan, apply)
            hlc.restore(resume.last_ts)
            ring = Ring(meta.shard_count, settings.ring_bytes_max)
            writer = JournalWriter(disk, folder, meta, resume, hlc, settings.policy, ring)
            opened_ts = hlc.next()  # from here on the stop before us no longer counts as a clean one
            if not (hlc.was_clean and epochs and not plan.tail_bytes):
                epochs.append(Epoch(new_epoch_id(), plan.lsns, resume.last_ts))
                writer.append_epoch(epochs[-1], resume.last_ts or opened_ts)
                writer.write()
                writer.sync()
            journal = cls(disk, folder, clock, settings, lock, meta, hlc, writer, ring, plan, epochs)
            if journal.erased_ts:
                journal._erase_again()
            return journal
        except BaseException:
            if writer is not None:
                writer.abandon()
            if hlc is not None:
                hlc.close(clean=False)
            lock.release()
            raise

    # --- reading ------------------------------------------------------------------------------------------------

    @property
    def erased_ts(self) -> Ts:
        """Transactions up to this one may be gone from the journal."""
        stored = self._erased.stored
        return max(stored.ts if stored is not None else Ts(0), self._begin_ts)

    def _find_begin_ts(self) -> Ts:
        """What the files themselves say is gone; the one that says it may be damaged, or not have come with them."""
        begin_ts = Ts(0)
        for source in self._sources():
            segments = source.segments()
            if segments and segments[0] > 0:
                with contextlib.suppress(Corruption):  # whoever reads it will be told
                    begin_ts = max(begin_ts, source.proved_header(segments[0]).ts)
            source.close()
        return begin_ts

    def reader_since(self, ts: Ts) -> JournalReader:
        """Reads every transaction after `ts`, up to what is visible; `TooOld` if some of them are gone."""
        if ts < self.erased_ts:
            raise TooOld(f"the journal no longer has what followed ts {ts}", oldest=self.erased_ts)
        return self._placed(lambda reader: reader.seek_ts(ts))

    def reader_from(self, lsns: Sequence[Lsn]) -> JournalReader:
        """Reads the transactions that begin at these lsns, and all after them."""
        return self._placed(lambda reader: reader.seek_lsns(lsns))

    def _placed(self, seek: Callable[[JournalReader], None]) -> JournalReader:
        reader = JournalReader(
            self._disk,
            self._folder,
            self.meta.geometry,
            self.meta.shard_count,
            lambda: self.writer.visible.ends,
            ring=self._ring,
        )
        try:
            seek(reader)
        except BaseException:
            reader.close()
            raise
        return reader

    def _sources(self) -> list[ShardSource]:
        return [
            ShardSource(
                self._disk, layout.shard_folder(self._folder, shard), self.meta.geometry, ShardId(shard), self._ring
            )
            for shard in range(self.meta.shard_count)
        ]

    def make_sidecars(self, table: OperationTable, frames_max: int = 1) -> int:
        """Summarise frames that were sealed since; returns how many are left to do."""
        sources = self._sources()
        try:
            for _ in range(min(frames_max, len(self.writer.sealed))):
                shard, position = self.writer.sealed.pop(0)
                frame = position.at // self.meta.geometry.frame_bytes
                Sidecars(self._disk, sources[shard], table).summaries(position.segment, frame + 1)
        finally:
            for source in sources:
                source.close()
        return len(self.writer.sealed)

    # --- snapshots and retention --------------------------------------------------------------------------------

    def begin_snapshot(self) -> SnapshotWriter | None:
        """A snapshot of this moment, between two transactions; None if the newest one already shows it."""
        self.writer.write()
        if self._snapshot is not None and self._snapshot.is_open:
            raise ClientError("a snapshot is under way already")
        written = self.writer.written
        if snapshot_path(self._folder, written.ts) in list_snapshot_paths(self._disk, self._folder):
            return None
        point = SnapshotPoint(written.ts, written.lsns)
        self._snapshot = SnapshotWriter(
            self._disk, self._folder, self.meta.geometry, self.meta.slots, point, self.epochs
        )
        return self._snapshot

    def finish_snapshot(self, snapshot: SnapshotWriter) -> Snapshot:
        """Make it count, after the journal is durable up to its point, and drop those that are too many."""
        if self.writer.durable_ts < snapshot.point.ts:
            self.writer.sync()
        finished = snapshot.finish()
        for path in list_snapshot_paths(self._disk, self._folder)[: -max(self._settings.retention.snapshots_kept, 1)]:
            remove_snapshot(self._disk, path)
        return finished

    def erase(self) -> list[Segment]:
        """Erase what retention no longer wants; returns what is gone."""
        now_us = self._clock.wall_us()
        return self._erase(lambda erasable: plan_erasure(erasable, self.holders, self._settings.retention, now_us))

    def _erase(self, choose: Callable[[Sequence[Segment]], list[Segment]]) -> list[Segment]:
        paths = list_snapshot_paths(self._disk, self._folder)
        if not paths:
            return []
        try:
            covered = open_snapshot(self._disk, paths[0]).point.lsns
        except Corruption:
            return []  # what a damaged snapshot covers is unknown: nothing goes until it is gone itself
        sources = self._sources()
        try:
            going = choose(list_erasable(self._disk, sources, covered))
            if going:
                # The name of a snapshot whose last fsync failed may not be durable yet.
                self._disk.sync_folder(f"{self._folder}/{layout.SNAPSHOTS}")
                self._erased.store(max(self.erased_ts, going[-1].last_ts))
                gone = {(segment.shard, segment.first) for segment in going}
                self.writer.sealed = [
                    (shard, position) for shard, position in self.writer.sealed if (shard, position.segment) not in gone
                ]
                for segment in going:
                    remove_segment(self._disk, sources[segment.shard].folder, segment.first)
                for folder in sorted({sources[segment.shard].folder for segment in going}):
                    self._disk.sync_folder(folder)
        finally:
            for source in sources:
                source.close()
        return going

    def _erase_again(self) -> None:
        """A crash can bring back some files of segments that were being erased: let them go for good."""
        self._erase(lambda erasable: [segment for segment in erasable if segment.last_ts <= self.erased_ts])

    # --- stopping -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop in order; not while an fsync is under way."""
        if self.writer.is_syncing:
            raise InternalError("an fsync is under way: finish it before closing the journal")
        is_clean = False
        try:
            self.writer.close()
            is_clean = True
        finally:
            try:
                self.hlc.close(clean=is_clean)
            finally:
                self._erased.close()
                self._lock.release()


def _read_or_create(disk: Disk, folder: str, settings: Settings) -> Meta:
    if disk.exists(f"{folder}/{layout.META}"):
        disk.sync_folder(folder)  # who made it may have been killed before its name was durable
        return layout.read_meta(disk, folder)
    # A crash while making the directory leaves some of these; anything else is somebody else's.
    ours = {layout.LOCK, layout.SNAPSHOTS, f"{layout.META}.new"}
    strange = [name for name in disk.list(folder) if name not in ours and not name.startswith("shard-")]
    if strange:
        raise DataDirectoryError(
            f"{folder} is not a data directory of Tidelog and not empty (it has {strange[0]!r}): name another one"
        )
    for name in disk.list(folder):
        if name.startswith("shard-") and list_segments(disk, f"{folder}/{name}"):
            raise DataDirectoryError(f"{folder}/{name} has a journal, but {layout.META} is missing: restore it too")
    return layout.create_directory(disk, folder, settings.geometry, settings.shard_count)
