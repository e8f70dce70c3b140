"""Sealed nodes that are to become cold, or to be written once more, in the order in which they were sealed.

A stream keeps its last few sealed nodes in memory, as most readers are near its end. When it seals another, the oldest
of them gets in line: so nobody has to look for nodes, and each gets in line once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidelog.ids import ShardId
from tidelog.streams.sealed_node import SealedNode


class BytesInLine:
    """What the nodes in some lines take in memory."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class CoolingLine:
    """Of the streams of one shard."""

    __slots__ = ("bytes", "nodes", "sealed_bytes", "sealed_count", "shard")

    def __init__(self, shard: ShardId, in_line: BytesInLine | None = None) -> None:
        self.shard = shard
        self.nodes: deque[SealedNode] = deque()
        self.sealed_bytes = 0
        """What all nodes that were ever sealed took in memory ..."""
        self.sealed_count = 0
        """... and how many those were."""
        self.bytes = BytesInLine() if in_line is None else in_line
        """Of this line, and of others that share it."""

    def count_sealed(self, node: SealedNode) -> None:
        """A stream has one more that is hot."""
        self.sealed_bytes += node.opened_bytes
        self.sealed_count += 1

    def add(self, node: SealedNode, *, also_cold: bool = False) -> None:
        """Let a node be written; fine if it is in line, or cold and not to be written once more."""
        if not node.is_in_line and (also_cold or not node.is_cold):
            node.is_in_line = True
            self.bytes.total += node.size_bytes
            self.nodes.append(node)

    def take(self) -> SealedNode:
        """The next one."""
        node = self.nodes.popleft()
        self.bytes.total -= node.size_bytes
        return node

    def put_back(self, nodes: Sequence[SealedNode]) -> None:
        """Those that were taken and could not be written are the next again."""
        self.bytes.total += sum(node.size_bytes for node in nodes)
        self.nodes.extendleft(reversed(nodes))
