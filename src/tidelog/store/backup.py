"""Backups: a snapshot, copied out of its data directory.

    BACKUP.partial/    while it is being copied
    BACKUP/            complete: every file copied, fsynced and proved by its checksums

A backup is a snapshot folder like those of a data directory, so that whatever reads one reads the other. The node files
that the snapshot lists are in it too, in the folders of their shards: a full one as a second name of the same file, if
the backup is on the same file system, others as a copy of what the snapshot needs of them.

The server may go on and drop the snapshot while it is copied; then the next newest is taken.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.errors import Corruption, DataDirectoryError
from tidelog.ids import Ts
from tidelog.journal.file_copies import copy_file
from tidelog.journal.layout import HOLDERS, META, make_shard_folders, shard_folder, write_meta
from tidelog.journal.snapshot import Snapshot, list_snapshot_paths, open_snapshot, remove_tree
from tidelog.journal.snapshot_nodes import listed_bytes, prove_nodes, put_beside
from tidelog.ports import Disk

_ATTEMPTS_MAX: Final = 5

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is in all."""


class Backup(NamedTuple):
    """A complete backup."""

    path: str
    ts: Ts
    """Everything up to and including this transaction is in it."""
    shard_count: int
    size_bytes: int
    keys: int | None
    """None: the snapshot was made without counting its keys."""


def check_free(disk: Disk, target: str) -> None:
    """A backup never goes where something is already."""
    if disk.exists(target):
        raise DataDirectoryError(f"{target} exists already: name a folder that does not")
    parent = posixpath.dirname(target) or "."
    if not disk.exists(parent):
        raise DataDirectoryError(f"{parent} does not exist: make it first")


def copy_newest_snapshot(disk: Disk, data: str, target: str, on_progress: OnProgress | None = None) -> Backup:
    """Copy the newest snapshot of a data directory, which may be in use, to a folder that does not exist yet."""
    check_free(disk, target)
    for attempt in range(_ATTEMPTS_MAX):
        paths = list_snapshot_paths(disk, data)
        if not paths:
            raise DataDirectoryError(f"{data} has no snapshot")
        try:
            return copy_snapshot(disk, open_snapshot(disk, paths[-1]), target, on_progress)
        except (FileNotFoundError, DataDirectoryError, Corruption):
            # The server may have dropped it, with node files of its own, because it has newer ones by now.
            if attempt == _ATTEMPTS_MAX - 1 or list_snapshot_paths(disk, data)[-1:] == paths[-1:]:
                raise
    raise AssertionError("unreachable")


def copy_snapshot(disk: Disk, snapshot: Snapshot, target: str, on_progress: OnProgress | None = None) -> Backup:
    """Copy one snapshot; it gets its name when all of it is durable and proved."""
    check_free(disk, target)
    partial = f"{target}.partial"
    if disk.exists(partial):
        remove_tree(disk, partial)
    total = 2 * (snapshot.size(disk) + listed_bytes(snapshot))
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if on_progress is not None:
            on_progress(min(done, total), total)

    try:
        make_shard_folders(disk, partial, snapshot.meta.shard_count)
        for shard in range(snapshot.meta.shard_count):
            source, folder = shard_folder(snapshot.path, shard), shard_folder(partial, shard)
            for name in disk.list(source):
                copy_file(disk, f"{source}/{name}", f"{folder}/{name}", None, count)
            disk.sync_folder(folder)
        put_beside(disk, snapshot, partial, count)
        if disk.exists(f"{snapshot.path}/{HOLDERS}"):
            copy_file(disk, f"{snapshot.path}/{HOLDERS}", f"{partial}/{HOLDERS}", None, lambda _size: None)
        write_meta(disk, partial, snapshot.meta)
        disk.sync_folder(partial)
        copied = open_snapshot(disk, partial)
        copied.check(disk, count)
        prove_nodes(disk, copied, count)
        count(total - done)  # of blobs, which are proved with the records that name them
    except BaseException:
        remove_tree(disk, partial)
        raise
    disk.rename(partial, target)
    disk.sync_folder(posixpath.dirname(target) or ".")
    point = snapshot.point
    size = snapshot_size(disk, target)
    return Backup(target, point.ts, snapshot.meta.shard_count, size, point.keys)


def snapshot_size(disk: Disk, path: str) -> int:
    """All that it takes on disk, its meta file among it."""
    file = disk.open(f"{path}/{META}", "read")
    try:
        return open_snapshot(disk, path).size(disk) + file.size()
    finally:
        file.close()
