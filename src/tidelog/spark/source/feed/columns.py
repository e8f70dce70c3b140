"""Events as columns: what a feed sends becomes the batches that Spark was promised.

    shard int           the shard of the key
    ts bigint           the time of the transaction in µs: unique, and increasing
    seq int             the event's number among those of its transaction in its shard, from 0
    timestamp           the ts as a time
    kind string         `value`, or `deleterange`: every key from `key` up to but not including `end` is gone
    key binary
    type string         string, hash, set, zset, list, stream; none: the whole key is gone; null for a deleterange
    field binary        of a hash; the member of a set or sorted set; of a list: the operation (`lpush` ...); of a
                        stream: `evict`, `del`, `setid`, `copy` or `config`
    value binary        null: the key or that field is gone, or entries were appended
    end binary          of a deleterange; empty: there is no end
    entries array       what was appended to a stream: offset bigint, id string, tag binary, entry binary, and fields
                        map, which X entries have in place of an entry

Numbers about a stream are text in `value`, separated by commas: of `evict` the first offset that remains, of `del` the
offsets that were deleted, and of an initial value the first and the last offset of the stream. `setid` (XSETID, and a
stream that was copied from another shard) has these two, the last id, the largest deleted id, and how many entries were
added. `copy` (RENAME, COPY and MOVE) has the same, then the database and the key of the stream that was copied.

What a list's operation did is JSON in `value`, as `tidelog feed` prints it: `["a", "b"]` after a push. So are the
elements of an initial value, which has no field.

`(ts, seq)` orders all changes of a shard, and a key is always in the same shard. A transaction has its events in the
same order whenever it is sent, so `seq` is the same whenever it is read with the same spans.

Only events of streams and lists cost Python work for each event. Columns that are not in the schema are not made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.resp.json_form import reply_to_json
from tidelog.spark.source.columns import WantedColumns, fields_map, timestamps_of_us

_ENTRY: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("id", StringType()),
        StructField("tag", BinaryType()),
        StructField("entry", BinaryType()),
        StructField("fields", MapType(BinaryType(), BinaryType())),
    ]
)
SCHEMA: Final = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("ts", LongType()),
        StructField("seq", IntegerType()),
        StructField("timestamp", TimestampType()),
        StructField("kind", StringType()),
        StructField("key", BinaryType()),
        StructField("type", StringType()),
        StructField("field", BinaryType()),
        StructField("value", BinaryType()),
        StructField("end", BinaryType()),
        StructField("entries", ArrayType(_ENTRY)),
    ]
)
_MAY_BE: Final = {name: (StringType(),) for name in ("key", "field", "value", "end")}
_VALUE_ITEMS: Final = 6
"""Of an event `value`; a `deleterange` has fewer."""

RawEvent = Sequence[Any]
"""As it was sent: `[b"value", ts, key, type, field, value]` or `[b"deleterange", ts, start, end]`."""


class Events(NamedTuple):
    """Some events of one shard, by column."""

    shard: int
    ts: Any
    seqs: Any
    kinds: Sequence[bytes] | None
    """None: all are values."""
    keys: Sequence[bytes]
    types: Sequence[bytes | None]
    fields: Sequence[bytes | None]
    values: Sequence[Any]
    ends: Sequence[bytes | None] | None
    """None: nothing has an end."""

    def __len__(self) -> int:
        return len(self.keys)


class ShardProgress(NamedTuple):
    """How far a shard was read: the newest transaction, and how many of its events."""

    ts: int
    events: int


def gathered(shard: int, events: list[RawEvent], before: ShardProgress) -> tuple[Events, ShardProgress]:
    """Events by column (there must be one), and how far the shard is read with them."""
    kinds = ends = None
    if set(map(len, events)) != {_VALUE_ITEMS}:
        ends = [None if len(event) == _VALUE_ITEMS else event[3] for event in events]
        events = [event if len(event) == _VALUE_ITEMS else [*event[:3], None, None, None] for event in events]
        kinds = [event[0] for event in events]
    _, ts, keys, types, fields, values = zip(*events, strict=True)
    times = np.array(ts, np.int64)
    seqs = _seqs(times, before)
    place = ShardProgress(int(times[-1]), int(seqs[-1]) + 1)
    return Events(shard, times, seqs, kinds, keys, types, fields, values, ends), place


def _seqs(times: Any, before: ShardProgress) -> Any:
    """The place of each event among those of its ts."""
    at = np.arange(len(times))
    begins = np.zeros(len(times), np.int64)
    begins[1:] = np.where(times[1:] != times[:-1], at[1:], 0)
    seqs = at - np.maximum.accumulate(begins)
    if times[0] == before.ts:
        seqs[: np.searchsorted(times != before.ts, True)] += before.events
    return seqs


class EventColumns(WantedColumns):
    """Makes batches of events."""

    def __init__(self, schema: StructType) -> None:
        super().__init__(schema, SCHEMA, _MAY_BE)

    def batch(self, events: Events) -> pa.RecordBatch:
        def made(field: Any) -> Any:
            column = _MAKERS[field.name](events, field.type)
            return column if column.type == field.type else column.cast(field.type)

        return self._made(made)


def _kinds(events: Events, _type: Any) -> Any:
    if events.kinds is None:
        return pa.repeat(pa.scalar("value", pa.string()), len(events))
    return pa.array(events.kinds, pa.binary())


def _values(events: Events, _type: Any) -> Any:
    values = events.values
    if b"list" in events.types:
        pairs = zip(events.types, values, strict=True)
        values = [list_json(value) if kind == b"list" else value for kind, value in pairs]
    if b"stream" in events.types:
        values = [value if type(value) is bytes else stream_text(value) for value in values]
    return pa.array(values, pa.binary())


def list_json(value: Any) -> bytes:
    """What an event says about a list: what was done to it, or its elements."""
    return json.dumps(reply_to_json(value), ensure_ascii=False, separators=(",", ":")).encode()


def stream_text(value: Any) -> bytes | None:
    """What an event says about a stream in numbers and ids, as text; None: nothing, or entries were appended."""
    if value is None or _has_entries(value):
        return None
    if isinstance(value, int):
        return b"%d" % value
    return b",".join(item if isinstance(item, bytes) else b"%d" % item for item in value)


def _has_entries(value: Any) -> bool:
    return isinstance(value, list) and (not value or isinstance(value[0], list))


def _ends(events: Events, _type: Any) -> Any:
    return pa.nulls(len(events), pa.binary()) if events.ends is None else pa.array(events.ends, pa.binary())


def _entries(events: Events, wanted: Any) -> Any:
    if b"stream" not in events.types:
        return pa.nulls(len(events), wanted)
    values = events.values
    if b"list" in events.types:
        pairs = zip(events.types, values, strict=True)
        values = [None if kind == b"list" else value for kind, value in pairs]
    chosen = np.fromiter(map(_has_entries, values), bool, len(values))
    sizes = np.zeros(len(values) + 1, np.int32)
    runs = [value for value, has_entries in zip(values, chosen, strict=True) if has_entries]
    sizes[1:][chosen] = list(map(len, runs))
    flat = list(chain.from_iterable(runs))
    columns: Any = zip(*flat, strict=True) if flat else ((), (), (), ())
    offsets, ids, tags, entries = columns
    is_fields = [isinstance(entry, list) for entry in entries]
    plain = [None if has_fields else entry for entry, has_fields in zip(entries, is_fields, strict=True)]
    flats = [entry for entry, has_fields in zip(entries, is_fields, strict=True) if has_fields]
    struct = wanted.value_type
    arrays = [
        pa.array(offsets, pa.int64()),
        pa.array(ids, pa.binary()).cast(pa.string()),
        pa.array(tags, pa.binary()),
        pa.array(plain, pa.binary()),
        fields_map(pa.array(is_fields, pa.bool_()), flats).cast(struct.field("fields").type),
    ]
    items = pa.StructArray.from_arrays(arrays, fields=list(struct))
    ends = pa.array(sizes.cumsum(dtype=np.int32), pa.int32())
    return pa.ListArray.from_arrays(ends, items, type=wanted, mask=pa.array(~chosen))


_MAKERS: Final[dict[str, Callable[[Events, Any], Any]]] = {
    "shard": lambda events, _: pa.repeat(pa.scalar(events.shard, pa.int32()), len(events)),
    "ts": lambda events, _: pa.array(events.ts, pa.int64()),
    "seq": lambda events, _: pa.array(events.seqs, pa.int64()),
    "timestamp": lambda events, _: timestamps_of_us(pa.array(events.ts, pa.int64())),
    "kind": _kinds,
    "key": lambda events, _: pa.array(events.keys, pa.binary()),
    "type": lambda events, _: pa.array(events.types, pa.binary()),
    "field": lambda events, _: pa.array(events.fields, pa.binary()),
    "value": _values,
    "end": _ends,
    "entries": _entries,
}
