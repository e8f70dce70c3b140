"""Entries as columns: what a server gives becomes the batches that Spark was promised.

    stream string      the name of the stream
    offset bigint      its place in the stream; null on a plain Redis, which counts nothing
    id string          `ms-seq`
    timestamp          the time in the id
    ms, seq bigint     the two halves of the id; null if they do not fit, as the timestamp is
    tag binary         of an X entry the value of its field `tag`, or empty
    entry binary       null for an X entry
    fields map         of an X entry; null for one that has a tag and an entry

An *X entry* is one with fields, as XADD takes them. One whose fields are `tag` and `entry` alone is the same thing as a
tag and an entry, on every server.

Spark prunes no columns of such a source, so a schema that the user gives decides what is made: some of these columns,
in any order, `tag`, `entry` and `fields` also as strings. Nothing here runs once a row, apart from taking the fields of
X entries apart, and that only if they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import hiredis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog import limits
from tidelog.spark.kind import check_columns

SCHEMA: Final = StructType(
    [
        StructField("stream", StringType()),
        StructField("offset", LongType()),
        StructField("id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("ms", LongType()),
        StructField("seq", LongType()),
        StructField("tag", BinaryType()),
        StructField("entry", BinaryType()),
        StructField("fields", MapType(BinaryType(), BinaryType())),
    ]
)
_MAY_BE: Final = {
    "tag": (StringType(),),
    "entry": (StringType(),),
    "fields": (MapType(StringType(), StringType()), MapType(StringType(), BinaryType())),
}
_LONG_MAX: Final = 2**63 - 1
_TIMESTAMP_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999: Python and Spark know none later."""
_FIELDS: Final = 1
"""The kind of an X entry, as Flight has it."""
_MAP: Final = pa.map_(pa.binary(), pa.binary())


class Entries(NamedTuple):
    """Some entries of one stream."""

    offsets: Any
    """None: there are none."""
    ms: Any
    seqs: Any
    is_fields: Any
    """Which of them are X entries; None: none is."""
    tags: Any
    entries: Any
    fields: Callable[[], Any]
    """Makes the map of X entries, with nulls for the others."""

    def __len__(self) -> int:
        return len(self.ms)


