"""Clients that wait until followers have what was written, or a disk has it: WAIT and WAITAOF.

What is waited for is fixed when a client begins to wait: everything that was written up to its last command before, as
in Redis. What others write after that is none of its business. A client is answered with how far things have come when

    all is confirmed       by as many followers as it asked for, and by the disk here if it asked for that
    its time is over       or CLIENT UNBLOCK ends it
    the role changes       with an error, and is cut off as in Redis: what it waits for may never be confirmed

Where nobody may wait, in EXEC and in scripts, it is answered at once (`commands/replication.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.engine.deadline import Deadline
from tidelog.ids import Ts
from tidelog.ports import Loop
from tidelog.resp.encoder import ErrorReply, Reply

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.session import Session

UNBLOCKED: Final = "UNBLOCKED client unblocked via CLIENT UNBLOCK"


class WantedConfirmation:
    """What a client wants to be confirmed, and how far that has come."""

    __slots__ = ("_engine", "follower_count", "is_durable", "needs_disk", "ts")

    def __init__(self, session: Session, follower_count: int, *, is_durable: bool, needs_disk: bool = False) -> None:
        self._engine = session.engine
        last_ts = session.engine.store.journal.writer.last_ts
        self.ts: Ts = session.answered_ts if last_ts == session.begun_ts else last_ts
        self.follower_count = follower_count
        """So many followers must have it."""
        self.is_durable = is_durable
        """They must have it on their disks (WAITAOF), not only have received it (WAIT)."""
        self.needs_disk = needs_disk
        """The disk here must have it, too."""

    @property
    def followers(self) -> int:
        """How many have it."""
        replication = self._engine.replication
        return 0 if replication is None else replication.confirmed_count(self.ts, is_durable=self.is_durable)

    @property
    def is_on_disk(self) -> bool:
        """The disk here has it."""
        return self._engine.store.journal.writer.durable_ts >= self.ts

    @property
    def is_whole(self) -> bool:
        return self.has_enough_followers and self.has_disk

    @property
    def has_enough_followers(self) -> bool:
        return self.followers >= self.follower_count

    @property
    def has_disk(self) -> bool:
        """The disk here has it, or nobody asked for that."""
        return self.is_on_disk or not self.needs_disk

    def reply(self) -> Reply:
        return [int(self.is_on_disk), self.followers] if self.is_durable else self.followers


class ConfirmationWait:
    """A client that waits."""

    __slots__ = ("command", "deadline", "forget_followers", "has_followers", "wanted")

    def __init__(self, command: bytes, wanted: WantedConfirmation) -> None:
        self.command = command
        self.wanted = wanted
        self.deadline: Deadline | None = None
        self.has_followers = wanted.has_enough_followers
        """Enough of them have said once that they have it, though some may be gone by now."""
        self.forget_followers: Callable[[], None] | None = None
        """Gives up waiting for them; None: nobody waits."""


class FollowerWaits:
    """All clients that wait for followers or for the disk."""

    def __init__(self, engine: Engine, loop: Loop) -> None:
        self._engine = engine
        self._loop = loop
        self._waits: dict[Session, ConfirmationWait] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, session: Session, command: bytes, wanted: WantedConfirmation, timeout_ms: int) -> None:
        """A client begins to wait; 0: for ever."""
        wait = self._waits[session] = ConfirmationWait(command, wanted)
        session.set_blocked(True)
        if timeout_ms:
            wait.deadline = Deadline(self._loop, timeout_ms / 1000, lambda: self._finish(session, wanted.reply()))
        if self._engine.replication is not None and not wait.has_followers:
            wait.forget_followers = self._engine.replication.wait(
                wanted.ts,
                wanted.follower_count,
                is_durable=wanted.is_durable,
                done=lambda: self._followers_have(session, wait),
            )

    def _followers_have(self, session: Session, wait: ConfirmationWait) -> None:
        wait.forget_followers = None
        wait.has_followers = True
        if wait.wanted.has_disk:
            self._finish(session, wait.wanted.reply())

    def look(self) -> None:
        """More may be durable here."""
        for session, wait in list(self._waits.items()):
            if wait.has_followers and wait.wanted.has_disk:
                self._finish(session, wait.wanted.reply())

    def forget(self, session: Session) -> None:
        """A client is gone, or has been answered; fine if it did not wait."""
        wait = self._waits.pop(session, None)
        if wait is None:
            return
        session.set_blocked(False)
        if wait.deadline is not None:
            wait.deadline.cancel()
        if wait.forget_followers is not None:
            wait.forget_followers()

    def unblock(self, session: Session, *, with_error: bool) -> bool:
        """CLIENT UNBLOCK; false if it does not wait."""
        wait = self._waits.get(session)
        if wait is None:
            return False
        self._finish(session, ErrorReply(UNBLOCKED) if with_error else wait.wanted.reply())
        return True

    def end_all(self, error: str) -> None:
        """Nobody can wait any more: all are told so, and cut off."""
        for session in list(self._waits):
            session.close_after_reply()
            self._finish(session, ErrorReply(error))

    def close(self) -> None:
        """The server stops: nobody is answered any more. They still wait, so that nothing they sent later is run."""
        for session in list(self._waits):
            self.forget(session)
            session.set_blocked(True)

    def _finish(self, session: Session, reply: Reply) -> None:
        engine = self._engine
        row = engine.table.find(self._waits[session].command)
        assert row is not None
        self.forget(session)
        if type(reply) is ErrorReply:
            engine.count_failure(row, reply)
        session.unblock(engine.encode(row, reply, session.protocol))
