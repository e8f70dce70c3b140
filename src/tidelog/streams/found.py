"""Entries that a read has found, before anybody looks at them.

To make a reply of a hundred thousand entries takes a tenth of a second and more, and everybody else would wait. So what
was found is handed on part by part, a node each. A part stays what it was when it was found, whatever happens to the
stream: sealed nodes are replaced and not changed, and the columns of a cold one are kept open. Of the active node the
entries are copied.
"""

from __future__ import annotations

from typing import Final

from tidelog.streams.columns import Columns
from tidelog.streams.node import Node, SealedNode
from tidelog.streams.rows import Rows, joined


class FoundPart:
    """Entries of one node, later."""

    __slots__ = ("_columns", "_first_offset", "_is_backward", "_rows", "_start", "_stop", "count")

    def __init__(self, node: Node, start: int, stop: int, *, is_backward: bool) -> None:
        self.count: Final = stop - start
        self._rows: Rows | None = None
        self._columns: Columns | None = None
        self._first_offset, self._start, self._stop = 0, start, stop
        self._is_backward = is_backward
        if isinstance(node, SealedNode):
            self._columns, self._first_offset = node.columns(), node.first_offset
        else:
            self._rows = node.rows(start, stop)

    def rows(self) -> Rows:
        rows = self._rows
        if rows is None:
            assert self._columns is not None
            rows = self._columns.rows(self._first_offset, self._start, self._stop)
        return rows.reversed() if self._is_backward else rows


class Found:
    """What a read has found, in the order in which it is wanted."""

    __slots__ = ("_is_backward", "count", "nodes")

    def __init__(self, nodes: list[tuple[Node, int, int]], *, is_backward: bool = False) -> None:
        self.nodes = nodes
        """Each with two places, between which its entries lie."""
        self.count = sum([stop - start for _, start, stop in nodes])
        self._is_backward = is_backward

    def rows(self) -> Rows:
        """All entries, now."""
        if self._is_backward:
            return joined([node.rows(start, stop).reversed() for node, start, stop in self.nodes])
        return joined([node.rows(start, stop) for node, start, stop in self.nodes])

    def parts(self) -> list[FoundPart]:
        """All entries, for later."""
        return [FoundPart(node, start, stop, is_backward=self._is_backward) for node, start, stop in self.nodes]
