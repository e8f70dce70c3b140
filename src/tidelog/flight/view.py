"""A piece of a stream that a thread may read: sealed nodes, which never change, and a copy of the active one.

The loop makes it and hands it over; it is bounded in bytes, so that a slow reader holds no more than that of a stream
which is evicted meanwhile. Whoever has read it asks for the next piece.

It leaves as entries (`batches`), or as the nodes themselves (`packed_batches`), which the reader then opens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from tidelog import limits
from tidelog.flight.nodes import PACKED, Opened, joined, opened_rows
from tidelog.flight.request import Place, ReadRequest
from tidelog.streams.node import Rows, SealedNode
from tidelog.streams.stream import Stream


class Piece(NamedTuple):
    """Entries of one node: between two places of a sealed one, or as rows."""

    node: SealedNode | None
    rows: Rows | None
    start: int
    stop: int


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
            if isinstance(node, SealedNode):
                pieces.append(Piece(node, None, start, stop))
            else:
                pieces.append(Piece(None, node.rows(start, stop), start, stop))
            size += node.size_bytes
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
        found = _opened(piece)
        gathered.append(found)
        count += found.stop - found.start
        # A node that was compressed may be many times as large as in the view.
        size += found.node.nbytes
        if count >= limits.FLIGHT_BATCH_ROWS or size >= limits.FLIGHT_BATCH_BYTES:
            yield joined(gathered)
            gathered, count, size = [], 0, 0
    if gathered:
        yield joined(gathered)


def _opened(piece: Piece) -> Opened:
    if piece.node is None:
        assert piece.rows is not None
        return opened_rows(piece.rows)
    return Opened(piece.node.read(), piece.start, piece.stop)


def packed_batches(view: View) -> Iterator[pa.RecordBatch]:
    """The same as nodes, which nobody opens here: compressed ones leave as they are. On any thread."""
    gathered: list[tuple[int, int, bytes]] = []
    size = 0
    for piece in view.pieces:
        if piece.node is None:
            assert piece.rows is not None
            gathered.append((0, piece.stop - piece.start, SealedNode.of_rows(piece.rows).packed()))
        else:
            gathered.append((piece.start, piece.stop, piece.node.packed()))
        size += len(gathered[-1][2])
        if size >= limits.FLIGHT_BATCH_BYTES:
            yield _packed(gathered)
            gathered, size = [], 0
    if gathered:
        yield _packed(gathered)


def _packed(gathered: list[tuple[int, int, bytes]]) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*gathered, strict=True), PACKED, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)
