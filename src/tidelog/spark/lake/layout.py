"""The tables of a lake: their columns, how they are partitioned, and their settings.

    changes   what changed: a row for each event, only appended; by day
    current   the current state: a row for each key and field that exists; a stream is one row without field and value,
              and a list is not in it
    entries   what was appended to streams: a row for each entry, only appended; by day
    bad       with JSON columns: values that did not fit them, once more and with the reason

`day` is the UTC date of `ts`. Keys, fields and values are bytes and stay bytes. `(ts, seq)` orders all changes of a
shard, and a key is always in the same shard. A row that existed when the lake began has `seq` = `SEQ_INITIAL`;
the rows of a list, which are in `changes`, count from `SEQ_OF_LISTS`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidelog.spark.delta.table import keep_history

CHANGES: Final = "changes"
CURRENT: Final = "current"
ENTRIES: Final = "entries"
BAD: Final = "bad"

DAY: Final = "day"
SEQ_INITIAL: Final = 2**31 - 1
"""Later than all events of its ts: a value that was read at a ts includes all changes up to it."""
SEQ_OF_LISTS: Final = 2**30
"""The same for lists, which may be several rows in order."""

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
    # Every file must have statistics of these columns: readers skip a file without them.
    "delta.dataSkippingStatsColumns": "ts",
}
PROPERTIES: Final[dict[str, dict[str, str]]] = {
    **{name: {**_ALL, **keep_history("1 days")} for name in (CHANGES, ENTRIES, BAD)},
    # It is rewritten all the time; its earlier states can be found in `changes`.
    CURRENT: {**_ALL, **keep_history("1 hours", "15 minutes")},
}


def taken_names(table: str) -> frozenset[str]:
    """Names that no JSON column may have. `changes` and `current` share theirs, as rows go from one to the other."""
    alike = (CHANGES, CURRENT) if table in (CHANGES, CURRENT) else (table,)
    return frozenset(name for each in alike for name in SCHEMAS[each].names)


def file_schema(table: str) -> pa.Schema:
    """The columns of a file. The day is in the name of its folder."""
    schema = SCHEMAS[table]
    return schema.remove(schema.get_field_index(DAY)) if table in DIVIDED else schema
