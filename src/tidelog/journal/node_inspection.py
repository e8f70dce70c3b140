"""Describes node files: `tidelog journal ls`. It reads sizes and descriptions of snapshots only, and takes no lock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.ids import ShardId
from tidelog.journal.inspection import JournalFolder, SnapshotInfo
from tidelog.journal.layout import shard_folder
from tidelog.journal.node_format import node_file_id
from tidelog.ports import Disk, is_remote


class NodeFileInfo(NamedTuple):
    """A node file, or one that should be there."""

    shard: ShardId
    file: str
    size_bytes: int | None
    """None: it is missing."""
    needed: dict[str, int]
    """How much of it snapshots need, by their names."""
    is_remote: bool = False
    """It lies only in an object store."""

    @property
    def needed_bytes(self) -> int:
        return max(self.needed.values(), default=0)

    @property
    def state(self) -> str:
        if self.size_bytes is None:
            return "MISSING"
        if self.size_bytes < self.needed_bytes:
            return "SHORT"
        where = ", in the object store" if self.is_remote else ""
        return f"needed{where}" if self.needed else f"in no snapshot{where}"


def list_node_files(disk: Disk, place: JournalFolder, snapshots: list[SnapshotInfo]) -> Iterator[NodeFileInfo]:
    """Those in the shards' folders of a data directory or a backup, with the snapshots that list them."""
    listed: dict[tuple[int, int], dict[str, int]] = {}
    for snapshot in snapshots:
        for each in snapshot.point.node_files if snapshot.point is not None else ():
            listed.setdefault((each.shard, each.id), {})[snapshot.name] = each.length
    found: dict[tuple[int, int], int] = {}
    for shard in place.shards:
        folder = shard_folder(place.folder, shard)
        for name in disk.list(folder) if disk.exists(folder) else []:
            file_id = node_file_id(name)
            if file_id is not None:
                found[shard, file_id] = _size(disk, f"{folder}/{name}")
    for shard_number, file_id in sorted({*listed, *found}):
        if shard_number in place.shards:
            where = shard_number, file_id
            name = f"nodes-{file_id:016x}.bin"
            is_away = is_remote(disk, f"{shard_folder(place.folder, shard_number)}/{name}")
            yield NodeFileInfo(ShardId(shard_number), name, found.get(where), listed.get(where, {}), is_away)


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path, "read")
    try:
        return file.size()
    finally:
        file.close()
