"""Cold nodes that are read: the newest of them stay open, within a bound of bytes.

Whoever may not wait for a disk sets `OPENED.fetches`. A cold node that is not open then raises `NodesAway` instead of
being read: the caller has the nodes fetched on a thread, puts them here, and tries again. Until it has, they are
pinned, so that they are all there at once.

One cache for the process: it holds copies of what lies on disk, so nothing depends on what is in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.streams.columns import Columns

if TYPE_CHECKING:
    from tidelog.streams.sealed_node import SealedNode


class NodesAway(Exception):
    """These nodes have to be fetched from disk before the command can run."""

    def __init__(self, nodes: Sequence[SealedNode]) -> None:
        super().__init__(f"{len(nodes)} nodes lie on disk")
        self.nodes = nodes


class OpenedNodes:
    """Least recently used first. One thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._opened: OrderedDict[SealedNode, Columns] = OrderedDict()
        self._pins: dict[SealedNode, int] = {}
        """Of nodes that stay, how often they are pinned."""
        self.bytes_held = 0
        self.fetches = False
        """Cold nodes are not read here and now: `NodesAway`."""

    def __contains__(self, node: SealedNode) -> bool:
        return node in self._opened

    def open(self, node: SealedNode) -> Columns:
        """The columns of a cold node, read unless they are here."""
        columns = self._opened.get(node)
        if columns is not None:
            self._opened.move_to_end(node)
            return columns
        if self.fetches:
            raise NodesAway([node])
        columns = Columns(node.read())
        self.put(node, columns)
        return columns

    def require(self, nodes: Iterable[SealedNode]) -> None:
        """All of them are about to be read: those that are not here are fetched together."""
        if self.fetches:
            away = [node for node in nodes if node.is_cold and node not in self._opened]
            if away:
                raise NodesAway(away)

    def put(self, node: SealedNode, columns: Columns) -> None:
        """What was read of a node."""
        if node in self._opened:
            return
        self._opened[node] = columns
        self.bytes_held += columns.size_bytes
        self._shrink()

    def pin(self, nodes: Iterable[SealedNode]) -> None:
        """Keep what is, or will be, here of them until they are unpinned as often."""
        for node in nodes:
            self._pins[node] = self._pins.get(node, 0) + 1

    def unpin(self, nodes: Iterable[SealedNode]) -> None:
        for node in nodes:
            self._pins[node] -= 1
            if not self._pins[node]:
                del self._pins[node]
        self._shrink()

    def _shrink(self) -> None:
        """Let the nodes go that were not used for the longest time, except those that are pinned."""
        if self.bytes_held <= self._bytes_max:
            return
        for node in list(self._opened):
            if node not in self._pins:
                self.bytes_held -= self._opened.pop(node).size_bytes
                if self.bytes_held <= self._bytes_max:
                    return

    def clear(self) -> None:
        """Close them, except those that are pinned."""
        for node in [node for node in self._opened if node not in self._pins]:
            self.bytes_held -= self._opened.pop(node).size_bytes


OPENED: Final = OpenedNodes(limits.OPENED_NODES_BYTES_MAX)
