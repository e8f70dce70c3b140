"""Delta tables that record how far they are.

    Transaction("tidelog/ts", ts)         the table has everything up to and including this ts, and nothing after it
    Transaction("tidelog/epoch", epoch)   the history that this ts belongs to

Both are part of the commit that adds the rows, so a table is its own checkpoint: however a job is killed, the table has
all rows of a batch and its ts, or neither. There is no other state, so a copy of a table can be continued too.

If two jobs write to one table, both write the same transactions. The commit of the job that read the older version
fails (`TableTaken`), and nothing of it is in the table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import TableNotFoundError

from tidelog.spark.delta.faults import faults_at
from tidelog.spark.delta.storage import Storage

_TS: Final = "tidelog/ts"
_EPOCH: Final = "tidelog/epoch"


class HistoryPoint(NamedTuple):
    """A point of a server's history: everything up to `ts`, in the history that `epoch` names."""

    ts: int
    epoch: int


def point_of(delta: DeltaTable) -> HistoryPoint | None:
    """How far a table is; None: nothing was committed yet."""
    ts = delta.transaction_version(_TS)
    return None if ts is None else HistoryPoint(ts, delta.transaction_version(_EPOCH) or 0)


def commit_at(point: HistoryPoint, **more: int) -> CommitProperties:
    """Properties of a commit that brings a table to this point; `more`: other transactions, by name."""
    found = {_TS: point.ts, _EPOCH: point.epoch, **more}
    return CommitProperties(
        max_commit_retries=0, app_transactions=[Transaction(name, version) for name, version in found.items()]
    )


def open_delta(storage: Storage, folder: str) -> DeltaTable | None:
    """The table in a folder of the storage; None: there is none."""
    uri = storage.uri(folder)
    with faults_at(uri):
        try:
            return DeltaTable(uri, storage_options=dict(storage.options))
        except TableNotFoundError:
            return None


def keep_history(log: str, files: str | None = None) -> dict[str, str]:
    """Settings of a new table: for how long it keeps its log, and files that no version needs any more."""
    found = {"delta.logRetentionDuration": f"interval {log}"}
    return found if files is None else {**found, "delta.deletedFileRetentionDuration": f"interval {files}"}
