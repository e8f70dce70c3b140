"""The files of a folder that is being filled: each is made when it is first written to, and all are fsynced at the end.

For journals that nobody reads before they are whole: snapshots, and what is set aside. A writer of a data directory
fsyncs while it goes on (`open_files`).
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.journal.layout import write_all
from tidelog.journal.segment import blob_name, journal_name
from tidelog.journal.shard_writer import Batch
from tidelog.ports import Disk, File


class NewFiles:
    """Files that nobody else has open. Errors of the disk pass through."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[str, File] = {}
        self.bytes_written = 0

    def make(self, path: str) -> File:
        """The file, made if it is not there yet."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self._disk.open(path, "create")
        return file

    def put(self, folder: str, batch: Batch) -> None:
        """Write what one shard has to write in one cycle."""
        for whale in batch.blobs:
            self._write(f"{folder}/{blob_name(whale.position.segment)}", whale.position.at, [whale.payload])
        for write in batch.writes:
            self._write(f"{folder}/{journal_name(write.position.segment)}", write.position.at, write.chunks)

    def _write(self, path: str, at: int, chunks: list[bytes]) -> None:
        write_all(self.make(path), at, chunks)
        self.bytes_written += sum(map(len, chunks))

    def sync(self, check: Callable[[], None] | None = None) -> None:
        """Fsync all of them; the caller syncs the folders. `check` is called before each, and may raise."""
        for file in self._files.values():
            if check is not None:
                check()
            file.sync()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
