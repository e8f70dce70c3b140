"""Entries as columns: what a server sends becomes the batches that Spark was promised.

    stream string      the name of the stream
    offset bigint      the entry's place in the stream; null on a plain Redis, which does not number entries
    id string          `ms-seq`
    timestamp          the time in the id
    ms, seq bigint     the two halves of the id; null if they do not fit, as is the timestamp
    tag binary         of an X entry the value of its field `tag`, or empty
    entry binary       null for an X entry
    fields map         of an X entry; null for an entry with a tag

An *X entry* has fields, as XADD takes them. An X entry whose only fields are `tag` and `entry` is the same as an entry
with a tag, on every server.

A schema that the user gives decides which columns are made: some of these, in any order; `tag`, `entry` and `fields`
may also be strings. Nothing here runs once for each row, except taking the fields of X entries apart, and that only if
they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import hiredis
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.spark.source.columns import (
    WantedColumns,
    constant,
    fields_map,
    fitting,
    halves_of_ids,
    id_texts,
    timestamps_of_ms,
)

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


class EntryColumns(WantedColumns):
    """Makes batches of entries."""

    def __init__(self, schema: StructType) -> None:
        super().__init__(schema, SCHEMA, _MAY_BE)

    def batch(self, stream: str, entries: Entries) -> pa.RecordBatch:
        return self._made(lambda field: _cast(_MAKERS[field.name](stream, entries), field.type))


def _cast(column: Any, wanted: Any) -> Any:
    if column.type == wanted:
        return column
    if not pa.types.is_map(wanted):
        return column.cast(wanted)
    keys, items = column.keys.cast(wanted.key_type), column.items.cast(wanted.item_type)
    mask = column.is_null() if column.null_count else None
    return pa.MapArray.from_arrays(column.offsets, keys, items, mask=mask).cast(wanted)


def _offset(_stream: str, found: Entries) -> Any:
    return pa.nulls(len(found), pa.int64()) if found.offsets is None else fitting(found.offsets)


def _entry(_stream: str, found: Entries) -> Any:
    if found.is_fields is None:
        return found.entries
    return pc.if_else(found.is_fields, pa.scalar(None, pa.binary()), found.entries)


_MAKERS: Final[dict[str, Callable[[str, Entries], Any]]] = {
    "stream": lambda stream, found: constant(stream, pa.string(), len(found)),
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
