"""Entries that a read has found, before anybody looks at them.

To make a reply of a hundred thousand entries takes a tenth of a second and more, and everybody else would wait. So what
was found is handed on part by part, a node each. A part stays what it was when it was found, whatever happens to the
stream: sealed nodes are replaced and not changed. A cold one may have to be read once more, so that a client which does
not take its reply keeps no node open. Of the active node the entries are copied.
"""

from __future__ import annotations

from typing import Final

from tidelog.streams.cold import OPENED
from tidelog.streams.node import Node, SealedNode
from tidelog.streams.rows import Rows, joined


class FoundPart:
    """Entries of one node, later."""

    __slots__ = ("_is_backward", "_node", "_rows", "_start", "_stop", "count")

    def __init__(self, node: Node, start: int, stop: int, *, is_backward: bool) -> None:
        self.count: Final = stop - start
        self._node: SealedNode | None = None
        self._rows: Rows | None = None
        self._start, self._stop = start, stop
        self._is_backward = is_backward
        if isinstance(node, SealedNode):
            self._node = node
        else:
            self._rows = node.rows(start, stop)

    @property
    def node_away(self) -> SealedNode | None:
        """The node, if reading it now would mean to wait for a disk."""
        node = self._node
        return node if node is not None and OPENED.is_away(node) else None

    def rows(self) -> Rows:
        rows = self._rows if self._node is None else self._node.rows(self._start, self._stop)
        assert rows is not None
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
