"""One moment of history: which snapshot it begins with, and which part of the journal follows.

    snapshot at ts S        the newest at or before the moment: the state after transaction S
    journal from its lsns   every transaction after S, up to the moment, and never past what counts

Of a copy, the manifest says where the journal ends. Of a data directory, the driver finds that out as a recovery does,
without a lock: a server may have it open. Nothing else is read on the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog import limits
from tidelog.errors import DataDirectoryError
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import layout
from tidelog.journal.beginning import has_beginning
from tidelog.journal.layout import Meta
from tidelog.journal.loader import plan_recovery_from
from tidelog.journal.segment import FilePosition, list_segments
from tidelog.journal.snapshot import Snapshot, list_snapshot_paths, open_snapshot, snapshot_path, snapshot_ts
from tidelog.ports import Disk
from tidelog.shipping.moments import covered_moments, lineage_at
from tidelog.shipping.shipped_disk import Scratch
from tidelog.spark.copies.address import ROOT, HistoryAddress
from tidelog.store.type_table import operation_table
from tidelog.system.clock import SystemClock


@dataclass(frozen=True)
class PastMoment:
    """What shows a moment. It travels to the executors."""

    address: HistoryAddress
    lineage: str
    """Its name; "": it is a data directory."""
    at: Ts
    """The moment: keys that had expired by then are not there."""
    until: Ts
    """The last transaction to apply."""
    snapshot: str
    """The path of the snapshot to begin with; "": the journal has everything."""
    starts: tuple[Lsn, ...]
    """Per shard, the first lsn of the journal that follows ..."""
    ends: tuple[FilePosition | None, ...]
    """... and where the journal ends."""
    slots: tuple[tuple[int, int], ...]
    """Per shard, its first and last slot."""

    @property
    def now_ms(self) -> int:
        """The wall clock of the moment."""
        return self.at // 1000

    def open(self, scratch: Scratch | None = None) -> tuple[Disk, str, Snapshot | None]:
        """The disk, the folder, and the snapshot. `scratch`: of a copy, for what is read twice."""
        disk, folder = self.address.open_folder(self.lineage, scratch)
        return disk, folder, open_snapshot(disk, self.snapshot) if self.snapshot else None

    def journal_bytes(self, disk: Disk, folder: str, shard: int) -> int:
        """How much of the journal follows the snapshot, roughly: whole segments. No file is read."""
        end, path = self.ends[shard], layout.shard_folder(folder, shard)
        if end is None:
            return 0
        segments = [each for each in list_segments(disk, path) if each <= end.segment]
        first = max([each for each in segments if each <= self.starts[shard]], default=segments[0] if segments else 0)
        geometry = layout.read_meta(disk, folder).geometry
        return sum(geometry.segment_bytes for each in segments if first <= each < end.segment) + end.at

    def slots_of_a_task(self, disk: Disk, folder: str, snapshot: Snapshot | None, shard: int) -> int:
        """So few that a task holds only part of a large shard."""
        size = self.journal_bytes(disk, folder, shard)
        if snapshot is not None:
            size += snapshot.size_of_shard(disk, ShardId(shard))
        first, last = self.slots[shard]
        tasks = max(1, -(-size // limits.SPARK_STATE_BYTES))
        return max(1, -(-(last - first + 1) // tasks))


def find_moment(address: HistoryAddress, at: int | None) -> PastMoment:
    """What shows a moment (None: the newest). On the driver."""
    wanted = None if at is None else Ts(at)
    if address.is_copy:
        return _of_copy(address, wanted)
    return _of_directory(address, wanted)


def _of_copy(address: HistoryAddress, at: Ts | None) -> PastMoment:
    manifest = address.open_copy().manifest
    lineage, until = lineage_at(manifest, at)
    usable = [ts for ts in lineage.snapshots if ts <= until]
    disk = address.open_copy().disk(lineage.name)
    meta = layout.read_meta(disk, ROOT)
    if usable:
        point = lineage.snapshots[max(usable)]
        path, starts = snapshot_path(ROOT, point.ts), point.lsns
    elif lineage.begins_ts == 0:
        path, starts = "", (Lsn(0),) * lineage.shard_count
    else:
        raise DataDirectoryError(f"no snapshot of this copy is as old as ts {until}")
    moment = covered_moments(manifest)[-1].last if at is None else at
    return PastMoment(address, lineage.name, moment, until, path, tuple(starts), tuple(lineage.ends), tuple(meta.slots))


def _of_directory(address: HistoryAddress, at: Ts | None) -> PastMoment:
    disk, folder = address.open_folder()
    if not disk.exists(f"{folder}/{layout.META}"):
        raise DataDirectoryError(f"{address.url} is neither a copy nor a data directory: it has no {layout.META}")
    meta = layout.read_meta(disk, folder)
    if disk.exists(f"{folder}/{layout.RESTORING}"):
        raise DataDirectoryError(f"{folder} was being filled by a restore that did not finish")
    if meta.point is not None:
        point = meta.point
        if at is not None and at != point.ts:
            raise DataDirectoryError(
                f"{address.url} is a snapshot of ts {point.ts}: it shows no other moment than that"
            )
        nothing = (None,) * meta.shard_count
        return PastMoment(address, "", point.ts, point.ts, folder, tuple(point.lsns), nothing, tuple(meta.slots))
    if at is not None and at > SystemClock().wall_us():
        raise DataDirectoryError(f"{address.url} cannot show ts {at}: it lies ahead of the clock")
    snapshot = _snapshot_before(disk, folder, meta, at)
    plan = plan_recovery_from(disk, folder, meta, snapshot, operation_table().is_known)
    starts = (Lsn(0),) * meta.shard_count if snapshot is None else tuple(snapshot.point.lsns)
    until = plan.last_ts if at is None else min(at, plan.last_ts)
    path = "" if snapshot is None else snapshot.path
    moment = plan.last_ts if at is None else at
    return PastMoment(address, "", moment, until, path, starts, tuple(plan.cuts), tuple(meta.slots))


def _snapshot_before(disk: Disk, folder: str, meta: Meta, at: Ts | None) -> Snapshot | None:
    paths = [path for path in list_snapshot_paths(disk, folder) if at is None or snapshot_ts(path) <= at]
    if paths:
        return open_snapshot(disk, paths[-1])
    if not has_beginning(disk, folder, meta.shard_count):
        raise DataDirectoryError(f"{folder} shows nothing as old as ts {at}: its journal and its snapshots begin later")
    return None
