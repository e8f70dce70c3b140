"""The ring: the newest bytes of the journal in memory, so that a reader that keeps up never reads the disk.

It holds the chunks that the writer wrote, by reference, under the place they have in the files; a reader asks for the
bytes at a place and gets them from here or, if they have left, from the file. So there is one way to decode, and
falling behind costs a reader its speed but never its place.

It is bounded in bytes over all shards; the oldest batch goes first. It may hold more than readers may see: they stop at
`visible`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final

from tidelog import limits
from tidelog.ids import Lsn, ShardId
from tidelog.journal.segment import FilePosition

_OVERHEAD_BYTES: Final = 200
"""What a small chunk costs beside its bytes."""
_COMPACT_AFTER: Final = 1024


class Ring:
    """Chunks by place. One thread."""

    def __init__(self, shard_count: int, bytes_max: int = limits.RING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._shards = [_ShardRing() for _ in range(shard_count)]
        self._order: deque[tuple[int, int]] = deque()
        """(shard, cost) of every chunk, oldest first."""

    @property
    def bytes_held(self) -> int:
        return self._bytes

    def add(self, shard: ShardId, position: FilePosition, chunks: list[bytes]) -> None:
        """Chunks that were written one after the other from `position` on."""
        ring = self._shards[shard]
        segment, at = position
        for chunk in chunks:
            if not chunk:
                continue
            cost = len(chunk) + _OVERHEAD_BYTES
            ring.push((segment, at), chunk)
            self._order.append((shard, cost))
            self._bytes += cost
            at += len(chunk)
        while self._bytes > self._bytes_max:
            oldest, cost = self._order.popleft()
            self._shards[oldest].drop()
            self._bytes -= cost

    def read(self, shard: ShardId, segment: Lsn, start: int, end: int) -> bytes | None:
        """The bytes from `start` to `end` of a segment's file, or None if some of them have left."""
        return self._shards[shard].read(segment, start, end)


class _ShardRing:
    """Positions and chunks in two lists side by side, from `_head` on."""

    def __init__(self) -> None:
        self._positions: list[tuple[Lsn, int]] = []
        """As `FilePosition`, of which one would take much longer to make."""
        self._chunks: list[bytes | None] = []
        self._head = 0

    def push(self, position: tuple[Lsn, int], chunk: bytes) -> None:
        self._positions.append(position)
        self._chunks.append(chunk)

    def drop(self) -> None:
        self._chunks[self._head] = None
        self._head += 1
        if self._head > _COMPACT_AFTER and self._head * 2 > len(self._chunks):
            del self._positions[: self._head], self._chunks[: self._head]
            self._head = 0

    def read(self, segment: Lsn, start: int, end: int) -> bytes | None:
        index = bisect_right(self._positions, (segment, start), lo=self._head) - 1
        if index < self._head:
            return None
        found: list[bytes] = []
        at = start
        while at < end:
            if index >= len(self._chunks) or self._positions[index][0] != segment:
                return None
            chunk_start, chunk = self._positions[index][1], self._chunks[index]
            assert chunk is not None
            if not chunk_start <= at < chunk_start + len(chunk):
                return None
            found.append(chunk[at - chunk_start : end - chunk_start])
            at = chunk_start + len(chunk)
            index += 1
        return found[0] if len(found) == 1 else b"".join(found)
