"""Files are written anew with the same rows: put together, in the order of their keys, or divided into buckets.

    compact    small files become a large one, row after row
    sort       files become one whose rows are in the order of their keys, so that a reader of one key skips the rest
    divide     a file becomes one for each of the buckets that its own is divided into

A task does one `Rewrite`, and the driver commits what it has made (`LakeTable.replace`). Nobody has to see it: rows,
and how far the table is, are as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidelog import limits
from tidelog.spark.delta.storage import Storage
from tidelog.spark.lake.buckets import Bucket, bucket_numbers, bucket_of, rows_of_buckets
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, DAY, DIVIDED, ENTRIES
from tidelog.spark.lake.part_files import PartFile
from tidelog.spark.lake.table_reader import read_files
from tidelog.spark.lake.tables import FileMade, Replacement

SORTED_BY: Final = {
    CHANGES: ("key", "ts", "seq"),
    CURRENT: ("key", "field"),
    ENTRIES: ("stream", "offset"),
    BAD: ("key", "ts", "seq"),
}


@dataclass(frozen=True)
class Rewrite:
    """Some files of one day or one bucket. It travels to the executors."""

    storage: Storage
    schema: pa.Schema
    """Of the table."""
    files: tuple[FileMade, ...]
    is_sorted: bool = False
    bucket_count: int | None = None
    """Into how many buckets the table is divided; None: these files stay in their bucket, or have none."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def run(self) -> Replacement:
        made = self._divided() if self.bucket_count else self._sorted() if self.is_sorted else self._compacted()
        return Replacement(list(made), self.files)

    @property
    def _table(self) -> str:
        return self.files[0].table

    @property
    def _file_schema(self) -> pa.Schema:
        return pa.schema([field for field in self.schema if field.name != DAY or self._table not in DIVIDED])

    def _read(self) -> Iterator[pa.Table]:
        for file in self.files:
            yield read_files(self.storage, self._table, [file.path], self._file_schema)

    def _compacted(self) -> Iterator[FileMade]:
        file = self._new_file(self._folder)
        try:
            for rows in self._read():
                _write(file, rows)
        except BaseException:
            file.abandon()
            raise
        yield file.close()

    def _sorted(self) -> Iterator[FileMade]:
        names = SORTED_BY[self._table]
        for rows in _pieces(self._read()):
            rows = rows.sort_by([(name, "ascending") for name in names])
            yield self._one_file(self._folder, rows)

    def _divided(self) -> Iterator[FileMade]:
        assert self.bucket_count is not None
        for rows in self._read():
            numbers = bucket_numbers(rows.column("key"), self.bucket_count)
            for number, its in enumerate(rows_of_buckets(numbers, self.bucket_count)):
                if len(its):
                    yield self._one_file(Bucket(number, self.bucket_count).folder, rows.take(pa.array(its)))

    @property
    def _folder(self) -> str:
        first = self.files[0]
        return bucket_of(first.path).folder if first.day is None else f"{DAY}={first.day}/"

    def _one_file(self, folder: str, rows: pa.Table) -> FileMade:
        file = self._new_file(folder)
        try:
            _write(file, rows)
        except BaseException:
            file.abandon()
            raise
        return file.close()

    def _new_file(self, folder: str) -> PartFile:
        names = SORTED_BY[self._table] if self.is_sorted else ()
        day = self.files[0].day
        return PartFile(self.storage, self._table, self._file_schema, folder=folder, day=day, sorted_by=names)


def _write(file: PartFile, rows: pa.Table) -> None:
    for batch in rows.to_batches(limits.LAKE_ROW_GROUP_ROWS):
        if batch.num_rows:
            file.write(batch)


def _pieces(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows of all tables, as much at a time as may be sorted in memory."""
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    for table in tables:
        row_bytes = max(1, table.nbytes // max(1, table.num_rows))
        step = max(1, limits.LAKE_SORTED_BYTES // row_bytes)
        for start in range(0, table.num_rows, step):
            piece = table.slice(start, step)
            if waiting and waiting_bytes + piece.nbytes > limits.LAKE_SORTED_BYTES:
                yield pa.concat_tables(waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(piece)
            waiting_bytes += piece.nbytes
    if waiting:
        yield pa.concat_tables(waiting)
