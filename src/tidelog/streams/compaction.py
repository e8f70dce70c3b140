"""Log compaction: of all entries with one tag, the newest stays.

An empty entry is a tombstone: it says that the tag is gone. It hides what came before it like any other, and goes
itself after a day, in which readers can see it. Entries without a tag are left alone: they do not replace each other.
"""

from __future__ import annotations

from tidelog import limits
from tidelog.streams.cold import OPENED
from tidelog.streams.node import TAGGED
from tidelog.streams.stream import Stream


def entries_to_drop(stream: Stream, now_ms: int) -> list[int]:
    """The offsets of entries that later ones of the same tag replace, and of old tombstones."""
    seen: set[bytes] = set()
    dropped: list[int] = []
    oldest_tombstone_ms = now_ms - limits.TOMBSTONE_KEPT_MS
    OPENED.require(stream.sealed)
    for node in reversed(list(stream.nodes())):
        rows = node.rows(0, len(node)).reversed()
        for offset, ms, kind, tag, entry in zip(
            rows.offsets, rows.ms, rows.kinds, rows.tags, rows.entries, strict=True
        ):
            if not tag:
                continue
            if tag in seen:
                dropped.append(offset)
                continue
            seen.add(tag)
            if kind == TAGGED and not entry and ms < oldest_tombstone_ms:
                dropped.append(offset)
    return dropped[::-1]
