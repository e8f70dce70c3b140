"""Object storage in a folder: `ports.ObjectStore` on `ports.Disk`.

    <folder>/a/b             the object a/b
    <folder>/.unfinished/…   puts that have not finished, or never will

A put writes and syncs a file below `.unfinished`, gives it the object's name with a hard link, and syncs every folder
on the way. The link is what makes it create-only: it is atomic, fails if the name is taken, and never shows a part of
an object. Every folder is synced each time, whoever made it: another process may have made it a moment ago.

`obstore` has such a store too (`LocalStore`). It was rejected, because it does not sync: after a power cut an object
that was put could be empty or gone. Renaming was rejected because it replaces what has the name.

A folder that has become empty is removed with its last object, so `folders` shows what a bucket would show. A put that
finds its folder removed makes it again. Deleting is not synced: after a power cut an object may be back.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import secrets
from collections.abc import Sequence
from typing import Final, NoReturn

from tidelog import limits
from tidelog.ports import Chunk, Disk, File, ObjectEntry
from tidelog.system.object_names import (
    check_object_folder,
    check_object_name,
    check_object_part,
    check_object_prefix,
)

UNFINISHED: Final = ".unfinished"
_FOLDERS_REMADE_MAX: Final = 10
"""How often a put makes its folder again before it gives up: others delete the last object in it each time."""
_AFTER_SLASH: Final = chr(ord("/") + 1)


class FolderStore:
    """`ports.ObjectStore` in a folder that exists."""

    __slots__ = ("_disk", "root")

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk: Final = disk
        self.root: Final = root

    def __repr__(self) -> str:
        return f"<FolderStore {self.root!r}>"

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        check_object_name(name)
        if self._disk.exists(self._path(name)):
            self._refuse(name)  # before anything is written for nothing
        try:
            self._disk.make_folder(f"{self.root}/{UNFINISHED}")
        except FileNotFoundError:
            raise self._gone() from None
        unfinished = f"{self.root}/{UNFINISHED}/{secrets.token_hex(8)}"
        try:
            file = self._disk.open(unfinished, "create")
            with contextlib.closing(file):
                _write_all(file, chunks)
                file.sync()
            self._link(unfinished, name)
        finally:
            # If it stays, it is removed a day later.
            with contextlib.suppress(OSError):
                self._disk.remove(unfinished)
        for folder in reversed(self._folders(name)):
            self._disk.sync_folder(folder)

    def read(self, name: str, position: int, length: int) -> bytes:
        check_object_name(name)
        check_object_part(position, length)
        with contextlib.closing(self._open(name)) as file:
            return file.read(position, length)

    def get(self, name: str) -> bytes:
        check_object_name(name)
        with contextlib.closing(self._open(name)) as file:
            return file.read(0, file.size())

    def size(self, name: str) -> int:
        check_object_name(name)
        with contextlib.closing(self._open(name)) as file:
            return file.size()

    def folders(self, prefix: str) -> list[str]:
        check_object_folder(prefix)
        return [name for name in self._in_folder(prefix) if self._has_objects(f"{prefix}{name}/")]

    def delete(self, name: str) -> None:
        check_object_name(name)
        try:
            self._disk.remove(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return
        for folder in reversed(self._folders(name)[1:]):
            try:
                self._disk.remove(folder)
            except OSError:
                return  # something is in it

    # --- parts --------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _folders(self, name: str) -> list[str]:
        """Paths of the folders that lead to an object, from the store's own on."""
        parts = name.split("/")[:-1]
        return ["/".join([self.root, *parts[:count]]) for count in range(len(parts) + 1)]

    def _link(self, unfinished: str, name: str) -> None:
        for is_last in [False] * _FOLDERS_REMADE_MAX + [True]:
            try:
                self._make_folders(name)
                self._disk.link(unfinished, self._path(name))
            except FileNotFoundError:  # a folder was removed with its last object before this one came
                if is_last:
                    raise OSError(errno.EIO, "others remove its folder all the time", self._path(name)) from None
            except FileExistsError:
                self._refuse(name)
            except OSError as error:
                if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                    words = "this file system has no hard links, and without them two could put the same object"
                    raise OSError(errno.EIO, words, self.root) from None
                raise
            else:
                return

    def _make_folders(self, name: str) -> None:
        try:
            for folder in self._folders(name)[1:]:
                self._disk.make_folder(folder)
        except (FileExistsError, NotADirectoryError):
            words = "an object has the name of a folder that this one would lie in"
            raise OSError(errno.EIO, words, self._path(name)) from None

    def _refuse(self, name: str) -> NoReturn:
        path = self._path(name)
        try:
            self._disk.list(path)
        except OSError:
            raise FileExistsError(errno.EEXIST, "there is such an object", path) from None
        raise OSError(errno.EIO, "other objects have this name for their folder", path)

    def _open(self, name: str) -> File:
        try:
            return self._disk.open(self._path(name), "read")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if not self._disk.exists(self.root):
                raise self._gone() from None
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self._path(name)) from None

    def _gone(self) -> OSError:
        """All of it is gone, which is not the same as empty: a disk may not be mounted."""
        return OSError(errno.EIO, "the folder of the object store is missing", self.root)

    def _in_folder(self, folder: str) -> list[str]:
        """Names of what is in a folder ("" or "a/b/"); of nothing if it is none."""
        try:
            names = self._disk.list(self._path(folder))
        except (FileNotFoundError, NotADirectoryError):
            if not self._disk.exists(self.root):
                raise self._gone() from None
            return []
        return [name for name in names if not name.startswith(".")]

    def _names(self, folder: str, prefix: str, after: str) -> list[str]:
        """What in a folder is listed, or may be the folder of such, in order."""
        names = [folder + name for name in self._in_folder(folder)]
        # All names in the folder x lie between x/ and x0.
        return [name for name in names if name.startswith(prefix) and not name + _AFTER_SLASH <= after]

    def _has_objects(self, folder: str) -> bool:
        for name in self._in_folder(folder):
            try:
                self.size(folder + name)
            except FileNotFoundError:
                if self._has_objects(f"{folder}{name}/"):
                    return True
            else:
                return True
        return False

    def list(self, prefix: str, after: str = "") -> list[ObjectEntry]:
        check_object_prefix(prefix)
        if after:
            check_object_name(after)
        # What is next, in order. A name comes as it is, for its object; if it is a folder, it comes again with a slash.
        # So files are opened only if they are listed, and folders are read only if something in them may be.
        folder = prefix[: prefix.rfind("/") + 1]
        following = self._names(folder, prefix, after)
        entries: list[ObjectEntry] = []
        while following and len(entries) < limits.OBJECTS_LISTED_MAX:
            name = heapq.heappop(following)
            if name.endswith("/"):
                for below in self._names(name, prefix, after):
                    heapq.heappush(following, below)
                continue
            try:
                file = self._disk.open(self._path(name), "read")
            except IsADirectoryError:
                heapq.heappush(following, name + "/")
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted meanwhile
            else:
                with contextlib.closing(file):
                    if name > after:
                        entries.append(ObjectEntry(name, file.size()))
        return entries


def _write_all(file: File, chunks: Sequence[Chunk]) -> None:
    position = 0
    for chunk in chunks:
        left = memoryview(chunk)
        while len(left):
            count = file.write(position, [left])
            position += count
            left = left[count:]
