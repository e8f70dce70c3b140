"""Active expiry: removes keys that have expired although no command asks for them.

Each pass takes keys that are due, bounded in number, and removes them in one transaction, as
operations like any other: followers and feeds see a deletion.
"""

from __future__ import annotations

from tidelog import limits
from tidelog.store.store import Store


def remove_due(store: Store) -> int:
    """Remove keys that have expired, up to a bound; returns how many."""
    if store.refusal is not None or store.is_follower:
        return 0  # it stays due; a follower is sent its deletion
    transaction = store.begin()
    removed = 0
    for database in store.databases:
        while removed < limits.EXPIRED_AT_ONCE_MAX:
            key = database.expiring.take_due(transaction.now_ms)
            if key is None:
                break
            transaction.find_in(database, key)
            transaction.remove_expired()
            removed += 1
    store.commit(transaction)
    return removed
