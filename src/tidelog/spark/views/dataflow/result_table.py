"""The rows of a view in the lake: a Delta table that records how far it is.

Its files are divided by bucket, as the groups are: the files of a bucket that changed are written anew from its
groups, by tasks, and the driver commits all of it in one step. So nothing has to be looked for in the table. Writing a
bucket costs as much as it has rows, and takes its turn when many are large (see `maintained`). If another client has
put files together, all buckets are written anew.

Its description says which definition made it, and from which database. A new definition replaces the table in one
commit, so a reader sees the old view or the new one. A view of another database needs another folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tidelog import limits
from tidelog.spark.delta.commit import DeltaFile, FilesCommit, FilesReplaced
from tidelog.spark.delta.faults import TableUnusable, faults_at
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint, keep_history, open_delta, point_of
from tidelog.spark.views.dataflow.folders import FOLDER
from tidelog.spark.views.dataflow.shown_rows import ShownRows
from tidelog.spark.views.sql.definition import View

_PROPERTIES: Final = keep_history("1 hours", "15 minutes")
_BUCKET: Final = "bucket-"
_MADE: Final = "path string, size_bytes bigint, rows bigint"
_ARROW: Final = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("rows", pa.int64())])


@dataclass(frozen=True)
class TableTask:
    """Writes the files of some buckets. It travels to executors."""

    storage: Storage
    folder: str
    rows: ShownRows
    token: str
    """In the names of the files; no other commit has it."""
    buckets: tuple[int, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                made = list(self._write(self.buckets[at]))
                if made:
                    yield pa.RecordBatch.from_pylist(made, _ARROW)

    def _write(self, bucket: int) -> Iterator[dict[str, Any]]:
        folder = _folder(bucket)
        if self.storage.is_local:
            from pathlib import Path

            Path(self.storage.uri(self.folder), folder).mkdir(parents=True, exist_ok=True)
        parts = (rows for _, rows in self.rows.read(bucket))
        first = next(parts, None)
        if first is None:
            return
        path, count = f"{folder}/{self.token}.parquet", len(first)
        files = self.storage.files(self.folder)
        with (
            files.open_output_stream(path) as sink,
            pq.ParquetWriter(sink, self.rows.result, compression="zstd") as writer,
        ):
            writer.write_table(first)
            for part in parts:
                writer.write_table(part)
                count += len(part)
        size_bytes = files.get_file_info(path).size
        yield {"path": path, "size_bytes": size_bytes, "rows": count}


def _folder(bucket: int) -> str:
    return f"{_BUCKET}{bucket:04d}"


class ResultTable:
    """The table of one view."""

    def __init__(self, storage: Storage, view: View, schema: pa.Schema, database: int = 0) -> None:
        self._storage = storage
        self._folder = f"{FOLDER}/{view.name}"
        self._uri = storage.uri(self._folder)
        self._options = dict(storage.options)
        self._view = view
        self._schema = schema
        self._database = database
        self._delta = open_result(storage, view.name)
        if self._delta is not None:
            refuse_other_database(self._delta, self._uri, database)
        self._tended = time.monotonic()

    @property
    def about(self) -> dict[str, Any]:
        """The description of the table; empty if there is no table."""
        return {} if self._delta is None else description(self._delta)

    @property
    def point(self) -> HistoryPoint | None:
        return None if self._delta is None else point_of(self._delta)

    @property
    def is_ours(self) -> bool:
        """Whether this definition made it."""
        return self.about.get("digest") == self._view.digest

    @property
    def version(self) -> int:
        """Counts definitions, from 1."""
        return int(self.about.get("version", 0)) + (not self.is_ours)

    def write(
        self, session: SparkSession, rows: ShownRows, buckets: Collection[int], token: str, point: HistoryPoint
    ) -> None:
        """Write the rows of some buckets anew; the first time, of all of them."""
        try:
            self._write(session, rows, buckets, token, point)
        except FilesReplaced:  # another client has put files together, in which rows of other buckets are now
            self._write(session, rows, buckets, token, point)

    def _write(
        self, session: SparkSession, rows: ShownRows, buckets: Collection[int], token: str, point: HistoryPoint
    ) -> None:
        is_new = not self.is_ours or not self._is_by_bucket()
        chosen = range(len(rows.groups)) if is_new else sorted(buckets)
        made = self._written(session, rows, chosen, token)
        if is_new:
            self._begin(made, point)
            return
        assert self._delta is not None
        wanted = tuple(f"{_folder(bucket)}/" for bucket in chosen)
        gone = [file for file in _files_of(self._delta) if file.path.startswith(wanted)]
        with faults_at(self._uri):
            FilesCommit(made, gone, point).make(self._delta, self._uri, [])
            self._tend()

    def _is_by_bucket(self) -> bool:
        assert self._delta is not None
        return all(file.path.startswith(_BUCKET) for file in _files_of(self._delta))

    def _written(self, session: SparkSession, rows: ShownRows, buckets: Sequence[int], token: str) -> list[DeltaFile]:
        if not buckets:
            return []
        task = TableTask(self._storage, self._folder, rows, token, tuple(buckets))
        frame = session.range(0, len(buckets), 1, len(buckets)).mapInArrow(task.run, _MADE)
        return [
            DeltaFile(row["path"], row["size_bytes"], {}, json.dumps({"numRecords": row["rows"]}))
            for row in frame.collect()
        ]

    def _begin(self, made: Sequence[DeltaFile], point: HistoryPoint) -> None:
        """Replace the whole table."""
        about = json.dumps(
            {
                "view": self._view.name,
                "version": self.version,
                "digest": self._view.digest,
                "database": self._database,
                "source": str(self._view.source),
                "sql": self._view.sql,
                "key": list(self._view.key),
                "lookups": {name: str(source) for name, source in self._view.lookups.items()},
            }
        )
        with faults_at(self._uri):
            if self._delta is None or self._delta.schema().to_arrow() != self._schema:
                write_deltalake(
                    self._uri if self._delta is None else self._delta,
                    self._schema.empty_table(),
                    mode="overwrite",
                    schema_mode="overwrite",
                    name=f"tidelog view {self._view.name}",
                    description=about,
                    configuration=_PROPERTIES if self._delta is None else None,
                    storage_options=self._options,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                self._delta = DeltaTable(self._uri, storage_options=self._options)
            FilesCommit(made, (), point, is_overwrite=True).make(self._delta, self._uri, [])
            if description(self._delta) != json.loads(about):
                self._delta.alter.set_table_description(about)
                self._delta.update_incremental()

    def is_at(self, point: HistoryPoint) -> None:
        """Record that nothing has changed up to this point."""
        assert self._delta is not None
        with faults_at(self._uri):
            FilesCommit((), (), point).make(self._delta, self._uri, [])

    def _tend(self) -> None:
        """Remove old files now and then. This does not alter how far the table is."""
        assert self._delta is not None
        if time.monotonic() - self._tended > limits.VIEW_VACUUM_S:
            self._delta.create_checkpoint()
            self._delta.vacuum(dry_run=False, enforce_retention_duration=False)
            self._delta.cleanup_metadata()
            self._tended = time.monotonic()


def _files_of(delta: DeltaTable) -> list[DeltaFile]:
    """The files of a table, as a commit removes them."""
    actions = pa.table(delta.get_add_actions())
    rows = zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    return [DeltaFile(path, size, {}, "{}") for path, size in rows]


def open_result(storage: Storage, name: str) -> DeltaTable | None:
    """The table of a view; None: there is none."""
    found = open_delta(storage, f"{FOLDER}/{name}")
    if found is not None and not (found.metadata().name or "").startswith("tidelog view"):
        uri = storage.uri(f"{FOLDER}/{name}")
        raise TableUnusable(f"{uri} is a table that `tidelog pipeline view` did not make: give another folder")
    return found


def description(table: DeltaTable) -> dict[str, Any]:
    """Which definition made a table, and from what."""
    try:
        found: dict[str, Any] = json.loads(table.metadata().description or "{}")
    except ValueError:
        return {}
    return found


def refuse_other_database(table: DeltaTable, uri: str, database: int) -> None:
    """`TableUnusable` if a table was made from another database."""
    made_from = description(table).get("database", 0)
    if made_from != database:
        raise TableUnusable(
            f"{uri} was made from database {made_from}, and now it is {database}: give that one, or another folder"
        )
