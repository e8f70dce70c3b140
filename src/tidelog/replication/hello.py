"""What the two ends of a link say first: who they are, and what they have.

Both look where their own history ends, which reads the journal: `Corruption`, `TooOld` and `OSError` end the link.
"""

from __future__ import annotations

from tidelog.ids import Ts
from tidelog.journal.journal import Journal
from tidelog.journal.readable import ReadableJournal
from tidelog.replication.message import (
    FollowerHello,
    HistoryPosition,
    LeaderHello,
    LinkRole,
    UnfinishedSync,
    newest_epochs,
)
from tidelog.replication.options import ReplicationOptions
from tidelog.replication.shared_history import own_position


def follower_hello(
    journal: Journal,
    options: ReplicationOptions,
    port: int,
    server_id: str,
    unfinished: UnfinishedSync | None,
    *,
    wants_all: bool,
) -> FollowerHello:
    """`port`: where it listens. `wants_all`: what it has is of no use, and it is to be sent everything."""
    has_data = bool(journal.epochs) and not wants_all
    return FollowerHello(
        journal.meta.database_id if has_data else "",
        LinkRole.FOLLOWER,
        own_position(journal) if has_data else HistoryPosition(Ts(0), ()),
        newest_epochs(journal.epochs) if has_data else (),
        unfinished,
        options.announce_host,
        options.announce_port or port,
        options.priority,
        server_id,
    )


def leader_hello(journal: ReadableJournal, role: LinkRole, server_id: str = "", *, is_of_copy: bool) -> LeaderHello:
    epochs = newest_epochs(journal.epochs)
    return LeaderHello(journal.meta.database_id, role, own_position(journal), epochs, server_id, is_of_copy)
