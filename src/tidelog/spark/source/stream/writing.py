"""Rows become entries of streams, each exactly once, however often a task is tried.

    columns `entry` and perhaps `tag`      an entry with a tag, as TWRITE takes them
    any other columns                      an X entry: each column that is not null is a field
    column `stream`                        the stream that a row goes to, unless an option names one for all rows

Rows are appended in calls. Only the rows and their order decide how they are divided into calls, so a task that is
retried makes the same calls again. The server recognises them: it knows the last call of each *producer*, which is one
partition of one query (`writeStream`) or of one job (`write`), and ignores calls that it already has.

    Tidelog, tags and entries   TWRITE … PRODUCER producer seq: the server keeps producers with the stream
    otherwise                   MULTI, XADD …, and the seq in a hash beside the stream, under WATCH: both or nothing

    seq = batch · 2^20 + call

This relies on Spark: a partition that is computed again must have the same rows in the same order.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import redis
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.keys import WRITTEN_PREFIX
from tidelog.spark.endpoint import Endpoint, call, explored, take_endpoint
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.told_first import ToldFirst

_TEXTS: Final = (BinaryType, StringType)
_PLAIN: Final = (*_TEXTS, NumericType, DecimalType, BooleanType, DateType, TimestampType)
_HASH_TAG: Final = re.compile(r"\{([^}]+)\}")
_FORGOTTEN: Final = "is forgotten"
"""Part of the error for a call that the server had so long ago that it forgot its answer."""
_ATTEMPTS_MAX: Final = 100
"""Attempts of one call. Only another attempt of the same task can come between."""


@dataclass
class AppendedRows(WriterCommitMessage):
    """What one task did."""

    rows: int
    calls: int


class EntryEncoder:
    """Turns batches into entries: for each row the stream, and a tag and an entry or fields and values."""

    def __init__(self, schema: StructType, target: str) -> None:
        self._target = target
        names = schema.fieldNames()
        if target and "stream" in names:
            raise BadOption("both an option and a column name the stream: drop the column `stream`")
        self.has_fields = "entry" not in names
        others = [name for name in names if name not in ("stream", "tag", "entry")]
        if not self.has_fields and others:
            raise BadOption(
                f"column {others[0]!r} does not fit beside a column `entry`: select only stream, tag and entry, or "
                "drop `entry`, and all columns become fields"
            )
        self._fields = [name for name in names if name != "stream"] if self.has_fields else []
        if self.has_fields and not self._fields:
            raise BadOption("there is nothing to write: give a column `entry`, or columns that become fields")
        for field in schema:
            _check_type(field.name, field.dataType, _PLAIN if field.name in self._fields else _TEXTS)

    def entries(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, list[bytes]]]:
        count = batch.num_rows
        streams = [self._target.encode()] * count if self._target else _bytes(batch, "stream")
        if self.has_fields:
            columns = [_optional_bytes(batch, name) for name in self._fields]
            names = [name.encode() for name in self._fields]
            for stream, values in zip(streams, zip(*columns, strict=True), strict=True):
                words: list[bytes] = []
                for name, value in zip(names, values, strict=True):
                    if value is not None:
                        words += (name, value)
                if not words:
                    raise ClientError("a row has only nulls: an entry needs a field")
                yield stream, words
        else:
            tags = _bytes(batch, "tag") if "tag" in batch.schema.names else [b""] * count
            for stream, tag, entry in zip(streams, tags, _bytes(batch, "entry"), strict=True):
                yield stream, [tag, entry]


def _check_type(name: str, kind: DataType, allowed: tuple[type[DataType], ...]) -> None:
    if not isinstance(kind, allowed):
        raise BadOption(f"column {name} is {kind.simpleString()}: cast it to a string or binary, or use to_json")


def _optional_bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    column = batch.column(name)
    if pa.types.is_boolean(column.type):
        return [None if value is None else b"true" if value else b"false" for value in column.to_pylist()]
    if pa.types.is_floating(column.type):  # as Python writes them: the shortest text that reads back the same
        return [None if value is None else repr(value).encode() for value in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        return [None if value is None else value.isoformat().encode() for value in column.to_pylist()]
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.string())
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes]:
    column = batch.column(name)
    if column.null_count:
        raise ClientError(f"column {name} has nulls")
    found: list[bytes] = column.cast(pa.binary()).to_pylist()
    return found


class AppendCalls:
    """Gathers the entries of each stream, and makes a call whenever there are enough."""

    def __init__(self, client: Any, producer: str, batch: int, *, has_fields: bool, by_producer: bool) -> None:
        self._client = client
        self._producer = producer
        self._batch = batch
        self._has_fields = has_fields
        self._by_producer = by_producer
        self._gathered: dict[bytes, list[list[bytes]]] = {}
        self._sizes: dict[bytes, int] = {}
        self._counts: dict[bytes, int] = {}
        """How many calls each stream had."""
        self.rows = 0

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def add(self, stream: bytes, words: list[bytes]) -> None:
        gathered = self._gathered.setdefault(stream, [])
        gathered.append(words)
        size = self._sizes.get(stream, 0) + sum(map(len, words))
        self._sizes[stream] = size
        self.rows += 1
        if len(gathered) >= limits.SPARK_CALL_ROWS or size >= limits.SPARK_CALL_BYTES:
            self._flush(stream)

    def end(self) -> None:
        for stream in [stream for stream, gathered in self._gathered.items() if gathered]:
            self._flush(stream)

    def _flush(self, stream: bytes) -> None:
        number = self._counts.get(stream, 0)
        if number >= limits.SPARK_CALLS_MAX:
            raise ClientError(f"a task makes at most {limits.SPARK_CALLS_MAX} calls: give it fewer rows (repartition)")
        seq = self._batch * limits.SPARK_CALLS_MAX + number
        gathered = self._gathered.pop(stream)
        if self._by_producer:
            self._write(stream, seq, gathered)
        else:
            self._write_beside(stream, seq, gathered)
        self._sizes[stream] = 0
        self._counts[stream] = number + 1

    def _write(self, stream: bytes, seq: int, gathered: list[list[bytes]]) -> None:
        words = [word for entry in gathered for word in entry]
        try:
            call(self._client, "TWRITE", stream, "PRODUCER", self._producer, seq, "ENTRIES", *words)
        except redis.ResponseError as error:
            # Our calls have no gaps, so a forgotten call was written.
            if _FORGOTTEN not in str(error):
                raise

    def _write_beside(self, stream: bytes, seq: int, gathered: list[list[bytes]]) -> None:
        """XADD and the producer's new seq in one transaction, which starts over if another attempt comes between."""
        beside = progress_key(stream)
        for _ in range(_ATTEMPTS_MAX):
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.watch(beside)
                last = pipeline.execute_command("HGET", beside, self._producer)
                if last is not None and int(last) >= seq:
                    return
                pipeline.multi()
                for entry in gathered:
                    fields = entry if self._has_fields else [b"tag", entry[0], b"entry", entry[1]]
                    pipeline.execute_command("XADD", stream, "*", *fields)
                pipeline.execute_command("HSET", beside, self._producer, seq)
                try:
                    pipeline.execute()
                except redis.WatchError:
                    continue
                return
        raise ClientError(f"another task keeps writing the progress of {self._producer}: is the query running twice?")


