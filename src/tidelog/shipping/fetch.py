"""A data directory from a lineage, file by file: the same bytes, the same lsns, the same database or a new one.

    snapshot      the newest, with as much of its node files as it lists
    journal       from the segment on that a recovery from that snapshot begins with
    clock         begins above the bound that the manifest names
    erased        history before the snapshot is not here, and readers that ask for it are told so

The first start recovers it as after a crash, and begins a new epoch: what the old server had beyond the manifest is
lost, and readers that saw it are told so.

Every extent is proved by its digest as it arrives. Extents are fetched side by side, if there are threads for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, ObjectGone
from tidelog.hlc import TsFile
from tidelog.ids import Lsn, Ts
from tidelog.journal import layout
from tidelog.journal.node_format import inner_path
from tidelog.journal.segment import journal_name, owner_of
from tidelog.ports import Disk, File, ObjectStore
from tidelog.shipping.lineage import Lineage, ShippedExtent, new_digest, snapshot_folder
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.remote_file import RemoteNodeFile, is_node_path, write_remote
from tidelog.store.new_directory import NewDirectory

_RESTORED: Final = "restored.json"
RunAll = Callable[[Iterable[Callable[[], None]]], None]
"""Runs all calls, perhaps side by side, and raises what one of them raises."""


class FilePlan(NamedTuple):
    """A file to fetch."""

    path: str
    size: int
    extents: tuple[ShippedExtent, ...]
    """Those that hold its bytes, up to its size."""


class LeftBehind(NamedTuple):
    """Where node files stay."""

    url: str
    is_sealed: bool
    """The copy is encrypted."""


def plan_files(lineage: Lineage, until: Ts | None = None) -> list[FilePlan]:
    """What it takes to show the newest moment of a lineage, or an earlier one: perhaps too much of the journal."""
    usable = [ts for ts in lineage.snapshots if ts <= (lineage.ts if until is None else until)]
    sizes = {layout.META: lineage.file(layout.META).size}
    needed: tuple[Lsn, ...] = lineage.first_segments
    if usable:
        point = lineage.snapshots[max(usable)]
        folder = f"{snapshot_folder(point.ts)}/"
        sizes |= {path: file.size for path, file in lineage.files.items() if path.startswith(folder)}
        sizes |= {inner_path(each): each.length for each in point.node_files}
        needed = tuple(_segment_before(lineage, shard, lsn) for shard, lsn in enumerate(point.lsns))
    elif lineage.begins_ts != 0:
        raise DataDirectoryError(f"no snapshot of this copy is as old as ts {until}")
    for path, file in lineage.files.items():
        shard = _shard_of(path)
        name = path.rpartition("/")[2]
        if shard is None or (segment := owner_of(name)) is None:
            if shard is not None and name == layout.SHARD_META:
                sizes[path] = file.size
            continue
        end = lineage.ends[shard]
        if end is not None and needed[shard] <= segment <= end.segment:
            is_last = segment == end.segment
            if not (is_last and name.startswith("sidecar-")):  # it may speak of frames that are not here
                sizes[path] = end.at if is_last and name == journal_name(segment) else file.size
    return [
        FilePlan(path, size, tuple(each for each in lineage.file(path).extents if each.position < size))
        for path, size in sorted(sizes.items())
    ]


def bytes_to_fetch(lineage: Lineage, left: LeftBehind | None) -> int:
    """How much `fetch_directory` fetches."""
    plans = [plan for plan in plan_files(lineage) if left is None or not is_node_path(plan.path)]
    return sum(extent.size for plan in plans for extent in plan.extents)


def _shard_of(path: str) -> int | None:
    folder = path.rpartition("/")[0]
    return int(folder.removeprefix("shard-")) if folder.startswith("shard-") else None


def _segment_before(lineage: Lineage, shard: int, lsn: Lsn) -> Lsn:
    """The segment that a recovery from an lsn begins with."""
    owners = (owner_of(path.rpartition("/")[2]) for path in lineage.files if _shard_of(path) == shard)
    return max([each for each in owners if each is not None and each < lsn], default=lineage.first_segments[shard])


def write_restored(disk: Disk, target: str, manifest: Manifest) -> None:
    """Say that a directory goes on with a database that was shipped, from this manifest on, above all that it said."""
    _store_ts(disk, target, layout.CLOCK, manifest.clock_bound)
    epoch = manifest.epochs[-1].id if manifest.epochs else None
    members = {"database_id": manifest.database_id, "manifest": manifest.number, "epoch": epoch}
    layout.write_json(disk, f"{target}/{_RESTORED}", members)


class RestoredFrom(NamedTuple):
    """What a directory was restored from, to go on with its database."""

    manifest: int
    """Its number ..."""
    epoch: int | None
    """... and the newest epoch that it names, by its id: the last one of the server before."""


def read_restored(disk: Disk, folder: str) -> RestoredFrom | None:
    """None: it was not restored."""
    path = f"{folder}/{_RESTORED}"
    if not disk.exists(path):
        return None
    members = layout.read_json(disk, path)
    return RestoredFrom(int(members["manifest"]), members.get("epoch"))


def fetch_directory(
    disk: Disk,
    target: str,
    objects: ObjectStore,
    manifest: Manifest,
    lineage: Lineage,
    run_all: RunAll,
    on_fetched: Callable[[int], None] | None = None,
    left: LeftBehind | None = None,
    *,
    goes_on: bool = True,
) -> int:
    """Fill an empty directory with the newest moment of a lineage; returns how many bytes came.

    `left`: node files are not fetched. A description of each says where it is, which a `TieredDisk` shows as the file.
    `goes_on`: it is the same database; otherwise one of its own, with an id that its first start gives it.
    """
    database_id = manifest.database_id
    all_plans = plan_files(lineage)
    plans = [plan for plan in all_plans if left is None or not is_node_path(plan.path)]
    new = NewDirectory(disk, target, lineage.shard_count)
    new.make()
    try:
        disk.make_folder(f"{target}/{layout.SNAPSHOTS}")
        folders = sorted({f"{target}/{plan.path.rpartition('/')[0]}" for plan in all_plans if "/" in plan.path})
        for folder in folders:
            parts = folder.removeprefix(f"{target}/").split("/")
            for count in range(1, len(parts) + 1):
                disk.make_folder(f"{target}/{'/'.join(parts[:count])}")
        for plan in all_plans if left is not None else ():
            if left is not None and is_node_path(plan.path):
                remote = RemoteNodeFile(left.url, left.is_sealed, database_id, plan.size, plan.extents)
                write_remote(disk, f"{target}/{plan.path}", remote)
        files = {plan.path: disk.open(f"{target}/{plan.path}", "create") for plan in plans}
        try:
            run_all(
                _Fetching(objects, database_id, files[plan.path], plan, extent, on_fetched)
                for plan in plans
                for extent in plan.extents
            )
            for file in files.values():
                file.sync()
        finally:
            for file in files.values():
                file.close()
        for folder in sorted(folders, reverse=True):
            disk.sync_folder(folder)
        disk.sync_folder(f"{target}/{layout.SNAPSHOTS}")
        _store_ts(disk, target, layout.ERASED, max((ts for ts in lineage.snapshots if ts <= lineage.ts), default=Ts(0)))
        if goes_on:
            write_restored(disk, target, manifest)
        else:
            _store_ts(disk, target, layout.CLOCK, manifest.clock_bound)
            layout.write_meta(disk, target, replace(layout.read_meta(disk, target), database_id=""))
        new.finish()
    finally:
        new.release()
    return sum(plan.size for plan in plans)


def _store_ts(disk: Disk, target: str, name: str, ts: Ts) -> None:
    if ts:
        file = TsFile.open(disk, target, name)
        try:
            file.store(ts)
        finally:
            file.close()


class _Fetching:
    """Fetches one extent into its place."""

    def __init__(
        self,
        objects: ObjectStore,
        database_id: str,
        file: File,
        plan: FilePlan,
        extent: ShippedExtent,
        on_fetched: Callable[[int], None] | None,
    ) -> None:
        self._objects = objects
        self._name = f"{database_id}/{extent.object}"
        self._file = file
        self._plan = plan
        self._extent = extent
        self._on_fetched = on_fetched

    def __call__(self) -> None:
        extent, digest = self._extent, new_digest()
        for at in range(0, extent.size, limits.SHIPPED_BLOCK_BYTES):
            wanted = min(limits.SHIPPED_BLOCK_BYTES, extent.size - at)
            try:
                data = self._objects.read(self._name, at, wanted)
            except FileNotFoundError:
                raise ObjectGone(f"{self._name} is not in the object store", name=extent.object) from None
            if len(data) != wanted:
                raise Corruption(f"the object ends at {at + len(data)}, and should have {extent.size}", path=self._name)
            digest.update(data)
            kept = max(0, min(wanted, self._plan.size - extent.position - at))
            if kept:
                layout.write_all(self._file, extent.position + at, [data[:kept]])
            if self._on_fetched is not None:
                self._on_fetched(wanted)
        if digest.hexdigest() != extent.digest:
            raise Corruption("its digest is wrong", path=self._name)
