"""The kind `stream`: entries of one stream, or of all streams that a pattern names.

option                      batch  stream  write
url, database                 x      x      x     redis://host:port[/database]; rediss:// with TLS. Several, of which
                                                  one leads: redis://host:port,host:port, or by Sentinels:
                                                  redis+sentinel://host:port,.../service[/database]
from_followers                x      x            true: of several servers, read entries from those that follow
password_file                 x      x      x     a file that holds the password
flight                        x      x      x     grpc://host:port; asked of the server unless given
from_offset, to_offset        x                   a range, both ends included; give offsets, ids or times
from_id, to_id                x                   ids such as 1700000000000-0, or their milliseconds alone
from_time, to_time            x                   ISO times
start                                x            earliest (default), latest, an offset or an id
startingTimestamp             x      x            instead of `from_…` and `start`: the first entry at or after it
maxRowsPerBatch                      x            the most rows of a batch ...
maxBytesPerTrigger                   x            ... and about the most bytes
minRowsPerBatch                      x            wait for so many rows ...
maxTriggerDelay                      x            ... but at most so long: 15m unless given
partition_rows                x      x            rows of one task, 250000 unless given
minPartitions                 x      x            at least so many tasks
failOnDataLoss                x      x            true (default): an error if entries were evicted before they were read
from                          x                   a copy in an object store, or a data directory: no server is asked;
                                                  instead of `url`, `from_followers`, `password_file`, `flight`
at                            x                   of a copy: the moment, a ts or an ISO time; unless given, the newest
database_id, ship_key_file    x                   of a copy: which database, and the key that it is encrypted with
storage.*                     x                   options for what opens the URL of a copy
pushdown                      x                   false: for a session in which Spark pushes no filters down
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.spark.endpoint import explored, take_read_endpoint
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.batch_reader import BatchReader
from tidelog.spark.source.entry_range import EntryRange, range_of_filters
from tidelog.spark.source.key_names import NameFilter
from tidelog.spark.source.kind import Kind
from tidelog.spark.source.loss import take_fail_on_loss
from tidelog.spark.source.pieces import take_pieces_min
from tidelog.spark.source.stream.columns import SCHEMA, EntryColumns
from tidelog.spark.source.stream.micro_batches import stream_micro_batches
from tidelog.spark.source.stream.planning import StreamPart, plan_parts, take_range
from tidelog.spark.source.stream.reading import read_part
from tidelog.spark.source.stream.writing import BatchAppender, StreamAppender


class StreamKind(Kind):
    """Streams."""

    name: ClassVar[str] = "stream"

    def schema(self) -> StructType:
        return SCHEMA

    def batch_reader(self, schema: StructType) -> BatchReader[Any]:
        url = self.options.text("from")
        if url is not None:
            from tidelog.spark.source.stream.shipped import ShippedStreamReader

            return ShippedStreamReader(self.target, url, self.options, schema)
        return StreamReader(self.target, self.options, schema)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        if self.options.text("from") is not None:
            raise BadOption("from names a copy, which is read in batches: spark.read instead of spark.readStream")
        return stream_micro_batches(self.target, self.options, schema)

    def writer(self, schema: StructType) -> DataSourceWriter:
        return BatchAppender(self.target, self.options, schema)

    def stream_writer(self, schema: StructType) -> DataSourceStreamWriter:
        return StreamAppender(self.target, self.options, schema)


class StreamReader(BatchReader[StreamPart]):
    """Reads the entries that streams have now."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._target = target
        self._range = take_range(options)
        self._rows = options.number("partition_rows", 1) or limits.SPARK_PARTITION_ROWS
        self._pieces_min = take_pieces_min(options)
        self._fail_on_loss = take_fail_on_loss(options)
        self._names = NameFilter()
        self._pushed = EntryRange()
        server = take_read_endpoint(options)
        options.end("a stream that is read")
        self._columns = EntryColumns(schema)
        self._server = explored(server)

    def narrow(self, filters: Sequence[Filter]) -> None:
        self._pushed = range_of_filters(filters)
        for each in filters:
            if getattr(each, "attribute", ()) == ("stream",):
                self._names = self._names.narrowed(each)

    def partitions(self) -> list[InputPartition]:
        wanted = self._range.narrowed(self._pushed)
        return [*plan_parts(self._server, self._target, wanted, self._names, self._rows, self._pieces_min)]

    def read_part(self, part: StreamPart) -> Iterator[Any]:
        return read_part(self._server, part, self._columns, fail_on_loss=self._fail_on_loss)
