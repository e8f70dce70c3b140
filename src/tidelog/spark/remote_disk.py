"""Journal files in an object store, or wherever else fsspec can read: a `ports.Disk` that only reads.

Each read fetches a range of its own. A journal is read in frames of some MiB, so skipped frames cost nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import fsspec

from tidelog.errors import DataDirectoryError
from tidelog.ports import Chunk, Disk, Lock, OpenMode
from tidelog.system.whole_disk import whole_disk


def disk_of(url: str, storage: Mapping[str, str]) -> tuple[Disk, str]:
    """The disk that a path or URL lies on, and its path there."""
    if "://" not in url:
        return whole_disk(), url
    if url.startswith("file://"):
        return whole_disk(), url.removeprefix("file://")
    try:
        files, path = fsspec.core.url_to_fs(url, **storage)
    except (ImportError, ValueError, TypeError) as error:
        raise DataDirectoryError(f"{url} is no copy, and fsspec cannot open it as a data directory: {error}") from None
    return RemoteDisk(files), path


class RemoteFile:
    """`ports.File` on one file of a store."""

    def __init__(self, files: Any, path: str, size: int) -> None:
        self._files = files
        self._size = size
        self.path = path

    def size(self) -> int:
        return self._size

    def read(self, position: int, length: int) -> bytes:
        end = min(position + length, self._size)
        found: bytes = self._files.cat_file(self.path, start=position, end=end) if position < end else b""
        return found

    def write(self, _position: int, _chunks: Sequence[Chunk]) -> int:
        _refuse(self.path)

    def truncate(self, _size: int) -> None:
        _refuse(self.path)

    def sync(self) -> None:
        _refuse(self.path)

    def close(self) -> None:
        return None


class RemoteDisk:
    """`ports.Disk` on a file system of fsspec's."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def open(self, path: str, mode: OpenMode) -> RemoteFile:
        if mode != "read":
            _refuse(path)
        return RemoteFile(self._files, path, self._files.size(path))

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(path))

    def list(self, folder: str) -> list[str]:
        names = (path.rstrip("/").rpartition("/")[2] for path in self._files.ls(folder, detail=False))
        return sorted(name for name in names if name)

    def make_folder(self, path: str) -> None:
        _refuse(path)

    def rename(self, old: str, _new: str) -> None:
        _refuse(old)

    def link(self, old: str, _new: str) -> None:
        _refuse(old)

    def remove(self, path: str) -> None:
        _refuse(path)

    def sync_folder(self, path: str) -> None:
        _refuse(path)

    def lock(self, path: str) -> Lock:
        _refuse(path)

    def free_bytes(self, path: str) -> int:
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "this disk is read-only", path)
