"""Nodes of a stream as record batches for readers: the server opens them, or the reader does.

All batches of entries have one schema, whatever columns a node has:

    offset u64 | ms u64 | seq u64 | kind u8 | tag binary | entry binary

A reader that asks for `packed` nodes gets them as they lie in the server, and opens them itself:

    start u32 | stop u32 | node binary      the entries between two places of a node, which is an Arrow IPC stream

Old nodes are compressed, and opening them costs the server more than everything else it does to send them. Packed, the
readers open them, and the network carries the compressed bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.streams.node import Rows

SCHEMA: Final = pa.schema(
    [
        ("offset", pa.uint64()),
        ("ms", pa.uint64()),
        ("seq", pa.uint64()),
        ("kind", pa.uint8()),
        ("tag", pa.binary()),
        ("entry", pa.binary()),
    ]
)
PACKED: Final = pa.schema([("start", pa.uint32()), ("stop", pa.uint32()), ("node", pa.binary())])

_COLUMNS_MIN: Final = 4
"""The schema of a node whose entries are all of one kind, without holes."""
_ONE_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""A node is small: handing its columns to other threads costs more than opening it."""


class Opened(NamedTuple):
    """Entries of a node that was opened, which takes time if it is compressed."""

    node: Any
    """A record batch: that of a sealed node, or one with all columns."""
    start: int
    stop: int


def opened_rows(rows: Rows) -> Opened:
    """Entries of an active node."""
    columns = [
        pa.array(rows.offsets, pa.uint64()),
        pa.array(rows.ms, pa.uint64()),
        pa.array(rows.seqs, pa.uint64()),
        pa.array(list(rows.kinds), pa.uint8()),
        pa.array(rows.tags, pa.binary()),
        pa.array(rows.entries, pa.binary()),
    ]
    return Opened(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), 0, len(rows.entries))


def joined(opened: list[Opened]) -> pa.RecordBatch:
    """The entries of some nodes, of which there is at least one, in one batch."""
    if len(opened) == 1:
        return _batch(opened[0])
    if any(node.num_columns != _COLUMNS_MIN for node, _, _ in opened):
        return pa.concat_batches([_batch(each) for each in opened])
    # Nearly always: what they do not have as columns is made once for all of them.
    batch = pa.concat_batches([node.slice(start, stop - start) for node, start, stop in opened])
    offsets, kinds = [], []
    for node, start, stop in opened:
        metadata = node.schema.metadata
        base = int(metadata[b"base"])
        offsets.append(np.arange(base + start, base + stop, dtype=np.uint64))
        kinds.append(int(metadata[b"kind"]))
    counts = [stop - start for _, start, stop in opened]
    all_kinds = np.repeat(np.array(kinds, dtype=np.uint8), counts)
    return _whole(batch, pa.array(np.concatenate(offsets)), pa.array(all_kinds))


def _whole(batch: pa.RecordBatch, offsets: Any, kinds: Any) -> pa.RecordBatch:
    columns = [offsets, batch.column("ms"), batch.column("seq"), kinds]
    return pa.RecordBatch.from_arrays([*columns, batch.column("tag"), batch.column("entry")], schema=SCHEMA)


def _batch(opened: Opened) -> pa.RecordBatch:
    batch, start, stop = opened
    names, metadata = batch.schema.names, batch.schema.metadata
    if "offset" in names:
        offsets = batch.column("offset")
    else:
        base = int(metadata[b"base"])
        offsets = pa.array(np.arange(base, base + batch.num_rows, dtype=np.uint64))
    if "kind" in names:
        kinds = batch.column("kind")
    else:
        kinds = pa.array(np.full(batch.num_rows, int(metadata[b"kind"]), dtype=np.uint8))
    return _whole(batch, offsets, kinds).slice(start, stop - start)


def unpacked(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The entries of packed nodes, in batches that end when they have one of these. On the side of the reader."""
    gathered: list[Opened] = []
    count = size = 0
    for batch in batches:
        starts, stops = batch.column("start").to_pylist(), batch.column("stop").to_pylist()
        for start, stop, packed in zip(starts, stops, batch.column("node"), strict=True):
            found = Opened(_open(packed.as_buffer()), start, stop)
            gathered.append(found)
            count += stop - start
            size += found.node.nbytes
            if count >= rows_max or size >= bytes_max:
                yield joined(gathered)
                gathered, count, size = [], 0, 0
    if gathered:
        yield joined(gathered)


def _open(data: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.BufferReader(data), options=_ONE_THREAD) as reader:
        return reader.read_next_batch()
