"""Tables as one value, which the JVM passes on without making rows of it; and the bucket of each row.

A shuffle through the JVM costs per row. So a task divides what it has by bucket, and hands on one value for each:

    bucket int, rows bigint, tables binary        tables: length 4 | Arrow stream, once for each table
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

_LENGTH: Final = struct.Struct("<I")
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")

PACKED: Final = "bucket int, rows bigint, tables binary"
_SCHEMA: Final = pa.schema([("bucket", pa.int32()), ("rows", pa.int64()), ("tables", pa.binary())])


def packed(tables: Sequence[pa.Table]) -> bytes:
    made = []
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
            writer.write_table(table.combine_chunks())
        data = sink.getvalue().to_pybytes()
        made += [_LENGTH.pack(len(data)), data]
    return b"".join(made)


def unpacked(data: bytes) -> list[pa.Table]:
    found, at = [], 0
    view = memoryview(data)
    while at < len(data):
        [length] = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        found.append(pa.ipc.open_stream(view[at : at + length]).read_all())
        at += length
    return found


def packed_row(bucket: int, tables: Sequence[pa.Table]) -> pa.RecordBatch:
    """One row of `PACKED`."""
    count = sum(map(len, tables))
    return pa.record_batch([[bucket], [count], [packed(tables)]], schema=_SCHEMA)


def buckets_of(keys: Any, count: int) -> Any:
    """The bucket of each key. It never changes: files are divided by it."""
    if count == 1:
        return np.zeros(len(keys), np.int64)
    found = np.fromiter(map(zlib.crc32, keys.to_pylist()), np.uint32, len(keys))
    return (found % count).astype(np.int64)


def divided(table: pa.Table, key: str, count: int) -> list[pa.Table]:
    """A table divided by the buckets of a column, in order."""
    if count == 1:
        return [table]
    buckets = buckets_of(table[key], count)
    order = np.argsort(buckets, kind="stable")
    table = table.take(pa.array(order))
    ends = np.searchsorted(buckets[order], np.arange(count + 1))
    return [table.slice(ends[number], ends[number + 1] - ends[number]) for number in range(count)]


def portions(batches: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[list[list[pa.Table]]]:
    """What was packed, some rows at a time."""
    some: list[list[pa.Table]] = []
    count = 0
    for batch in batches:
        for rows, data in zip(batch.column("rows").to_pylist(), batch.column("tables"), strict=True):
            some.append(unpacked(data.as_py()))
            count += rows
            if count >= rows_max:
                yield some
                some, count = [], 0
    if some:
        yield some
