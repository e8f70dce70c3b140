"""The end of a turn of the loop: one write of the journal, then the replies.

Everything that arrived in one turn is one cycle: it is written before any reply leaves, so a killed process loses
nothing that was answered. Under `always` the replies wait further, until the newest transaction they could have seen
is durable: reads too, or a client could act on what a crash takes back. They leave in the order in which they were
made, but first of all to those who waited for what somebody else wrote: a writer's own reply tells it less.

    idle --a session has replies--> scheduled --end of turn--> written --durable--> sent
                                        |
                                     no space: stuck; tried again; new writes are refused meanwhile

Under `always` an fsync takes about as long for fifty clients as for one, so it waits a moment for those who were
answered by the last two and are about to send the next command: half of what one took at most. Without this they
would fall into two halves that wait for each other's fsyncs. Where the disk is so fast that handing over to a thread
and back takes as long as an fsync, it is done on the spot, until one takes longer.

Only who may have something in the batch that there is no space for is stuck: the others are told that writes are
refused, and can read. Under `always` everyone waits: what is read might not be durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

from tidelog import limits
from tidelog.errors import JournalFailed, JournalFull
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy, SyncJob, Visible
from tidelog.journal.journal import Journal

_LOG: Final = logging.getLogger("tidelog")
_RETRY_FULL_S: Final = 0.1
_GATHERED_PART: Final = 2
"""What part of an fsync's time the next one may be put off ..."""
_GATHER_US_MAX: Final = 2000
"""... and at most this."""
_TIMER_US_MIN: Final = 1000
"""The loop's timers are no finer."""
_ON_THE_SPOT_US_MAX: Final = 1000
"""An fsync that took less is worth no thread."""


class Replying(Protocol):
    """A connection that has replies to send."""

    out: list[bytes]
    waiting_turns: int

    def set_stuck(self, is_stuck: bool) -> None:
        """Its replies wait for space on the disk, or no longer."""

    def send(self, data: bytes) -> None: ...

    def abort(self, reason: str) -> None: ...


