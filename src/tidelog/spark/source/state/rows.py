"""Values of a moment as rows: one for each key and field. What the columns mean: see `kind`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import hiredis
import pyarrow as pa
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
from tidelog.spark.copies.past_shard import PastValue
from tidelog.spark.source.columns import TIMESTAMP_US_MAX, WantedColumns, constant
from tidelog.spark.source.feed.columns import list_json, stream_text
from tidelog.store.type_table import TypeTable
from tidelog.types.change import Change, bulk
from tidelog.types.list_value import List

SCHEMA: Final = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("key", BinaryType()),
        StructField("type", StringType()),
        StructField("field", BinaryType()),
        StructField("value", BinaryType()),
        StructField("expire", TimestampType()),
        StructField("ts", LongType()),
    ]
)
_MAY_BE: Final = {name: (StringType(),) for name in ("key", "field", "value")}


class StateColumns(WantedColumns):
    """Makes batches of values."""

    def __init__(self, schema: StructType) -> None:
        super().__init__(schema, SCHEMA, _MAY_BE)

    def made(self, make: Any) -> pa.RecordBatch:
        return self._made(make)


class StateRows:
    """Gathers the rows of one task, some at a time."""

    def __init__(self, columns: StateColumns, types: TypeTable, shard: int, ts: int) -> None:
        self._columns = columns
        self._types = types
        self._shard = shard
        self._ts = ts
        self._reader = hiredis.Reader()
        self._clear()

    def _clear(self) -> None:
        self._keys: list[bytes] = []
        self._kinds: list[bytes] = []
        self._fields: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._expiries: list[int | None] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def _is_full(self) -> bool:
        return len(self._keys) >= limits.SPARK_BATCH_ROWS or self._bytes >= limits.SPARK_BATCH_BYTES

    def add(self, found: PastValue) -> Iterator[pa.RecordBatch]:
        """The rows of one key, which may be many; the batches that are full with them."""
        if type(found.value) is bytes:
            self._add(found.key, b"string", None, found.value, found.expire_ms)
            if self._is_full:
                yield self.take()
            return
        changes = self._types.of(found.value).initial(found.key, found.value)
        if type(found.value) is List:
            # A long one comes in pieces, whose order rows would lose.
            elements = [element for change in changes for element in self._decoded(change)]
            self._add(found.key, b"list", None, list_json(elements), found.expire_ms)
            return
        for change in changes:
            self._add(found.key, change.type, change.field, self._plain(change), found.expire_ms)
            if self._is_full:
                yield self.take()

    def _add(self, key: bytes, kind: bytes, field: bytes | None, value: bytes | None, expire_ms: int | None) -> None:
        self._keys.append(key)
        self._kinds.append(kind)
        self._fields.append(field)
        self._values.append(value)
        self._expiries.append(expire_ms)
        self._bytes += len(key) + len(field or b"") + len(value or b"")

    def _plain(self, change: Change) -> bytes | None:
        """The value of a change, which is encoded for a connection."""
        value = self._decoded(change)
        return value if isinstance(value, bytes) else stream_text(value)

    def _decoded(self, change: Change) -> Any:
        encoded = change.value
        if encoded is None:
            return None
        if not isinstance(encoded, bytes):
            encoded = b"".join(
                piece if isinstance(piece, bytes) else bulk(piece.read(0, piece.size)) for piece in encoded
            )
        self._reader.feed(encoded)
        return self._reader.gets()

    def take(self) -> pa.RecordBatch:
        """What was gathered."""
        batch = self._columns.made(self._column)
        self._clear()
        return batch

    def _column(self, field: Any) -> Any:
        column = self._raw(field)
        return column if column.type == field.type else column.cast(field.type)

    def _raw(self, field: Any) -> Any:
        match field.name:
            case "shard":
                return constant(self._shard, field.type, len(self))
            case "ts":
                return constant(self._ts, field.type, len(self))
            case "key":
                return pa.array(self._keys, pa.binary())
            case "type":
                return pa.array(self._kinds, pa.binary())
            case "field":
                return pa.array(self._fields, pa.binary())
            case "value":
                return pa.array(self._values, pa.binary())
            case _:
                us = [ms and (ms * 1000 if ms <= TIMESTAMP_US_MAX // 1000 else None) for ms in self._expiries]
                return pa.array(us, pa.timestamp("us", "UTC"))
