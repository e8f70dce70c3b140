"""A slice of a stream that a thread may read: sealed nodes, which never change, and a copy of the active one.

The loop makes a slice and hands it to a thread. A slice is bounded in bytes, so a slow reader holds no more than that
of a stream which is evicted meanwhile; a reader that has read one asks for the next.

A slice is sent as entries (`batches`), or as the nodes themselves (`packed_batches`), which the client then opens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from tidelog import limits
from tidelog.flight.nodes import PACKED, Opened, joined, opened_rows
from tidelog.flight.request import RangeEnd, ReadRequest
from tidelog.streams.node import Rows, SealedNode
from tidelog.streams.stream import Stream


class NodeSlice(NamedTuple):
    """Entries of one node: between two places of a sealed one, or as rows."""

    node: SealedNode | None
    rows: Rows | None
    start: int
    stop: int


class StreamSlice(NamedTuple):
    """The part of a stream that a thread reads at once."""

    pieces: list[NodeSlice]
    next_offset: int | None
    """Where the next slice begins; None: there is no more."""
    left: int | None
    """How many entries may follow; None: any number."""


def make_slice(stream: Stream, request: ReadRequest, first: int, left: int | None) -> StreamSlice:
    """A slice of a stream from an offset on. On the loop."""
    last = last_offset(stream, request.last)
    pieces: list[NodeSlice] = []
    size = 0
    offset = max(first, stream.first)
    for node in stream.nodes_from(offset):
        if node.first_offset > last or (left is not None and left <= 0):
            return StreamSlice(pieces, None, left)
        if size >= limits.FLIGHT_SLICE_BYTES_MAX:
            return StreamSlice(pieces, offset, left)
        start = node.index_of(offset)
        stop = len(node) if node.last_offset <= last else node.index_of(last + 1)
        if left is not None:
            stop = min(stop, start + left)
            left -= stop - start
        if start < stop:
            if isinstance(node, SealedNode):
                pieces.append(NodeSlice(node, None, start, stop))
            else:
                pieces.append(NodeSlice(None, node.rows(start, stop), start, stop))
            size += node.size_bytes or node.disk_bytes
        offset = node.last_offset + 1
    return StreamSlice(pieces, None, left)


def first_offset(stream: Stream, end: RangeEnd) -> int:
    """Where a range begins."""
    if end.offset is not None:
        return max(end.offset, stream.first)
    return stream.first if end.number is None else stream.offset_at_or_after(end.number)


def last_offset(stream: Stream, end: RangeEnd) -> int:
    """The last offset that a range may have."""
    if end.offset is not None:
        return end.offset
    return stream.last if end.number is None else stream.offset_at_or_after(end.number + 1) - 1


def batches(part: StreamSlice) -> Iterator[pa.RecordBatch]:
    """The entries of a slice, as record batches of some size. On any thread."""
    gathered: list[Opened] = []
    count = size = 0
    for piece in part.pieces:
        found = _opened(piece)
        gathered.append(found)
        count += found.stop - found.start
        # A node that was compressed may be many times as large as in the slice.
        size += found.node.nbytes
        if count >= limits.FLIGHT_BATCH_ROWS or size >= limits.FLIGHT_BATCH_BYTES:
            yield joined(gathered)
            gathered, count, size = [], 0, 0
    if gathered:
        yield joined(gathered)


def _opened(piece: NodeSlice) -> Opened:
    if piece.node is None:
        assert piece.rows is not None
        return opened_rows(piece.rows)
    return Opened(piece.node.read(), piece.start, piece.stop)


def packed_batches(part: StreamSlice) -> Iterator[pa.RecordBatch]:
    """The same as packed nodes: cold nodes are sent as they are. On any thread."""
    gathered: list[tuple[int, int, bytes]] = []
    size = 0
    for piece in part.pieces:
        if piece.node is None:
            assert piece.rows is not None
            gathered.append((0, piece.stop - piece.start, SealedNode.of_rows(piece.rows).ipc()))
        else:
            gathered.append((piece.start, piece.stop, piece.node.ipc()))
        size += len(gathered[-1][2])
        if size >= limits.FLIGHT_BATCH_BYTES:
            yield _packed(gathered)
            gathered, size = [], 0
    if gathered:
        yield _packed(gathered)


def _packed(gathered: list[tuple[int, int, bytes]]) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*gathered, strict=True), PACKED, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)
