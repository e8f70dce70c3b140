"""What the tasks of a pass over `current` do.

    files of `changes` ── a task some files ──> reduced changes ── by bucket ──> a task a bucket ──> files of `current`

A task of the first stage reads the new changes, drops those that decide nothing, and hands the others on, divided by
the bucket of their key, as packed Arrow tables: Spark's JVM sees a few large values and no rows. Ranges of keys concern
every bucket. A task of the second stage puts together what it gets and reads the files of its bucket one after the
other. A file with a row that goes is written again without it; new rows follow. Files that need not change stay.

A task says which files come and which go. They count once the driver has committed them, so it does not matter how
often Spark runs a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog import limits
from tidelog.spark.delta.storage import Storage
from tidelog.spark.lake.buckets import Bucket, bucket_numbers, rows_of_buckets
from tidelog.spark.lake.fold import fold, is_range, reduced
from tidelog.spark.lake.layout import CHANGES, CURRENT, DAY
from tidelog.spark.lake.part_files import PartFile
from tidelog.spark.lake.table_reader import read_files
from tidelog.spark.lake.tables import FileMade
from tidelog.spark.lake.upsert import LOOKED_AT, Upsert

_UNREAD: Final = ("timestamp", DAY)

PACKED: Final = pa.schema([("bucket", pa.int32()), ("changes", pa.int64()), ("rows", pa.binary())])
PACKED_COLUMNS: Final = "bucket int, changes long, rows binary"
"""What goes from one stage to the other: how many changes were read is said once for each task of the first one."""
OUTCOME: Final = pa.schema(
    [
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("rows", pa.int64()),
        ("ts_min", pa.int64()),
        ("ts_max", pa.int64()),
        ("changes", pa.int64()),
    ]
)
OUTCOME_COLUMNS: Final = "path string, size_bytes long, rows long, ts_min long, ts_max long, changes long"
"""What a task of the second stage returns: a row for each file. Only the path: the file goes. No path: changes only."""


class PassOutcome(NamedTuple):
    """What all tasks of a pass have done."""

    come: list[FileMade]
    go: list[str]
    changes: int
    """That were read."""


@dataclass(frozen=True)
class PassWork:
    """What all tasks of a pass share. It travels to the executors."""

    storage: Storage
    since: int
    until: int
    """The ts between which changes are taken: after the first one, up to the second."""
    shard_count: int
    changes: pa.Schema
    current: pa.Schema
    bucket_count: int
    files: Mapping[int, Sequence[FileMade]]
    """Of each bucket, those that it has."""

    # --- the first stage ------------------------------------------------------------------------------------------

    def reduce(self, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The new changes of some files, reduced, divided and packed."""
        columns = pa.schema([field for field in self.changes if field.name not in _UNREAD])
        rows = read_files(self.storage, CHANGES, paths, columns, after=self.since, until=self.until)
        count = rows.num_rows
        if count:
            for number, its in self._divided(reduced(rows)):
                for packed in _packed(its):
                    yield _batch({"bucket": number, "changes": count, "rows": packed}, PACKED)
                    count = 0
        if count:  # none of them decides anything
            yield _batch({"bucket": 0, "changes": count, "rows": None}, PACKED)

    def _divided(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        if self.bucket_count == 1:
            yield 0, rows
            return
        about_all = is_range(rows)
        ranges, rows = rows.filter(about_all), rows.filter(pc.invert(about_all))
        numbers = bucket_numbers(rows.column("key"), self.bucket_count)
        for number, its in enumerate(rows_of_buckets(numbers, self.bucket_count)):
            if len(its) or ranges.num_rows:
                yield number, pa.concat_tables([rows.take(pa.array(its)), ranges])

    # --- the second stage -----------------------------------------------------------------------------------------

    def upsert(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the first stage has packed for a bucket, or for several, becomes files."""
        found: dict[int, list[pa.Table]] = {}
        count = 0
        for batch in batches:
            for row in batch.to_pylist():
                count += row["changes"]
                if row["rows"] is not None:
                    found.setdefault(row["bucket"], []).append(_unpacked(row["rows"]))
        if count:
            yield _batch({"changes": count}, OUTCOME)
        for number in sorted(found):
            rows = pa.concat_tables(found.pop(number))
            made = _BucketWriter(self, Bucket(number, self.bucket_count))
            try:
                made.apply(Upsert(fold(rows), self.shard_count))
            except BaseException:
                made.abandon()
                raise
            for file in made.come:
                yield _batch({name: getattr(file, name) for name in OUTCOME.names if name != "changes"}, OUTCOME)
            for path in made.go:
                yield _batch({"path": path}, OUTCOME)

    def outcome(self, rows: Iterable[Mapping[str, Any]]) -> PassOutcome:
        """What the second stage has returned, in one."""
        come, go, changes = [], [], 0
        for row in rows:
            changes += row["changes"] or 0
            if row["path"] is not None and row["rows"] is not None:
                size_bytes, count, ts_min, ts_max = (row[name] for name in OUTCOME.names[1:5])
                come.append(FileMade(CURRENT, row["path"], size_bytes, count, None, ts_min, ts_max))
            elif row["path"] is not None:
                go.append(row["path"])
        return PassOutcome(come, go, changes)


class _BucketWriter:
    """Alters the files of one bucket."""

    def __init__(self, work: PassWork, bucket: Bucket) -> None:
        self._work = work
        self._bucket = bucket
        self._open: PartFile | None = None
        self.come: list[FileMade] = []
        self.go: list[str] = []

    def apply(self, upsert: Upsert) -> None:
        small: list[FileMade] = []
        for file in self._work.files.get(self._bucket.number, ()):
            looked_at = self._read(file, LOOKED_AT)
            stays = upsert.stays(looked_at)
            if not stays.all():
                self._rewrite(file, looked_at, stays)
            elif file.size_bytes < limits.LAKE_FILE_BYTES // 2:
                small.append(file)
        if len(small) > limits.LAKE_BUCKET_FILES_MAX:
            for file in small:
                looked_at = self._read(file, LOOKED_AT)
                self._rewrite(file, looked_at, np.ones(looked_at.num_rows, bool))
        self._write(upsert.added())
        if self._open is not None:
            self.come.append(self._open.close())
            self._open = None

    def _rewrite(self, file: FileMade, looked_at: pa.Table, stays: Any) -> None:
        self.go.append(file.path)
        if not stays.any():
            return
        rest = [name for name in self._work.current.names if name not in LOOKED_AT]
        rows = self._read(file, rest)
        for name in LOOKED_AT:
            rows = rows.append_column(self._work.current.field(name), looked_at.column(name))
        self._write(rows if stays.all() else rows.filter(pa.array(stays)))

    def _read(self, file: FileMade, names: Sequence[str]) -> pa.Table:
        schema = pa.schema([self._work.current.field(name) for name in names])
        return read_files(self._work.storage, CURRENT, [file.path], schema)

    def _write(self, rows: pa.Table) -> None:
        schema = self._work.current
        for batch in rows.select(schema.names).cast(schema).to_batches(limits.LAKE_ROW_GROUP_ROWS):
            if not batch.num_rows:
                continue
            if self._open is not None and self._open.is_full:
                self.come.append(self._open.close())
                self._open = None
            if self._open is None:
                self._open = PartFile(self._work.storage, CURRENT, schema, folder=self._bucket.folder)
            self._open.write(batch)

    def abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()


def _packed(rows: pa.Table) -> Iterator[bytes]:
    """Tables as values that Spark passes on without looking into them."""
    row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
    step = min(limits.LAKE_PACKED_ROWS, max(1, limits.LAKE_PACKED_BYTES // row_bytes))
    for start in range(0, rows.num_rows, step):
        sink = pa.BufferOutputStream()
        part = rows.slice(start, step).combine_chunks()
        with pa.ipc.new_stream(sink, part.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(part)
        yield sink.getvalue().to_pybytes()


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _batch(row: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema)
