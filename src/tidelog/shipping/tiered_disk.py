"""A disk that shows node files as if they were there, also those that lie only in an object store.

It is a `ports.Disk` on another one. What a description says of (`remote_file`) is listed, opened and read as the file
itself; descriptions do not show. So snapshots, full syncs, backups, checks and readers need not know. Everything else
is the other disk's.

- A file that is there goes before its description. It may go, or come back, at any moment: a file that is open stays
  readable.
- Removing a file removes its description too, and what has come of it.
- A second name inside of the data directory is another description. A backup elsewhere has to have the bytes: there
  `link` fails as between two file systems, and the caller copies.
- A file that is away cannot be written to. None ever is: node files only grow while they are being written.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NoReturn

from tidelog.ports import Chunk, Disk, File, Lock, OpenMode
from tidelog.shipping.remote_blocks import RemoteBlocks
from tidelog.shipping.remote_file import (
    RemoteNodeFile,
    described_name,
    is_node_path,
    is_unfinished_name,
    paths_beside,
    read_remote,
    remote_path,
    write_remote,
)


class TieredDisk:
    """`ports.Disk` on a disk, and on what of it lies in object stores."""

    def __init__(self, local: Disk, blocks: RemoteBlocks, folder: str | None = None) -> None:
        """`folder`: the data directory, in which a second name may be a description."""
        self.local = local
        self.blocks = blocks
        self._folder = folder
        self._described: dict[str, RemoteNodeFile] = {}
        """Descriptions that were read, by the path of their file: they do not change while the file is away."""

    def is_remote(self, path: str) -> bool:
        """Whether a node file lies in an object store, and not here."""
        return is_node_path(path) and self.local.exists(remote_path(path)) and not self.local.exists(path)

    def describe(self, path: str) -> RemoteNodeFile:
        """Where a file is. `FileNotFoundError`: it has no description; `Corruption`: that cannot be read."""
        known = self._described.get(path)
        if known is None or not self.local.exists(remote_path(path)):
            self._described.pop(path, None)
            known = self._described[path] = read_remote(self.local, path)
        return known

    def forget(self, path: str) -> None:
        """A file goes, or has come back: the description that it gets next is another one."""
        self._described.pop(path, None)

    def open(self, path: str, mode: OpenMode) -> File:
        try:
            return self.local.open(path, mode)
        except FileNotFoundError:
            if mode == "create" or not is_node_path(path):
                raise
        try:
            remote = self.describe(path)
        except FileNotFoundError:
            return self.local.open(path, mode)  # it has come back meanwhile, or there is none
        if mode != "read":
            _refuse(path)
        return OpenRemoteFile(path, remote, self.blocks)

    def exists(self, path: str) -> bool:
        return self.local.exists(path) or (
            is_node_path(path) and (self.local.exists(remote_path(path)) or self.local.exists(path))
        )

    def list(self, folder: str) -> list[str]:
        return sorted(
            {described_name(name) or name for name in self.local.list(folder) if not is_unfinished_name(name)}
        )

    def make_folder(self, path: str) -> None:
        self.local.make_folder(path)

    def rename(self, old: str, new: str) -> None:
        if not self.is_remote(old):
            self.local.rename(old, new)
            return
        if not is_node_path(new):
            _refuse(old)
        self.local.rename(remote_path(old), remote_path(new))
        self.forget(old)
        self.forget(new)

    def link(self, old: str, new: str) -> None:
        if not self.is_remote(old):
            self.local.link(old, new)
            return
        if self._folder is None or not new.startswith(f"{self._folder}/") or not is_node_path(new):
            raise OSError(errno.EXDEV, "it lies in an object store", old)
        if self.exists(new):
            raise FileExistsError(errno.EEXIST, "there is a file of this name", new)
        write_remote(self.local, new, self.describe(old))

    def remove(self, path: str) -> None:
        if is_node_path(path):
            beside = [each for each in paths_beside(path) if self.local.exists(each)]
            for each in beside:
                self.local.remove(each)
            self.forget(path)
            if beside and not self.local.exists(path):
                return
        self.local.remove(path)

    def sync_folder(self, path: str) -> None:
        self.local.sync_folder(path)

    def lock(self, path: str) -> Lock:
        return self.local.lock(path)

    def free_bytes(self, path: str) -> int:
        return self.local.free_bytes(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "it lies in an object store, and cannot be changed", path)


class OpenRemoteFile:
    """`ports.File` on a node file that lies in an object store."""

    def __init__(self, path: str, remote: RemoteNodeFile, blocks: RemoteBlocks) -> None:
        self.path = path
        self._remote = remote
        self._blocks = blocks

    def size(self) -> int:
        return self._remote.size

    def read(self, position: int, length: int) -> bytes:
        return self._blocks.read(self._remote, self.path, position, length)

    def forget(self, position: int, length: int) -> bool:
        return self._blocks.forget(self._remote, position, length)

    def write(self, _position: int, _chunks: Sequence[Chunk]) -> int:
        _refuse(self.path)

    def truncate(self, _size: int) -> None:
        _refuse(self.path)

    def sync(self) -> None:
        _refuse(self.path)

    def close(self) -> None:
        return None
