"""The kind `journal`: the records of a data directory, a backup or a snapshot, one row a record and key.

    shard int, lsn bigint      which record
    ts bigint, timestamp       of its transaction
    database int
    op string                  val, del, hset, … or 0xNN for an operation that this version does not know
    key binary                 null: it names no key, or every key (flushdb)
    value binary               of `val`, which sets a string
    expire timestamp           when the key is to expire
    flags int                  as they lie in the record
    payload binary             the whole of it, as it lies in the journal, in the first row of a record

    journal                    the folder, or a URL that fsspec knows (s3://…); `storage.*` are options of fsspec's
    since, until               transactions in a time: ISO times, or ts in µs; both ends included
    key, prefix                records that name this key, or keys that begin so; those that name every key come too
    partition_frames           frames of one task, 16 unless given
    skip_damage                true: leave out what is damaged, instead of failing
    pushdown                   as for streams

It takes no lock, and what no checksum or mark vouches for is left out: a directory that is being written can be read,
as far as its last mark. Frames are passed over without being read if their heads say that they lie outside of the time,
or their sidecar that they have none of the keys; filters on ts, timestamp, lsn and key do the same as the options. A
transaction over several shards is in the rows of each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog import limits
from tidelog.errors import Corruption, TooOld
from tidelog.ids import U64_MAX, ShardId
from tidelog.journal.inspection import JournalFolder, ShardInspection, locate
from tidelog.journal.operation import VAL, OperationTable
from tidelog.journal.record_inspection import RecordInfo, Selection, select_records
from tidelog.ports import Disk
from tidelog.spark.kind import Kind, check_columns
from tidelog.spark.options import Options, moment_us
from tidelog.spark.remote_disk import disk_of
from tidelog.store.type_table import operation_table

SCHEMA: Final = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("lsn", LongType()),
        StructField("ts", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("database", IntegerType()),
        StructField("op", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("expire", TimestampType()),
        StructField("flags", IntegerType()),
        StructField("payload", BinaryType()),
    ]
)
_MAY_BE: Final = {"key": (StringType(),), "value": (StringType(),)}
_OF_PAYLOADS: Final = frozenset(["key", "value", "payload"])
_TIMESTAMP_US_MAX: Final = 253_402_300_799_999_999


class JournalPart(InputPartition):
    """What one task reads: the records from one lsn to another, both included."""

    def __init__(self, shard: int, first: int, last: int) -> None:
        self.shard = shard
        self.first = first
        self.last = last


@dataclass(slots=True)
class ReadCounts:
    """What a task has read of the files."""

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

    def reader(self, schema: StructType) -> DataSourceReader:
        is_pushing = self.options.flag("pushdown", True)
        made = PushdownReader if is_pushing else JournalReader
        return made(self.target, self.options, schema)


def take_selection(options: Options) -> Selection:
    """Which records are wanted."""
    since, until = options.moment_us("since"), options.moment_us("until")
    key, prefix = options.text("key"), options.text("prefix")
    return Selection(
        ts_first=since or 0,
        ts_last=U64_MAX if until is None else until,
        keys=frozenset() if key is None else frozenset([key.encode()]),
        prefixes=frozenset() if prefix is None else frozenset([prefix.encode()]),
        control=False,
    )


class JournalReader(DataSourceReader):
    """Reads the files as they are now."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._target = target
        self._selection = take_selection(options)
        self._frames = options.number("partition_frames", 1) or limits.SPARK_PARTITION_FRAMES
        self._skip_damage = options.flag("skip_damage", False)
        self._storage = options.prefixed("storage.")
        options.end("a journal")
        check_columns(schema, SCHEMA, _MAY_BE)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        disk, place = self._locate()
        return [
            part for shard in place.shards for part in plan_shard(disk, place, shard, self._selection, self._frames)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.read_counted(partition, ReadCounts())

    def read_counted(self, partition: InputPartition, counts: ReadCounts) -> Iterator[pa.RecordBatch]:
        """The batches of a part; `counts` is told what that took."""
        if not isinstance(partition, JournalPart):  # Spark asks once also where there is nothing to read
            return
        disk, place = self._locate()
        wanted = replace(
            self._selection,
            lsn_first=max(partition.first, self._selection.lsn_first),
            lsn_last=min(partition.last, self._selection.lsn_last),
            payloads=not _OF_PAYLOADS.isdisjoint(self._schema.fieldNames()),
        )
        shard = ShardInspection(disk, place, ShardId(partition.shard), counts.add)
        try:
            rows = RecordRows(self._schema, operation_table(), wanted)
            for info in select_records(shard, rows.table, wanted):
                # The rest of a split record was joined to it already.
                if info.is_proved and not info.continues:
                    counts.records += 1
                    rows.add(info)
                    if rows.is_full:
                        yield rows.take()
            if not self._skip_damage and shard.damage:
                raise shard.damage[0]
            if len(rows):
                yield rows.take()
        finally:
            shard.close()

    def _locate(self) -> tuple[Disk, JournalFolder]:
        disk, path = disk_of(self._target, self._storage)
        return disk, locate(disk, path)


class PushdownReader(JournalReader):
    """The same, with filters. Spark refuses a reader that has this method where it is set to push nothing down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self._selection = narrowed(self._selection, each)
        return filters


def narrowed(selection: Selection, condition: Filter) -> Selection:
    """What a filter leaves; Spark evaluates it again, so that less would be a mistake and more is not."""
    attribute, value = getattr(condition, "attribute", ()), getattr(condition, "value", None)
    if attribute == ("key",) and not selection.prefixes:
        asked: list[Any] = [value] if isinstance(condition, EqualTo) else []
        asked = list(condition.value) if isinstance(condition, In) else asked
        found = frozenset(key.encode() if isinstance(key, str) else bytes(key) for key in asked if key is not None)
        if found and selection.keys:
            found &= selection.keys
        return replace(selection, keys=found) if found else selection
    if attribute == ("timestamp",) and hasattr(value, "tzinfo"):
        value = moment_us("timestamp", value)
    elif attribute not in (("ts",), ("lsn",)) or not isinstance(value, int):
        return selection
    first, last = ("lsn_first", "lsn_last") if attribute == ("lsn",) else ("ts_first", "ts_last")
    changes: dict[str, int] = {}
    if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
        changes[first] = max(getattr(selection, first), value)
    if isinstance(condition, EqualTo | LessThan | LessThanOrEqual):
        changes[last] = min(getattr(selection, last), value)
    return replace(selection, **changes)  # type: ignore[arg-type]


# --- tasks ------------------------------------------------------------------------------------------------------------


def plan_shard(disk: Disk, place: JournalFolder, shard: ShardId, wanted: Selection, frames: int) -> list[JournalPart]:
    """The tasks of a shard, from the heads of some of its frames; those that lie outside of the time are left out."""
    inspection = ShardInspection(disk, place, shard)
    source, frame_bytes = inspection.source, place.meta.geometry.frame_bytes
    heads: list[tuple[int, int]] = []
    try:
        for segment in inspection.list_segments():
            try:
                for at in range(0, source.size(segment), frames * frame_bytes):
                    header = source.frame_header(segment, at)
                    heads.append((header.lsn, header.ts))
            except TooOld:
                continue  # whoever reads it finds that it is no more
            except Corruption:
                # Whoever reads it says what is wrong: the task before, or one for it if there is none before.
                if not heads:
                    heads.append((segment, 0))
        if inspection.damage:
            raise inspection.damage[0]
    finally:
        inspection.close()
    parts = []
    for index, (lsn, ts) in enumerate(heads):
        next_lsn, next_ts = heads[index + 1] if index + 1 < len(heads) else (U64_MAX, U64_MAX)
        if ts <= wanted.ts_last and next_ts >= wanted.ts_first and lsn < next_lsn:
            parts.append(JournalPart(shard, lsn, next_lsn - 1))
    return parts


# --- rows -------------------------------------------------------------------------------------------------------------


class RecordRows:
    """Gathers rows, column by column."""

    def __init__(self, schema: StructType, table: OperationTable, wanted: Selection) -> None:
        self.table = table
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._wanted = wanted
        self._columns: list[tuple[str, list[Any]]] = [(name, []) for name in schema.fieldNames()]
        self._names: dict[int, str] = {}
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= limits.SPARK_BATCH_ROWS or self._bytes >= limits.SPARK_BATCH_BYTES

    def add(self, info: RecordInfo) -> None:
        payload = info.payload
        for key, value in self._pairs(info):
            members = {
                "shard": info.shard,
                "lsn": info.lsn,
                "ts": info.ts,
                "timestamp": info.ts if info.ts <= _TIMESTAMP_US_MAX else None,
                "database": info.database,
                "op": self._name(info.opcode),
                "key": key,
                "value": value,
                "expire": _expire_us(info.expire_ms),
                "flags": info.flags,
                "payload": payload,
            }
            for name, column in self._columns:
                column.append(members[name])
            self._count += 1
            payload = None  # a record may name hundreds of keys: with all of them it would be there as often
        self._bytes += info.payload_bytes

    def _pairs(self, info: RecordInfo) -> list[tuple[bytes | None, bytes | None]]:
        """The keys that a record names, as far as they are wanted, each with the string that it is set to."""
        if info.payload is None or self.table.get(info.opcode) is None:
            return [(None, None)]
        if info.opcode == VAL:
            pairs = self.table.decode(VAL, info.payload, info.expire_ms).pairs
            return [pair for pair in pairs if not self._wanted.has_keys or self._wanted.wants_any(pair[:1])]
        keys = self.table.keys(info.opcode, info.payload)
        if not keys:
            return [(None, None)]
        return [(key, None) for key in keys if not self._wanted.has_keys or self._wanted.wants_any([key])]

    def _name(self, opcode: int) -> str:
        name = self._names.get(opcode)
        if name is None:
            kind = self.table.get(opcode)
            name = self._names[opcode] = kind.name if kind is not None else f"0x{opcode:02x}"
        return name

    def take(self) -> pa.RecordBatch:
        arrays = []
        for field, (_, column) in zip(self._arrow, self._columns, strict=True):
            is_text = pa.types.is_string(field.type) and field.name != "op"
            arrays.append(pa.array(column, pa.binary()).cast(field.type) if is_text else pa.array(column, field.type))
            column.clear()
        self._count = self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _expire_us(expire_ms: int | None) -> int | None:
    return None if expire_ms is None or expire_ms * 1000 > _TIMESTAMP_US_MAX else expire_ms * 1000
