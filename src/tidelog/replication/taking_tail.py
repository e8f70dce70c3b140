"""What a leader has lost in a crash, as a follower sends it up: each transaction whole, journaled before it is applied.

Large payloads are written and decoded by a thread (`preparation`), as a follower has it: no client of ours waits for
them, and what comes after them does. Several followers may send the same tail at the same time. What another one has
sent first is not taken again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog import limits
from tidelog.errors import JournalFull, LinkMisused
from tidelog.journal.merge import JournalTransaction
from tidelog.ports import Worker
from tidelog.replication.incoming import Incoming, LongTransaction
from tidelog.replication.message import LinkMessage, LongRecord, PayloadPiece, Reached, TailEnd, TransactionParts
from tidelog.replication.preparation import Preparation
from tidelog.replication.server import ReplicatedServer


class TakingTail:
    """The tail that one follower sends. `JournalFull`, from every call: there is no space for it."""

    def __init__(self, server: ReplicatedServer, begin: Reached, worker: Worker, went_on: Callable[[], None]) -> None:
        self._server = server
        self._store = server.store
        self._writer = server.store.journal.writer
        self._worker = worker
        self._went_on = went_on
        """Told when the thread is done with something that `go_on` waits for."""
        self._incoming = Incoming(begin, server.store.types.operations.is_known, leaves_large=True)
        self._waiting: deque[JournalTransaction | Preparation] = deque()
        """What is whole and waits for the thread."""
        self._end: Reached | None = None
        """Where it ends: all of it has come."""

    @property
    def is_stuck(self) -> bool:
        """A thread works: take nothing more until `go_on` has caught up."""
        return bool(self._waiting)

    def take(self, message: LinkMessage) -> None:
        if self._end is None and isinstance(message, (TransactionParts, LongRecord, PayloadPiece)):
            for whole in self._incoming.take(message):
                if isinstance(whole, LongTransaction):
                    self._waiting.append(Preparation(whole, self._store, self._worker, self._went_on))
                elif isinstance(whole, JournalTransaction):
                    self._waiting.append(whole)
                self._apply_waiting()
            return
        is_end = isinstance(message, TailEnd) and self._end is None and not self._incoming.is_inside
        if not is_end or not isinstance(message, TailEnd) or message.reached != self._incoming.reached:
            raise LinkMisused(f"{type(message).__name__} came inside of a tail")
        self._end = message.reached

    def go_on(self) -> Reached | None:
        """Apply what can be applied; where the tail ends, once all of it is here and written."""
        self._apply_waiting()
        if self._waiting or self._end is None:
            return None
        self._server.write()
        return self._end

    def _apply_waiting(self) -> None:
        while self._waiting and self._apply(self._waiting[0]):
            self._waiting.popleft()

    def _apply(self, received: JournalTransaction | Preparation) -> bool:
        """False: the thread works on it."""
        if received.ts <= self._writer.last_ts:  # another follower has sent it already
            if isinstance(received, Preparation):
                received.give_up()
            return True
        if isinstance(received, JournalTransaction):
            self._store.apply_received(received)
        else:
            if received.is_full:
                raise JournalFull("a large value finds no space")
            if not received.is_ready():
                return False
            received.apply()
        if self._writer.batch_bytes >= limits.BATCH_BYTES_FULL:
            self._server.write()
        return True

    def drop(self) -> None:
        """The link is over: whoever has the rest sends it again."""
        for received in self._waiting:
            if isinstance(received, Preparation):
                received.give_up()
        self._waiting.clear()
