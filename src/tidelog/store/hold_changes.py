"""How named holders change: by transactions, made on a leader.

An earlier version kept them in a file (`journal/holders_file.py`). Whoever leads takes over what it says, once: the
holders are journaled and durable before the file goes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.errors import ApplyFailed, CommandError, JournalFull
from tidelog.ids import Ts
from tidelog.journal.holders_file import has_holders_file, read_holders_file, remove_holders_file
from tidelog.journal.retention import Holder
from tidelog.ports import Disk
from tidelog.store.transaction import InDatabase, Transaction
from tidelog.types.hold import Release, SetHold

if TYPE_CHECKING:
    from tidelog.store.store import Store


def change_holds(
    store: Store, changed: Sequence[Holder], released: Sequence[str] = (), joined: Transaction | None = None
) -> None:
    """Journal that holders are gone, and that others are as they are here: as a transaction, or as a part of one."""
    if store.is_follower:
        raise CommandError("READONLY You can't write against a read only replica.")
    if store.refusal is not None:
        raise CommandError(f"MISCONF {store.refusal}")
    data_ts = Ts(0) if joined is not None else store.holds.data_ts(store.journal.writer.last_ts)
    operations: list[InDatabase] = [InDatabase(0, Release(released, data_ts))] if released else []
    operations += [InDatabase(0, SetHold(holder, data_ts)) for holder in changed]
    if joined is not None:
        joined.run(operations)
        return
    transaction = store.begin()
    transaction.run(operations)
    try:
        ts = store.commit(transaction)
    except Exception as error:
        raise ApplyFailed(f"a hold could not be journaled: {type(error).__name__}: {error}") from error
    if ts is not None:
        store.holds.note(ts)


def take_over_holders(store: Store, disk: Disk, folder: str) -> None:
    """Journal what the file of an earlier version says, and remove it. A holder that there is already is newer.

    For the owner's thread, between transactions. If the journal has no space, or an fsync is under way, the file stays
    for the next time.
    """
    writer = store.journal.writer
    if not has_holders_file(disk, folder) or writer.is_syncing or store.refusal is not None:
        return
    known = store.holds.by_name
    found = [holder for holder in read_holders_file(disk, folder) if holder.name not in known]
    if found:
        change_holds(store, found)
    with contextlib.suppress(JournalFull):
        writer.write()
        writer.sync()
        remove_holders_file(disk, folder)
