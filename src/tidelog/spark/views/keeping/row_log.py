"""The rows of a source on disk: a Delta table that logs every change of a row.

    at bigint        the ts up to which it holds
    is_gone boolean
    id, rest, c0 ... as in `SourceRows`

A row that changes is appended again; of an id, the newest row counts. When more than half of the log is history, or it
has many small files, it is rewritten. The commit that adds rows records how far they are (see `delta.table`). A later
run goes on from there, so the log is committed last, after everything that follows from the rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from tidelog import limits
from tidelog.spark.delta.faults import TableFault, faults_at, first_line
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint, commit_at, keep_history, open_delta, point_of
from tidelog.spark.views.keeping.source_rows import Applied, SourceRows, rows_schema

_PROPERTIES: Final = keep_history("1 hours", "0 hours")


class RowLog:
    """The log of one source of a view."""

    def __init__(self, storage: Storage, folder: str, columns: int) -> None:
        self._storage = storage
        self._folder = folder
        self._uri = storage.uri(folder)
        self._options = dict(storage.options)
        self._schema = pa.schema([pa.field("at", pa.int64()), pa.field("is_gone", pa.bool_()), *rows_schema(columns)])
        self._table: DeltaTable | None = None
        self._logged = 0
        self._commits = 0
        """Commits since the log was rewritten, as far as is known. Each may have left a file."""

    def load(self) -> tuple[HistoryPoint, pa.Table] | None:
        """How far the log is, and its rows as `SourceRows` has them; None: there is no log."""
        self._table = open_delta(self._storage, self._folder)
        point = None if self._table is None else point_of(self._table)
        if self._table is None or point is None:
            return None
        with faults_at(self._uri):
            try:
                logged = self._table.to_pyarrow_table().cast(self._schema)
            except pa.ArrowInvalid as error:
                raise TableFault(f"{self._uri}: {first_line(error)}") from None
        self._logged = len(logged)
        self._commits = len(self._table.file_uris())
        return point, _newest(logged)

    def begin(self, rows: SourceRows, point: HistoryPoint) -> None:
        """Replace the log by these rows."""
        self._write(self._logged_rows(rows.table, point), point, "overwrite")
        self._logged = len(rows)
        self._commits = 1
        assert self._table is not None
        with faults_at(self._uri):
            self._table.vacuum(0, dry_run=False, enforce_retention_duration=False)
            self._table.cleanup_metadata()

    def add(self, applied: Applied | None, rows: SourceRows, point: HistoryPoint) -> None:
        """Log what changes have done to the rows; `applied` None: nothing changed up to this point."""
        applied = applied or Applied(rows.table["id"].slice(0, 0).combine_chunks(), rows.table.slice(0, 0))
        is_gone = pc.invert(pc.is_in(applied.ids, pc.unique(applied.rows["id"])))
        gone = applied.ids.filter(is_gone)
        is_long = self._logged + len(applied.ids) > max(2 * len(rows), limits.VIEW_LOG_ROWS_MIN)
        if is_long or self._commits >= limits.VIEW_LOG_FILES_MAX:
            self.begin(rows, point)
            return
        table = pa.concat_tables([self._logged_rows(applied.rows, point), self._gone_rows(gone, point)])
        self._write(table, point, "append")
        self._logged += len(table)
        self._commits += 1

    def _logged_rows(self, rows: pa.Table, point: HistoryPoint) -> pa.Table:
        count = len(rows)
        fixed = [pa.repeat(pa.scalar(point.ts, pa.int64()), count), pa.repeat(False, count)]
        return pa.table([*fixed, *rows.columns], schema=self._schema)

    def _gone_rows(self, ids: Any, point: HistoryPoint) -> pa.Table:
        count = len(ids)
        fixed = [pa.repeat(pa.scalar(point.ts, pa.int64()), count), pa.repeat(True, count), ids]
        nulls = [pa.nulls(count, field.type) for field in list(self._schema)[len(fixed) :]]
        return pa.table([*fixed, *nulls], schema=self._schema)

    def _write(self, table: pa.Table, point: HistoryPoint, mode: Any) -> None:
        with faults_at(self._uri):
            write_deltalake(
                self._uri if self._table is None else self._table,
                table,
                mode=mode,
                configuration=_PROPERTIES if self._table is None else None,
                storage_options=self._options,
                commit_properties=commit_at(point),
            )
            if self._table is None:
                self._table = DeltaTable(self._uri, storage_options=self._options)


def _newest(logged: pa.Table) -> pa.Table:
    """The newest row of each id, without those that are gone."""
    logged = logged.sort_by("at").combine_chunks()
    ids = logged["id"].combine_chunks().dictionary_encode()
    newest = np.empty(len(ids.dictionary), np.int64)
    newest[ids.indices.to_numpy()] = np.arange(len(logged))
    found = logged.take(pa.array(newest))
    return found.filter(pc.invert(found["is_gone"])).drop_columns(["at", "is_gone"])
