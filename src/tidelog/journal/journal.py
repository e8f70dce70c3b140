"""An open data directory: puts the parts of the journal together.

Journal.open      lock, recover, replay, begin an epoch unless the last stop was clean
writer            transactions in
reader            transactions out, from a ts or from lsns
begin_snapshot    a snapshot of now, which the store fills in
erase             removes the segments that retention no longer needs
close             a clean stop
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from tidelog import limits
from tidelog.errors import ClientError, Corruption, DataDirectoryError, InternalError, TooOld
from tidelog.hlc import HybridClock, TsFile
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import layout
from tidelog.journal.control import Epoch
from tidelog.journal.directory import find_or_make
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import Meta, SnapshotPoint
from tidelog.journal.loader import Apply, RecoveryPlan, cut_tails, plan_recovery, replay
from tidelog.journal.merge import JournalReader
from tidelog.journal.operation import OperationTable
from tidelog.journal.places import Places
from tidelog.journal.reader import LoadStrings, ShardReader, Wants
from tidelog.journal.retention import Holders, RetentionLimits, Segment, list_erasable, plan_erasure
from tidelog.journal.ring import Ring
from tidelog.journal.scan import IsKnown
from tidelog.journal.segment import FilePosition, list_segments, remove_segment, segment_bytes, sidecar_name
from tidelog.journal.sidecar import FrameSummary, Sidecars, decode_summaries
from tidelog.journal.snapshot import (
    Snapshot,
    SnapshotWriter,
    list_snapshot_paths,
    newest_snapshot,
    open_snapshot,
    remove_partial_snapshots,
    remove_snapshot,
    snapshot_path,
)
from tidelog.journal.source import ShardSource
from tidelog.journal.tail import CutTail, list_cut_tails, set_aside_tail
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
        plan: RecoveryPlan,
        cut_tail: CutTail | None,
        epochs: list[Epoch],
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self.retention = settings.retention
        """What an operator may change while it is open."""
        self._lock = lock
        self._ring = ring
        self._erased = TsFile.open(disk, folder, layout.ERASED)
        self.meta = meta
        self.hlc = hlc
        self.writer = writer
        self.recovered = plan
        """What was found when it was opened ..."""
        self.cut_tail = cut_tail
        """... what was cut off, because a crash had torn it ..."""
        self.cut_tail_count = max(list_cut_tails(disk, folder), default=0)
        """... and how many starts of this directory had to cut something."""
        self.epochs = epochs
        """Oldest first; the last is ours."""
        self.holders = Holders(disk, folder)
        self._snapshot: SnapshotWriter | None = None
        """The one that was begun last."""
        self._begin_ts = self._find_begin_ts()

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        clock: Clock,
        settings: Settings,
        *,
        apply: Apply,
        new_epoch_id: Callable[[], int],
        load_strings: LoadStrings | None = None,
        is_known: IsKnown | None = None,
    ) -> Journal:
        """Open a data directory, making it if it is missing or empty, and replay what it holds into `apply`.

        If it is given, `load_strings` takes runs of records that `apply` would otherwise get one by one, and a
        directory with an opcode that is not `is_known` is refused before anything is changed.
        """
        folder = posixpath.normpath(folder)  # the parent of `data/` is to be the parent
        try:
            disk.make_folder(folder)
        except OSError as error:
            raise DataDirectoryError(f"{folder} cannot be used as a data directory: {error}") from error
        lock = layout.lock_directory(disk, folder)
        hlc = writer = None
        draw_id = cache(new_epoch_id)
        try:
            meta = find_or_make(disk, folder, settings.geometry, settings.shard_count, clock, draw_id)
            hlc = HybridClock(clock, TsFile.open(disk, folder, layout.CLOCK))
            plan = plan_recovery(disk, folder, meta, is_known)
            layout.write_shard_metas(disk, folder, meta)  # versions before this one did not
            cut_tail = set_aside_tail(disk, folder, plan.tail, plan.complete.cycle, plan.cuts)
            resume = cut_tails(disk, folder, meta, plan, None if cut_tail is None else cut_tail.path)
            remove_partial_snapshots(disk, folder)
            epochs = replay(disk, folder, meta, plan, apply, load_strings, is_known)
            hlc.restore(resume.last_ts)
            ring = Ring(meta.shard_count, settings.ring_bytes_max)
            writer = JournalWriter(disk, folder, meta, resume, hlc, settings.policy, ring)
            opened_ts = hlc.next()  # from here on the stop before us no longer counts as a clean one
            if not (hlc.was_clean and epochs and not plan.tail_bytes):
                epochs.append(Epoch(draw_id(), plan.lsns, resume.last_ts, opened_ts))
                writer.append_epoch(epochs[-1], resume.last_ts or opened_ts)
                writer.write()
                writer.sync()
            journal = cls(disk, folder, clock, settings, lock, meta, hlc, writer, ring, plan, cut_tail, epochs)
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
                with contextlib.suppress(Corruption):  # a reader of the segment will be told
                    begin_ts = max(begin_ts, source.proved_header(segments[0]).ts)
            source.close()
        return begin_ts

    def refuse_erased(self, ts: Ts) -> None:
        """`TooOld` if transactions after `ts` may be gone."""
        if ts < self.erased_ts:
            raise TooOld(f"the journal no longer has the transactions after ts {ts}", oldest=self.erased_ts)

    def reader_since(self, ts: Ts) -> JournalReader:
        """Reads every transaction after `ts`, up to what is visible; `TooOld` if some of them are gone."""
        self.refuse_erased(ts)
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

    def shard_reader(
        self,
        shard: ShardId,
        end: Callable[[], FilePosition | None],
        on_read: Callable[[int], None] | None = None,
        wants: Wants | None = None,
    ) -> ShardReader:
        """Reads one shard up to `end`, which is not past what is visible, and large transactions in pieces."""
        folder = layout.shard_folder(self._folder, shard)
        source = ShardSource(self._disk, folder, self.meta.geometry, shard, self._ring, on_read)
        return ShardReader(source, end, wants=wants, in_pieces=True)

    def ts_after(self, ts: Ts, records: int) -> Ts:
        """A ts up to which each shard has about so many records after `ts`, or all that is visible."""
        visible = self.writer.visible.ts
        return min([visible, *(each.ts_after(ts, records) or visible for each in self.visible_places())])

    def visible_places(self) -> Iterator[Places]:
        """Of each shard; its files are open until the next is asked for."""
        ends = self.writer.visible.ends
        for shard in range(self.meta.shard_count):
            with contextlib.closing(self._source(shard)) as source:
                yield Places(source, partial(ends.__getitem__, shard))

    def records_after(self, ts: Ts) -> list[int]:
        """Per shard, how many visible records follow `ts`: a few heads of frames are read, and one frame.

        Records of all databases count. One may have the changes of several commands that came together, and a
        transaction over several shards has one more, its start.
        """
        visible = self.writer.visible
        places = self.visible_places()
        return [end - each.lsn_after(ts, end, visible.ts) for each, end in zip(places, visible.lsns, strict=True)]

    def begin_of(self, ts: Ts) -> Ts:
        """Where what follows `ts` begins: there, or just before the first record that the journal has."""
        found = [Ts(first - 1) for each in self.visible_places() if (first := each.first_ts()) is not None]
        return max(ts, min(found, default=ts))

    def summaries(
        self, shard: ShardId, segment: Lsn, on_read: Callable[[int], None] | None = None
    ) -> Sequence[FrameSummary]:
        """What is known of the first sealed frames of a segment, without reading those that nobody summarised yet."""
        path = f"{layout.shard_folder(self._folder, shard)}/{sidecar_name(segment)}"
        try:
            data = layout.read_file(self._disk, path)
        except FileNotFoundError:
            return []
        if on_read is not None:
            on_read(len(data))
        return decode_summaries(data)

    def _sources(self) -> list[ShardSource]:
        return [self._source(shard) for shard in range(self.meta.shard_count)]

    def _source(self, shard: int) -> ShardSource:
        """A shard's files, without the ring: for any thread."""
        return ShardSource(self._disk, layout.shard_folder(self._folder, shard), self.meta.geometry, ShardId(shard))

    def make_sidecars(self, table: OperationTable, frames_max: int = 1) -> int:
        """Summarise frames that were sealed since; returns how many are left to do."""
        for _ in range(frames_max):
            job = self.take_sidecar_job(table)
            if job is None:
                break
            job()
        return len(self.writer.sealed)

    def take_sidecar_job(self, table: OperationTable) -> Callable[[], None] | None:
        """What is to be done to summarise the next sealed frame, on any thread; None: nothing is left.

        Not beside `remove_erased`: the caller runs them one after the other.
        """
        if not self.writer.sealed:
            return None
        shard, position = self.writer.sealed.pop(0)

        def run() -> None:
            source = self._source(shard)
            try:
                if source.has_segment(position.segment):
                    frame = position.at // self.meta.geometry.frame_bytes
                    Sidecars(self._disk, source, table).summaries(position.segment, frame + 1)
            finally:
                source.close()

        return run

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
            self._disk,
            self._folder,
            replace(self.meta, point=point),
            self.epochs,
            self.holders.members() if self.holders.all() else None,
        )
        return self._snapshot

    def finish_snapshot(self, snapshot: SnapshotWriter) -> Snapshot:
        """Make it count, after the journal is durable up to its point, and drop those that are too many."""
        if self.writer.durable_ts < snapshot.point.ts:
            self.writer.sync()
        finished = snapshot.finish()
        self.remove_old_snapshots()
        return finished

    def remove_old_snapshots(self) -> None:
        """Drop the snapshots that are too many. On any thread; not beside another that makes or drops them."""
        for path in list_snapshot_paths(self._disk, self._folder)[: -max(self.retention.snapshots_kept, 1)]:
            remove_snapshot(self._disk, path)

    @property
    def newest_snapshot(self) -> Snapshot | None:
        return newest_snapshot(self._disk, self._folder)

    def snapshot_bytes(self, snapshot: Snapshot) -> int:
        return snapshot.size(self._disk)

    @property
    def free_bytes(self) -> int:
        """Room on the disk."""
        return self._disk.free_bytes(self._folder)

    @property
    def segment_bytes_max(self) -> int:
        """What a segment takes when it is full, without its blobs."""
        return self.meta.geometry.frame_bytes * self.meta.geometry.frames_per_segment

    def bytes_since(self, point: SnapshotPoint | None) -> int:
        """How much of the journal was written after a snapshot, blobs among it; None: all that there is."""
        total = 0
        for shard in range(self.meta.shard_count):
            folder = layout.shard_folder(self._folder, shard)
            first, at, blob_at = (0, 0, 0) if point is None or point.places is None else point.places[shard]
            for segment in list_segments(self._disk, folder):
                if segment >= first:
                    size, blobs = segment_bytes(self._disk, folder, segment)
                    total += size + blobs - (at + blob_at if segment == first else 0)
        return max(0, total)

    def erase(self) -> list[Segment]:
        """Erase what retention no longer wants; returns what is gone. The three steps of it, one after the other."""
        going = self.choose_erased(self.find_erasable())
        self.remove_erased(going)
        return going

    def find_erasable(self) -> list[Segment]:
        """What the snapshots cover. It reads; on any thread."""
        paths = list_snapshot_paths(self._disk, self._folder)
        if not paths:
            return []
        try:
            covered = open_snapshot(self._disk, paths[0]).point.lsns
        except Corruption:
            return []  # what a damaged snapshot covers is unknown: nothing goes until it is gone itself
        sources = self._sources()
        try:
            return list_erasable(self._disk, sources, covered)
        finally:
            for source in sources:
                source.close()

    def choose_erased(self, erasable: Sequence[Segment], needed_bytes: int = 0) -> list[Segment]:
        """Which of them go now, also to make so much room. For the owner's thread; they get no sidecars any more."""
        going = plan_erasure(erasable, self.holders, self.retention, self._clock.wall_us(), needed_bytes)
        gone = {(segment.shard, segment.first) for segment in going}
        self.writer.sealed = [
            (shard, position) for shard, position in self.writer.sealed if (shard, position.segment) not in gone
        ]
        return going

    def remove_erased(self, going: Sequence[Segment]) -> None:
        """Unlink them, once it is durable that they are gone. On any thread."""
        if not going:
            return
        # The name of a snapshot whose last fsync failed may not be durable yet.
        self._disk.sync_folder(f"{self._folder}/{layout.SNAPSHOTS}")
        self._erased.store(max(self.erased_ts, going[-1].last_ts))
        for segment in going:
            remove_segment(self._disk, layout.shard_folder(self._folder, segment.shard), segment.first)
        for shard in sorted({segment.shard for segment in going}):
            self._disk.sync_folder(layout.shard_folder(self._folder, shard))

    def _erase_again(self) -> None:
        """A crash can bring back some files of segments that were being erased: let them go for good."""
        self.remove_erased([segment for segment in self.find_erasable() if segment.last_ts <= self.erased_ts])

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
