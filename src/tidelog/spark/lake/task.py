"""What a task of the lake does: it reads its part of the feed and writes rows into the folders of the tables.

    change            a row of `changes`; if entries were appended to a stream, the row is without them ...
    entries           ... and they are rows of `entries`
    copy of a stream  a row of `changes`; the entries that it has are read from the stream, and are rows of `entries`
    initial value     a row of `current`; the entries that a stream has then are rows of `entries`; a list is rows of
                      `changes`, after those of its ts, because operations on it follow there

Changes go from the socket into Arrow and from there into Parquet. Nothing here runs once for each change, except for
JSON columns, which have to be parsed.

If a job was killed between two commits, a table may already be further than the beginning of a batch. Rows that a table
has are not written again (`after`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from tidelog.feeds.span import Span
from tidelog.spark.delta.storage import Storage
from tidelog.spark.jobs.report import OWN_KEYS
from tidelog.spark.lake.json_columns import ColumnTypes, JsonColumns
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, ENTRIES, SEQ_INITIAL, SEQ_OF_LISTS, file_schema
from tidelog.spark.lake.part_files import PartFiles, part_files, summary
from tidelog.spark.source.columns import timestamps_of_ms
from tidelog.spark.source.feed.columns import SCHEMA, EventColumns
from tidelog.spark.source.feed.origin import FeedOrigin
from tidelog.spark.source.feed.parts import parts_of
from tidelog.spark.source.feed.reading import FeedPart
from tidelog.spark.source.stream.copied import copies_in


@dataclass(frozen=True)
class Work:
    """What all tasks of a batch share. It travels to the executors."""

    origin: FeedOrigin
    spans: tuple[Span, ...]
    storage: Storage
    after: Mapping[str, int]
    """The ts up to which each table has its rows."""
    standing: Mapping[bytes, int] = field(default_factory=dict)
    """Streams whose entries were read at this ts: those appended up to it are in the table."""
    columns: Mapping[str, ColumnTypes] | None = None
    """The JSON columns of each table; None: none are wanted."""

    def task(self) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        return lambda batches: self.run(part for batch in batches for part in parts_of(batch))

    def run(self, parts: Iterable[FeedPart]) -> Iterator[pa.RecordBatch]:
        with part_files(self.storage) as files:
            reading = _TaskReader(self, files)
            for part in parts:
                reading.read(part)
            if reading.until:
                yield summary(
                    files.close(),
                    columns=reading.new_columns(),
                    events=reading.events,
                    since=reading.since,
                    until=reading.until,
                    epoch=reading.epoch,
                )


_TABLE_COLUMNS: Final = (*file_schema(CHANGES).names, "entries")


class _TaskReader:
    """Reads the parts of one task."""

    def __init__(self, work: Work, files: PartFiles) -> None:
        self._work = work
        self._origin = work.origin
        self._files = files
        self._columns = EventColumns(StructType([SCHEMA[name] for name in _TABLE_COLUMNS]))
        self._json: dict[str, JsonColumns] = {}
        for table, columns in (work.columns or {}).items():
            self._json[table] = JsonColumns(table, columns)
        self.events = self.since = self.until = 0
        self.epoch: int | None = None

    def new_columns(self) -> str:
        return json.dumps({table: found.found for table, found in self._json.items()})

    def read(self, part: FeedPart) -> None:
        self.since, self.until, self.epoch = part.since, part.until, part.until_epoch
        self._origin = self._work.origin.of_part(part)
        for batch in self._origin.read(part, self._work.spans, self._columns):
            batch = _without_own(batch)
            self.events += batch.num_rows
            if part.is_initial:
                self._take_values(batch)
            else:
                self._take_changes(batch)

    # --- changes --------------------------------------------------------------------------------------------------

    def _take_changes(self, batch: pa.RecordBatch) -> None:
        rows = _after(batch, self._work.after[CHANGES])
        self._write(CHANGES, rows.select(file_schema(CHANGES).names), "value")
        appended = batch.column("entries")
        if appended.null_count < len(appended):
            rows = _entry_rows(batch.filter(pc.is_valid(appended)))
            self._write(ENTRIES, self._without_standing(_after(rows, self._work.after[ENTRIES])), "entry")
        for copy in copies_in(_after(batch, self._work.after[ENTRIES])):
            self._take_copy(copy)

    def _take_copy(self, copy: dict[str, Any]) -> None:
        if copy["ts"] <= self._work.standing.get(copy["key"], -1):
            return
        at = {"shard": copy["shard"], "ts": copy["ts"], "seq": copy["seq"], "stream": copy["key"]}
        for entries in self._origin.copied(copy["key"], copy["value"], copy["ts"]):
            self._write(ENTRIES, _placed(entries, at), "entry")

    def _without_standing(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        standing = self._work.standing
        if not standing or not rows.num_rows:
            return rows
        streams = pa.array(list(standing), pa.binary())
        until = pa.array(list(standing.values()), pa.int64())
        had = pc.fill_null(pc.take(until, pc.index_in(rows.column("stream"), value_set=streams)), -1)
        return rows.filter(pc.greater(rows.column("ts"), had))

    # --- values that were there -----------------------------------------------------------------------------------

    def _take_values(self, batch: pa.RecordBatch) -> None:
        # Keys that went while values were read: the changes that follow have that, too.
        batch = batch.filter(pc.equal(batch.column("kind"), "value"))
        is_list = pc.equal(batch.column("type"), "list")
        if pc.any(is_list).as_py():
            self._take_lists(batch.filter(is_list))
            batch = batch.filter(pc.invert(is_list))
        # What a stream is to keep is told in a field of its own, and is no value.
        is_setting = pc.and_(pc.equal(batch.column("type"), "stream"), pc.is_valid(batch.column("field")))
        batch = batch.filter(pc.invert(is_setting))
        is_stream = pc.equal(batch.column("type"), "stream")
        rows = batch.select(["shard", "key", "field", "type", "value", "ts", "seq"])
        seqs = pa.repeat(pa.scalar(SEQ_INITIAL, pa.int32()), batch.num_rows)
        values = pc.if_else(is_stream, pa.scalar(None, pa.binary()), batch.column("value"))
        rows = rows.set_column(4, "value", values).set_column(6, "seq", seqs)
        self._write(CURRENT, rows.cast(file_schema(CURRENT)), "value")
        for stream in batch.filter(is_stream).to_pylist():
            first, last = (int(number) for number in stream["value"].split(b","))
            for entries in self._origin.standing(stream["key"], first, last):
                at = {"shard": stream["shard"], "ts": stream["ts"], "seq": SEQ_INITIAL, "stream": stream["key"]}
                self._write(ENTRIES, _placed(entries, at), "entry")

    def _take_lists(self, batch: pa.RecordBatch) -> None:
        rows = batch.select(file_schema(CHANGES).names)
        seqs = pc.add(rows.column("seq"), pa.scalar(SEQ_OF_LISTS, pa.int32()))
        self._write(CHANGES, rows.set_column(rows.schema.get_field_index("seq"), "seq", seqs), "value")

    # --- writing --------------------------------------------------------------------------------------------------

    def _write(self, table: str, rows: pa.RecordBatch, column: str) -> None:
        if table in self._json:
            rows, bad = self._json[table].expand(rows, column)
            if bad is not None:
                self._files.write(BAD, _after(bad, self._work.after[BAD]))
        self._files.write(table, rows)


def _without_own(batch: pa.RecordBatch) -> pa.RecordBatch:
    is_own = pc.starts_with(batch.column("key"), OWN_KEYS)
    if not pc.any(is_own).as_py():
        return batch
    return batch.filter(pc.invert(is_own))


def _after(rows: pa.RecordBatch, ts: int) -> pa.RecordBatch:
    """The rows after a ts. Rows are in the order of ts."""
    if not rows.num_rows or rows.column("ts")[0].as_py() > ts:
        return rows
    first = int(np.searchsorted(rows.column("ts").to_numpy(), ts, "right"))
    return rows.slice(first)


def _entry_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The entries of events, a row each."""
    lists = batch.column("entries")
    events = pc.list_parent_indices(lists)
    struct = pc.list_flatten(lists)
    parts = {name: pc.struct_field(struct, name) for name in ("offset", "id", "tag", "entry", "fields")}
    taken = {name: pc.take(batch.column(name), events) for name in ("shard", "ts", "seq")}
    ms = pc.list_element(pc.split_pattern(parts["id"], "-"), 0).cast(pa.uint64())
    columns = {
        "stream": pc.take(batch.column("key"), events),
        **parts,
        "timestamp": timestamps_of_ms(ms),
        **taken,
    }
    schema = file_schema(ENTRIES)
    return pa.RecordBatch.from_arrays([_as(columns[each.name], each.type) for each in schema], schema=schema)


def _placed(entries: pa.RecordBatch, at: Mapping[str, Any]) -> pa.RecordBatch:
    """Entries as rows of `entries`, with constant columns such as their stream."""
    schema = file_schema(ENTRIES)
    columns = []
    for each in schema:
        if each.name in at:
            columns.append(pa.repeat(pa.scalar(at[each.name], each.type), entries.num_rows))
        else:
            columns.append(_as(entries.column(each.name), each.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(column: Any, wanted: pa.DataType) -> Any:
    return column if column.type == wanted else column.cast(wanted)
