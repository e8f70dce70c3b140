"""The tables of a lake: their columns, how they are divided, and what else is said about them.

    changes   what changed, a row for each event, appended only; by day
    current   what holds: a row for each key and field that exists; a stream is one row without field and value
    entries   what was appended to streams, a row for each entry, appended only; by day
    bad       with JSON columns: what did not fit them, once more and with the reason

`day` is the UTC date of `ts`. Keys, fields and values are bytes and stay bytes. `(ts, seq)` orders all that happens
in a shard, and a key is always in the same shard; a row that was there when the lake began has `seq` = `SEQ_INITIAL`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

CHANGES: Final = "changes"
CURRENT: Final = "current"
ENTRIES: Final = "entries"
BAD: Final = "bad"

DAY: Final = "day"
SEQ_INITIAL: Final = 2**31 - 1
"""Later than all events of its ts: a value that was read at a ts has all that happened up to it."""

_TIME: Final = pa.timestamp("us", "UTC")
_BYTES: Final = pa.binary()

SCHEMAS: Final[dict[str, pa.Schema]] = {
    CHANGES: pa.schema(
        [
            ("shard", pa.int32()),
            ("ts", pa.int64()),
            ("seq", pa.int32()),
            ("timestamp", _TIME),
            ("kind", pa.string()),
            ("key", _BYTES),
            ("type", pa.string()),
            ("field", _BYTES),
            ("value", _BYTES),
            ("end", _BYTES),
            (DAY, pa.date32()),
        ]
    ),
    CURRENT: pa.schema(
        [
            ("shard", pa.int32()),
            ("key", _BYTES),
            ("field", _BYTES),
            ("type", pa.string()),
            ("value", _BYTES),
            ("ts", pa.int64()),
            ("seq", pa.int32()),
        ]
    ),
    ENTRIES: pa.schema(
        [
            ("stream", _BYTES),
            ("offset", pa.int64()),
            ("id", pa.string()),
            ("timestamp", _TIME),
            ("tag", _BYTES),
            ("entry", _BYTES),
            ("fields", pa.map_(_BYTES, _BYTES)),
            ("shard", pa.int32()),
            ("ts", pa.int64()),
            ("seq", pa.int32()),
            (DAY, pa.date32()),
        ]
    ),
    BAD: pa.schema(
        [
            ("table", pa.string()),
            ("shard", pa.int32()),
            ("ts", pa.int64()),
            ("seq", pa.int32()),
            ("key", _BYTES),
            ("field", _BYTES),
            ("offset", pa.int64()),
            ("value", _BYTES),
            ("reason", pa.string()),
        ]
    ),
}
"""The columns that a table always has; those of JSON values follow them."""

DIVIDED: Final = (CHANGES, ENTRIES)
"""Tables in which each day is a folder."""

_ALL: Final = {
    # What is said to have statistics must have them in every file, or readers that look for other values pass it over.
    "delta.dataSkippingStatsColumns": "ts",
}
PROPERTIES: Final[dict[str, dict[str, str]]] = {
    **{name: {**_ALL, "delta.logRetentionDuration": "interval 1 days"} for name in (CHANGES, ENTRIES, BAD)},
    CURRENT: {
        **_ALL,
        # It is rewritten all the time: what it was is in `changes`.
        "delta.logRetentionDuration": "interval 1 hours",
        "delta.deletedFileRetentionDuration": "interval 15 minutes",
    },
}


def taken_names(table: str) -> frozenset[str]:
    """What no JSON column may be called: what changes bring is in `current`, too, by the same name."""
    alike = (CHANGES, CURRENT) if table in (CHANGES, CURRENT) else (table,)
    return frozenset(name for each in alike for name in SCHEMAS[each].names)


def file_schema(table: str) -> pa.Schema:
    """Of a file: the day is in the name of its folder."""
    schema = SCHEMAS[table]
    return schema.remove(schema.get_field_index(DAY)) if table in DIVIDED else schema