class Turns:
    """Ends turns, runs fsyncs on a thread of their own, and releases replies."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        now_us: Callable[[], int],
        on_sync: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._loop = loop
        self._writer = journal.writer
        self._catch_up = journal.hlc.catch_up
        self._now_us = now_us
        self._call_soon = loop.call_soon
        self._fsyncs = ThreadPoolExecutor(1, thread_name_prefix="fsync")
        self._is_scheduled = False
        self._with_replies: list[Replying] = []
        self._woken: list[Replying] = []
        """Those who come before them."""
        self._full_since: Visible | None = None
        """There was no space already when this turn began, and this was written then: as long as it is all, nothing of
        the turn is in the batch that waits."""
        self._stuck: list[Replying] = []
        """Whose replies wait for space."""
        self._retry: asyncio.TimerHandle | None = None
        """There is no space: when that is tried again."""
        self._waiting: deque[tuple[Ts, list[tuple[Replying, bytes]]]] = deque()
        """Replies that wait for a ts to be durable, in order (`always` only)."""
        self._waiting_bytes = 0
        """Of them."""
        self._is_always = journal.writer.policy is FsyncPolicy.ALWAYS
        self._sync: tuple[SyncJob, Future[None]] | None = None
        """The fsync that is under way."""
        self._sync_began_us = 0
        self._waiting_count = 0
        """Sessions in `_waiting`, each turn's for itself."""
        self._answered: tuple[set[Replying], set[Replying]] = (set(), set())
        """By the last two fsyncs."""
        self._expected_count = 0
        """How many there were: for so many the next fsync waits ..."""
        self._gather_until_us = 0
        """... until then."""
        self._gathering: asyncio.Handle | None = None
        self._took_us = 0
        """The last fsync."""
        self._after_sync: list[asyncio.Future[None]] = []
        """Who waits for its end."""
        self.count = 0
        """Turns that had replies: whoever works in between sees whether anyone is there."""
        self.on_visible: Callable[[], None] | None = None
        """Called when something has become visible, before replies leave."""
        self._on_sync = on_sync
        """Told how long each fsync took."""

    def add(self, session: Replying, *, is_woken: bool = False) -> None:
        """A session has its first reply of this turn; `is_woken`: it waited for what others do. Hot."""
        if self._writer.batch_bytes >= limits.BATCH_BYTES_FULL:
            self._make_room()
        if is_woken:
            self._woken.append(session)
        else:
            self._with_replies.append(session)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._full_since = None if self._writer.refusal is None else self._writer.written
            self._catch_up()
            self._call_soon(self._end)

    def _make_room(self) -> None:
        """Write what has gathered before the turn ends, so that no transaction meets a batch without room for it."""
        with contextlib.suppress(JournalFull, JournalFailed):  # the end of the turn says so
            self._writer.write()

    def _end(self) -> None:
        self._is_scheduled = False
        self.count += 1
        if self._woken:
            self._with_replies = self._woken + self._with_replies
            self._woken = []
        try:
            self._writer.write()
        except JournalFull as error:
            self._wait_for_space(error)
        except JournalFailed as error:
            self._abort_all(str(error))
            return
        else:
            if self._retry is not None:
                self._end_wait()
        if self.on_visible is not None:
            self.on_visible()
        sessions, self._with_replies = self._with_replies, []
        if self._is_always and self._writer.durable_ts < self._writer.written_ts:
            batch = []
            for session in sessions:
                data = b"".join(session.out)
                batch.append((session, data))
                self._waiting_bytes += len(data)
                session.out.clear()
                session.waiting_turns += 1
            self._waiting.append((self._writer.written_ts, batch))
            self._waiting_count += len(batch)
            self._gather()
            return
        for session in sessions:
            out = session.out
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            session.send(data)

    def _wait_for_space(self, error: JournalFull) -> None:
        if self._is_always or self._full_since is not self._writer.written:
            for session in self._with_replies:
                if session.out:
                    self._stuck.append(session)
                    session.set_stuck(True)
            self._with_replies.clear()
        if self._retry is None:
            _LOG.error("%s", error)
        else:
            self._retry.cancel()
        self._retry = self._loop.call_later(_RETRY_FULL_S, self._end)

    def _end_wait(self) -> None:
        """There is space again, and everything is written."""
        assert self._retry is not None
        self._retry.cancel()
        self._retry = None
        _LOG.warning("there is space again: writes are taken")
        for session in self._stuck:
            session.set_stuck(False)
        self._with_replies = self._stuck + self._with_replies
        self._stuck = []

    def _abort_all(self, reason: str) -> None:
        """What these clients were about to be told is not in the journal: they are told nothing."""
        for session in self._stuck + self._with_replies:
            session.abort(reason)
        self._stuck.clear()
        self._with_replies.clear()
        for _, batch in self._waiting:
            for session, _ in batch:
                session.abort(reason)
        self._waiting.clear()
        self._waiting_bytes = self._waiting_count = 0

    # --- fsync --------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Begin the fsync that replies wait for, or put it off for those who are expected."""
        if self._sync is not None or (self._gathering is not None and self._waiting_count < self._expected_count):
            return
        left_us = self._gather_until_us - self._now_us()
        if self._waiting_count >= self._expected_count or left_us <= 0:
            self._begin_sync()
        elif left_us >= _TIMER_US_MIN:
            self._gathering = self._loop.call_later(left_us / 1e6, self._gather_on)
        else:
            self._gathering = self._loop.call_soon(self._gather_on)  # after a look at who has sent something

    def _gather_on(self) -> None:
        self._gathering = None
        self._gather()

    def _begin_sync(self, *, everything: bool = False) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._sync is not None:
            return
        began_us = self._now_us()
        job = self._writer.begin_sync(began_us, everything=everything)
        if job is not None:
            self._sync_began_us = began_us
            if self._is_always and self._took_us < _ON_THE_SPOT_US_MAX:
                self._sync = job, _run(job)
                self._finish_sync(job)
                return
            running = self._fsyncs.submit(job.run)
            self._sync = job, running
            running.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._finish_sync, job))

    def _finish_sync(self, job: SyncJob) -> None:
        if self._sync is None or self._sync[0] is not job:
            return  # somebody could not wait for the loop to come round to it
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
            self._abort_all(str(failure))
            return
        self._gather_until_us = self._now_us() + min(self._took_us // _GATHERED_PART, _GATHER_US_MAX)
        self._answered = self._answered[1], set()
        self._release()
        if self.on_visible is not None:
            self.on_visible()
        self._expected_count = len(self._answered[0] | self._answered[1])
        if self._waiting:
            self._gather()

    def _release(self) -> None:
        """Send the replies that waited for what is durable now."""
        durable = self._writer.durable_ts
        while self._waiting and self._waiting[0][0] <= durable:
            batch = self._waiting.popleft()[1]
            self._waiting_count -= len(batch)
            for session, data in batch:
                self._waiting_bytes -= len(data)
                session.waiting_turns -= 1
                session.send(data)
                self._answered[1].add(session)

    def tick(self) -> None:
        """Once a second: the fsync of `everysec`, and the clock's bound under every policy."""
        if not self._writer.has_failed and self._writer.sync_is_due(self._now_us()):
            self._begin_sync()

    async def make_durable(self, ts: Ts) -> None:
        """Fsync the journal through a transaction that is written, under every policy."""
        while self._writer.durable_ts < ts:
            self._raise_failure()
            self._begin_sync(everything=True)
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
            self._finish_sync(job)
        self._raise_failure()
        self._writer.sync()
        self._release()

    def _raise_failure(self) -> None:
        if self._writer.has_failed and self._writer.refusal is not None:
            raise self._writer.refusal.with_traceback(None)

    @property
    def has_backlog(self) -> bool:
        """Stop reading from clients: the disk does not keep up."""
        return (
            self._writer.has_backlog
            or len(self._waiting) > limits.WAITING_TURNS_MAX
            or self._waiting_bytes > limits.WAITING_REPLIES_BYTES_MAX
        )

    async def drain(self) -> None:
        """Write and send everything that was accepted, and wait for an fsync that is under way."""
        while self._with_replies or self._woken or self._stuck or self._waiting or self._sync is not None:
            if (self._with_replies or self._woken) and not self._is_scheduled:
                self._end()
            await asyncio.sleep(0 if self._sync is None else 0.001)
        self._fsyncs.shutdown()


def _run(job: SyncJob) -> Future[None]:
    done: Future[None] = Future()
    try:
        job.run()
    except Exception as error:  # as a thread would: whoever finishes it looks
        done.set_exception(error)
    else:
        done.set_result(None)
    return done
