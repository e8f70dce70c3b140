"""What replication asks of the server that it is part of.

Replication never opens a store, ends a turn of the loop or talks to clients: it says what it wants, and the server
around it does it. In tests a small server on a simulated machine stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.ids import Ts
from tidelog.replication.message import Publication
from tidelog.store.store import Store


class ReplicatedServer(Protocol):
    """The server around `Replication`."""

    @property
    def store(self) -> Store:
        """The one that is open."""

    def write(self) -> None:
        """Write what was appended, and wake whoever waits for it: feeds, blocked readers, our own followers.

        `JournalFull` and `JournalFailed` as from the writer.
        """

    def begin_epoch(self, above: Ts) -> None:
        """Let an epoch begin whose clock is above a ts; it is durable when this returns."""

    def reload(self, prepare: Callable[[], None], feed_error: str) -> None:
        """Close the store, call `prepare`, and open the store again; clients get LOADING meanwhile.

        Not at once: this returns, and `Replication.opened` is called when it is done. Feeds end with the error.
        """

    def begin_snapshot(self) -> None:
        """Make a snapshot of about now, if none is under way; nobody waits for it."""

    def role_changed(self) -> None:
        """The role, or what is refused because of it, is another."""

    def hold_writes(self, ms: int) -> None:
        """Let writes wait for so long, or until the role changes; 0: no longer."""

    def deliver(self, publication: Publication) -> None:
        """Something was published on the leader."""
