"""A piece of a stream that a thread may read: sealed nodes, which never change, and a copy of the active one.

The loop makes it and hands it over; it is bounded in bytes, so that a slow reader holds no more than that of a stream
which is evicted meanwhile. Whoever has read it asks for the next piece.

All batches that go out have one schema, whatever columns a node has:

    offset u64 | ms u64 | seq u64 | kind u8 | tag binary | entry binary
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog import limits
from tidelog.flight.request import Place, ReadRequest
from tidelog.streams.node import Rows, SealedNode
from tidelog.streams.stream import Stream

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

_COLUMNS_MIN: Final = 4
"""Of a node whose entries are all of one kind, and without holes."""


class Piece(NamedTuple):
    """Entries of one node: between two places of a sealed one, or as rows."""

    node: SealedNode | None
    rows: Rows | None
    start: int
    stop: int
    size_bytes: int
    """Of the node."""


class Opened(NamedTuple):
    """A piece whose node was opened, which takes time if it is compressed."""

    piece: Piece
    node: Any
    """A record batch; None: the piece has rows."""


class View(NamedTuple):
    """What a thread is given."""

    pieces: list[Piece]
    next_offset: int | None
    """Where the next view begins; None: there is no more."""
    left: int | None
    """How many entries may follow; None: any number."""


def make_view(stream: Stream, request: ReadRequest, first: int, left: int | None) -> View:
    """A piece of a stream from an offset on. On the loop."""
    last = last_offset(stream, request.last)
    pieces: list[Piece] = []
    size = 0
    offset = max(first, stream.first)
    for node in stream.nodes_from(offset):
        if node.first_offset > last or (left is not None and left <= 0):
            return View(pieces, None, left)
        if size >= limits.FLIGHT_VIEW_BYTES_MAX:
            return View(pieces, offset, left)
        start = node.index_of(offset)
        stop = len(node) if node.last_offset <= last else node.index_of(last + 1)
        if left is not None:
            stop = min(stop, start + left)
            left -= stop - start
        if start < stop:
            node_bytes = node.size_bytes
            if isinstance(node, SealedNode):
                pieces.append(Piece(node, None, start, stop, node_bytes))
            else:
                pieces.append(Piece(None, node.rows(start, stop), start, stop, node_bytes))
            size += node_bytes
        offset = node.last_offset + 1
    return View(pieces, None, left)


def first_offset(stream: Stream, place: Place) -> int:
    """Where a range begins."""
    if place.offset is not None:
        return max(place.offset, stream.first)
    return stream.first if place.number is None else stream.offset_at_or_after(place.number)


def last_offset(stream: Stream, place: Place) -> int:
    """The last offset that a range may have."""
    if place.offset is not None:
        return place.offset
    return stream.last if place.number is None else stream.offset_at_or_after(place.number + 1) - 1


def batches(view: View) -> Iterator[pa.RecordBatch]:
    """What a view has, as record batches of some size. On any thread."""
    gathered: list[Opened] = []
    count = size = 0
    for piece in view.pieces:
        node = None if piece.node is None else piece.node.read()
        gathered.append(Opened(piece, node))
        count += piece.stop - piece.start
        # A node that was compressed may be many times as large as in the view.
        size += piece.size_bytes if node is None else node.nbytes
        if count >= limits.FLIGHT_BATCH_ROWS or size >= limits.FLIGHT_BATCH_BYTES:
            yield _joined(gathered)
            gathered, count, size = [], 0, 0
    if gathered:
        yield _joined(gathered)


def _joined(opened: list[Opened]) -> pa.RecordBatch:
    if len(opened) == 1:
        return _batch(opened[0])
    if any(node is None or node.num_columns != _COLUMNS_MIN for _, node in opened):
        return pa.concat_batches([_batch(each) for each in opened])
    # Nearly always: what they do not have as columns is made once for all of them.
    joined = pa.concat_batches([node.slice(piece.start, piece.stop - piece.start) for piece, node in opened])
    kinds = [int(node.schema.metadata[b"kind"]) for _, node in opened]
    counts = [piece.stop - piece.start for piece, _ in opened]
    bases = [int(node.schema.metadata[b"base"]) for _, node in opened]
    offsets = [
        np.arange(base + piece.start, base + piece.stop, dtype=np.uint64)
        for base, (piece, _) in zip(bases, opened, strict=True)
    ]
    return _whole(joined, np.concatenate(offsets), np.repeat(np.array(kinds, dtype=np.uint8), counts))


def _whole(batch: pa.RecordBatch, offsets: Any, kinds: Any) -> pa.RecordBatch:
    columns = [pa.array(offsets), batch.column("ms"), batch.column("seq"), pa.array(kinds)]
    return pa.RecordBatch.from_arrays([*columns, batch.column("tag"), batch.column("entry")], schema=SCHEMA)


def _batch(opened: Opened) -> pa.RecordBatch:
    piece, batch = opened
    if piece.rows is not None:
        rows = piece.rows
        return pa.RecordBatch.from_arrays(
            [
                pa.array(rows.offsets, pa.uint64()),
                pa.array(rows.ms, pa.uint64()),
                pa.array(rows.seqs, pa.uint64()),
                pa.array(list(rows.kinds), pa.uint8()),
                pa.array(rows.tags, pa.binary()),
                pa.array(rows.entries, pa.binary()),
            ],
            schema=SCHEMA,
        )
    count = batch.num_rows
    names, metadata = batch.schema.names, batch.schema.metadata
    base = int(metadata[b"base"])
    offsets = batch.column("offset") if "offset" in names else pa.array(np.arange(base, base + count, dtype=np.uint64))
    kinds = (
        batch.column("kind") if "kind" in names else pa.array(np.full(count, int(metadata[b"kind"]), dtype=np.uint8))
    )
    columns = [offsets, batch.column("ms"), batch.column("seq"), kinds, batch.column("tag"), batch.column("entry")]
    whole = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return whole.slice(piece.start, piece.stop - piece.start)
