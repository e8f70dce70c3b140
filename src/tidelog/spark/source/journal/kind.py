"""The kind `journal`: the records of a data directory, a backup, a snapshot or a copy, one row for each record and key.

    shard int, lsn bigint      which record
    ts bigint, timestamp       of its transaction
    database int
    op string                  val, del, hset, … or 0xNN for an operation that this version does not know
    key binary                 null: the record names no key, or every key (flushdb)
    value binary               of `val`, which sets a string
    expire timestamp           when the key expires
    flags int                  as they are in the record
    payload binary             the whole payload, as it is in the journal, in the first row of a record

    journal                    the folder, a URL that fsspec knows (s3://…), or that of a copy in an object store;
                               `storage.*` are options for what opens it
    database_id                of a copy, if there are several databases in it
    ship_key_file              the key of an encrypted copy
    failOnDataLoss             of a copy: false: go on without transactions that it has lost, instead of failing
    since, until               transactions of a time: ISO times, or ts in µs; both ends included
    startingTimestamp          the same as `since`
    key, prefix                records that name this key, or keys with this prefix, and records that name every key
    partition_frames           frames of one task, 16 unless given
    minPartitions              at least so many tasks, if there are as many frames
    skip_damage                true: leave out what is damaged, instead of failing
    pushdown                   as for streams

Reading takes no lock. Records that no checksum or mark vouches for are left out, so a directory that is being written
can be read up to its last mark. Cold nodes that a snapshot refers to are rows `node` with the bytes that lie in its
node files; tasks share them evenly. A frame is skipped without being read if its head shows that it lies outside of the
time, or its sidecar that it has none of the keys; filters on ts, timestamp, lsn and key do the same as the options. A
transaction over several shards is in the rows of each of them.

Of a copy, the newest manifest is read once, and tasks open the same one by its number. A transaction is taken from one
of its lineages (`copies/runs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, Filter, In, InputPartition
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.ids import U64_MAX, ShardId
from tidelog.journal.inspection import JournalFolder, ShardInspection, locate
from tidelog.journal.record_inspection import Selection, select_records
from tidelog.ports import Disk
from tidelog.spark.copies.address import take_address
from tidelog.spark.copies.runs import HistoryRun, runs_between
from tidelog.spark.options import Options
from tidelog.spark.source.batch_reader import BatchReader, comparison
from tidelog.spark.source.columns import check_columns
from tidelog.spark.source.journal.heads import read_heads
from tidelog.spark.source.journal.nodes import OpenedReferences
from tidelog.spark.source.journal.rows import MAY_BE, SCHEMA, RecordRows
from tidelog.spark.source.kind import Kind
from tidelog.spark.source.loss import take_fail_on_loss
from tidelog.spark.source.pieces import take_pieces_min
from tidelog.store.type_table import operation_table

_OF_PAYLOADS: Final = frozenset(["key", "value", "payload"])


class JournalPart(InputPartition):
    """What one task reads: the records from one lsn to another, both included."""

    def __init__(
        self, shard: int, first: int, last: int, piece: int = 0, pieces: int = 1, run: HistoryRun | None = None
    ) -> None:
        self.run = run
        """Of a copy."""
        self.shard = shard
        self.first = first
        self.last = last
        self.piece = piece
        """Of the nodes that those records refer to, in so many ..."""
        self.pieces = pieces
        """... pieces; the records themselves are in the first."""


@dataclass(slots=True)
class ReadCounts:
    """How much of the files a task has read."""

    records: int = 0
    reads: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.reads += 1
        self.bytes += size


class JournalKind(Kind):
    """Files of a journal."""

    name: ClassVar[str] = "journal"

    def schema(self) -> StructType:
        return SCHEMA

    def batch_reader(self, schema: StructType) -> BatchReader[JournalPart]:
        return JournalFileReader(self.target, self.options, schema)


def take_selection(options: Options) -> Selection:
    """Which records are wanted."""
    options.one_of("since", "startingTimestamp")
    since, until = _take_since(options), options.moment_us("until")
    key, prefix = options.text("key"), options.text("prefix")
    return Selection(
        ts_first=since or 0,
        ts_last=U64_MAX if until is None else until,
        keys=frozenset() if key is None else frozenset([key.encode()]),
        prefixes=frozenset() if prefix is None else frozenset([prefix.encode()]),
        control=False,
    )


def _take_since(options: Options) -> int | None:
    starting = options.starting_us()
    return options.moment_us("since") if starting is None else starting


class JournalFileReader(BatchReader[JournalPart]):
    """Reads the files as they are now."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._selection = take_selection(options)
        self._frames = options.number("partition_frames", 1) or limits.SPARK_PARTITION_FRAMES
        self._skip_damage = options.flag("skip_damage", False)
        self._pieces_min = take_pieces_min(options) or 1
        self._fail_on_loss = take_fail_on_loss(options)
        self._since = _take_since(options)
        check_columns(schema, SCHEMA, MAY_BE)
        self._schema = schema
        self._address = take_address(options, target)
        options.end("a journal")

    def partitions(self) -> list[InputPartition]:
        frames = self._frames
        parts = self._planned(frames)
        while 0 < len(parts) < self._pieces_min and frames > 1:
            frames //= 2  # how many there are is known only once their heads are read
            parts = self._planned(frames)
        return parts

    def _planned(self, frames: int) -> list[InputPartition]:
        """The tasks, of so many frames each."""
        if self._address.is_copy:
            manifest = self._address.open_copy().manifest
            since = None if self._since is None else self._since - 1
            until = self._selection.ts_last
            runs = runs_between(manifest, since, until, fail_on_loss=self._fail_on_loss, url=self._address.url)
            return [part for run in runs for part in self._parts(run, frames)]
        return self._parts(None, frames)

    def _parts(self, run: HistoryRun | None, frames: int) -> list[InputPartition]:
        disk, place = self._locate(run)
        wanted = _within(self._selection, run)
        parts = [part for shard in place.shards for part in plan_shard(disk, place, shard, wanted, frames)]
        node_bytes = sum(each.length for each in place.meta.point.node_files) if place.meta.point is not None else 0
        pieces = max(1, -(-node_bytes // (limits.SPARK_NODES_BYTES * max(1, len(parts)))))
        return [
            JournalPart(part.shard, part.first, part.last, piece, pieces, run)
            for part in parts
            for piece in range(pieces)
        ]

    def narrow(self, filters: Sequence[Filter]) -> None:
        for each in filters:
            self._selection = _narrowed(self._selection, each)

    def read_part(self, part: JournalPart) -> Iterator[Any]:
        return self.read_counted(part, ReadCounts())

    def read_counted(self, part: JournalPart, counts: ReadCounts) -> Iterator[pa.RecordBatch]:
        """The batches of a part; `counts` is told what that took."""
        disk, place = self._locate(part.run)
        wanted = replace(
            _within(self._selection, part.run),
            lsn_first=max(part.first, self._selection.lsn_first),
            lsn_last=min(part.last, self._selection.lsn_last),
            payloads=_refers(place) or not _OF_PAYLOADS.isdisjoint(self._schema.fieldNames()),
        )
        shard = ShardInspection(disk, place, ShardId(part.shard), counts.add)
        try:
            rows = RecordRows(self._schema, operation_table(), wanted)
            has_payload = "payload" in self._schema.fieldNames()
            opened = OpenedReferences(disk, place, rows.table, part.piece, part.pieces, has_payload=has_payload)
            for info in select_records(shard, rows.table, wanted):
                # The other pieces of a split record were joined to its first.
                if info.is_proved and not info.continues:
                    counts.records += 1
                    for record in opened.records(info):
                        rows.add(record)
                        if rows.is_full:
                            yield rows.take()
            if not self._skip_damage and (damage := [*shard.damage, *opened.damage]):
                raise damage[0]
            if len(rows):
                yield rows.take()
        finally:
            shard.close()

    def _locate(self, run: HistoryRun | None) -> tuple[Disk, JournalFolder]:
        disk, path = self._address.open_folder("" if run is None else run.lineage)
        return disk, locate(disk, path)


def _within(selection: Selection, run: HistoryRun | None) -> Selection:
    """What is wanted of a run."""
    if run is None:
        return selection
    first, last = max(selection.ts_first, run.after + 1), min(selection.ts_last, run.last)
    return replace(selection, ts_first=first, ts_last=last)


def _refers(place: JournalFolder) -> bool:
    """Whether it is a snapshot that refers to nodes: then records have to be opened to know how many rows they are."""
    return place.meta.point is not None and bool(place.meta.point.node_files)


def _narrowed(selection: Selection, condition: Filter) -> Selection:
    """What a filter on keys, times or lsns leaves."""
    found = comparison(condition)
    if found.column == "key" and not selection.prefixes:
        return _narrowed_to_keys(selection, condition)
    if not isinstance(found.value, int):
        return selection
    if found.column == "lsn":
        first, last = found.bounded(selection.lsn_first, selection.lsn_last)
        return replace(selection, lsn_first=first, lsn_last=last)
    if found.column in ("ts", "timestamp"):
        first, last = found.bounded(selection.ts_first, selection.ts_last)
        return replace(selection, ts_first=first, ts_last=last)
    return selection


def _narrowed_to_keys(selection: Selection, condition: Filter) -> Selection:
    asked: list[Any] = [condition.value] if isinstance(condition, EqualTo) else []
    asked = list(condition.value) if isinstance(condition, In) else asked
    found = frozenset(key.encode() if isinstance(key, str) else bytes(key) for key in asked if key is not None)
    if found and selection.keys:
        found &= selection.keys
    return replace(selection, keys=found) if found else selection


# --- tasks ------------------------------------------------------------------------------------------------------------


def plan_shard(disk: Disk, place: JournalFolder, shard: ShardId, wanted: Selection, frames: int) -> list[JournalPart]:
    """The tasks of a shard, from the heads of some of its frames. Tasks outside of the wanted time are left out."""
    heads = read_heads(disk, place, shard, wanted, frames)
    parts = []
    for index, (lsn, ts) in enumerate(heads):
        next_lsn, next_ts = heads[index + 1] if index + 1 < len(heads) else (U64_MAX, U64_MAX)
        is_in_time = ts <= wanted.ts_last and next_ts >= wanted.ts_first
        if is_in_time and lsn <= wanted.lsn_last and max(lsn, wanted.lsn_first) < next_lsn:
            parts.append(JournalPart(shard, lsn, next_lsn - 1))
    return parts
