"""An open data directory: puts the parts of the journal together.

Journal.open      lock, recover, replay; a leader begins an epoch unless the last stop was clean
begin_epoch       somebody who did not lead until now does
writer            transactions in
reader            transactions out, from a ts or from lsns (`readable`)
begin_snapshot    a snapshot of now, which the store fills in
erase             removes the segments that retention no longer needs
close             a clean stop
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from tidelog import limits
from tidelog.errors import ClientError, Corruption, DataDirectoryError, InternalError, JournalFull
from tidelog.hlc import HybridClock, TsFile
from tidelog.ids import Ts
from tidelog.journal import layout
from tidelog.journal.control import Epoch
from tidelog.journal.directory import find_or_make
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.holders_file import read_holders_file
from tidelog.journal.layout import Meta, SnapshotPoint
from tidelog.journal.loader import Apply, RecoveryPlan, cut_tails, plan_recovery, replay
from tidelog.journal.node_files import NodeFiles
from tidelog.journal.operation import OperationTable
from tidelog.journal.pins import PinnedSnapshot, SnapshotPins
from tidelog.journal.readable import ReadableJournal
from tidelog.journal.reader import LoadStrings
from tidelog.journal.retention import (
    Holder,
    Holders,
    RetentionLimits,
    Segment,
    list_erasable,
    list_lapsing,
    plan_erasure,
)
from tidelog.journal.rewind import Rewound, finish_rewind
from tidelog.journal.ring import Ring
from tidelog.journal.scan import IsKnown
from tidelog.journal.segment import list_segments, remove_segment, segment_bytes
from tidelog.journal.sidecar import Sidecars
from tidelog.journal.snapshot import (
    Snapshot,
    SnapshotWriter,
    list_snapshot_paths,
    newest_snapshot,
    open_snapshot,
    remove_partial_snapshots,
    snapshot_path,
)
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


class Journal(ReadableJournal):
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
        super().__init__(disk, folder, meta, ring)
        self.writer: JournalWriter = writer
        self._ring: Ring = ring
        self._erased = TsFile.open(disk, folder, layout.ERASED)
        # The file may be damaged, or not have come with the others.
        self._begin_ts = self.find_begin_ts(writer.written.lsns, writer.written_ts)
        self._clock = clock
        self.retention = settings.retention
        """What an operator may change while it is open."""
        self._lock = lock
        self.hlc = hlc
        self.recovered = plan
        """What was found when it was opened ..."""
        self.cut_tail = cut_tail
        """... what was cut off, because a crash had torn it ..."""
        self.cut_tail_count = max(list_cut_tails(disk, folder), default=0)
        """... and how many starts of this directory had to cut something."""
        self.rewound: Rewound | None = None
        """A rewind that was cut short, and that this start has finished."""
        self.epochs = epochs
        """The last is the one that writes go to. A follower may know none yet."""
        self.needs_epoch = not (hlc.was_clean and epochs and not plan.tail_bytes)
        """What was found when it was opened says that a leader has to begin one, and none has begun since."""
        self._unwritten_epoch: Epoch | None = None
        """One that was to begin, and that there was no space for."""
        self.leads = False
        """Transactions are made here, and not received. A stop counts as clean only if they are: history that
        somebody else goes on with is not to be gone on with without an epoch."""
        self.holders = Holders()
        self.on_lapse: Callable[[list[Holder]], None] | None = None
        """Makes the record that named holders were let go. Only asked on a leader ..."""
        self.on_lead: Callable[[], None] | None = None
        """... and told when this is one, after its epoch has begun."""
        self._pins = SnapshotPins(disk, folder)
        """Whoever removes node files makes them known there (`keep_node_files`)."""
        self._snapshot: SnapshotWriter | None = None
        """The one that was begun last."""

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
        leads: bool = True,
        database_id: str = "",
    ) -> Journal:
        """Open a data directory, making it if it is missing or empty, and replay what it holds into `apply`.

        Whoever `leads` makes transactions, in a new epoch unless the last stop was clean. Otherwise no ts is made and
        no epoch begun, until `begin_epoch`. `database_id`: which database the directory is from now on; "": as it was.

        If it is given, `load_strings` takes runs of records that `apply` would otherwise get one by one, and a
        directory with an opcode that is not `is_known` is refused before anything is changed.
        """
        folder = posixpath.normpath(folder)  # the parent of `data/` is to be the parent
        try:
            disk.make_folder(folder)
        except OSError as error:
            raise DataDirectoryError(f"{folder} cannot be used as a data directory: {error}") from error
        lock = layout.lock_directory(disk, folder)
        hlc = writer = journal = None
        draw_id = cache(new_epoch_id)
        try:
            meta = find_or_make(disk, folder, settings.geometry, settings.shard_count, clock, draw_id, database_id)
            rewound = finish_rewind(disk, folder, meta)
            hlc = HybridClock(clock, TsFile.open(disk, folder, layout.CLOCK))
            read_holders_file(disk, folder)  # a damaged one is refused before anything is changed
            plan = plan_recovery(disk, folder, meta, is_known)
            layout.write_shard_metas(disk, folder, meta)  # versions before this one did not
            cut_tail = set_aside_tail(disk, folder, plan.tail, plan.complete.cycle, plan.cuts)
            resume = cut_tails(disk, folder, meta, plan, None if cut_tail is None else cut_tail.path)
            remove_partial_snapshots(disk, folder)
            epochs = replay(disk, folder, meta, plan, apply, load_strings, is_known)
            hlc.restore(max(resume.last_ts, epochs[-1].first_ts if epochs else Ts(0)))
            ring = Ring(meta.shard_count, settings.ring_bytes_max)
            writer = JournalWriter(disk, folder, meta, resume, hlc, settings.policy, ring)
            journal = cls(disk, folder, clock, settings, lock, meta, hlc, writer, ring, plan, cut_tail, epochs)
            journal.rewound = rewound
            if not leads:
                hlc.forget_clean_stop()
            elif journal.needs_epoch:
                journal.begin_epoch(draw_id())
            else:
                journal.leads = True
                hlc.next()  # from here on the stop before us no longer counts as a clean one
            if journal.erased_ts:
                journal._erase_again()
            return journal
        except BaseException:
            if journal is not None:
                journal._erased.close()
            if writer is not None:
                writer.abandon()
            if hlc is not None:
                hlc.close(clean=False)
            lock.release()
            raise

    @property
    def erased_ts(self) -> Ts:
        stored = self._erased.stored
        return max(stored.ts if stored is not None else Ts(0), self._begin_ts)

    # --- epochs -------------------------------------------------------------------------------------------------

    @property
    def epoch_id(self) -> int:
        """Of the newest epoch; 0: none is known yet."""
        return self.epochs[-1].id if self.epochs else 0

    def begin_epoch(self, epoch_id: int, above: Ts = Ts(0)) -> Epoch:
        """Go on with this history here: from now on transactions are made, with a ts above `above` and all before.

        The epoch is durable when it returns. For the owner's thread, between transactions and not while an fsync job is
        under way: a server waits for its end first (`GroupCommit.sync_now`). `JournalFull`: it has not begun, and may
        be tried again.
        """
        if self.writer.is_syncing:
            raise InternalError("an fsync is under way: finish it before beginning an epoch")
        self.writer.write()
        epoch, self._unwritten_epoch = self._unwritten_epoch, None
        if epoch is None:
            epoch = self._append_epoch(epoch_id, above)
        self.writer.sync()
        if self.epochs[-1:] != [epoch]:
            self.epochs.append(epoch)
        self.needs_epoch, self.leads = False, True
        if self.on_lead is not None:
            self.on_lead()
        return epoch

    def _append_epoch(self, epoch_id: int, above: Ts) -> Epoch:
        written = self.writer.written
        self.hlc.restore(max(above, written.ts))
        first_ts = self.hlc.next()
        epoch = Epoch(epoch_id, written.lsns, written.ts, first_ts)
        self.writer.append_epoch(epoch, written.ts or first_ts)
        try:
            self.writer.write()
        except JournalFull:
            # It is part of a batch that is written some time. It is of no use to anybody else before that, but whoever
            # goes on differently from here has to know that we would have.
            self._unwritten_epoch = epoch
            self.epochs.append(epoch)
            raise
        return epoch

    def become_database(self, database_id: str) -> None:
        """Go on as another one ("": as it is). Durable when it returns. `JournalFull`: try again."""
        if database_id not in ("", self.meta.database_id):
            meta = replace(self.meta, database_id=database_id)
            try:
                layout.write_meta(self._disk, self._folder, meta)
            except OSError as error:
                raise JournalFull(f"the id of the database cannot be stored: {error}") from error
            self.meta = meta

    def append_received_epoch(self, epoch: Epoch) -> None:
        """An epoch of the history that is followed begins; nothing happens if it is known. The next cycle has it.

        Clients rely on its first ts also if nothing happens in it: the next epoch has to begin above that.
        """
        if any(known.id == epoch.id for known in self.epochs):
            return
        writer = self.writer
        if epoch.lsns != writer.next_lsns or epoch.last_ts != writer.last_ts:
            raise InternalError(f"{epoch} does not begin at lsns {writer.next_lsns} after ts {writer.last_ts}")
        writer.append_epoch(epoch, writer.last_ts or epoch.first_ts)
        self.epochs.append(epoch)
        self.hlc.follow(epoch.first_ts)

    # --- sidecars -----------------------------------------------------------------------------------------------

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
        """A snapshot of this moment, between two transactions; None if the newest one already shows it.

        One that is damaged (`SnapshotPins`) shows nothing, and is replaced.
        """
        self.writer.write()
        if self._snapshot is not None and self._snapshot.is_open:
            raise ClientError("a snapshot is under way already")
        written = self.writer.written
        path, damaged = snapshot_path(self._folder, written.ts), self._pins.damaged
        if path not in damaged and path in list_snapshot_paths(self._disk, self._folder):
            return None
        point = SnapshotPoint(written.ts, written.lsns)
        self._snapshot = SnapshotWriter(self._disk, self._folder, replace(self.meta, point=point), self.epochs, damaged)
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
        self._pins.remove_old(max(self.retention.snapshots_kept, 1))

    def pin_snapshot(self, until: Ts | None = None) -> PinnedSnapshot | None:
        """The newest snapshot, to be read file by file: it stays until it is released. None: there is none.

        `until`: rather one of that moment or before. Whoever goes on with the journal after it holds that in `holders`.
        """
        return self._pins.pin(until)

    def keep_node_files(self, files: NodeFiles) -> None:
        """Node files may go from now on, except those that pinned snapshots list."""
        self._pins.node_files = files

    def distrust_snapshot(self, path: str, problem: str) -> None:
        """Somebody has read it, and found that it is damaged: it is not given out again."""
        self._pins.distrust(path, problem)

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
        """Which of them go now, also to make so much room. For the owner's thread; they get no sidecars any more.

        Holders that are past their limits are let go, but none for the sake of room. A named one only by a leader, and
        what it held goes once the record of that is durable.
        """
        now_us, writer = self._clock.wall_us(), self.writer
        named = self.holders.let_go(list_lapsing(erasable, self.holders.holding(), self.retention, now_us))
        if named and self.leads and self.on_lapse is not None and writer.refusal is None:
            self.on_lapse(named)
        fsyncs = writer.policy is not FsyncPolicy.NEVER
        needed = self.holders.oldest_needed(writer.durable_ts if fsyncs else writer.written_ts, writer.last_ts)
        going = plan_erasure(erasable, needed, self.retention, now_us, needed_bytes)
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
                self.hlc.close(clean=is_clean and self.leads)
            finally:
                self._erased.close()
                self._lock.release()
