"""Cooling: nodes of streams that nobody reads are compressed, one at a time, on a thread of their own.

A pass visits every stream, a slice of time at once, and at most one pass begins in `COLD_AFTER_S`:

    an active node      that has not grown since the last pass, and has entries enough, is sealed
    a sealed node       that nobody has read since the last pass is compressed

So no node has to keep the time of its last use. Nothing is journaled: a compressed node holds the same entries, and
where nodes end does not belong to the state. The thread gets only a record batch, which never changes. When it has
compressed it, the loop swaps the bytes of the node.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Final

from tidelog import limits
from tidelog.ids import SLOT_COUNT
from tidelog.ports import Clock
from tidelog.store.keyspace import Database
from tidelog.streams.node import SealedNode
from tidelog.streams.stream import Stream

_NODES_AT_ONCE: Final = 1000
"""Nodes of one stream that are looked at between two looks at the clock."""


class Cooling:
    """Finds nodes on the loop, compresses them on a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, databases: Sequence[Database], clock: Clock) -> None:
        self._loop = loop
        self._databases = databases
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cooling")
        self._pass: Iterator[SealedNode | None] | None = None
        """The one that is under way."""
        self._next_pass_us = 0
        self._is_working = False
        """A node is being compressed."""
        self._is_closed = False
        self.compressed_count = 0
        self._given_back_count = 0
        """The same when memory was last given back."""

    def tick(self) -> None:
        """Look for a cold node, for a short time."""
        if self._is_working or self._is_closed:
            return
        if self._pass is None:
            now_us = self._clock.monotonic_us()
            if now_us < self._next_pass_us:
                return
            self._next_pass_us = now_us + 1_000_000 * limits.COLD_AFTER_S
            self._pass = self._candidates()
        end_s = perf_counter() + limits.COOLING_SLICE_S
        for node in self._pass:
            if node is not None:
                self._compress(node)
            if node is not None or perf_counter() > end_s:
                return
        self._pass = None
        if self.compressed_count > self._given_back_count:
            self._given_back_count = self.compressed_count
            self._thread.submit(_give_back_memory)

    @property
    def is_resting(self) -> bool:
        """Between two passes."""
        return self._pass is None and not self._is_working

    def close(self) -> None:
        """Begin no more work. The result of work that is under way is dropped."""
        self._is_closed = True
        self._thread.shutdown(wait=False)

    # --- finding ------------------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[SealedNode | None]:
        """The nodes that are cold, and None now and then: everything may change in between."""
        for database in self._databases:
            if not database.size:
                continue
            for slot in range(SLOT_COUNT):
                for part in database.buckets(slot):
                    for stream in [value for value in part.values() if type(value) is Stream]:
                        yield from _cold_nodes(stream)
                    yield None

    # --- compressing --------------------------------------------------------------------------------------------

    def _compress(self, node: SealedNode) -> None:
        self._is_working = True
        running = self._thread.submit(node.compressed)
        running.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._finish, node, done))

    def _finish(self, node: SealedNode, done: Future[bytes]) -> None:
        self._is_working = False
        if not self._is_closed:
            node.chill(done.result())
            self.compressed_count += 1
            self._loop.call_later(limits.COOLING_PAUSE_S, self.tick)


def _give_back_memory() -> None:
    """Let the system have the pages that nodes took before they were compressed: glibc keeps them otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _cold_nodes(stream: Stream) -> Iterator[SealedNode | None]:
    active = stream.active
    if len(active) >= limits.IDLE_SEAL_ENTRIES_MIN:
        if active.seen_count == len(active):
            stream.seal()
        active.seen_count = len(active)
    for at, node in enumerate(stream.sealed[:]):
        if at % _NODES_AT_ONCE == 0:
            yield None
        if node.is_cold or node.stays_warm:
            continue
        if node.is_idle:
            yield node
        node.is_idle = True
