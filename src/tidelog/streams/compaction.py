"""Log compaction: of all entries with one tag, the newest stays.

An empty entry is a tombstone: it says that the tag is gone. It hides what came before it like any other, and goes
itself after a day, in which readers can see it. Entries without a tag are left alone: they do not replace each other.

A small stream is compacted at once. A large one is looked at portion by portion, from its newest entries to its oldest,
so that its nodes can be read by threads and others are served in between. What a portion loses goes before the next one
is read. What is appended meanwhile is for the next compaction. If entries are deleted meanwhile, it begins anew: one of
them may have been the newest of its tag.
"""

from __future__ import annotations

from bisect import bisect_left

from tidelog import limits
from tidelog.streams.cold import OPENED
from tidelog.streams.node import TAGGED, ActiveNode, SealedNode
from tidelog.streams.rows import pack_id
from tidelog.streams.stream import Stream


def entries_to_drop(stream: Stream, now_ms: int) -> list[int]:
    """The offsets of entries that later ones of the same tag replace, and of old tombstones."""
    OPENED.require(stream.sealed)
    compaction = Compaction(stream, now_ms)
    for node in reversed(list(stream.nodes())):
        compaction.look_at(node)
    return compaction.take_dropped()


def is_large(stream: Stream) -> bool:
    """Whether others would wait too long while all of it is looked at."""
    return stream.sealed_bytes > limits.COMPACTED_AT_ONCE_BYTES


class Compaction:
    """One of a large stream: how far it is."""

    def __init__(self, stream: Stream, now_ms: int) -> None:
        self.stream = stream
        self._oldest_tombstone_ms = now_ms - limits.TOMBSTONE_KEPT_MS
        self._seen: set[bytes] = set()
        """Tags of entries that were looked at."""
        self._end = 0
        """Entries before this offset are still to be looked at."""
        self._cut_count = 0
        """The stream's, if nobody else has deleted entries since this began."""
        self._dropped: list[int] = []
        """Newest first ..."""
        self.newest_dropped_id = 0
        """... and the id of the first."""
        self.dropped_count = 0
        """Of all portions before."""
        self.times_begun = 0

    def next_nodes(self) -> list[SealedNode]:
        """The next portion of sealed nodes, the oldest first; what is looked at before is not in it."""
        stream = self.stream
        if not self.times_begun or self._cut_count != stream.cut_count:
            self._begin()
        stop = place = bisect_left(stream.bases, self._end)
        size = 0
        while place and size < limits.COMPACTED_AT_ONCE_BYTES:
            place -= 1
            size += stream.sealed[place].opened_bytes
        return list(stream.sealed[place:stop])

    def _begin(self) -> None:
        """With the active node. Not by its end: if it is sealed before the next portion, it was looked at."""
        stream = self.stream
        self._seen, self._dropped = set(), []
        self._end = stream.sealed[-1].last_offset + 1 if stream.sealed else stream.first
        self._cut_count = stream.cut_count
        self.times_begun += 1
        self.look_at(stream.active)

    def look_at_all(self, nodes: list[SealedNode]) -> None:
        """At a portion, whose nodes are open."""
        for node in reversed(nodes):
            self.look_at(node)
            self._end = node.first_offset

    def look_at(self, node: ActiveNode | SealedNode) -> None:
        rows = node.rows(0, len(node)).reversed()
        seen, dropped = self._seen, self._dropped
        for at, (offset, ms, kind, tag, entry) in enumerate(
            zip(rows.offsets, rows.ms, rows.kinds, rows.tags, rows.entries, strict=True)
        ):
            if not tag:
                continue
            if tag not in seen:
                seen.add(tag)
                if kind != TAGGED or entry or ms >= self._oldest_tombstone_ms:
                    continue
            if not dropped:
                self.newest_dropped_id = pack_id(ms, rows.seqs[at])
            dropped.append(offset)

    def take_dropped(self) -> list[int]:
        """What was found to go and was not taken, in the order of the stream; not what was evicted meanwhile."""
        dropped = [offset for offset in reversed(self._dropped) if offset >= self.stream.first]
        self._dropped = []
        self.dropped_count += len(dropped)
        return dropped

    def expect_cuts(self, count: int) -> None:
        """What was taken goes, in so many operations."""
        self._cut_count += count
