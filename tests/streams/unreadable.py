"""A sealed node of which memory has the bounds and the offsets, and nothing else: whoever asks it for more fails."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from tidelog.streams.stream import Stream


class UnreadableNode:
    """In the place of a sealed node. Its last id may be that of an entry which it no longer has."""

    def __init__(self, offsets: Sequence[int], last_id: int) -> None:
        self.offsets = list(offsets)
        self.last_id = last_id
        self.first_offset, self.last_offset, self.count = self.offsets[0], self.offsets[-1], len(self.offsets)

    def __len__(self) -> int:
        return self.count

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a node was asked for, which has to be read for that")

    def index_of(self, offset: int) -> int:
        return bisect_left(self.offsets, offset)

    def offset_at(self, index: int) -> int:
        return self.offsets[index]

    def from_index(self, index: int) -> UnreadableNode:
        return UnreadableNode(self.offsets[index:], self.last_id)

    def without(self, indices: Sequence[int]) -> UnreadableNode | None:
        left = [offset for index, offset in enumerate(self.offsets) if index not in indices]
        return UnreadableNode(left, self.last_id) if left else None


def unreadable(stream: Stream) -> Stream:
    """The same stream with sealed nodes that cannot be read."""
    made = stream.copy()
    nodes: list[Any] = [UnreadableNode(node.rows(0, len(node)).offsets, node.last_id) for node in stream.sealed]
    made.sealed = nodes
    return made
