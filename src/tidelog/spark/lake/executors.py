"""Runs the tasks of a lake on Spark: each item by itself, or in two stages with buckets between them.

What tasks hand on is Arrow, and what they return is a few rows that name files, so the driver holds no data. Spark may
run a task more than once; all that counts is what the attempt returned that it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidelog.spark.jobs.query_error import explained
from tidelog.spark.lake.current_pass import OUTCOME_COLUMNS, PACKED_COLUMNS, PassOutcome, PassWork

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executors:
    """The executors of a session, which is made when it is first needed."""

    def __init__(self, make_spark: Callable[[], SparkSession]) -> None:
        self._make_spark = make_spark

    def each(self, items: Sequence[Item], task: Callable[[Item], Result]) -> list[Result]:
        """What the task returns for each item; each item is a task of Spark's."""
        if not items:
            return []
        context = self._make_spark().sparkContext
        return self._collect(context.parallelize(items, len(items)).map(task))

    def fold(self, work: PassWork, groups: Sequence[Sequence[str]]) -> PassOutcome:
        """Run a pass: a task for each group of files of `changes`, and one for each bucket."""

        def reduce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                yield from work.reduce(groups[number])

        def reduce_and_upsert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from work.upsert(reduce(batches))

        frame = self._numbered(len(groups))
        if len(groups) == work.bucket_count == 1:  # one task does both, in one process
            frame = frame.mapInArrow(reduce_and_upsert, OUTCOME_COLUMNS)
        else:
            frame = frame.mapInArrow(reduce, PACKED_COLUMNS).repartitionById(work.bucket_count, "bucket")
            frame = frame.mapInArrow(work.upsert, OUTCOME_COLUMNS)
        rows = self._collect(frame)
        return work.outcome(row.asDict() for row in rows)

    def _numbered(self, count: int) -> Any:
        """The numbers up to a count, each in a partition of its own."""
        return self._make_spark().range(0, count, 1, count)

    def _collect(self, frame: DataFrame | RDD[Any]) -> list[Any]:
        try:
            return frame.collect()
        except (PySparkException, Py4JError) as error:
            raise explained(error, None) from None


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
