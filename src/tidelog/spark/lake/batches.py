"""Batches of the feed become commits of the tables.

    entries, bad      first, if there are rows for them
    changes           last: the lake is as far as this table is

If the job is killed before the last commit, the batch is repeated, and rows that a table already has are left out. So
the lake goes on from the ts of `changes`, and no other table lacks anything up to there. A batch without rows is
committed only now and then: if such a commit is missing, the batch is simply read again.

If the lake begins with the values of now, the first batch has these. They replace whatever an earlier attempt has left.
`changes` has none of them, and is again committed last.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as pa_dataset

from tidelog import limits
from tidelog.errors import InternalError
from tidelog.feeds.span import Span
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.jobs.figures import BatchFigures, Figures
from tidelog.spark.lake.json_columns import ARROW_TYPES, DELTA_TYPES, ColumnTypes, agreed
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, ENTRIES, SEQ_INITIAL
from tidelog.spark.lake.part_files import SUMMARY
from tidelog.spark.lake.tables import FileMade, LakeTable, faults_of
from tidelog.spark.lake.task import Work
from tidelog.spark.source.feed.origin import FeedOrigin

_AGREEMENTS_MAX: Final = 8
"""How often tasks are repeated because they found different columns."""


class BatchTotals:
    """What batches add up to. One thread adds; others may look."""

    def __init__(self) -> None:
        self._batches = BatchFigures()
        self.events = 0
        """Events that were read."""
        self.rows = dict.fromkeys((CHANGES, CURRENT, ENTRIES, BAD), 0)
        """Rows that were added to each table."""
        self.files = 0
        self.size_bytes = 0
        self.ts: int | None = None
        """The ts up to which everything was read."""

    def add(self, files: list[FileMade], events: int, ts: int, seconds: float) -> None:
        for file in files:
            self.rows[file.table] += file.rows
            self.files += 1
            self.size_bytes += file.size_bytes
        self.events += events
        self.ts = ts
        self._batches.add(events, seconds)

    def figures(self) -> Figures:
        sizes = {"files": self.files, "file_bytes": self.size_bytes}
        rows = {name: self.rows[name] for name in (CHANGES, ENTRIES, BAD)}
        return {**self._batches.figures(), **rows, **sizes}


class BatchCommitter:
    """Commits one batch after the other. Spark calls `take` on a thread of its own."""

    def __init__(
        self,
        tables: Mapping[str, LakeTable],
        origin: FeedOrigin,
        spans: tuple[Span, ...],
        on_batch: Callable[[BatchTotals], object] = lambda _: None,
    ) -> None:
        self._tables = tables
        self._origin = origin
        self._spans = spans
        self._on_batch = on_batch
        self._changes = tables[CHANGES]
        self._is_json = BAD in tables
        self._waiting: HistoryPoint | None = None
        """How far the lake is, if no commit says so yet."""
        self._committed_at = time.monotonic()
        self.committing = threading.Lock()
        """Held while any table but `current` is altered."""
        self.has_taken = False
        """Whether this run has had a batch."""
        self.taken = BatchTotals()
        self.taken.ts = None if self._changes.point is None else self._changes.ts

    def take(self, frame: Any) -> None:
        """The parts of a batch, a row each."""
        begun = time.monotonic()
        is_initial = self._changes.point is None
        files, columns, rest = self._read(frame, is_initial)
        since, point = max(row["since"] for row in rest), HistoryPoint(rest[0]["until"], rest[0]["epoch"])
        reached = self._changes.ts if self._waiting is None else self._waiting.ts
        if since > reached and not is_initial:
            raise InternalError(f"the lake has everything up to ts {reached}, and the next batch begins at {since}")
        with self.committing:
            self._commit(files, columns, point, is_initial)
        self.taken.add(files, sum(row["events"] for row in rest), point.ts, time.monotonic() - begun)
        self.has_taken = True
        self._on_batch(self.taken)

    def finish(self) -> None:
        """Commit how far the lake is."""
        with self.committing:
            if self._waiting is not None:
                self._changes.commit([], self._waiting)
                self._waiting = None

    # --- reading --------------------------------------------------------------------------------------------------

    def _read(
        self, frame: Any, is_initial: bool
    ) -> tuple[list[FileMade], dict[str, ColumnTypes] | None, list[dict[str, Any]]]:
        """The files that tasks have made, the columns that these need, and the other rows of the tasks' summaries."""
        columns = self._known_columns() if self._is_json else None
        for _ in range(_AGREEMENTS_MAX):
            work = Work(
                self._origin, self._spans, self._changes.storage, self._after(is_initial), self._standing(), columns
            )
            rows = [row.asDict() for row in frame.mapInArrow(work.task(), SUMMARY).collect()]
            rest = [row for row in rows if row["path"] is None]
            files = [_file_of(row) for row in rows if row["path"] is not None]
            if columns is None:
                return files, None, rest
            found = [json.loads(row["columns"]) for row in rest]
            is_agreed = True
            for table in columns:
                columns[table], are_same = agreed(columns[table], (each[table] for each in found))
                is_agreed = is_agreed and are_same
            columns[CHANGES], are_same = agreed(columns[CHANGES], [columns[CURRENT]])
            columns[CURRENT] = columns[CHANGES]
            if is_agreed and are_same:
                return files, columns, rest
        raise InternalError("tasks do not agree on the types of columns")

    def _known_columns(self) -> dict[str, ColumnTypes]:
        """`current` gets what `changes` has, so both have the same columns."""
        found = {table: _delta_types(self._tables[table].added_columns()) for table in (CHANGES, ENTRIES)}
        return {**found, CURRENT: dict(found[CHANGES])}

    def _after(self, is_initial: bool) -> dict[str, int]:
        return {name: -1 if is_initial else table.ts for name, table in self._tables.items()}

    def _standing(self) -> dict[bytes, int]:
        """Streams whose entries were read when the lake began, each with the ts up to which they were."""
        if self._changes.initial_ts is None or self._changes.ts >= self._changes.initial_ts:
            return {}
        table = self._tables[ENTRIES]
        with faults_of(table):
            rows = table.delta.to_pyarrow_dataset().to_table(
                columns=["stream", "ts"], filter=pa_dataset.field("seq") == SEQ_INITIAL
            )
        found = rows.group_by("stream").aggregate([("ts", "max")])
        return dict(zip(found.column("stream").to_pylist(), found.column("ts_max").to_pylist(), strict=True))

    # --- committing -----------------------------------------------------------------------------------------------

    def _commit(
        self, files: list[FileMade], columns: dict[str, ColumnTypes] | None, point: HistoryPoint, is_initial: bool
    ) -> None:
        for table, its in (columns or {}).items():
            if table == CURRENT and not is_initial:
                continue  # it gets them when these changes are folded into it
            self._tables[table].add_columns({name: ARROW_TYPES[kind] for name, kind in its.items()})
        of: dict[str, list[FileMade]] = {name: [] for name in self._tables}
        for file in files:
            of[file.table].append(file)
        for name in (CURRENT, ENTRIES, BAD):
            if is_initial and name in self._tables:
                self._tables[name].commit(of[name], point, overwrite=True)
            elif of.get(name):
                self._tables[name].commit(of[name], point)
        is_idle = time.monotonic() - self._committed_at < limits.LAKE_IDLE_COMMIT_S
        if not of[CHANGES] and not is_initial and is_idle and not of[ENTRIES]:
            self._waiting = point
            return
        initial_ts = max((file.ts_max for file in files), default=point.ts) if is_initial else None
        self._changes.commit(of[CHANGES], point, initial_ts=initial_ts)
        self._waiting, self._committed_at = None, time.monotonic()


def _file_of(row: dict[str, Any]) -> FileMade:
    return FileMade(*(row[name] for name in FileMade._fields))


def _delta_types(columns: dict[str, pa.DataType]) -> ColumnTypes:
    return {name: DELTA_TYPES[its] for name, its in columns.items()}
