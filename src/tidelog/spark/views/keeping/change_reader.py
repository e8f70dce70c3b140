"""The changes of the sources of views, read by tasks: from the feed, or everything that there is now.

A task reads its part of the feed, turns it into changes of every source that any view has, and returns them as one
table, whose first column names the source. The current rows of a prefix come from the same feed (`initial`); entries of
streams and events of days are read by the kinds `stream` and `days`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.feeds.span import Span
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.endpoint import Endpoint, call, source_options
from tidelog.spark.source.feed.columns import SCHEMA, EventColumns
from tidelog.spark.source.feed.parts import PARTS, parts_of
from tidelog.spark.source.feed.position import ask_position
from tidelog.spark.source.feed.reading import FeedPart, read_feed
from tidelog.spark.source.stream.copied import read_copied
from tidelog.spark.views.keeping.changes import CLEAR, chosen, compose, no_changes
from tidelog.spark.views.keeping.extract import DaysExtractor, StreamExtractor, extractor, span_of
from tidelog.spark.views.keeping.source_rows import SourceRows

_KEYS: Final = ("kind", "key", "type", "field", "value", "end")
_ENTRY: Final = "offset long, id string, tag binary, entry binary, fields map<binary, binary>"
_EVENT: Final = "day date, id string, event binary"
_SUMMARY: Final = "source int, until bigint, until_epoch bigint, changes binary"
_ARROW: Final = pa.schema(
    [("source", pa.int32()), ("until", pa.int64()), ("until_epoch", pa.int64()), ("changes", pa.binary())]
)


class SourceColumns(NamedTuple):
    """A source, and the columns of it that a view uses."""

    kind: str
    target: str
    columns: tuple[str, ...]

    @property
    def span(self) -> Span:
        return span_of(self.kind, self.target)

    def rows(self, table: pa.Table | None = None) -> SourceRows:
        """The rows to which its changes are applied; `table`: rows from an earlier run."""
        return SourceRows(len(self.columns), table)

    def is_cleared_by(self, changes: pa.Table) -> bool:
        """Whether everything was removed at once, as by FLUSHDB. The feed reports that for the keys of the span."""
        is_prefix, span = self.kind == "prefix", self.span
        starts = {b"", span.start if is_prefix else b""}
        ends = {None, (span.end or None) if is_prefix else None}
        clears = changes.filter(pc.equal(changes["op"], CLEAR)).select(["id", "end"]).to_pylist()
        return any(row["id"] in starts and row["end"] in ends for row in clears)

    @property
    def named_span(self) -> dict[str, str]:
        """The span, in the words of the data source."""
        start = self.span.start.decode()
        return {"key": start} if self.kind == "stream" else {"prefix": start}


class ChangeReader:
    """Reads the changes of some sources."""

    def __init__(self, server: Endpoint, wanted: Sequence[SourceColumns]) -> None:
        self._server = server
        self._given = list(dict.fromkeys(wanted))
        self.wanted = _each_source(self._given)
        self._spans = list(dict.fromkeys(each.span for each in self.wanted))
        names = _KEYS if all(each.kind == "prefix" for each in self.wanted) else (*_KEYS, "entries")
        self._events = StructType([field for field in SCHEMA if field.name in names])

    @property
    def target(self) -> str:
        """The target for the kind `feedparts`."""
        return json.dumps([each.named_span for each in self.wanted])

    def changes(self, parts: DataFrame) -> tuple[HistoryPoint, dict[SourceColumns, pa.Table]]:
        """Where the parts of a feed end, and the changes of each source, each row once and CLEARs first."""
        rows = parts.mapInArrow(self._task, _SUMMARY).collect()
        point = HistoryPoint(rows[0]["until"], rows[0]["until_epoch"])
        return point, self._shared({each: self._of(rows, number) for number, each in enumerate(self.wanted)})

    def _shared(self, found: dict[SourceColumns, pa.Table]) -> dict[SourceColumns, pa.Table]:
        """Each view's columns of what was read of a source."""
        shared = {}
        for given in self._given:
            [read] = [each for each in found if (each.kind, each.target) == (given.kind, given.target)]
            shared[given] = chosen(found[read], [read.columns.index(name) for name in given.columns])
        return shared

    def _of(self, rows: Sequence[Any], number: int) -> pa.Table:
        made = [_unpacked(row["changes"]) for row in rows if row["source"] == number and row["changes"]]
        table = pa.concat_tables([no_changes(len(self.wanted[number].columns)), *made])
        is_clear = pc.equal(table["op"], CLEAR)
        # The changes of each shard are in order, and a CLEAR of one shard never concerns what another has set later.
        return pa.concat_tables([table.filter(is_clear), table.filter(pc.invert(is_clear))])

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in parts_of(batch):
                yield from self._part(part)

    def _part(self, part: FeedPart) -> Iterator[pa.RecordBatch]:
        copied = partial(read_copied, self._server)
        extractors = [extractor(*each, copied) for each in self.wanted]
        for events in read_feed(self._server, part, self._spans, EventColumns(self._events)):
            for each in extractors:
                each.add(_with_all(events))
        for number, each in enumerate(extractors):
            packed: list[bytes | None] = [_packed(batch) for batch in each.finish().to_batches(limits.VIEW_PACKED_ROWS)]
            # At least one row, because it tells where the part ends.
            rows = [(number, part.until, part.until_epoch, data) for data in packed or [None]]
            yield pa.RecordBatch.from_pylist([dict(zip(_ARROW.names, row, strict=True)) for row in rows], _ARROW)

    # --- what there is now ----------------------------------------------------------------------------------------

    def everything(self, spark: SparkSession, parts: DataFrame) -> dict[SourceColumns, pa.Table]:
        """All rows that there are; `parts`: the parts of the initial values."""
        _, found = self.changes(parts)
        for each in self._given:
            if each.kind != "prefix":
                found[each] = self._standing(spark, each)
        return found

    def _standing(self, spark: SparkSession, wanted: SourceColumns) -> pa.Table:
        """The entries of a stream, or the events of a job set."""

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            made = extractor(*wanted)
            for batch in batches:
                rows = batch.to_pylist()
                if isinstance(made, StreamExtractor):
                    table = made.entries(rows)
                else:
                    assert isinstance(made, DaysExtractor)
                    table = made.events([(row["day"], row["id"], row["event"]) for row in rows])
                rows = [{"changes": _packed(batch)} for batch in table.to_batches()]
                yield pa.RecordBatch.from_pylist(rows, pa.schema([("changes", pa.binary())]))

        is_stream = wanted.kind == "stream"
        if is_stream and not self._has_stream(wanted.target):
            return no_changes(len(wanted.columns))
        frame = self._load(spark, wanted, _ENTRY if is_stream else _EVENT)
        found = [_unpacked(row["changes"]) for row in frame.mapInArrow(task, "changes binary").collect()]
        return compose(pa.concat_tables([no_changes(len(wanted.columns)), *found]))

    def _has_stream(self, key: str) -> bool:
        with self._server.connect() as client:
            return bool(call(client, "TYPE", key) == b"stream")

    def _load(self, spark: SparkSession, wanted: SourceColumns, schema: str) -> DataFrame:
        reader: Any = spark.read.format("tidelog").schema(schema)
        for name, value in source_options(self._server).items():
            reader = reader.option(name, value)
        frame: DataFrame = reader.load(f"{wanted.kind}:{wanted.target}")
        return frame


