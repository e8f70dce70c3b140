"""Applies what a leader sends to an open store: each transaction whole, journaled before it is applied.

A disk without space stops it, not the link: what has come waits, and the leader is not read from until there is space.
So it is while a thread works on a transaction with large payloads (`preparation`): what came after it waits, and the
order is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from tidelog import limits
from tidelog.errors import JournalFull
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.merge import JournalTransaction
from tidelog.ports import Worker
from tidelog.replication.incoming import Incoming, LongTransaction, OrderedMessage
from tidelog.replication.message import Acknowledgement, EpochBegins, Publication, Reached
from tidelog.replication.preparation import Preparation
from tidelog.replication.server import ReplicatedServer

_Received: TypeAlias = JournalTransaction | Preparation | EpochBegins | Publication


class Reception:
    """The history of a leader, from a position on."""

    def __init__(self, server: ReplicatedServer, begin: Reached, worker: Worker, went_on: Callable[[], None]) -> None:
        self._server = server
        self._store = server.store
        self._writer = server.store.journal.writer
        self._worker = worker
        self._went_on = went_on
        """Told when the thread is done with something that `go_on` waits for."""
        self._incoming = Incoming(begin, server.store.types.operations.is_known, leaves_large=True)
        self._waiting: deque[_Received] = deque()
        """What is whole and could not be applied yet."""

    @property
    def is_stuck(self) -> bool:
        """There is no space, or a thread works: take nothing more until `go_on` says so."""
        return bool(self._waiting)

    @property
    def is_clogged(self) -> bool:
        """The disk does not keep up: take no more for now."""
        return self._writer.has_backlog

    def take(self, message: OrderedMessage) -> None:
        """Hot."""
        for whole in self._incoming.take(message):
            received: _Received
            if isinstance(whole, LongTransaction):
                received = Preparation(whole, self._store, self._worker, self._went_on)
            else:
                received = whole
            if self._waiting or not self._apply(received):
                self._waiting.append(received)

    def _apply(self, received: _Received) -> bool:
        """False: it cannot be applied yet."""
        try:
            if self._writer.batch_bytes >= limits.BATCH_BYTES_FULL:
                self._server.write()
            if isinstance(received, JournalTransaction):
                self._store.apply_received(received)
            elif isinstance(received, Preparation):
                if not received.is_ready():
                    return False
                received.apply()
            elif isinstance(received, EpochBegins):
                self._begin_epoch(received.epoch)
            else:
                self._server.deliver(received)
        except JournalFull:
            return False
        return True

    def _begin_epoch(self, epoch: Epoch) -> None:
        """The leader before may have announced more than the new one begins after: that is not closed any more."""
        self._store.journal.append_received_epoch(epoch)
        if 0 < epoch.first_ts <= self._store.announced_ts:
            self._store.announced_ts = Ts(epoch.first_ts - 1)

    def acknowledgement(self) -> Acknowledgement:
        """How far we are."""
        written, durable_ts = self._writer.written, self._writer.durable_ts
        durable = Reached(durable_ts, written.lsns if durable_ts == written.ts else (Lsn(0),) * len(written.lsns))
        return Acknowledgement(Reached(written.ts, written.lsns), durable)

    def write(self) -> None:
        """Write what has come."""
        try:
            self._server.write()
        except JournalFull:
            return  # `go_on` tries again

    def go_on(self) -> bool:
        """Try again what could not be applied; true: all is written."""
        try:
            self._server.write()
            while self._waiting and self._apply(self._waiting[0]):
                self._waiting.popleft()
            self._server.write()
        except JournalFull:
            return False
        return not self._waiting

    def drop(self) -> None:
        """The link is over: what is not applied comes again."""
        for received in self._waiting:
            if isinstance(received, Preparation):
                received.give_up()
        self._waiting.clear()
