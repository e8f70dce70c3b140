"""Erases old segments of the journal in a running server, and watches the space on its disk.

    find      on the thread of the snapshots: what they cover
    choose    on the loop: what is past the limits; on a disk that is nearly full also what only those limits keep,
              oldest first and no more than it takes
    remove    on the thread

It is due after a snapshot, when a limit changes, now and then, and while the disk is nearly full: while it has less
room than two more segments take, so that old history goes before a write is refused. What holders need, and what no
snapshot covers, is never erased for space.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from concurrent.futures import Executor
from time import perf_counter
from typing import Final

from tidelog import limits
from tidelog.engine.metrics import SpaceFacts
from tidelog.errors import JournalFull, TidelogError
from tidelog.journal.journal import Journal
from tidelog.journal.retention import Segment

_LOG: Final = logging.getLogger("tidelog")
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class Erasing:
    """For the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, journal: Journal, thread: Executor) -> None:
        self._loop = loop
        self._journal = journal
        self._thread = thread
        """The one of the snapshots: no sidecar is made for a segment while that is being erased."""
        self._task: asyncio.Task[None] | None = None
        self._next_s = 0.0
        """When it is due again (`perf_counter`)."""
        self._is_asked_again = False
        """Something has changed since the erasing that is under way began, and it may not have seen that."""
        self._free_bytes = 0
        self._low_bytes = limits.DISK_LOW_SEGMENTS * journal.segment_bytes_max
        """With less room than this, the disk is nearly full."""
        self._is_low = False
        self._has_warned = False
        """Since the disk is nearly full, it was said that nothing can be erased."""
        self._is_closed = False
        self._segments_for_space = 0
        self._bytes_for_space = 0
        self._look()

    @property
    def facts(self) -> SpaceFacts:
        return SpaceFacts(self._free_bytes, self._is_low, self._segments_for_space, self._bytes_for_space)

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    def tick(self) -> None:
        """Some times a second: begin what is due."""
        was_low = self._is_low
        self._look()
        if self._is_low and not was_low:
            self._next_s = 0.0  # at once
        if perf_counter() >= self._next_s:
            self.begin()

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # the next write tells what is wrong with the disk
            self._free_bytes = self._journal.free_bytes
        self._is_low = self._shortfall_bytes > 0
        self._has_warned = self._has_warned and self._is_low

    @property
    def _shortfall_bytes(self) -> int:
        """How much room is missing."""
        refusal = self._journal.writer.refusal
        if isinstance(refusal, JournalFull) and refusal.errno in _NO_SPACE:
            return self._low_bytes  # a quota may say so while the disk has room
        return max(0, self._low_bytes - self._free_bytes)

    def begin(self) -> None:
        """Others may make snapshots meanwhile: those only ever cover more."""
        if self._is_closed:
            return
        if self._task is None:
            self._is_asked_again = False
            self._task = self._loop.create_task(self._erase())
        else:
            self._is_asked_again = True

    async def _erase(self) -> None:
        try:
            found = await self._loop.run_in_executor(self._thread, self._journal.find_erasable)
            too_old = self._journal.choose_erased(found)
            going = self._journal.choose_erased(found, self._shortfall_bytes)
            await self._loop.run_in_executor(self._thread, self._journal.remove_erased, going)
            self._tell(going[len(too_old) :])
        except (TidelogError, OSError) as error:
            _LOG.error("old segments could not be erased: %s", error)
        finally:
            self._task = None
            pause_s = limits.DISK_LOW_LOOK_S if self._is_low else limits.RETENTION_LOOK_S
            self._next_s = perf_counter() + (0 if self._is_asked_again else pause_s)

    def _tell(self, for_space: list[Segment]) -> None:
        """What was erased only because the disk is nearly full."""
        size = sum(segment.size for segment in for_space)
        self._segments_for_space += len(for_space)
        self._bytes_for_space += size
        if for_space:
            _LOG.warning(
                "the disk is nearly full (%d bytes are free): erased %d segments of the journal (%d bytes) that only "
                "retain-bytes and retain-age kept; the journal now begins after ts %d",
                self._free_bytes,
                len(for_space),
                size,
                self._journal.erased_ts,
            )
        elif self._is_low and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "the disk is nearly full (%d bytes are free) and no segment of the journal can be erased: make room "
                "before writes are refused",
                self._free_bytes,
            )

    def close(self) -> None:
        """What is on the thread is not waited for here."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
