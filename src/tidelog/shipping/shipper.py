"""The shipper: copies what is durable to an object store, round by round.

    take_over     read the newest manifest, see that it is our history, and put the next: from here on the lease is ours
    ship          a round: new bytes of journal and blobs, then a manifest that says so
    work          one step of what takes longer, beside the rounds: snapshots, full segments, small objects (`bulk`)

Invariants:
- only bytes that are fsynced are shipped, and a manifest names only objects that are there;
- no object is put twice, and none is changed: every name has the lease in it (`uploads`);
- a shipper that was replaced stops for good (`fence`, `ShippingFenced`): what it has put since is named by no manifest.

Calls block, and come one at a time, from any thread. `OSError`: the store or the disk could not be reached; the same
call works later, and nothing is lost by that but time.
"""

from __future__ import annotations

import logging
from typing import Final

from tidelog import limits
from tidelog.errors import ShippingError, ShippingFenced, ShippingGap, TidelogError
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.beginning import has_beginning
from tidelog.journal.durability import BlobExtent
from tidelog.journal.layout import META, SHARD_META, Meta, SnapshotPoint, shard_folder
from tidelog.journal.pins import PinnedSnapshot
from tidelog.journal.segment import blob_name, journal_name, list_segments
from tidelog.ports import Clock, Disk, ObjectStore
from tidelog.shipping.archive import Archive
from tidelog.shipping.bulk import Bulk
from tidelog.shipping.copied_files import CopiedFiles, copied_files
from tidelog.shipping.doubted_clock import DoubtedClock
from tidelog.shipping.fence import Fence
from tidelog.shipping.fetch import read_restored
from tidelog.shipping.lineage import Lineage
from tidelog.shipping.manifest import Manifest, encode_base
from tidelog.shipping.point import ShipPoint
from tidelog.shipping.remote_file import files_in_copy, remote_path
from tidelog.shipping.succession import cut_ts, foreign_extents, goes_on, journal_begins_ts, refuse_other_history
from tidelog.shipping.upkeep import Upkeep
from tidelog.shipping.uploads import Uploads, stem

_LOG: Final = logging.getLogger("tidelog")


