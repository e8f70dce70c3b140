"""A server whose disk takes its time for large values: run as `tidelog` is.

A write of 64 KiB or more to a blob file takes 300 ms for each mebibyte, of a snapshot too. With `FULL` in the
environment naming a file that exists, such a write finds no space. With `SYNC_S`, an fsync of a file that a full sync
brings takes so many seconds.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence

from tidelog.cli import main
from tidelog.ports import Chunk
from tidelog.system.disk import SystemFile

KIB = 1024
S_PER_BYTE = 0.3 / (1024 * KIB)


def slow_down() -> None:
    write = SystemFile.write

    def write_slowly(self: SystemFile, position: int, chunks: Sequence[Chunk]) -> int:
        size = sum(map(len, chunks))
        if "/blob-" in self.path and size >= 64 * KIB:
            if os.path.exists(os.environ.get("FULL", "/nowhere")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            time.sleep(size * S_PER_BYTE)
        return write(self, position, chunks)

    SystemFile.write = write_slowly  # type: ignore[method-assign]
    sync, sync_s = SystemFile.sync, float(os.environ.get("SYNC_S", "0"))

    def sync_slowly(self: SystemFile) -> None:
        if "/sync/snapshots/" in self.path:
            time.sleep(sync_s)
        sync(self)

    SystemFile.sync = sync_slowly  # type: ignore[method-assign]


if __name__ == "__main__":
    slow_down()
    main()
