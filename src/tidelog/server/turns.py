"""The end of a turn of the loop: one write of the journal, then the replies.

Everything that arrived in one turn is one cycle. It is written before any reply leaves, so a killed process loses
nothing that was answered. Under `always` the replies wait further, until the newest transaction they could have seen is
durable (`group_commit`). That holds for reads too, or a client could act on something that a crash takes back.

Replies leave in the order in which they were made, but first of all to clients that waited for another's change: a
writer's own reply tells it less.

    idle --a connection has replies--> scheduled --end of turn--> written --durable--> sent
                                           |
                                        no space: stuck; tried again; new writes are refused meanwhile

Clients that sent more than fits into a turn go on when it has ended (`rounds`), in the turn that then begins; the loop
looks at the sockets in between.

Only clients whose replies may tell of the batch that there is no space for are stuck: replies to commands that name one
of its keys, or look at all keys. Under all policies that holds in the turn that made the batch, and under `always` also
afterwards, when writes are refused; otherwise everything can be read then. Whatever else is asked is answered: PING,
INFO, reads of other keys, and the refusal of a write. Replies of one client stay in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from tidelog import limits
from tidelog.errors import JournalFailed, JournalFull
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy, Visible
from tidelog.journal.journal import Journal
from tidelog.server.group_commit import GroupCommit
from tidelog.server.rounds import Rounds, Sender

_LOG: Final = logging.getLogger("tidelog")
_RETRY_FULL_S: Final = 0.1


class Replying(Protocol):
    """A connection that has replies to send."""

    out: list[bytes]
    waiting_turns: int

    def may_tell_of_unwritten(self, *, are_writes_refused: bool) -> bool:
        """Whether its replies of this turn may depend on changes that there is no space for; `are_writes_refused`: in
        this turn, all were."""

    def set_stuck(self, is_stuck: bool) -> None:
        """Its replies wait for space on the disk, or no longer."""

    def send(self, data: bytes) -> None: ...

    def abort(self, reason: str) -> None: ...


class Turns:
    """Ends turns and releases replies."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
        now_us: Callable[[], int],
        on_sync: Callable[[float], None] = lambda _seconds: None,
        on_visible: Callable[[], None] | None = None,
        on_durable: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._writer = journal.writer
        self._catch_up = journal.hlc.catch_up
        self._call_soon = loop.call_soon
        self._is_scheduled = False
        self._with_replies: list[Replying] = []
        self._woken: list[Replying] = []
        """Connections whose replies leave before those."""
        self._full_since: Visible | None = None
        """There was no space already when this turn began, and this was written then: as long as it is all, nothing of
        the turn is in the batch that waits."""
        self._stuck: list[Replying] = []
        """Connections whose replies wait for space."""
        self._retry: asyncio.TimerHandle | None = None
        """There is no space: when that is tried again."""
        self._waiting: deque[tuple[Ts, list[tuple[Replying, bytes]]]] = deque()
        """Replies that wait for a ts to be durable, in order (`always` only) ..."""
        self.waiting_count = 0
        """... how many connections have some, each turn's for itself ..."""
        self._waiting_bytes = 0
        """... and their size."""
        self._answered: tuple[set[Replying], set[Replying]] = (set(), set())
        """Connections that got replies by the last two fsyncs."""
        self.count = 0
        """Turns that had replies: work in between sees whether any client is there."""
        self._on_visible = on_visible
        """Called when something has become visible, before replies leave."""
        self._on_durable = on_durable
        """Called after each fsync, when the replies that waited for it have left."""
        self._at_end: list[Callable[[], None]] = []
        """Calls that this turn ends with."""
        self.commit = GroupCommit(loop, journal.writer, self, now_us, on_sync)
        self.rounds = Rounds(now_us)

    def add(self, connection: Replying, *, is_woken: bool = False) -> None:
        """A connection has its first reply of this turn; `is_woken`: it waited for another's change. Hot."""
        if self._writer.batch_bytes >= limits.BATCH_BYTES_FULL:
            self._make_room()
        if is_woken:
            self._woken.append(connection)
        else:
            self._with_replies.append(connection)
        if not self._is_scheduled:
            self._begin()

    def line_up(self, sender: Sender, *, is_new: bool) -> None:
        """A connection has more to run than it may in this turn, or may go on; `is_new`: it has only just sent that."""
        self.rounds.add(sender, is_new=is_new)
        if not self._is_scheduled:
            self._begin()

    def at_end(self, call: Callable[[], None]) -> None:
        """Run something once, when all commands of this turn have run: before the journal is written, and so before any
        reply of the turn leaves."""
        self._at_end.append(call)
        if not self._is_scheduled:
            self._begin()

    def _begin(self) -> None:
        self._is_scheduled = True
        self._full_since = None if self._writer.refusal is None else self._writer.written
        self._catch_up()
        self._call_soon(self._end)

    def _make_room(self) -> None:
        """Write what has gathered before the turn ends, so that no transaction meets a batch without room for it."""
        with contextlib.suppress(JournalFull, JournalFailed):  # the end of the turn says so
            self._writer.write()

    def _end(self) -> None:
        self._finish()
        self.rounds.begin_turn()
        if len(self.rounds):
            if not self._is_scheduled:
                self._begin()
            self.rounds.go()

    def _finish(self) -> None:
        while self._at_end:
            self._at_end.pop(0)()
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
            self.fail(str(error))
            return
        else:
            if self._retry is not None:
                self._end_wait()
        if self._on_visible is not None:
            self._on_visible()
        connections, self._with_replies = self._with_replies, []
        if self.commit.is_needed:
            self._put_off(connections)
            return
        for connection in connections:
            out = connection.out
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            connection.send(data)

    # --- no space -----------------------------------------------------------------------------------------------

    def _wait_for_space(self, error: JournalFull) -> None:
        are_writes_refused = self._full_since is self._writer.written
        if self._writer.policy is FsyncPolicy.ALWAYS or not are_writes_refused:
            connections, self._with_replies = self._with_replies, []
            for connection in connections:
                if connection.out and connection.may_tell_of_unwritten(are_writes_refused=are_writes_refused):
                    self._stuck.append(connection)
                    connection.set_stuck(True)
                else:
                    self._with_replies.append(connection)
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
        for connection in self._stuck:
            connection.set_stuck(False)
        self._with_replies = self._stuck + self._with_replies
        self._stuck = []

    # --- replies that wait for an fsync -------------------------------------------------------------------------

    def _put_off(self, connections: list[Replying]) -> None:
        """Keep the replies of this turn until its transactions are durable."""
        batch = []
        for connection in connections:
            data = b"".join(connection.out)
            batch.append((connection, data))
            self._waiting_bytes += len(data)
            connection.out.clear()
            connection.waiting_turns += 1
        self._waiting.append((self._writer.written_ts, batch))
        self.waiting_count += len(batch)
        self.commit.gather()

    @property
    def is_waiting(self) -> bool:
        """Whether a turn waits to be durable, be it one without replies."""
        return bool(self._waiting)

    def release(self) -> None:
        """Send the replies whose transactions are durable now."""
        durable = self._writer.durable_ts
        while self._waiting and self._waiting[0][0] <= durable:
            batch = self._waiting.popleft()[1]
            self.waiting_count -= len(batch)
            for connection, data in batch:
                self._waiting_bytes -= len(data)
                connection.waiting_turns -= 1
                connection.send(data)
                self._answered[1].add(connection)
        if self._on_durable is not None:
            self._on_durable()

    def end_sync(self) -> int:
        """The same after an fsync, when more is visible; how many clients the last two fsyncs answered."""
        self._answered = self._answered[1], set()
        self.release()
        if self._on_visible is not None:
            self._on_visible()
        return len(self._answered[0] | self._answered[1])

    def fail(self, reason: str) -> None:
        """The journal has failed: close all connections whose replies are not in it, without those replies."""
        for connection in self._stuck + self._with_replies:
            connection.abort(reason)
        self._stuck.clear()
        self._with_replies.clear()
        for _, batch in self._waiting:
            for connection, _ in batch:
                connection.abort(reason)
        self._waiting.clear()
        self._waiting_bytes = self.waiting_count = 0

    # --- for the server -----------------------------------------------------------------------------------------

    @property
    def has_backlog(self) -> bool:
        """Stop reading from clients: the disk does not keep up."""
        return (
            self._writer.has_backlog
            or len(self._waiting) > limits.WAITING_TURNS_MAX
            or self._waiting_bytes > limits.WAITING_REPLIES_BYTES_MAX
        )

    def end_now(self) -> None:
        """End the turn at once, and let nobody go on in another: all connections get other turns. For those of a store
        that nothing is written to, so no reply can wait for the disk."""
        self._finish()
        self.rounds.clear()

    async def drain(self) -> None:
        """Write and send everything that was accepted, and wait for an fsync that is under way."""
        while self._with_replies or self._woken or self._stuck or self._waiting or self.commit.is_under_way:
            if (self._with_replies or self._woken) and not self._is_scheduled:
                self._end()
            await asyncio.sleep(0.001 if self.commit.is_under_way else 0)
        self.commit.close()
