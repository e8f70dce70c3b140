"""Blocks of objects on the disk of this machine, so that each is fetched once, however often it is read.

A restore reads a snapshot three times (it is proved before anything of it is used) and the journal twice. The file has
no name: it goes with the process, however that ends. Blocks are appended, and never change.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable

Block = tuple[str, int]
"""An object, and the number of a block of it."""


class ScratchFile:
    """`shipped_disk.Scratch`. From any thread; two that ask for the same block at once may both fetch it."""

    def __init__(self, folder: str) -> None:
        """`folder` is where the room is, such as the directory that is made of the blocks."""
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._places: dict[Block, tuple[int, int]] = {}
        self._end = 0
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Also of one that was not closed, when no thread has a call of `once` any more."""
        self._file.close()

    def close(self) -> None:
        """No thread may be fetching any more."""
        self._file.close()

    def once(self, block: Block, fetch: Callable[[], bytes]) -> Callable[[], bytes]:
        """A call that has the bytes of a block: from the file, or fetched and put there."""

        def run() -> bytes:
            place = self._places.get(block)
            if place is not None:
                return self._read(*place)
            data = fetch()
            with self._lock:
                at = self._end
                self._end += len(data)
            self._write(at, data)
            self._places[block] = at, len(data)
            return data

        return run

    def _read(self, position: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length and (part := os.pread(self._file.fileno(), length, position)):
            parts.append(part)
            position, length = position + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _write(self, position: int, data: bytes) -> None:
        left = memoryview(data)
        while left:
            count = os.pwrite(self._file.fileno(), left, position)
            position, left = position + count, left[count:]