class Shipper:
    """Ships one data directory, for as long as nobody else takes over."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        meta: Meta,
        objects: ObjectStore,
        clock: Clock,
        keep_us: int = limits.SHIP_KEEP_US,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._meta = meta
        self._objects = objects
        self._clock = clock
        self._fence = Fence(objects, meta.database_id, clock)
        self._uploads = Uploads(objects, meta.database_id, 0, clock)
        self._archive = Archive(None)
        self._bulk = Bulk(disk, folder, self._archive, self._uploads)
        self._keep_us = keep_us
        self._upkeep = self._make_upkeep(None)
        self._time = DoubtedClock(clock, None)
        self._is_begun = False
        self._owed: list[BlobExtent] = []
        """Of blobs that are not shipped yet."""
        self._point: ShipPoint | None = None
        """The one that was shipped last."""
        self.shipped_ts = Ts(0)
        """The newest transaction that a manifest tells of in the lineage that is being written."""
        self.upkeep_error = ""
        """Why what is needed no more stays in the store; "": it does not."""
        self.upkeep_failures = self._upkeep_after_us = 0
        """How often it has failed; and before when it is not tried again (monotonic)."""
        self.gone: list[PinnedSnapshot] = []
        """Snapshots that are needed no more: their owner takes them out and releases them."""

    def _make_upkeep(self, newest: Manifest | None) -> Upkeep:
        going, ages = ((), ()) if newest is None else (newest.going, newest.ages)
        parts = self._archive, self._uploads, self._keep_us, going, ages
        # One that is made with the others, and sees them change.
        bulk = self._bulk

        def needs(path: str) -> bool:
            return bulk.needs(path) or self._disk.exists(remote_path(f"{self._folder}/{path}"))

        return Upkeep(self._objects, self._meta.database_id, *parts, lambda: bulk.unnamed, needs)

    # --- how it stands ------------------------------------------------------------------------------------------

    @property
    def lease(self) -> int:
        """-1: it has none."""
        return self._fence.lease

    @property
    def manifest_number(self) -> int:
        return self._fence.number

    @property
    def database_id(self) -> str:
        return self._meta.database_id

    @property
    def archive(self) -> Archive:
        return self._archive

    @property
    def lineages(self) -> list[Lineage]:
        return self._archive.lineages

    @property
    def objects_put(self) -> int:
        return self._uploads.objects_put

    @property
    def bytes_put(self) -> int:
        return self._uploads.bytes_put

    @property
    def _lineage(self) -> Lineage:
        return self._archive.lineages[-1]

    @property
    def snapshot(self) -> PinnedSnapshot | None:
        """The one that is being shipped."""
        return self._bulk.snapshot

    @property
    def is_begun(self) -> bool:
        """Whether it is known where the lineage begins; before that, it needs a snapshot."""
        return self._is_begun

    @property
    def wants_snapshot_until(self) -> Ts | None:
        """A snapshot of this moment or before, rather than a newer one, would leave no gap between two lineages; None:
        the newest is fine."""
        before = self._archive.lineages[-2:-1]
        return before[0].history_ts if not self.is_begun and before and before[0].begins_ts is not None else None

    def wants(self, snapshot: SnapshotPoint) -> bool:
        """Whether it would ship a snapshot of this moment, if it were given one. One from before the journal of the
        lineage shows nothing: what happened after it is not there."""
        if self.lease < 0 or self._bulk.snapshot is not None:
            return False
        lineage = self._lineage
        is_covered = all(first <= lsn for first, lsn in zip(lineage.first_segments, snapshot.lsns, strict=False))
        return is_covered and snapshot.ts > max(lineage.snapshots, default=-1)

    def newest_manifest(self) -> Manifest | None:
        """Whoever put it; None: there is none."""
        return self._fence.newest()

    # --- taking over --------------------------------------------------------------------------------------------

    def take_over(self, point: ShipPoint) -> None:
        """Make the lease ours. `ShippingError`: what is there is not our history, or somebody else is quicker."""
        restored = read_restored(self._disk, self._folder)
        self.close()
        for _ in range(limits.SHIP_TAKE_OVER_ATTEMPTS):
            newest = self._fence.begin()
            if newest is not None:
                refuse_other_history(newest, point, self._meta, restored)
            lease = 0 if newest is None else newest.number + 1
            self._uploads = Uploads(self._objects, self._meta.database_id, lease, self._clock, self._uploads)
            self._archive = Archive(newest)
            self._bulk = Bulk(self._disk, self._folder, self._archive, self._uploads)
            self._upkeep = self._make_upkeep(newest)
            self._time = DoubtedClock(self._clock, None if newest is None else newest.made_us)
            known = {name for lineage in self._archive.lineages for name in lineage.objects()}
            if newest is None or not self._goes_on(point):
                self._begin_lineage(newest, point, lease)
            for path, file in files_in_copy(self._disk, self._folder, self._meta, self._lineage, known):
                self._archive.set_file(self._lineage, path, file)
            self._is_begun = self._lineage.begins_ts is not None and META in self._lineage.files
            self._point = point
            self._owed = list(point.extents)
            manifest = self._manifest(point, lease, lease)
            try:
                self._fence.take(manifest)
            except FileExistsError:
                continue
            self._confirmed(manifest)
            return
        raise ShippingError("others put manifests as fast as this server: is the same database served twice?")

    def _goes_on(self, point: ShipPoint) -> bool:
        """Whether our files hold what was shipped last, so that the same lineage grows."""
        lineages = self._archive.lineages
        if not lineages:
            return False
        lineage = lineages[-1]
        if not goes_on(self._disk, self._folder, self._meta, lineage, point):
            if lineage.begins_ts is None or not lineage.ends:
                self._archive.drop(lineage)  # its first round or snapshot was not finished: it shows no moment
            return False
        for path, extent in foreign_extents(self._disk, self._folder, lineage):
            self._archive.remove_extent(lineage, path, extent)
        return True

    def _begin_lineage(self, newest: Manifest | None, point: ShipPoint, lease: int) -> None:
        if newest is not None:
            cut = cut_ts(newest, point)
            for lineage in self._archive.lineages:
                last = lineage.ts if cut is None else min(lineage.ts, cut)
                lineage.ends_ts = last if lineage.ends_ts is None else min(lineage.ends_ts, last)
        epoch = point.epochs[-1].id if point.epochs else 0
        self._archive.add(Lineage(f"{epoch:016x}.{lease:x}", self._meta.geometry, self._meta.shard_count))

    def begin(self, snapshot: PinnedSnapshot | None) -> None:
        """Say what the lineage begins with: a snapshot, or, if the journal has everything, None."""
        lineage = self._lineage
        if snapshot is None and not has_beginning(self._disk, self._folder, self._meta.shard_count):
            raise ShippingGap("the journal does not reach back to the first transaction: a snapshot is needed")
        needed = (Lsn(0),) * self._meta.shard_count if snapshot is None else snapshot.snapshot.point.lsns
        if snapshot is None and self._point is not None and journal_begins_ts(self._point):
            raise ShippingGap("the journal begins at the moment of a restore: the snapshot of that is needed")
        firsts: list[Lsn] = []
        for shard in range(self._meta.shard_count):
            segments = list_segments(self._disk, shard_folder(self._folder, shard))
            # A recovery begins with the frame before, so that it finds a mark.
            firsts.append(max([first for first in segments if first < needed[shard]], default=needed[shard]))
        # One that was begun before, and whose first snapshot was not finished, has the journal from there on.
        if any(first < there for first, there in zip(firsts, lineage.first_segments, strict=False)):
            self._archive.empty(lineage)  # it was to begin with a later snapshot, which can no longer be had
        lineage.first_segments = lineage.first_segments or tuple(firsts)
        if snapshot is None:
            lineage.begins_ts = Ts(0)
        else:
            self.give(snapshot)
        for path in [*(f"{shard_folder('', shard)[1:]}/{SHARD_META}" for shard in range(self._meta.shard_count)), META]:
            if path in lineage.files:
                continue  # from an attempt before
            local = f"{self._folder}/{path}"
            file = self._disk.open(local, "read")
            try:
                extent = self._uploads.put_bytes(file, 0, file.size(), stem(lineage.name, path, 0))
            finally:
                file.close()
            self._archive.set_file(lineage, path, lineage.file(path).plus(extent))
        self._is_begun = True

    def give(self, snapshot: PinnedSnapshot) -> None:
        """Ship this snapshot, step by step."""
        if (old := self._bulk.give(self._lineage, snapshot)) is not None:
            self.gone.append(old)

    # --- rounds -------------------------------------------------------------------------------------------------

    def ship(self, point: ShipPoint) -> None:
        """A round. Nothing happens if nothing has changed, unless it is time to say so."""
        if self.lease < 0:
            raise ShippingFenced("this server has no lease")
        self._owed += point.extents
        self._point = point._replace(extents=())
        if self.is_begun and point.durable.cycle > self._lineage.cycle:
            self._ship_blobs()
            self._ship_journal(point)
            lineage, durable = self._lineage, point.durable
            lineage.ts, lineage.cycle = durable.ts, durable.cycle
            lineage.lsns, lineage.ends = durable.lsns, durable.ends
            self.put_manifest()
        else:
            self._beat()

    def _beat(self) -> None:
        """A manifest if it is time for one, as others take us for dead otherwise, or if more can be restored by it."""
        if self._clock.monotonic_us() - self._fence.made_us >= limits.SHIP_BEAT_US or self._archive.shows_more:
            self.put_manifest()

    def _ship_blobs(self) -> None:
        while self._owed:
            extent = self._owed[0]
            path = f"{shard_folder('', extent.shard)[1:]}/{blob_name(extent.position.segment)}"
            if extent.position.segment >= self._lineage.first_segments[extent.shard]:
                at = extent.position.at
                self._ship_range(path, at, at + extent.size)
            self._owed.pop(0)

    def _ship_journal(self, point: ShipPoint) -> None:
        lineage = self._lineage
        for shard, end in enumerate(point.durable.ends):
            if end is None:
                continue
            folder = shard_folder("", shard)[1:]
            shipped = lineage.ends[shard] if lineage.ends else None
            first = lineage.first_segments[shard] if shipped is None else shipped.segment
            segments = [each for each in list_segments(self._disk, f"{self._folder}/{folder}") if each >= first]
            if not segments or segments[0] > first:
                raise ShippingGap(f"shard {shard}: the segment of lsn {first} was erased before all of it was shipped")
            for segment in [each for each in segments if each <= end.segment]:
                path, blobs = f"{folder}/{journal_name(segment)}", f"{folder}/{blob_name(segment)}"
                size = end.at if segment == end.segment else self._size(path)
                if segment != end.segment and self._disk.exists(f"{self._folder}/{blobs}"):
                    self._ship_range(blobs, 0, self._size(blobs))
                # Not from the end of the file: what lies between the two may have been another server's, and dropped.
                self._ship_range(path, shipped.at if shipped is not None and segment == shipped.segment else 0, size)
                if segment != end.segment:
                    self._bulk.sealed(lineage, ShardId(shard), segment)

    def _size(self, path: str) -> int:
        file = self._disk.open(f"{self._folder}/{path}", "read")
        try:
            return file.size()
        finally:
            file.close()

    def _ship_range(self, path: str, start: int, end: int) -> None:
        """Ship what is missing of a range of a local file."""
        lineage = self._lineage
        for begin, stop in list(lineage.file(path).missing(start, end)):
            at = begin
            while at < stop:
                until = min(at + self._uploads.bytes_at_once, stop)
                name = stem(lineage.name, path, at, is_piece=True)
                try:
                    extent = self._uploads.put_file(self._disk, f"{self._folder}/{path}", at, until, name)
                except FileNotFoundError:
                    raise ShippingGap(f"{path} was erased before all of it was shipped") from None
                self._archive.set_file(lineage, path, lineage.file(path).plus(extent))
                at = until
                self._beat()

    # --- what takes longer --------------------------------------------------------------------------------------

    def work(self) -> bool:
        """One step of it; whether there is more to do. What it changes, the next manifest says."""
        is_more = self.is_begun and self._bulk.step(self._lineage)
        if (done := self._bulk.take_done()) is not None:
            self.gone.append(done)
        return is_more or (self.is_begun and self._tidy_up())

    def _tidy_up(self) -> bool:
        """A step of upkeep. If that fails, such as with credentials that may not delete, shipping goes on without."""
        now_us = self._clock.monotonic_us()
        if now_us < self._upkeep_after_us:
            return False
        self._fence.refuse_if_replaced()  # before anything is deleted
        try:
            is_more = self._upkeep.step(*self._time.bounds_us(), now_us, self._fence.number)
        except (OSError, TidelogError) as error:
            self.upkeep_failures += 1
            self._upkeep_after_us = now_us + limits.SHIP_UPKEEP_RETRY_US
            if not self.upkeep_error:
                _LOG.error("what is needed no more stays in the copy, and is tried again every few minutes: %s", error)
            self.upkeep_error = str(error)
            return False
        self.upkeep_error = self.upkeep_error if is_more else ""
        return is_more

    # --- manifests ----------------------------------------------------------------------------------------------

    def _manifest(self, point: ShipPoint, number: int, lease: int) -> Manifest:
        wall_us = self._clock.wall_us()
        closed_ts = max(self._lineage.ts, point.closed_ts) if self._is_level(point) else self._lineage.ts
        return Manifest(
            number=number,
            lease=lease,
            database_id=self._meta.database_id,
            made_us=wall_us,
            closed_ts=closed_ts,
            # A server that goes on elsewhere must give out nothing that was said to be over.
            clock_bound=max(point.clock_bound, closed_ts),
            epochs=tuple(point.epochs[-limits.SHIPPED_EPOCHS_MAX :]),
            lineages=tuple(self._archive.lineages),
            base=self._archive.base,
            changed=self._archive.changed,
            in_base=self._archive.in_base,
            going=self._upkeep.told(self._time.latest_us()),
            ages=tuple(self._upkeep.ages),
        )

    def _is_level(self, point: ShipPoint) -> bool:
        return self._lineage.cycle == point.durable.cycle

    def put_manifest(self) -> None:
        """The next one. `ShippingFenced`: somebody else has put it."""
        assert self._point is not None
        if self._archive.needs_base:
            name = self._uploads.put("base", encode_base(self._archive.lineages))
            self._archive.set_base(name)
        while True:
            manifest = self._manifest(self._point, self._fence.number + 1, self.lease)
            self._archive.told()
            if self._fence.put(manifest):
                break
        self._confirmed(manifest)

    def _confirmed(self, manifest: Manifest) -> None:
        """A manifest is there."""
        self._upkeep.confirm(manifest.going, self._fence.made_us)
        self.shipped_ts = self._lineage.ts
        self._archive.confirm()

    def give_up_lease(self) -> None:
        """Ship no more before the next `take_over`."""
        self._fence.lease = -1

    def copied_files(self, before: Ts) -> CopiedFiles | None:
        """Which node files a manifest names, and which of them were as they are before a moment; None: that is not
        known yet."""
        return copied_files(self._archive, before) if self.lease >= 0 and self.is_begun else None

    @property
    def snapshot_bytes_left(self) -> int:
        """What is still to be shipped of a snapshot."""
        return self._bulk.snapshot_bytes_left(self._lineage) if self._archive.lineages else 0

    def journal_bytes_left(self, point: ShipPoint) -> int:
        """What is still to be shipped of the journal, roughly."""
        left = 0
        for shard, end in enumerate(point.durable.ends):
            folder = shard_folder("", shard)[1:]
            first = self._lineage.first_segments[shard]
            for segment in list_segments(self._disk, f"{self._folder}/{folder}"):
                if end is not None and first <= segment <= end.segment:
                    path = f"{folder}/{journal_name(segment)}"
                    size = end.at if segment == end.segment else self._size(path)
                    left += max(0, size - self._lineage.file(path).size)
        return left

    @property
    def going_count(self) -> int:
        """Objects that are announced to be deleted."""
        return sum(each.names_count for each in self._upkeep.going)

    def close(self) -> None:
        """Give the pinned snapshot back."""
        if (pinned := self._bulk.drop_snapshot()) is not None:
            self.gone.append(pinned)
