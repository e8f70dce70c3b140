"""Cooling of a running server: the loop finds nodes, a thread writes them, one job after the other (`store/cooling`).

What is in line is taken some times a second, or at once if it is much, so nodes that clients write leave memory within
a second or so. Passes over all streams, for what does not get in line by itself, have time between them, and take a
slice of time at once. There is no time between them while more is in memory than may be (`is_pressed`).

Nodes that were written stay open for a second or two, for readers that are a little behind. What they took is given
back to the system now and then, under load too: the allocator keeps it otherwise. If the disk is full or fails, nodes
stay in memory, and it is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final

from tidelog import limits
from tidelog.ports import Clock
from tidelog.server.memory import give_back
from tidelog.store.cooling import CoolingJob, StoreCooling
from tidelog.streams.cold import OPENED

_LOG: Final = logging.getLogger("tidelog")


class Cooling:
    """Runs the jobs of a store. For the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cooling: StoreCooling | None,
        clock: Clock,
        is_pressed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._cooling = cooling
        self._clock = clock
        self._is_pressed = is_pressed
        """Whether more is in memory than may be."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cooling")
        self._pass: Iterator[None] | None = None
        """The one that is under way."""
        self._next_pass_us = 0
        self._retry_us = 0
        self._is_working = False
        """A job is running."""
        self._is_closed = cooling is None
        self._next_closing_us = 0
        self._gone_bytes = 0
        """What was closed since memory was last given back ..."""
        self._given_back_bytes = 0
        """... and what had been cooled by then."""
        self._given_back_us = 0
        """When that was."""
        self.failures = 0
        """In a row."""
        self._has_unread = False
        """Nodes that were to be written once more could not be read lately: it is told once."""

    def tick(self) -> None:
        """Some times a second."""
        if self._is_closed:
            return
        now_us = self._clock.monotonic_us()
        if self._pass is None and (now_us >= self._next_pass_us or self._is_pressed()):
            self._next_pass_us = now_us + 1_000_000 * limits.COLD_AFTER_S
            assert self._cooling is not None
            self._pass = self._cooling.look(is_pressed=self._is_pressed())
        if now_us >= self._next_closing_us:
            self._next_closing_us = now_us + 1_000_000 * limits.WRITTEN_NODES_OPEN_S
            self._gone_bytes += OPENED.close_unread()
        self._look()
        self._begin()
        pause_s = limits.GIVEN_BACK_TIGHT_S if self._is_pressed() else limits.GIVEN_BACK_S
        if now_us - self._given_back_us >= 1_000_000 * pause_s:
            self._give_back()

    def _look(self) -> None:
        if self._pass is not None:
            end_s = perf_counter() + limits.COOLING_SLICE_S
            for _ in self._pass:
                if perf_counter() > end_s:
                    return
            self._pass = None

    @property
    def is_resting(self) -> bool:
        """Between two passes."""
        return self._pass is None and not self._is_working

    def close(self) -> None:
        """Begin no more work. The result of work that is under way is dropped."""
        self._is_closed = True
        self._thread.shutdown(wait=False)

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._is_working or self._is_closed or self._clock.monotonic_us() < self._retry_us:
            return
        assert self._cooling is not None
        job = self._cooling.take()
        if job is None:
            self._give_back()
            return
        self._is_working = True
        running = self._thread.submit(job.run)
        running.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._finish, job, done.exception()))

    def _finish(self, job: CoolingJob, problem: BaseException | None) -> None:
        self._is_working = False
        if self._is_closed:
            return
        assert self._cooling is not None
        if problem is not None:  # a bug: the nodes stay in memory, and others go on
            _LOG.error("nodes of streams could not be written, and stay in memory: %s", problem)
            self._cooling.give_up(job)
            return
        rewritten_count = self._cooling.rewritten_count
        self._cooling.finish(job, stay_open=not self._is_pressed())
        for damage in job.damage:
            _LOG.error("a node of a stream is damaged, and stays where it is: %s", damage)
        if job.unread and not self._has_unread:
            _LOG.error("old nodes of streams stay where they are, because they cannot be read: %s", job.unread[0][1])
        if job.unread or self._cooling.rewritten_count > rewritten_count:
            self._has_unread = bool(job.unread)
        if job.error is None:
            self.failures = 0
            if self._cooling.waiting_bytes >= limits.COOLED_AT_ONCE_BYTES:
                self._begin()  # otherwise with the next tick: each job has an fsync
            return
        if not self.failures:
            _LOG.error("nodes of streams stay in memory, because they cannot be written: %s", job.error)
        self.failures += 1
        self._retry_us = self._clock.monotonic_us() + 1_000_000 * limits.COOLING_RETRY_S

    def _give_back(self) -> None:
        """Let the system have what nodes took."""
        assert self._cooling is not None
        cooled = self._cooling.cooled_bytes - self._given_back_bytes
        if max(cooled, self._gone_bytes) >= limits.GIVEN_BACK_BYTES_MIN:
            self._given_back_bytes, self._gone_bytes = self._cooling.cooled_bytes, 0
            self._given_back_us = self._clock.monotonic_us()
            self._thread.submit(give_back)
