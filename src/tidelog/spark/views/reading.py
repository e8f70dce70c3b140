"""The changes of the sources of views, made by tasks: from the feed, or of everything that there is now.

A task reads its part of the feed, makes of it the changes of every source that any view has, and hands them on as one
table, whose first column says of which source they are. What there is now comes from the same feed (`initial`) for
keys; entries of streams and events of days are read by the kinds `stream` and `days`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.feeds.span import Span
from tidelog.spark.endpoint import Endpoint, call, source_options
from tidelog.spark.events import SCHEMA, EventColumns
from tidelog.spark.feed_parts import parts_of
from tidelog.spark.feed_reading import FeedPart, read_feed
from tidelog.spark.lake.tables import Place
from tidelog.spark.views.changes import CLEAR, chosen, compose, no_changes
from tidelog.spark.views.extract import DaysExtractor, StreamExtractor, extractor, span_of
from tidelog.spark.views.rows import Rows

_KEYS: Final = ("kind", "key", "type", "field", "value", "end")
_ENTRY: Final = "offset long, id string, tag binary, entry binary, fields map<binary, binary>"
_EVENT: Final = "day date, id string, event binary"
_SUMMARY: Final = "source int, until bigint, until_epoch bigint, changes binary"
_ARROW: Final = pa.schema(
    [("source", pa.int32()), ("until", pa.int64()), ("until_epoch", pa.int64()), ("changes", pa.binary())]
)


class Wanted(NamedTuple):
    """A source, and the columns of it that somebody wants."""

    kind: str
    target: str
    columns: tuple[str, ...]

    @property
    def span(self) -> Span:
        return span_of(self.kind, self.target)

    def rows(self, table: pa.Table | None = None) -> Rows:
        """What changes of it are applied to; `table`: what was left of an earlier run."""
        is_key_named = self.kind == "prefix" and "key" in self.columns
        return Rows(len(self.columns), table, key=self.columns.index("key") if is_key_named else None)

    def is_cleared_by(self, changes: pa.Table) -> bool:
        """Whether everything was removed at once, as FLUSHDB does; it is told about keys only of the span."""
        is_prefix, span = self.kind == "prefix", self.span
        starts = {b"", span.start if is_prefix else b""}
        ends = {None, (span.end or None) if is_prefix else None}
        clears = changes.filter(pc.equal(changes["op"], CLEAR)).select(["id", "end"]).to_pylist()
        return any(row["id"] in starts and row["end"] in ends for row in clears)

    @property
    def named_span(self) -> dict[str, str]:
        """The same, as the data source is told."""
        start = self.span.start.decode()
        return {"key": start} if self.kind == "stream" else {"prefix": start}


class Reader:
    """Reads the changes of some sources."""

    def __init__(self, server: Endpoint, wanted: Sequence[Wanted]) -> None:
        self._server = server
        self._given = list(dict.fromkeys(wanted))
        self.wanted = _each_source(self._given)
        self._spans = list(dict.fromkeys(each.span for each in self.wanted))
        names = _KEYS if all(each.kind == "prefix" for each in self.wanted) else (*_KEYS, "entries")
        self._events = StructType([field for field in SCHEMA if field.name in names])

    @property
    def target(self) -> str:
        """Of `feedparts`."""
        return json.dumps([each.named_span for each in self.wanted])

    def changes(self, parts: DataFrame) -> tuple[Place, dict[Wanted, pa.Table]]:
        """Where the parts of a feed end, and what they have for each source, each row once and CLEARs first."""
        rows = parts.mapInArrow(self._task, _SUMMARY).collect()
        place = Place(rows[0]["until"], rows[0]["until_epoch"])
        return place, self._shared({each: self._of(rows, number) for number, each in enumerate(self.wanted)})

    def _shared(self, found: dict[Wanted, pa.Table]) -> dict[Wanted, pa.Table]:
        """To each its own columns of what was read of a source."""
        shared = {}
        for given in self._given:
            [read] = [each for each in found if (each.kind, each.target) == (given.kind, given.target)]
            shared[given] = chosen(found[read], [read.columns.index(name) for name in given.columns])
        return shared

    def _of(self, rows: Sequence[Any], number: int) -> pa.Table:
        made = [_unpacked(row["changes"]) for row in rows if row["source"] == number and row["changes"]]
        table = pa.concat_tables([no_changes(len(self.wanted[number].columns)), *made])
        is_clear = pc.equal(table["op"], CLEAR)
        # Each shard has its own in order; what one has cleared is nothing that another has set since.
        return pa.concat_tables([table.filter(is_clear), table.filter(pc.invert(is_clear))])

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in parts_of(batch):
                yield from self._part(part)

    def _part(self, part: FeedPart) -> Iterator[pa.RecordBatch]:
        extractors = [extractor(*each) for each in self.wanted]
        for events in read_feed(self._server, part, self._spans, EventColumns(self._events)):
            for each in extractors:
                each.add(_with_all(events))
        for number, each in enumerate(extractors):
            packed: list[bytes | None] = [_packed(batch) for batch in each.finish().to_batches(limits.VIEW_PACKED_ROWS)]
            # One row in any case, so that it is known where the part ends.
            rows = [(number, part.until, part.until_epoch, data) for data in packed or [None]]
            yield pa.RecordBatch.from_pylist([dict(zip(_ARROW.names, row, strict=True)) for row in rows], _ARROW)

    # --- what there is now ----------------------------------------------------------------------------------------

    def everything(self, spark: SparkSession, parts: DataFrame) -> dict[Wanted, pa.Table]:
        """All rows that there are; `parts`: those of the initial values."""
        _, found = self.changes(parts)
        for each in self._given:
            if each.kind != "prefix":
                found[each] = self._standing(spark, each)
        return found

    def _standing(self, spark: SparkSession, wanted: Wanted) -> pa.Table:
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

    def _load(self, spark: SparkSession, wanted: Wanted, schema: str) -> DataFrame:
        reader: Any = spark.read.format("tidelog").schema(schema)
        for name, value in source_options(self._server).items():
            reader = reader.option(name, value)
        frame: DataFrame = reader.load(f"{wanted.kind}:{wanted.target}")
        return frame


def _each_source(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Each source once, with all columns that anybody wants of it."""
    columns: dict[tuple[str, str], set[str]] = {}
    for each in wanted:
        columns.setdefault((each.kind, each.target), set()).update(each.columns)
    return [Wanted(*source, tuple(sorted(names))) for source, names in columns.items()]


def _packed(batch: pa.RecordBatch) -> bytes:
    """A batch of changes as one value: the JVM passes it on as it is, and makes no rows of it."""
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
