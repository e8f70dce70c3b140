"""Commits of files that tasks have written: files come and files go in one step.

Other jobs may commit to the same table: `tidelog pipeline optimize` replaces files and removes old ones. So a commit
that comes second is tried again on the newer version of the table, unless

    the table's point has moved         another job wrote the same history: `TableTaken`
    a file that should go is not there  what was made of it is out of date: `FilesReplaced`, and the caller does the
                                        work again, or lets it be

A file that no commit names does not count, and vacuum removes it some day. So a job may be killed anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from tidelog import limits
from tidelog.errors import EnvironmentFault
from tidelog.spark.delta.table import HistoryPoint, commit_at, point_of


class FilesReplaced(EnvironmentFault):
    """Files that should go have been replaced by another job."""


class DeltaFile(NamedTuple):
    """A file of a table, as a commit names it."""

    path: str
    """Below the table's folder."""
    size_bytes: int
    partition: Mapping[str, str | None]
    stats: str
    """As JSON: what Delta says of the rows in it."""


class FilesCommit(NamedTuple):
    """What a commit does to the files of a table."""

    come: Sequence[DeltaFile]
    go: Sequence[DeltaFile] = ()
    point: HistoryPoint | None = None
    """How far the table is with it; None: the same rows in other files, so it is as far as it was."""
    transactions: Mapping[str, int] = {}
    is_overwrite: bool = False
    """All other files go, too."""

    def make(self, delta: DeltaTable, uri: str, partition_by: list[str]) -> None:
        """Make the commit, and bring `delta` to the version that has it."""
        before = point_of(delta)
        for attempt in range(limits.LAKE_COMMIT_ATTEMPTS):
            if self.go:
                self._check_there(delta, uri)
            try:
                delta.create_write_transaction(
                    self._actions(),
                    "overwrite" if self.is_overwrite else "append",
                    delta.schema(),
                    partition_by,
                    commit_properties=self._properties(),
                )
            except CommitFailedError:
                delta.update_incremental()
                is_taken = self.point is not None and point_of(delta) != before
                if is_taken or attempt + 1 == limits.LAKE_COMMIT_ATTEMPTS:
                    raise
            else:
                delta.update_incremental()
                return

    def _actions(self) -> list[AddAction | RemoveAction]:
        now_ms, is_change = time.time_ns() // 1_000_000, self.point is not None
        made: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size_bytes, file.partition, now_ms, is_change, file.stats) for file in self.come
        ]
        made += [RemoveAction(file.path, is_change, now_ms, file.size_bytes, dict(file.partition)) for file in self.go]
        return made

    def _properties(self) -> CommitProperties:
        if self.point is None:
            return CommitProperties(max_commit_retries=0)
        return commit_at(self.point, **self.transactions)

    def _check_there(self, delta: DeltaTable, uri: str) -> None:
        there = paths_of(delta)
        lost = next((file.path for file in self.go if file.path not in there), None)
        if lost is not None:
            raise FilesReplaced(f"{uri}/{lost} was replaced by another job while it was read: run this one again")


def paths_of(delta: DeltaTable) -> frozenset[str]:
    """The files of a table."""
    return frozenset(pa.table(delta.get_add_actions()).column("path").to_pylist())