class EntryColumns:
    """Makes batches of the columns that are wanted."""

    def __init__(self, schema: StructType) -> None:
        check_columns(schema, SCHEMA, _MAY_BE)
        self._schema = schema

    def batch(self, stream: str, entries: Entries) -> pa.RecordBatch:
        arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
        columns = []
        for field in arrow_schema:
            column = _MAKERS[field.name](stream, entries)
            columns.append(column if column.type == field.type else _cast(column, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def _cast(column: Any, wanted: Any) -> Any:
    if not pa.types.is_map(wanted):
        return column.cast(wanted)
    keys, items = column.keys.cast(wanted.key_type), column.items.cast(wanted.item_type)
    mask = column.is_null() if column.null_count else None
    return pa.MapArray.from_arrays(column.offsets, keys, items, mask=mask).cast(wanted)


def _constant(value: str, count: int) -> Any:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def fitting(column: Any, most: int = _LONG_MAX) -> Any:
    """Numbers of 64 bits without a sign as such with one; null for what does not fit."""
    if len(column) and pc.max(column).as_py() > most:
        column = pc.if_else(pc.less_equal(column, pa.scalar(most, pa.uint64())), column, pa.scalar(None, pa.uint64()))
    return column.cast(pa.int64())


def id_texts(ms: Any, seqs: Any) -> Any:
    return pc.binary_join_element_wise(ms.cast(pa.string()), seqs.cast(pa.string()), "-")


def halves_of_ids(ids: Sequence[bytes]) -> tuple[Any, Any]:
    halves = pc.split_pattern(pa.array(ids, pa.binary()).cast(pa.string()), "-")
    return tuple(pc.list_element(halves, index).cast(pa.uint64()) for index in (0, 1))


def timestamps_of_ms(ms: Any) -> Any:
    """Null for what is too late to be one."""
    us = pc.multiply(fitting(ms, _TIMESTAMP_MS_MAX), pa.scalar(1000, pa.int64()))
    return us.cast(pa.timestamp("us", "UTC"))


def _offset(_stream: str, found: Entries) -> Any:
    return pa.nulls(len(found), pa.int64()) if found.offsets is None else fitting(found.offsets)


def _entry(_stream: str, found: Entries) -> Any:
    if found.is_fields is None:
        return found.entries
    return pc.if_else(found.is_fields, pa.scalar(None, pa.binary()), found.entries)


_MAKERS: Final[dict[str, Callable[[str, Entries], Any]]] = {
    "stream": lambda stream, found: _constant(stream, len(found)),
    "offset": _offset,
    "id": lambda _, found: id_texts(found.ms, found.seqs),
    "timestamp": lambda _, found: timestamps_of_ms(found.ms),
    "ms": lambda _, found: fitting(found.ms),
    "seq": lambda _, found: fitting(found.seqs),
    "tag": lambda _, found: found.tags,
    "entry": _entry,
    "fields": lambda _, found: found.fields(),
}


# --- from Flight ------------------------------------------------------------------------------------------------------


def from_flight(batch: pa.RecordBatch) -> Entries:
    kinds = batch.column("kind")
    is_fields = pc.equal(kinds, _FIELDS) if len(kinds) and pc.max(kinds).as_py() else None
    raw = batch.column("entry")

    def fields() -> Any:
        if is_fields is None:
            return pa.nulls(len(kinds), _MAP)
        return fields_map(is_fields, _parsed(pc.filter(raw, is_fields)))

    offsets, ms, seqs = (batch.column(name) for name in ("offset", "ms", "seq"))
    return Entries(offsets, ms, seqs, is_fields, batch.column("tag"), raw, fields)


def _parsed(raw: Any) -> list[list[bytes]]:
    """The fields and values of X entries, which lie there as RESP arrays."""
    reader = hiredis.Reader()
    found = []
    for entry in raw.to_pylist():
        reader.feed(entry)
        found.append(reader.gets())
    return found


def fields_map(is_fields: Any, flats: Sequence[Sequence[bytes]]) -> Any:
    """The map of each entry that has fields, null for the others. `flats`: field, value, field, value …"""
    chosen = is_fields.to_numpy(zero_copy_only=False)
    sizes = np.zeros(len(chosen) + 1, np.int32)
    sizes[1:][chosen] = [len(flat) // 2 for flat in flats]
    words = [word for flat in flats for word in flat]
    offsets = pa.array(sizes.cumsum(dtype=np.int32), pa.int32())
    keys, values = pa.array(words[::2], pa.binary()), pa.array(words[1::2], pa.binary())
    return pa.MapArray.from_arrays(offsets, keys, values, mask=pa.array(~chosen))


# --- from XRANGE ------------------------------------------------------------------------------------------------------


def from_xrange(reply: Sequence[tuple[bytes, list[bytes]]]) -> Entries:
    ms, seqs = halves_of_ids([identity for identity, _ in reply])
    chosen = [len(flat) != 4 or flat[0] != b"tag" or flat[2] != b"entry" for _, flat in reply]
    tags = [_tag_of(flat) for _, flat in reply]
    entries = [None if is_fields else flat[3] for is_fields, (_, flat) in zip(chosen, reply, strict=True)]
    is_fields = pa.array(chosen, pa.bool_())

    def fields() -> Any:
        return fields_map(is_fields, [flat for is_chosen, (_, flat) in zip(chosen, reply, strict=True) if is_chosen])

    return Entries(None, ms, seqs, is_fields, pa.array(tags, pa.binary()), pa.array(entries, pa.binary()), fields)


def _tag_of(flat: list[bytes]) -> bytes:
    return next((value for name, value in zip(flat[::2], flat[1::2], strict=True) if name == b"tag"), b"")


# --- batches of a good size -------------------------------------------------------------------------------------------


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of the size that Spark is quickest with."""
    gathered: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= limits.SPARK_BATCH_ROWS or size >= limits.SPARK_BATCH_BYTES:
            yield pa.concat_batches(gathered) if len(gathered) > 1 else batch
            gathered, count, size = [], 0, 0
    if gathered:
        yield pa.concat_batches(gathered) if len(gathered) > 1 else gathered[0]
