"""Which runs there are: the one place where a change of them counts.

    tables     name -> for each bucket its runs, the oldest first
    facts      numbers that whoever keeps the runs wants to keep with them
    point      how far in the history they are

A commit replaces the lists. It is a commit of a Delta table with one row, so it works in every store that a lake may
lie in, records how far the runs are as the tables of a lake do (`delta.table`), and fails if another job has made one
in the meantime. Runs that no list names are removed some time later, when no task can be reading them any more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tidelog import limits
from tidelog.spark.delta.faults import TableFault, faults_at
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint, commit_at, keep_history, open_delta, point_of
from tidelog.spark.runs.run_files import RunName

_PROPERTIES: Final = keep_history("1 hours", "0 hours")
_SCHEMA: Final = pa.schema([("lists", pa.string())])
_FORMAT: Final = 1

RunBuckets = tuple[tuple[RunName, ...], ...]
"""For each bucket its runs, the oldest first."""


@dataclass(frozen=True, slots=True)
class RunLists:
    """The runs of some tables, all divided into as many buckets."""

    buckets: int
    tables: Mapping[str, RunBuckets] = field(default_factory=dict)
    facts: Mapping[str, int] = field(default_factory=dict)

    def of(self, table: str) -> RunBuckets:
        return self.tables.get(table, ((),) * self.buckets)

    def names(self) -> set[str]:
        return {run.name for table in self.tables.values() for bucket in table for run in bucket}

    @property
    def size_bytes(self) -> int:
        return sum(run.size_bytes for table in self.tables.values() for bucket in table for run in bucket)

    def with_more(self, added: Iterable[tuple[str, int, RunName]], facts: Mapping[str, int]) -> RunLists:
        """The same with more runs, each given with its table and bucket, in order; `facts` replace those of their
        names."""
        tables = {name: [list(bucket) for bucket in found] for name, found in self.tables.items()}
        for table, bucket, run in added:
            tables.setdefault(table, [[] for _ in range(self.buckets)])[bucket].append(run)
        return self._with({name: tuple(map(tuple, found)) for name, found in tables.items()}, {**self.facts, **facts})

    def with_merged(self, table: str, bucket: int, merged: Iterable[RunName], made: RunName | None) -> RunLists:
        """The same with one run, or none, in the place of some that follow each other."""
        gone = set(merged)
        found = list(self.of(table)[bucket])
        at = next(number for number, run in enumerate(found) if run in gone)
        left = [run for run in found if run not in gone]
        left[at:at] = [made] if made is not None else []
        buckets = list(self.of(table))
        buckets[bucket] = tuple(left)
        return self._with({**self.tables, table: tuple(buckets)}, self.facts)

    def _with(self, tables: Mapping[str, RunBuckets], facts: Mapping[str, int]) -> RunLists:
        return RunLists(self.buckets, tables, facts)

    def packed(self) -> str:
        tables = {name: [[list(run) for run in bucket] for bucket in found] for name, found in self.tables.items()}
        return json.dumps({"format": _FORMAT, "buckets": self.buckets, "tables": tables, "facts": dict(self.facts)})

    @classmethod
    def unpacked(cls, text: str) -> RunLists:
        found = json.loads(text)
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']}, and this version knows {_FORMAT}")
        tables = {
            name: tuple(tuple(RunName(*run) for run in bucket) for bucket in buckets)
            for name, buckets in found["tables"].items()
        }
        return cls(found["buckets"], tables, found["facts"])


class RunLog:
    """Where lists are committed."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._uri = storage.uri(folder)
        self._table: DeltaTable | None = None
        self._tended = time.monotonic()

    def load(self) -> tuple[HistoryPoint, RunLists] | None:
        """How far the runs are, and which there are; None: nothing was committed yet."""
        self._table = open_delta(self._storage, self._folder)
        point = None if self._table is None else point_of(self._table)
        if self._table is None or point is None:
            return None
        try:
            with faults_at(self._uri):
                [row] = self._table.to_pyarrow_table().to_pylist()
            return point, RunLists.unpacked(row["lists"])
        except (ValueError, KeyError, TypeError) as error:
            raise TableFault(f"{self._uri}: {error}") from None

    def commit(self, lists: RunLists, point: HistoryPoint) -> None:
        """Replace the lists."""
        properties: Any = commit_at(point)
        with faults_at(self._uri):
            write_deltalake(
                self._uri if self._table is None else self._table,
                pa.table([[lists.packed()]], schema=_SCHEMA),
                mode="error" if self._table is None else "overwrite",
                configuration=_PROPERTIES if self._table is None else None,
                storage_options=dict(self._storage.options),
                commit_properties=properties,
            )
            if self._table is None:
                self._table = DeltaTable(self._uri, storage_options=dict(self._storage.options))
            self._tend()

    def _tend(self) -> None:
        """Remove old versions now and then. This does not alter how far the runs are."""
        assert self._table is not None
        if time.monotonic() - self._tended > limits.RUN_LOG_TEND_S:
            self._table.create_checkpoint()
            self._table.vacuum(
                0,
                dry_run=False,
                enforce_retention_duration=False,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
            self._table.cleanup_metadata()
            self._tended = time.monotonic()
