"""The kind `stream`: entries of one stream, or of all that a pattern names.

option                      batch  stream  write
url, database                 x      x      x     redis://host:port[/database]; rediss:// with TLS
password_file                 x      x      x     a file with the password
flight                        x      x      x     grpc://host:port; found by itself where there is one
from_offset, to_offset        x                   a range, both ends included; one of each three
from_id, to_id                x                   ids such as 1700000000000-0, or their time alone
from_time, to_time            x                   ISO times
start                                x            earliest (default), latest, an offset or an id
max_rows_per_trigger                 x            at most so many rows a batch
partition_rows                x      x            rows of one task, 250000 unless given
fail_on_loss                  x      x            true: an error if entries were evicted that were to be read
pushdown                      x                   false: for a session in which Spark pushes no filters down
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.spark.endpoint import explored, take_endpoint
from tidelog.spark.entries import SCHEMA, EntryColumns
from tidelog.spark.following import make_follower
from tidelog.spark.kind import Kind
from tidelog.spark.options import Options
from tidelog.spark.ranges import Range, StreamNames, StreamPart, plan, range_of_filters, take_range
from tidelog.spark.reading import read_part
from tidelog.spark.writer import BatchAppender, StreamAppender


class StreamKind(Kind):
    """Streams."""

    name: ClassVar[str] = "stream"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        is_pushing = self.options.flag("pushdown", True)
        made = PushdownReader if is_pushing else StreamReader
        return made(self.target, self.options, schema)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        return make_follower(self.target, self.options, schema)

    def writer(self, schema: StructType) -> DataSourceWriter:
        return BatchAppender(self.target, self.options, schema)

    def stream_writer(self, schema: StructType) -> DataSourceStreamWriter:
        return StreamAppender(self.target, self.options, schema)


class StreamReader(DataSourceReader):
    """Reads what a stream has now."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._target = target
        self._range = take_range(options)
        self._rows = options.number("partition_rows", 1) or limits.SPARK_PARTITION_ROWS
        self._fail_on_loss = options.flag("fail_on_loss", True)
        self._names = StreamNames()
        self._pushed = Range()
        server = take_endpoint(options)
        options.end("a stream that is read")
        self._columns = EntryColumns(schema)
        self._server = explored(server)

    def partitions(self) -> list[InputPartition]:
        return [*plan(self._server, self._target, self._range.narrowed(self._pushed), self._names, self._rows)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, StreamPart):  # Spark asks once also where there is nothing to read
            return iter(())
        return read_part(self._server, partition, self._columns, fail_on_loss=self._fail_on_loss)


class PushdownReader(StreamReader):
    """The same, with filters. Spark refuses a reader that has this method where it is set to push nothing down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pushed, self._names = range_of_filters(filters)
        return filters
