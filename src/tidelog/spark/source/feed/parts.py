"""The kind `feedparts`: a feed whose rows are the parts of a batch, and not the changes in them.

    shard int, since bigint, until bigint, epoch bigint, seen bigint, is_initial boolean,
    until_epoch bigint, manifest bigint

It is for jobs that read a feed in their own tasks. Spark decides what a batch is, as for the kind `feed`, and hands
each task its part. The task reads changes from the socket into Arrow and writes them to files; they never pass through
the JVM. Each part is a row in a partition of its own.

    def task(batches):
        for batch in batches:
            for part in parts_of(batch):
                for events in origin.of_part(part).read(part, spans, EventColumns(schema)):
                    ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from tidelog.spark.options import BadOption
from tidelog.spark.source.feed.micro_batches import FeedMicroBatches, take_feed
from tidelog.spark.source.feed.reading import FeedPart
from tidelog.spark.source.kind import Kind

PARTS: Final = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("since", LongType()),
        StructField("until", LongType()),
        StructField("epoch", LongType()),
        StructField("seen", LongType()),
        StructField("is_initial", BooleanType()),
        StructField("until_epoch", LongType()),
        StructField("manifest", LongType()),
    ]
)
_ARROW: Final = pa.schema(
    [
        ("shard", pa.int32()),
        ("since", pa.int64()),
        ("until", pa.int64()),
        ("epoch", pa.int64()),
        ("seen", pa.int64()),
        ("is_initial", pa.bool_()),
        ("until_epoch", pa.int64()),
        ("manifest", pa.int64()),
    ]
)


class FeedPartsKind(Kind):
    """Parts of a feed, with the options of a feed that is read without end."""

    name: ClassVar[str] = "feedparts"
    title: ClassVar[str] = "feed that is read in parts"

    def schema(self) -> StructType:
        return PARTS

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        if schema != PARTS:
            raise BadOption("the columns of the parts of a feed are fixed: give no schema")
        origin, spans, how = take_feed(self.target, self.options)
        if not how.fail_on_loss:
            raise BadOption("failOnDataLoss must be true: a job that reads parts itself decides what a loss means")
        return PartMicroBatches(origin.explored(), spans, how)


class PartMicroBatches(FeedMicroBatches):
    """Each part of a batch is a row."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, FeedPart)
        row = {name: getattr(partition, name) for name in _ARROW.names}
        yield pa.RecordBatch.from_pylist([row], schema=_ARROW)


def parts_of(batch: pa.RecordBatch) -> list[FeedPart]:
    """The parts that the rows of a batch describe."""
    return [FeedPart(**row) for row in batch.to_pylist()]
