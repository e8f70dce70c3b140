"""Blocks of objects on the disk of this machine, so that each is fetched once, however often it is read.

A restore reads a snapshot three times (it is proved before anything of it is used) and the journal twice. The file has
no name: it goes with the process, however that ends. Blocks are appended, and never change.
"""

from __future__ import annotations

import posixpath
import secrets
import threading
from collections.abc import Callable

from tidelog.journal.layout import write_all
from tidelog.ports import Disk

Block = tuple[str, int]
"""An object, and the number of a block of it."""


class ScratchFile:
    """`shipped_disk.Scratch`. From any thread; two that ask for the same block at once may both fetch it."""

    def __init__(self, disk: Disk, beside: str) -> None:
        """`beside`: a path on the file system that has the room, such as the directory that is made of the blocks."""
        path = f"{posixpath.dirname(posixpath.abspath(beside))}/.tidelog-{secrets.token_hex(8)}"
        self._file = disk.open(path, "create")
        disk.remove(path)
        self._places: dict[Block, tuple[int, int]] = {}
        self._end = 0
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def once(self, block: Block, fetch: Callable[[], bytes]) -> Callable[[], bytes]:
        """A call that has the bytes of a block: from the file, or fetched and put there."""

        def run() -> bytes:
            place = self._places.get(block)
            if place is not None:
                return self._file.read(*place)
            data = fetch()
            with self._lock:
                at = self._end
                self._end += len(data)
            write_all(self._file, at, [data])
            self._places[block] = at, len(data)
            return data

        return run
