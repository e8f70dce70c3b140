"""The end of a turn of the loop: one write of the journal, then the replies.

Everything that arrived in one turn is one cycle: it is written before any reply leaves, so a killed process loses
nothing that was answered. Under `always` the replies wait further, until the newest transaction they could have seen
is durable: reads too, or a client could act on what a crash takes back. They leave in the order in which they were
made.

    idle --a session has replies--> scheduled --end of turn--> written --durable--> sent
                                        |
                                     no space: held; tried again; new writes are refused meanwhile
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from tidelog import limits
from tidelog.errors import JournalFailed, JournalFull
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy, SyncJob
from tidelog.journal.journal import Journal

_RETRY_FULL_S: Final = 0.1


class Replying(Protocol):
    """A connection that has replies to send."""

    out: list[bytes]
    waiting_turns: int

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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fsync")
        self._is_scheduled = False
        self._with_replies: list[Replying] = []
        self._waiting: deque[tuple[Ts, list[tuple[Replying, bytes]]]] = deque()
        """Replies that wait for a ts to be durable, in order (`always` only)."""
        self._is_always = journal.writer.policy is FsyncPolicy.ALWAYS
        self._sync: asyncio.Future[None] | None = None
        self._sync_began_us = 0
        self._on_sync = on_sync
        """Told how long each fsync took."""

    def add(self, session: Replying) -> None:
        """A session has its first reply of this turn. Hot."""
        if self._writer.batch_bytes >= limits.BATCH_BYTES_FULL:
            self._make_room()
        self._with_replies.append(session)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._catch_up()
            self._call_soon(self._end)

    def _make_room(self) -> None:
        """Write what has gathered before the turn ends, so that no transaction meets a batch without room for it."""
        with contextlib.suppress(JournalFull, JournalFailed):  # the end of the turn says so
            self._writer.write()

    def _end(self) -> None:
        self._is_scheduled = False
        try:
            self._writer.write()
        except JournalFull:
            self._is_scheduled = True
            self._loop.call_later(_RETRY_FULL_S, self._end)
            return
        except JournalFailed as error:
            self._abort_all(str(error))
            return
        sessions, self._with_replies = self._with_replies, []
        if self._is_always and self._writer.durable_ts < self._writer.written_ts:
            batch = []
            for session in sessions:
                batch.append((session, b"".join(session.out)))
                session.out.clear()
                session.waiting_turns += 1
            self._waiting.append((self._writer.written_ts, batch))
            self._begin_sync()
            return
        for session in sessions:
            out = session.out
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            session.send(data)

    def _abort_all(self, reason: str) -> None:
        """What these clients were about to be told is not in the journal: they are told nothing."""
        for session in self._with_replies:
            session.abort(reason)
        self._with_replies.clear()
        for _, batch in self._waiting:
            for session, _ in batch:
                session.abort(reason)
        self._waiting.clear()

    # --- fsync --------------------------------------------------------------------------------------------------

    def _begin_sync(self, *, everything: bool = False) -> None:
        if self._sync is not None:
            return
        began_us = self._now_us()
        job = self._writer.begin_sync(began_us, everything=everything)
        if job is not None:
            self._sync_began_us = began_us
            self._sync = self._loop.run_in_executor(self._thread, job.run)
            self._sync.add_done_callback(lambda done: self._finish_sync(job, done))

    def _finish_sync(self, job: SyncJob, done: asyncio.Future[None]) -> None:
        self._sync = None
        self._on_sync((self._now_us() - self._sync_began_us) / 1e6)
        error = done.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        try:
            self._writer.finish_sync(job, error)
        except JournalFailed as failure:
            self._abort_all(str(failure))
            return
        durable = self._writer.durable_ts
        while self._waiting and self._waiting[0][0] <= durable:
            for session, data in self._waiting.popleft()[1]:
                session.waiting_turns -= 1
                session.send(data)
        if self._waiting:
            self._begin_sync()

    def tick(self) -> None:
        """Once a second: the fsync of `everysec`, and the clock's bound under every policy."""
        if not self._writer.has_failed and self._writer.sync_is_due(self._now_us()):
            self._begin_sync()

    @property
    def has_backlog(self) -> bool:
        """Stop reading from clients: the disk does not keep up."""
        return self._writer.has_backlog or len(self._waiting) > limits.WAITING_TURNS_MAX

    async def drain(self) -> None:
        """Write and send everything that was accepted, and wait for an fsync that is under way."""
        while self._with_replies or self._waiting or self._sync is not None:
            if self._with_replies and not self._is_scheduled:
                self._end()
            await asyncio.sleep(0 if self._sync is None else 0.001)
        self._thread.shutdown()
