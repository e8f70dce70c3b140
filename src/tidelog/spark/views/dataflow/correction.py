"""All hashes of a view compared with the rows that it has, and corrected, bucket by bucket.

A batch that was killed may have written hashes of rows that were never committed, and other clients may have changed or
removed some. So a run of the job begins with this. The keys that the server has are read by one task, because the
server gives them one after the other, and divided by bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tidelog.spark.views.dataflow.hashes import Hashes
from tidelog.spark.views.dataflow.packing import PACKED, divided, packed_row, portions
from tidelog.spark.views.dataflow.shown_rows import ShownRows

_KEYS: Final = pa.schema([("key", pa.binary())])
_WRONG: Final = "wrong bigint"


@dataclass(frozen=True)
class Correction:
    """Corrects hashes. It travels to executors."""

    hashes: Hashes
    rows: ShownRows

    def run(self, session: SparkSession) -> int:
        """Returns how many hashes were wrong."""
        buckets = len(self.rows.groups)
        keys = session.range(0, 1, 1, 1).mapInArrow(self._keys, PACKED).repartitionById(buckets, "bucket")
        return sum(row["wrong"] for row in keys.mapInArrow(self._correct, _WRONG).collect())

    def _keys(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        buckets = len(self.rows.groups)
        for bucket in range(buckets):  # each has its task, even if there are no keys
            yield packed_row(bucket, [_KEYS.empty_table()])
        with self.hashes.server.connect() as client:
            for groups in self.hashes.groups(client):
                table = pa.table([groups], schema=_KEYS)
                for bucket, some in enumerate(divided(table, "key", buckets)):
                    if len(some):
                        yield packed_row(bucket, [some])

    def _correct(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        there = {key for some in portions(batches, 1 << 30) for tables in some for key in tables[0]["key"].to_pylist()}
        wrong = 0
        with self.hashes.server.connect() as client:
            for keys, rows in self.rows.read(context.partitionId()):
                groups = keys.to_pylist()
                wrong += self.hashes.correct(client, self.hashes.fields(groups, rows))
                there.difference_update(groups)
            wrong += self.hashes.correct(client, {group: {} for group in there})
        yield pa.record_batch([[wrong]], names=["wrong"])
