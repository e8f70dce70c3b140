"""The scrub: node files are read slowly, over and over, so that damage is found before somebody needs what is damaged.

A slice at a time is read on a thread, and not more than `SCRUB_BYTES_PER_S` on average. The place is kept in memory: a
server that was restarted begins anew. Damage is logged once, with its file and position, and counted; nothing else
happens to it, as only an operator can tell what to do (`tidelog journal verify`, `repair`). A node that a repair has
noted as lost is none.

Files that lie in an object store are left out: each round would fetch all of history. Their nodes are proved when they
are read, and when they come back.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.engine.metrics import ScrubFacts
from tidelog.errors import Corruption, NodeLost, TidelogError
from tidelog.journal.node_files import NodeFile, NodeFiles
from tidelog.journal.node_format import (
    FILE_HEADER_BYTES,
    check_file_header,
    examine_nodes,
    node_room,
    open_node_file,
)
from tidelog.ports import Clock

_LOG: Final = logging.getLogger("tidelog")


class _Slice(NamedTuple):
    """What was read of a file."""

    end: int
    """Where the next one begins."""
    damage: list[tuple[int, Corruption]]
    """By position."""


class Scrub:
    """Of one store. For the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, files: NodeFiles | None, clock: Clock) -> None:
        self._loop = loop
        self._files = files
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scrub")
        self._file_id = -1
        """The file that is read ..."""
        self._at = FILE_HEADER_BYTES
        """... and how far it has been."""
        self._is_reading = False
        self._is_closed = files is None
        self._next_us = 0
        """Nothing is read before."""
        self._damaged: set[tuple[int, int]] = set()
        """File and position of what was found."""
        self._passes = self._bytes = self._pass_bytes = 0

    @property
    def facts(self) -> ScrubFacts:
        return ScrubFacts(self._bytes, self._passes, self._pass_bytes, len(self._damaged))

    def tick(self) -> None:
        """Some times a second."""
        if self._is_closed or self._is_reading or self._clock.monotonic_us() < self._next_us:
            return
        file = self._next_file()
        if file is None:
            return
        self._is_reading = True
        file.pins += 1
        start, length = self._at, file.size_bytes
        running = self._thread.submit(_read_slice, file, start, length)
        running.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._finish, file, start, length, done.result())
        )

    def _next_file(self) -> NodeFile | None:
        """The one that is being read, or the one with the next id."""
        assert self._files is not None
        files = sorted(
            (file for file in self._files if file.size_bytes and not file.is_remote), key=lambda file: file.id
        )
        known = {file.id for file in files}
        self._damaged = {each for each in self._damaged if each[0] in known}
        for file in files:
            if file.id == self._file_id and self._at < file.size_bytes:
                return file
            if file.id > self._file_id:
                self._file_id, self._at = file.id, FILE_HEADER_BYTES
                return file
        self._passes += bool(files)
        self._pass_bytes = 0
        self._file_id = -1
        self._next_us = self._clock.monotonic_us() + 1_000_000 * limits.SCRUB_REST_S
        return None

    def _finish(self, file: NodeFile, start: int, length: int, found: _Slice) -> None:
        file.pins -= 1
        self._is_reading = False
        size = min(found.end, length) - start
        self._at = found.end
        self._bytes += size
        self._pass_bytes += size
        self._next_us = self._clock.monotonic_us() + 1_000_000 * size // limits.SCRUB_BYTES_PER_S
        for position, problem in found.damage:
            if (file.id, position) not in self._damaged:
                self._damaged.add((file.id, position))
                _LOG.error("a file of nodes is damaged; `tidelog journal verify` says what is lost: %s", problem)

    def close(self) -> None:
        """Begin no more; what is under way is dropped."""
        self._is_closed = True
        self._thread.shutdown(wait=False)


def _read_slice(file: NodeFile, start: int, length: int) -> _Slice:
    """On the thread."""
    damage: list[tuple[int, Corruption]] = []
    end = start
    try:
        handle = open_node_file(file.disk, file.path)
        try:
            if start == FILE_HEADER_BYTES:
                check_file_header(handle)
            for found in examine_nodes(handle, length, start):
                end = found.position + node_room(found.size)
                if found.problem is not None and not isinstance(found.problem, NodeLost):
                    damage.append((found.position, found.problem))
                if end - start >= limits.SCRUB_SLICE_BYTES:
                    break
        finally:
            handle.close()
    except Corruption as error:
        damage.append((error.position or 0, error))
        end = length
    except (TidelogError, OSError) as error:
        damage.append((end, Corruption(f"it cannot be read: {error}", path=file.path, position=end)))
        end = length
    return _Slice(end, damage)