def progress_key(stream: bytes) -> bytes:
    """The hash with the last seq of each producer, in the same slot of a Redis Cluster as the stream."""
    found = _HASH_TAG.search(stream.decode("latin-1"))
    tag = found[1].encode("latin-1") if found is not None else stream
    return WRITTEN_PREFIX.encode() + b"{%b}:%b" % (tag, stream)


class _Appender(ToldFirst):
    """What both writers share."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._rows = EntryEncoder(schema, target)
        server = take_endpoint(options)
        options.end("a stream that is written")
        self._server: Endpoint = explored(server)

    def _append(self, iterator: Iterator[pa.RecordBatch], producer: str, batch: int) -> AppendedRows:
        partition = _task().partitionId()
        if partition >= limits.PRODUCERS_MAX:
            raise ClientError(
                f"partition {partition}: a stream remembers {limits.PRODUCERS_MAX} producers, one for each partition: "
                "coalesce to fewer partitions"
            )
        by_producer = self._server.is_tidelog and not self._rows.has_fields
        with self._server.connect(retries=False) as client:
            calls = AppendCalls(
                client,
                f"spark:{producer}:{partition}",
                batch,
                has_fields=self._rows.has_fields,
                by_producer=by_producer,
            )
            for each in iterator:
                for stream, words in self._rows.entries(each):
                    calls.add(stream, words)
            calls.end()
        return AppendedRows(calls.rows, calls.count)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


class BatchAppender(_Appender, DataSourceArrowWriter):
    """`frame.write`. Spark never repeats a whole job; a caller that does starts a new one."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        super().__init__(target, options, schema)
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._append(iterator, self._job, 0)


class StreamAppender(_Appender, DataSourceStreamArrowWriter):
    """`frame.writeStream`. A batch that is repeated after a restart has the same query and number."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise ClientError("Spark does not say which query and batch this is, so rows cannot be written once only")
        return self._append(iterator, query, int(batch))
