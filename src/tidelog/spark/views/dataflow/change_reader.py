"""The changes of the sources of views, read by tasks: from the feed, or everything that there is now.

A task reads its part of the feed, turns it into changes of every source that any view has, and divides them by view and
bucket. The current rows of a prefix come from the same feed (`initial`); entries of streams and events of days are
read by the kinds `stream` and `days`. The driver gets numbers only.

    what int, bucket int, rows bigint, tables binary, clears boolean, until bigint, until_epoch bigint

`what` is the number of a `WantedRows`; -1 is a row that only tells where the part ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.feeds.span import Span
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.endpoint import Endpoint, call, source_options
from tidelog.spark.source.feed.columns import SCHEMA, EventColumns
from tidelog.spark.source.feed.parts import PARTS, parts_of
from tidelog.spark.source.feed.position import ask_position
from tidelog.spark.source.feed.reading import FeedPart, read_feed
from tidelog.spark.source.stream.copied import read_copied
from tidelog.spark.views.dataflow.changes import CLEAR, chosen
from tidelog.spark.views.dataflow.extract import DaysExtractor, StreamExtractor, extractor, span_of
from tidelog.spark.views.dataflow.packing import divided, packed

_KEYS: Final = ("ts", "kind", "key", "type", "field", "value", "end")
_ENTRY: Final = "offset long, id string, tag binary, entry binary, fields map<binary, binary>"
_EVENT: Final = "day date, id string, event binary"
READ: Final = "what int, bucket int, rows bigint, tables binary, clears boolean, until bigint, until_epoch bigint"
_READ: Final = pa.schema(
    [
        ("what", pa.int32()),
        ("bucket", pa.int32()),
        ("rows", pa.int64()),
        ("tables", pa.binary()),
        ("clears", pa.bool_()),
        ("until", pa.int64()),
        ("until_epoch", pa.int64()),
    ]
)


class SourceColumns(NamedTuple):
    """A source, and the columns of it that a view uses."""

    kind: str
    target: str
    columns: tuple[str, ...]

    @property
    def span(self) -> Span:
        return span_of(self.kind, self.target)

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


class WantedRows(NamedTuple):
    """What one view wants of a source, and into how many buckets it divides that."""

    source: SourceColumns
    buckets: int


class ReadBatch(NamedTuple):
    """What tasks have read. `blobs` is kept until `blobs.unpersist()`."""

    blobs: DataFrame
    point: HistoryPoint
    rows: dict[int, int]
    """How many changes there are, by the number of what is wanted."""
    cleared: set[int]
    """Of which everything was removed at once."""


@dataclass(frozen=True)
class ChangeReader:
    """Reads the changes of some sources. It travels to executors."""

    server: Endpoint
    wanted: tuple[WantedRows, ...]

    @property
    def target(self) -> str:
        """The target for the kind `feedparts`."""
        return json.dumps([each.named_span for each in self._sources()])

    def _sources(self) -> list[SourceColumns]:
        return _each_source([each.source for each in self.wanted])

    def read(self, parts: DataFrame) -> ReadBatch:
        """Read the parts of a batch."""
        blobs = parts.mapInArrow(self._task, READ).persist()
        heads = blobs.select("what", "rows", "clears", "until", "until_epoch").collect()
        rows: dict[int, int] = {}
        for head in heads:
            rows[head["what"]] = rows.get(head["what"], 0) + head["rows"]
        point = HistoryPoint(heads[0]["until"], heads[0]["until_epoch"])
        return ReadBatch(blobs, point, rows, {head["what"] for head in heads if head["clears"]})

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in parts_of(batch):
                yield from self._part(part)

    def _part(self, part: FeedPart) -> Iterator[pa.RecordBatch]:
        copied = partial(read_copied, self.server)
        sources = self._sources()
        spans = list(dict.fromkeys(each.span for each in sources))
        names = _KEYS if all(each.kind == "prefix" for each in sources) else (*_KEYS, "entries")
        columns = EventColumns(StructType([field for field in SCHEMA if field.name in names]))
        made = [extractor(*each, copied) for each in sources]
        count = 0
        for events in read_feed(self.server, part, spans, columns):
            for each in made:
                each.add(_with_all(events))
            count += len(events)
            # What there is now has each field once, so it may be handed on in any pieces. Changes may not: they are in
            # order.
            if part.is_initial and count >= limits.VIEW_PORTION_ROWS:
                yield from self._handed_on(sources, [each.finish() for each in made], part)
                made, count = [extractor(*each, copied) for each in sources], 0
        yield from self._handed_on(sources, [each.finish() for each in made], part)
        yield _row(-1, 0, None, False, part)

    def _handed_on(
        self, sources: Sequence[SourceColumns], tables: Sequence[pa.Table], part: FeedPart
    ) -> Iterator[pa.RecordBatch]:
        for what, each in enumerate(self.wanted):
            [number] = [
                number for number, found in enumerate(sources) if found[:2] == (each.source.kind, each.source.target)
            ]
            columns = [sources[number].columns.index(name) for name in each.source.columns]
            changes = chosen(tables[number], columns)
            if part.is_initial:
                changes = _as_of_old(changes)
            clears = each.source.is_cleared_by(changes)
            for bucket, some in enumerate(_by_bucket(changes, each.buckets)):
                if len(some):
                    yield _row(what, bucket, some, clears, part)

    # --- what there is now ----------------------------------------------------------------------------------------

    def everything(self, spark: SparkSession, what: int, position: Any) -> DataFrame:
        """All rows that there are of something that is wanted, as `PACKED`."""
        each = self.wanted[what]
        if each.source.kind == "prefix":
            reader = ChangeReader(self.server, (each,))
            frame = _initial_parts(spark, position).mapInArrow(reader._task, READ)
            return frame.where("what >= 0").select("bucket", "rows", "tables")
        return self._standing(spark, each)

    def _standing(self, spark: SparkSession, each: WantedRows) -> DataFrame:
        """The entries of a stream, or the events of a job set."""
        wanted, buckets = each

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            made = extractor(*wanted)
            for batch in batches:
                rows = batch.to_pylist()
                if isinstance(made, StreamExtractor):
                    table = made.entries(rows)
                else:
                    assert isinstance(made, DaysExtractor)
                    table = made.events([(row["day"], row["id"], row["event"]) for row in rows])
                for bucket, some in enumerate(_by_bucket(table, buckets)):
                    if len(some):
                        row = [[bucket], [len(some)], [packed([some])]]
                        yield pa.record_batch(row, schema=_PACKED)

        is_stream = wanted.kind == "stream"
        if is_stream and self.server.flight is None and not self.server.address.is_searched:
            raise ClientError(
                f"{self.server.url} has no Flight, over which the entries of {wanted.target} are read: start it with "
                "--flight-port"
            )
        if is_stream and not self._has_stream(wanted.target):
            return spark.createDataFrame([], "bucket int, rows bigint, tables binary")
        reader: Any = spark.read.format("tidelog").schema(_ENTRY if is_stream else _EVENT)
        for name, value in source_options(self.server).items():
            reader = reader.option(name, value)
        frame: DataFrame = reader.load(f"{wanted.kind}:{wanted.target}")
        return frame.mapInArrow(task, "bucket int, rows bigint, tables binary")

    def _has_stream(self, key: str) -> bool:
        with self.server.connect() as client:
            return bool(call(client, "TYPE", key) == b"stream")


_PACKED: Final = pa.schema([("bucket", pa.int32()), ("rows", pa.int64()), ("tables", pa.binary())])


def ask_now(server: Endpoint) -> Any:
    """Where the server stands: what is read after this is at least as new."""
    with server.connect() as client:
        return ask_position(client)


def _initial_parts(spark: SparkSession, position: Any) -> DataFrame:
    parts = [
        {"shard": shard, "since": 0, "until": position.visible, "is_initial": True, "until_epoch": position.epoch}
        for shard in position.shards
    ]
    rows = [tuple(part.get(name) for name in PARTS.names) for part in parts]
    return spark.createDataFrame(rows, PARTS)


def _by_bucket(changes: pa.Table, buckets: int) -> list[pa.Table]:
    """Changes divided by bucket; every bucket gets all CLEARs, first."""
    is_clear = pc.equal(changes["op"], CLEAR)
    clears = changes.filter(is_clear)
    parts = divided(changes.filter(pc.invert(is_clear)), "id", buckets)
    return [pa.concat_tables([clears, part]) for part in parts] if len(clears) else parts


def _as_of_old(changes: pa.Table) -> pa.Table:
    """Values that were there before anything was seen to change: nobody knows in which order they came."""
    times = pc.multiply(changes["ts"], 0)
    return changes.set_column(changes.schema.get_field_index("ts"), "ts", times)


def _row(what: int, bucket: int, table: pa.Table | None, clears: bool, part: FeedPart) -> pa.RecordBatch:
    data = None if table is None else packed([table])
    count = 0 if table is None else len(table)
    row = [what, bucket, count, data, clears, part.until, part.until_epoch]
    return pa.record_batch([[each] for each in row], schema=_READ)


def _each_source(wanted: Sequence[SourceColumns]) -> list[SourceColumns]:
    """Each source once, with all columns that any view uses."""
    columns: dict[tuple[str, str], set[str]] = {}
    for each in wanted:
        columns.setdefault((each.kind, each.target), set()).update(each.columns)
    return [SourceColumns(*source, tuple(sorted(names))) for source, names in columns.items()]


def _with_all(events: pa.RecordBatch) -> pa.RecordBatch:
    if "entries" in events.schema.names:
        return events
    return events.append_column("entries", pa.nulls(len(events)))
