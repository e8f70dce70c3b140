"""The files that a writer has open, and which of them an fsync has to make durable.

Of each shard the last segment and its blob file stay open. When a segment is made, the names of those before it are
durable: so after a crash no segment is missing before another, and one that is was taken away (`scan`).
"""

from __future__ import annotations

from tidelog.ids import Lsn
from tidelog.journal.segment import FilePosition, blob_name, journal_name
from tidelog.ports import Disk, File


class OpenFiles:
    """Opens, makes and closes the files of all shards. For the writer's thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: dict[str, File] = {}
        """The last segment and blob file of each shard."""
        self._last_paths: dict[str, tuple[Lsn, str]] = {}
        """Folder -> the segment that was last written there, and its path."""
        self._closing: list[File] = []
        """Rolled over while an fsync may be using them."""
        self.dirty: dict[str, None] = {}
        """Paths of files that were written since they were last fsynced ..."""
        self.dirty_folders: dict[str, None] = {}
        """... and folders in which one was made."""
        self._syncing_folders: list[str] = []
        """Of the fsync that is under way."""

    def path_of(self, folder: str, segment: Lsn) -> str:
        """The path of a segment, nearly always the last of its folder. Hot: once a cycle."""
        known = self._last_paths.get(folder)
        if known is not None and known[0] == segment:
            return known[1]
        path = f"{folder}/{journal_name(segment)}"
        self._last_paths[folder] = segment, path
        return path

    def get(self, folder: str, path: str) -> File:
        """A file that is about to be written; it is made if it is missing. Hot: once a cycle."""
        file = self._open.get(path)
        if file is None:
            if self._disk.exists(path):
                file = self._disk.open(path, "write")
            else:
                if path.endswith(".dj0") and (folder in self.dirty_folders or folder in self._syncing_folders):
                    self._disk.sync_folder(folder)
                file = self._disk.open(path, "create")
                self.dirty_folders[folder] = None
            self._open[path] = file
        self.dirty[path] = None  # last: a file that there was no space for is not there to be synced
        return file

    def close_rolled_over(self, folder: str, end: FilePosition, *, is_syncing: bool) -> None:
        """Close the files of a shard whose segment is full; `is_syncing`: once the fsync has ended."""
        current = (f"{folder}/{journal_name(end.segment)}", f"{folder}/{blob_name(end.segment)}")
        for path in [path for path in self._open if path.startswith(f"{folder}/") and path not in current]:
            file = self._open.pop(path)
            if is_syncing:
                self._closing.append(file)
            else:
                file.close()

    def begin_sync(self, *, with_files: bool) -> tuple[list[tuple[str, File | None]], list[str]]:
        """What an fsync has to do, from now on: files, with those that are open, and folders."""
        files: list[tuple[str, File | None]] = []
        if with_files:
            files = [(path, self._open.get(path)) for path in self.dirty]
            self.dirty.clear()
        self._syncing_folders = list(self.dirty_folders)
        self.dirty_folders.clear()
        return files, self._syncing_folders

    def end_sync(self) -> None:
        """The fsync has ended."""
        self._syncing_folders = []
        for file in self._closing:
            file.close()
        self._closing.clear()

    def close(self) -> None:
        for file in [*self._open.values(), *self._closing]:
            file.close()
        self._open.clear()
        self._closing.clear()