def read_everything(
    spark: SparkSession, server: Endpoint, wanted: Sequence[SourceColumns]
) -> tuple[HistoryPoint, dict[SourceColumns, pa.Table]]:
    """All rows that sources have now, and the point after which changes are to be applied to them."""
    with server.connect() as client:
        position = ask_position(client)
    parts = [
        {"shard": shard, "since": 0, "until": position.visible, "is_initial": True, "until_epoch": position.epoch}
        for shard in position.shards
    ]
    rows = [tuple(part.get(name) for name in PARTS.names) for part in parts]
    frame = spark.createDataFrame(rows, PARTS)
    return HistoryPoint(position.visible, position.epoch), ChangeReader(server, wanted).everything(spark, frame)


def _each_source(wanted: Sequence[SourceColumns]) -> list[SourceColumns]:
    """Each source once, with all columns that any view uses."""
    columns: dict[tuple[str, str], set[str]] = {}
    for each in wanted:
        columns.setdefault((each.kind, each.target), set()).update(each.columns)
    return [SourceColumns(*source, tuple(sorted(names))) for source, names in columns.items()]


def _packed(batch: pa.RecordBatch) -> bytes:
    """A batch of changes as one value, which the JVM passes on without making rows of it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _with_all(events: pa.RecordBatch) -> pa.RecordBatch:
    if "entries" in events.schema.names:
        return events
    return events.append_column("entries", pa.nulls(len(events)))
