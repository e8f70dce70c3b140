"""A disk in memory: `ports.Disk` for what need not outlive the process, such as the store of a server that still loads.

Nothing is ever durable here, and nothing fails: simulations have a disk of their own (`testing/disk.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final

from tidelog.ports import Chunk, OpenMode

_FREE_BYTES: Final = 2**40
"""It is bounded by what its user puts there."""


class _Folder:
    def __init__(self) -> None:
        self.entries: dict[str, _Folder | _Contents] = {}


class _Contents:
    """Of a file, whatever its name is at the moment."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_locked = False


class MemoryFile:
    """`ports.File` in memory."""

    def __init__(self, path: str, contents: _Contents, *, is_writable: bool) -> None:
        self.path: Final = path
        self._contents: _Contents | None = contents
        """None once closed."""
        self._is_writable = is_writable

    def size(self) -> int:
        return len(self._at(0))

    def read(self, position: int, length: int) -> bytes:
        return bytes(memoryview(self._at(position))[position : position + length])

    def write(self, position: int, chunks: Sequence[Chunk]) -> int:
        data = self._at(position)
        if not self._is_writable:
            raise _error(errno.EBADF, self.path)
        joined = b"".join(chunks)
        if joined:
            data.extend(bytes(max(0, position - len(data))))
            data[position : position + len(joined)] = joined
        return len(joined)

    def truncate(self, size: int) -> None:
        data = self._at(size)
        if not self._is_writable:
            raise _error(errno.EINVAL, self.path)
        del data[size:]
        data.extend(bytes(size - len(data)))

    def sync(self) -> None:
        self._at(0)

    def close(self) -> None:
        self._contents = None

    def _at(self, position: int) -> bytearray:
        """All that is in it, for somebody who wants to go there."""
        if self._contents is None:
            raise ValueError(f"{self.path}: the file is closed")
        if position < 0:
            raise _error(errno.EINVAL, self.path)
        return self._contents.data


class MemoryLock:
    """`ports.Lock` in memory."""

    def __init__(self, contents: _Contents) -> None:
        self._contents: _Contents | None = contents
        contents.is_locked = True

    def release(self) -> None:
        if self._contents is not None:
            self._contents.is_locked = False
            self._contents = None


class MemoryDisk:
    """`ports.Disk` in memory. The root folder is there from the start."""

    def __init__(self) -> None:
        self._root = _Folder()

    def open(self, path: str, mode: OpenMode) -> MemoryFile:
        folder, name = self._place(path)
        found = folder.entries.get(name) if name else folder
        if mode == "create":
            if found is not None:
                raise _error(errno.EEXIST, path)
            found = folder.entries[name] = _Contents()
        elif found is None:
            raise _error(errno.ENOENT, path)
        if isinstance(found, _Folder):
            raise _error(errno.EISDIR, path)
        return MemoryFile(path, found, is_writable=mode != "read")

    def exists(self, path: str) -> bool:
        try:
            self._get(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, folder: str) -> list[str]:
        return sorted(self._folder(folder).entries)

    def make_folder(self, path: str) -> None:
        folder, name = self._place(path)
        if name and not isinstance(folder.entries.setdefault(name, _Folder()), _Folder):
            raise _error(errno.EEXIST, path)

    def rename(self, old: str, new: str) -> None:
        moved = self._get(old)
        (source, old_name), (target, new_name) = self._place(old), self._place(new)
        replaced = target.entries.get(new_name)
        if replaced is moved:
            return
        if isinstance(moved, _Folder):
            if f"{new}/".startswith(f"{old}/"):
                raise _error(errno.EINVAL, new)
            if isinstance(replaced, _Contents):
                raise _error(errno.ENOTDIR, new)
            if replaced is not None and replaced.entries:
                raise _error(errno.ENOTEMPTY, new)
        elif isinstance(replaced, _Folder):
            raise _error(errno.EISDIR, new)
        del source.entries[old_name]
        target.entries[new_name] = moved

    def link(self, old: str, new: str) -> None:
        linked = self._get(old)
        if isinstance(linked, _Folder):
            raise _error(errno.EPERM, old)
        folder, name = self._place(new)
        if not name or name in folder.entries:
            raise _error(errno.EEXIST, new)
        folder.entries[name] = linked

    def remove(self, path: str) -> None:
        found = self._get(path)
        if isinstance(found, _Folder) and found.entries:
            raise _error(errno.ENOTEMPTY, path)
        folder, name = self._place(path)
        del folder.entries[name]

    def sync_folder(self, path: str) -> None:
        self._folder(path)

    def lock(self, path: str) -> MemoryLock:
        folder, name = self._place(path)
        found = folder.entries.setdefault(name, _Contents()) if name else folder
        if isinstance(found, _Folder):
            raise _error(errno.EISDIR, path)
        if found.is_locked:
            raise BlockingIOError(errno.EAGAIN, f"held by process {os.getpid()}", path)
        return MemoryLock(found)

    def free_bytes(self, path: str) -> int:
        self._get(path)
        return _FREE_BYTES

    # --- names --------------------------------------------------------------------------------------------------

    def _get(self, path: str) -> _Folder | _Contents:
        found: _Folder | _Contents = self._root
        for name in filter(None, path.split("/")):
            if isinstance(found, _Contents):
                raise _error(errno.ENOTDIR, path)
            if name not in found.entries:
                raise _error(errno.ENOENT, path)
            found = found.entries[name]
        return found

    def _folder(self, path: str) -> _Folder:
        found = self._get(path)
        if isinstance(found, _Contents):
            raise _error(errno.ENOTDIR, path)
        return found

    def _place(self, path: str) -> tuple[_Folder, str]:
        """The folder that a path lies in, and its name there; the root has none."""
        above, _, name = path.rstrip("/").rpartition("/")
        return self._folder(above), name


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
