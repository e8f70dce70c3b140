"""Reads of a few entries: entries of a sealed node are taken out of Arrow many at once, for the next reads too.

Reading ten entries of a sealed node costs almost as much as reading a thousand. A sealed node never changes, so entries
that were taken out stay valid; only the newest pieces are kept, each of few entries.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from tidelog.streams.cold import OpenedNode, opened_of
from tidelog.streams.node import SealedNode
from tidelog.streams.rows import Rows
from tidelog.streams.stream import Stream

_AHEAD_COUNT: Final = 125
_AHEAD_PART: Final = 8
"""At most this part of a node is kept, so that a few large entries are not."""
_PIECES_MAX: Final = 8
"""As many groups that are behind read fast side by side."""


class ReadAhead:
    """Reads streams as `Stream.read` does."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[OpenedNode, tuple[int, Rows]] = {}
        """What stands for a node -> the place of the first of its entries that are kept, and those; least recently made
        first. Not the node: one that its stream drops lets go of its place on disk at once."""

    def read(self, stream: Stream, offset: int, count: int) -> Rows:
        """Entries from an offset on, up to a number of them. Hot."""
        active = stream.active
        if active.entries and offset >= active.first_offset:
            start = active.index_of(offset)
            return active.rows(start, min(start + count, len(active.entries)))
        place = bisect_right(stream.bases, offset) - 1
        if place < 0 or count >= _AHEAD_COUNT:
            return stream.read(offset, count)
        node = stream.sealed[place]
        start = node.index_of(offset)
        stop = start + count
        if stop > node.count:
            if node.opened is not None:
                self._pieces.pop(node.opened, None)  # its end is reached
            return stream.read(offset, count)
        return self._read_node(stream, node, start, stop)

    def _read_node(self, stream: Stream, node: SealedNode, start: int, stop: int) -> Rows:
        opened = opened_of(node)
        kept = self._pieces.get(opened)
        if kept is None or start < kept[0] or stop > kept[0] + len(kept[1].entries):
            ahead = min(_AHEAD_COUNT, node.count // _AHEAD_PART)
            if ahead <= stop - start:
                return node.rows(start, stop)
            kept = start, node.rows(start, min(start + ahead, node.count))
            if node.is_cold:
                stream.look_ahead(node)
            self._pieces.pop(opened, None)
            self._pieces[opened] = kept
            if len(self._pieces) > _PIECES_MAX:
                del self._pieces[next(iter(self._pieces))]
        first, rows = kept
        start -= first
        stop -= first
        return Rows(
            rows.offsets[start:stop],
            rows.ms[start:stop],
            rows.seqs[start:stop],
            rows.kinds[start:stop],
            rows.tags[start:stop],
            rows.entries[start:stop],
        )
