"""Group commit: when the journal is fsynced, and how many clients share one fsync.

    everysec, never    once a second, if something is due
    always             as soon as replies wait for it, or a moment later (gathering)

Under `always` an fsync takes about as long for fifty clients as for one. So it is put off until the clients answered by
the last two fsyncs have sent their next command, for half of what the last fsync took at most. Without this, clients
would fall into two halves that wait for each other's fsyncs. Where the disk is so fast that handing over to a thread
takes as long as the fsync, the fsync runs on the loop, until one takes longer.

    nothing waits --replies wait--> gathering --all expected are there, or time is over--> syncing --durable--> released
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

from tidelog.errors import JournalFailed
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy, SyncJob
from tidelog.journal.writer import JournalWriter

_GATHERED_PART: Final = 2
"""The next fsync is put off for this part of what the last one took ..."""
_GATHER_US_MAX: Final = 2000
"""... and for this at most."""
_TIMER_US_MIN: Final = 1000
"""The loop's timers are no finer."""
_ON_THE_SPOT_US_MAX: Final = 1000
"""An fsync that took less is not worth a thread."""


class Durable(Protocol):
    """Replies that wait for an fsync."""

    waiting_count: int
    """How many there are, each turn's for itself."""

    @property
    def is_waiting(self) -> bool:
        """Whether a turn waits to be durable, be it one without replies."""

    def release(self) -> None:
        """Send the replies whose transactions are durable now."""

    def end_sync(self) -> int:
        """The same after an fsync, when more is visible; how many clients the last two fsyncs answered."""

    def fail(self, reason: str) -> None:
        """The journal has failed: close all connections whose replies are not in it, without those replies."""


class GroupCommit:
    """Runs fsyncs, on a thread of their own. For the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        writer: JournalWriter,
        replies: Durable,
        now_us: Callable[[], int],
        on_sync: Callable[[float], None],
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._replies = replies
        self._now_us = now_us
        self._on_sync = on_sync
        """Told how long each fsync took."""
        self._fsyncs = ThreadPoolExecutor(1, thread_name_prefix="fsync")
        self._is_always = writer.policy is FsyncPolicy.ALWAYS
        self._sync: tuple[SyncJob, Future[None]] | None = None
        """The fsync that is under way."""
        self._sync_began_us = 0
        self._took_us = 0
        """The last fsync."""
        self._expected_count = 0
        """For so many clients the next fsync waits ..."""
        self._gather_until_us = 0
        """... until then."""
        self._gathering: asyncio.Handle | None = None
        self._after_sync: list[asyncio.Future[None]] = []
        """Waiters for the end of the fsync that is under way."""

    # --- replies that wait --------------------------------------------------------------------------------------

    @property
    def is_needed(self) -> bool:
        """Whether replies have to wait: `always`, and something that they could have seen is not durable."""
        return self._is_always and self._writer.durable_ts < self._writer.written_ts

    def gather(self) -> None:
        """Begin the fsync that replies wait for, or put it off for clients that are expected."""
        waiting_count = self._replies.waiting_count
        if self._sync is not None or (self._gathering is not None and waiting_count < self._expected_count):
            return
        left_us = self._gather_until_us - self._now_us()
        if waiting_count >= self._expected_count or left_us <= 0:
            self._begin()
        elif left_us >= _TIMER_US_MIN:
            self._gathering = self._loop.call_later(left_us / 1e6, self._gather_on)
        else:
            self._gathering = self._loop.call_soon(self._gather_on)  # after a look at the sockets

    def _gather_on(self) -> None:
        self._gathering = None
        self.gather()

    # --- one fsync ----------------------------------------------------------------------------------------------

    def _begin(self, *, everything: bool = False) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._sync is not None:
            return
        began_us = self._now_us()
        job = self._writer.begin_sync(began_us, everything=everything)
        if job is None:
            return
        self._sync_began_us = began_us
        if self._is_always and self._took_us < _ON_THE_SPOT_US_MAX:
            self._sync = job, _run(job)
            self._finish(job)
            return
        running = self._fsyncs.submit(job.run)
        self._sync = job, running
        running.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._finish, job))

    def _finish(self, job: SyncJob) -> None:
        if self._sync is None or self._sync[0] is not job:
            return  # `sync_now` could not wait for the loop to come round to it
        done = self._sync[1]
        self._sync = None
        self._took_us = self._now_us() - self._sync_began_us
        self._on_sync(self._took_us / 1e6)
        waiters, self._after_sync = self._after_sync, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        error = done.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        try:
            self._writer.finish_sync(job, error)
        except JournalFailed as failure:
            self._replies.fail(str(failure))
            return
        self._gather_until_us = self._now_us() + min(self._took_us // _GATHERED_PART, _GATHER_US_MAX)
        self._expected_count = self._replies.end_sync()
        if self._replies.is_waiting:
            self.gather()

    # --- for others ---------------------------------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        return self._sync is not None

    def tick(self) -> None:
        """Once a second: the fsync of `everysec`, and the clock's bound under every policy."""
        if not self._writer.has_failed and self._writer.sync_is_due(self._now_us()):
            self._begin()

    async def make_durable(self, ts: Ts) -> None:
        """Fsync the journal through a transaction that is written, under every policy."""
        while self._writer.durable_ts < ts:
            self._raise_failure()
            self._begin(everything=True)
            if self._sync is None:
                return  # nothing is left to fsync
            waiter = self._loop.create_future()
            self._after_sync.append(waiter)
            await waiter
        self._raise_failure()

    def sync_now(self) -> None:
        """Fsync everything that is written, while everyone waits."""
        while self._sync is not None:
            job, running = self._sync
            running.exception()  # waits for its end
            self._finish(job)
        self._raise_failure()
        self._writer.sync()
        self._replies.release()

    def _raise_failure(self) -> None:
        if self._writer.has_failed and self._writer.refusal is not None:
            raise self._writer.refusal.with_traceback(None)

    def close(self) -> None:
        self._fsyncs.shutdown()


def _run(job: SyncJob) -> Future[None]:
    done: Future[None] = Future()
    try:
        job.run()
    except Exception as error:  # as a thread would: `_finish` looks at it
        done.set_exception(error)
    else:
        done.set_result(None)
    return done
