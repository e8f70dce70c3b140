"""The Parquet files that a task writes: one at a time for each table and day, or for a bucket, in the table's folder.

Their names are always new, so a task that is repeated, or one that was wrongly believed dead, never meets the files of
another. A file counts once the driver has committed it; vacuum removes all others some day.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog import limits
from tidelog.spark.delta.storage import Storage
from tidelog.spark.lake.layout import DAY, DIVIDED
from tidelog.spark.lake.tables import FileMade

SORTED: Final = "sorted"
"""How the name of a file begins whose rows are in the order of its table's keys."""
_DAY_US: Final = 86_400_000_000
_DAYS_MAX: Final = 2_932_896
"""The last day of the year 9999; later rows are put there too."""
_REPEATED: Final = ("shard", "kind", "type", "stream", "table", "reason")
"""Columns with few different values. For all others a dictionary would be larger and slower."""


class PartFiles:
    """All files of a task."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._open: dict[tuple[str, int | None], PartFile] = {}
        self._made: list[FileMade] = []

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        """Rows of a table, in the order of ts."""
        if not rows.num_rows:
            return
        if table not in DIVIDED:
            self._file(table, None, rows.schema).write(rows)
            return
        days = np.minimum(rows.column("ts").to_numpy() // _DAY_US, _DAYS_MAX)
        for day in range(int(days[0]), int(days[-1]) + 1):
            first, end = np.searchsorted(days, day, "left"), np.searchsorted(days, day, "right")
            if first < end:
                self._file(table, day, rows.schema).write(rows.slice(first, end - first))

    def _file(self, table: str, day: int | None, schema: pa.Schema) -> PartFile:
        file = self._open.get((table, day))
        if file is None or file.is_full or file.schema != schema:
            if file is not None:  # for example because there are new columns
                self._made.append(file.close())
            name = None if day is None else str(np.datetime64(day, "D"))
            file = self._open[table, day] = PartFile(
                self._storage, table, schema, folder="" if name is None else f"{DAY}={name}/", day=name
            )
        return file

    def close(self) -> list[FileMade]:
        """What was written."""
        while self._open:
            _, file = self._open.popitem()
            self._made.append(file.close())
        return self._made

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()


class PartFile:
    """One file. Rows are collected to groups of a good size."""

    def __init__(
        self,
        storage: Storage,
        table: str,
        schema: pa.Schema,
        *,
        folder: str = "",
        day: str | None = None,
        sorted_by: Sequence[str] = (),
    ) -> None:
        """`folder`: below that of the table, with a slash at its end. `sorted_by`: the columns in whose order rows
        come; then statistics of the first one let readers skip groups, and the name of the file tells."""
        self.schema = schema
        self._table = table
        self._day = day
        self._path = f"{folder}{SORTED if sorted_by else 'part'}-{secrets.token_hex(16)}.parquet"
        files = storage.files(table)
        if folder and storage.is_local:
            files.create_dir(folder.rstrip("/"))
        self._sink = files.open_output_stream(self._path)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="lz4",
            use_dictionary=[name for name in _REPEATED if name in schema.names],
            write_statistics=["ts", *sorted_by[:1]],
            write_page_index=bool(sorted_by),
        )
        self._group_rows = limits.LAKE_SORTED_GROUP_ROWS if sorted_by else None
        self._rows: list[pa.RecordBatch] = []
        self._waiting = self._waiting_bytes = 0
        self._count = 0
        self._ts_min = 2**63 - 1
        self._ts_max = -1

    def write(self, rows: pa.RecordBatch) -> None:
        extremes = pc.min_max(rows.column("ts")).as_py()
        self._ts_min = min(self._ts_min, extremes["min"])
        self._ts_max = max(self._ts_max, extremes["max"])
        self._rows.append(rows)
        self._waiting += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self._count += rows.num_rows
        if self._waiting >= limits.LAKE_ROW_GROUP_ROWS or self._waiting_bytes >= limits.LAKE_ROW_GROUP_BYTES:
            self._flush()

    @property
    def is_full(self) -> bool:
        return self._count >= limits.LAKE_FILE_ROWS or self._sink.tell() >= limits.LAKE_FILE_BYTES

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._rows, self.schema)
        self._writer.write_table(table, row_group_size=self._group_rows or max(1, table.num_rows))
        self._rows, self._waiting, self._waiting_bytes = [], 0, 0

    def close(self) -> FileMade:
        if self._rows:
            self._flush()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        return FileMade(self._table, self._path, size, self._count, self._day, self._ts_min, self._ts_max)

    def abandon(self) -> None:
        self._sink.close()


@contextmanager
def part_files(storage: Storage) -> Iterator[PartFiles]:
    """If the block fails, the files that were written stay behind and do not count."""
    made = PartFiles(storage)
    try:
        yield made
    except BaseException:
        made.abandon()
        raise


SUMMARY: Final = (
    "table string, path string, size_bytes long, rows long, day string, ts_min long, ts_max long, columns string, "
    "events long, since long, until long, epoch long"
)
"""What a task returns to the driver, as a Spark schema: a row for each file, and one without a path for the rest."""
SUMMARY_ARROW: Final = pa.schema(
    [
        ("table", pa.string()),
        ("path", pa.string()),
        ("size_bytes", pa.int64()),
        ("rows", pa.int64()),
        ("day", pa.string()),
        ("ts_min", pa.int64()),
        ("ts_max", pa.int64()),
        ("columns", pa.string()),
        ("events", pa.int64()),
        ("since", pa.int64()),
        ("until", pa.int64()),
        ("epoch", pa.int64()),
    ]
)


def summary(files: list[FileMade], **rest: Any) -> pa.RecordBatch:
    """`rest`: columns, events, since, until and epoch."""
    rows: list[dict[str, Any]] = [*(file._asdict() for file in files), rest]
    return pa.RecordBatch.from_pylist(rows, schema=SUMMARY_ARROW)
