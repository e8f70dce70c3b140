"""Records of a journal as rows, one for each record and key. What the columns mean: see `kind`."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
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
from tidelog.journal.operation import VAL, OperationTable
from tidelog.journal.record_inspection import RecordInfo, Selection
from tidelog.spark.source.columns import TIMESTAMP_US_MAX

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
MAY_BE: Final = {"key": (StringType(),), "value": (StringType(),)}


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
                "timestamp": info.ts if info.ts <= TIMESTAMP_US_MAX else None,
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
            payload = None  # only in the first row: a record may name hundreds of keys
        self._bytes += info.payload_bytes

    def _pairs(self, info: RecordInfo) -> list[tuple[bytes | None, bytes | None]]:
        """The wanted keys that a record names, each with the string that it is set to."""
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
    return None if expire_ms is None or expire_ms * 1000 > TIMESTAMP_US_MAX else expire_ms * 1000
