"""Applies what a leader sends to an open store: each transaction whole, journaled before it is applied.

A disk without space stops it, not the link: what has come waits, and the leader is not read from until there is space.
"""

from __future__ import annotations

from collections import deque

from tidelog import limits
from tidelog.errors import JournalFull
from tidelog.journal.merge import JournalTransaction
from tidelog.replication.incoming import Incoming, OrderedMessage, Whole
from tidelog.replication.message import EpochBegins, Reached
from tidelog.replication.server import ReplicatedServer


class Reception:
    """The history of a leader, from a position on."""

    def __init__(self, server: ReplicatedServer, begin: Reached) -> None:
        self._server = server
        self._store = server.store
        self._writer = server.store.journal.writer
        self._incoming = Incoming(begin, server.store.types.operations.is_known)
        self._waiting: deque[Whole] = deque()
        """What is whole and could not be written yet."""

    @property
    def is_stuck(self) -> bool:
        """There is no space: take nothing more until `go_on` says that there is."""
        return bool(self._waiting)

    @property
    def is_clogged(self) -> bool:
        """The disk does not keep up: take no more for now."""
        return self._writer.has_backlog

    def take(self, message: OrderedMessage) -> None:
        """Hot."""
        whole = self._incoming.take(message)
        if self._waiting:
            self._waiting.extend(whole)
            return
        for index, each in enumerate(whole):
            try:
                self._apply(each)
            except JournalFull:
                self._waiting.extend(whole[index:])
                return

    def _apply(self, whole: Whole) -> None:
        if isinstance(whole, JournalTransaction):
            if self._writer.batch_bytes >= limits.BATCH_BYTES_FULL:
                self._server.write()
            self._store.apply_received(whole)
        elif isinstance(whole, EpochBegins):
            self._store.journal.append_received_epoch(whole.epoch)
        else:
            self._server.deliver(whole)

    def write(self) -> None:
        """Write what has come."""
        try:
            self._server.write()
        except JournalFull:
            return  # `go_on` tries again

    def go_on(self) -> bool:
        """Try again what there was no space for; true: all is written."""
        try:
            self._server.write()
            while self._waiting:
                self._apply(self._waiting[0])
                self._waiting.popleft()
            self._server.write()
        except JournalFull:
            return False
        return True
