"""The kind `feedparts`: a feed whose rows are the parts that make a batch, and not what is in them.

    shard int, since bigint, until bigint, epoch bigint, seen bigint, is_initial boolean,
    until_epoch bigint

For jobs that read a feed themselves, in their tasks: Spark decides what a batch is, as it does for the kind `feed`, and
hands each task its part; what has changed goes from the socket into Arrow and from there into files, and never through
the JVM. Each part is a row in a partition of its own.

    def task(batches):
        for batch in batches:
            for part in parts_of(batch):
                for events in read_feed(server, part, spans, EventColumns(schema)):
                    ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from tidelog.spark.feed_following import PlaceFollower, take_followed
from tidelog.spark.feed_places import explored_feed_server
from tidelog.spark.feed_reading import FeedPart
from tidelog.spark.kind import Kind
from tidelog.spark.options import BadOption

PARTS: Final = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("since", LongType()),
        StructField("until", LongType()),
        StructField("epoch", LongType()),
        StructField("seen", LongType()),
        StructField("is_initial", BooleanType()),
        StructField("until_epoch", LongType()),
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
    ]
)


class FeedPartsKind(Kind):
    """Parts of a feed, with the options of one that is followed."""

    name: ClassVar[str] = "feedparts"

    def schema(self) -> StructType:
        return PARTS

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        if schema != PARTS:
            raise BadOption("feedparts has the columns that it has: give no schema")
        server, spans, how = take_followed(self.target, self.options)
        return PartsFollower(explored_feed_server(server), spans, how)


class PartsFollower(PlaceFollower):
    """Tells the parts."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, FeedPart)
        row = {name: getattr(partition, name) for name in _ARROW.names}
        yield pa.RecordBatch.from_pylist([row], schema=_ARROW)


def parts_of(batch: pa.RecordBatch) -> list[FeedPart]:
    """What the rows of a batch say."""
    return [FeedPart(**row) for row in batch.to_pylist()]
