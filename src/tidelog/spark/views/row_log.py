"""Rows as they outlive the process: a Delta table that says what became of each.

    at bigint        the ts up to which it holds
    is_gone boolean
    id, rest, c0 ... as `Rows` has them

A row that changes is appended once more; what counts is the newest of an id. When more than half of it is history, or
it is in many small files, the log is written anew. How far the rows are is in the commit that adds them (see
`lake.tables`): this is what a view goes on from, so it is committed last, when all that follows from it is done.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidelog import limits
from tidelog.spark.lake.storage import Storage
from tidelog.spark.lake.tables import LakeFault, Place, at_place, faults_at, first_line, place_of
from tidelog.spark.views.rows import Applied, Rows, rows_schema

_PROPERTIES: Final = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 0 hours",
}


class RowLog:
    """The log of one source of a view."""

    def __init__(self, storage: Storage, folder: str, columns: int) -> None:
        self._uri = storage.uri(folder)
        self._options = dict(storage.options)
        self._schema = pa.schema([pa.field("at", pa.int64()), pa.field("is_gone", pa.bool_()), *rows_schema(columns)])
        self._table: DeltaTable | None = None
        self._logged = 0
        self._commits = 0
        """Since it was written anew, as far as that is known: each may have left a file."""

    def load(self) -> tuple[Place, pa.Table] | None:
        """How far it is, and the rows as `Rows` has them; None: there is nothing."""
        try:
            self._table = DeltaTable(self._uri, storage_options=self._options)
            place = place_of(self._table)
            if place is None:
                return None
            logged = self._table.to_pyarrow_table().cast(self._schema)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, pa.ArrowInvalid) as error:
            raise LakeFault(f"{self._uri}: {first_line(error)}") from None
        self._logged = len(logged)
        self._commits = len(self._table.file_uris())
        return place, _newest(logged)

    def begin(self, rows: Rows, place: Place) -> None:
        """These rows, whatever was there."""
        self._write(self._logged_rows(rows.table, place), place, "overwrite")
        self._logged = len(rows)
        self._commits = 1
        assert self._table is not None
        with faults_at(self._uri):
            self._table.vacuum(0, dry_run=False, enforce_retention_duration=False)
            self._table.cleanup_metadata()

    def add(self, applied: Applied | None, rows: Rows, place: Place) -> None:
        """What changes have done to the rows; None: nothing, and so they are up to there."""
        applied = applied or Applied(rows.table["id"].slice(0, 0).combine_chunks(), rows.table.slice(0, 0))
        is_gone = pc.invert(pc.is_in(applied.ids, pc.unique(applied.rows["id"])))
        gone = applied.ids.filter(is_gone)
        is_long = self._logged + len(applied.ids) > max(2 * len(rows), limits.VIEW_LOG_ROWS_MIN)
        if is_long or self._commits >= limits.VIEW_LOG_FILES_MAX:
            self.begin(rows, place)
            return
        table = pa.concat_tables([self._logged_rows(applied.rows, place), self._gone_rows(gone, place)])
        self._write(table, place, "append")
        self._logged += len(table)
        self._commits += 1

    def _logged_rows(self, rows: pa.Table, place: Place) -> pa.Table:
        count = len(rows)
        fixed = [pa.repeat(pa.scalar(place.ts, pa.int64()), count), pa.repeat(False, count)]
        return pa.table([*fixed, *rows.columns], schema=self._schema)

    def _gone_rows(self, ids: Any, place: Place) -> pa.Table:
        count = len(ids)
        fixed = [pa.repeat(pa.scalar(place.ts, pa.int64()), count), pa.repeat(True, count), ids]
        nulls = [pa.nulls(count, field.type) for field in list(self._schema)[len(fixed) :]]
        return pa.table([*fixed, *nulls], schema=self._schema)

    def _write(self, table: pa.Table, place: Place, mode: Any) -> None:
        with faults_at(self._uri):
            write_deltalake(
                self._uri if self._table is None else self._table,
                table,
                mode=mode,
                configuration=_PROPERTIES if self._table is None else None,
                storage_options=self._options,
                commit_properties=at_place(place),
            )
            if self._table is None:
                self._table = DeltaTable(self._uri, storage_options=self._options)


def _newest(logged: pa.Table) -> pa.Table:
    """The rows that are there."""
    logged = logged.sort_by("at").combine_chunks()
    ids = logged["id"].combine_chunks().dictionary_encode()
    newest = np.empty(len(ids.dictionary), np.int64)
    newest[ids.indices.to_numpy()] = np.arange(len(logged))
    found = logged.take(pa.array(newest))
    return found.filter(pc.invert(found["is_gone"])).drop_columns(["at", "is_gone"])
