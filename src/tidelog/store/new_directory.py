"""A data directory while it is filled from a backup: until that is done, nothing in it counts.

It has a file `restore-unfinished`, which comes first and goes last. A server refuses such a directory, and the next
restore into it begins anew.
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import DataDirectoryError
from tidelog.journal import layout
from tidelog.journal.snapshot import remove_tree
from tidelog.ports import Disk, Lock

_SHARD: Final = "shard-"


def check_target(disk: Disk, target: str) -> bool:
    """Refuse a directory that has something; returns whether that is only a restore that did not finish."""
    names = disk.list(target) if disk.exists(target) else []
    is_unfinished = layout.RESTORING in names
    if not is_unfinished and set(names) - {layout.LOCK}:
        raise DataDirectoryError(f"{target} is not empty: a restore needs a new directory")
    return is_unfinished


class NewDirectory:
    """A directory that is filled. It is not touched before there is something to write."""

    def __init__(self, disk: Disk, target: str, shard_count: int) -> None:
        self._disk = disk
        self._target = target
        self._shard_count = shard_count
        self._lock: Lock | None = None

    def make(self) -> None:
        """An empty directory, for us alone, that says that it is not finished; with folders for nodes."""
        if self._lock is not None:
            return
        disk, target = self._disk, self._target
        is_unfinished = check_target(disk, target)
        disk.make_folder(target)
        self._lock = layout.lock_directory(disk, target)
        if is_unfinished:
            _empty(disk, target)
        else:
            disk.open(f"{target}/{layout.RESTORING}", "create").close()
            disk.sync_folder(target)
        layout.make_shard_folders(disk, target, self._shard_count)

    def finish(self) -> None:
        """All of it is there and durable: it counts from now on."""
        self._disk.sync_folder(self._target)
        self._disk.remove(f"{self._target}/{layout.RESTORING}")
        self._disk.sync_folder(self._target)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()


def count_for_nothing(disk: Disk, target: str) -> None:
    """Let a directory that was filled, and that nobody has opened since, be one that is not finished."""
    disk.open(f"{target}/{layout.RESTORING}", "create").close()
    disk.sync_folder(target)


def _empty(disk: Disk, target: str) -> None:
    """Remove what a restore left that did not finish."""
    for name in disk.list(target):
        path = f"{target}/{name}"
        if name == layout.SNAPSHOTS:
            for snapshot in disk.list(path):
                remove_tree(disk, f"{path}/{snapshot}")
        elif name.startswith(_SHARD):
            for leaf in disk.list(path):
                disk.remove(f"{path}/{leaf}")
        if name not in (layout.LOCK, layout.RESTORING):
            disk.remove(path)
    disk.sync_folder(target)
