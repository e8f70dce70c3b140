"""Nodes: runs of at most `NODE_ENTRIES_MAX` entries of one stream, in order.

An entry has an offset (its place in the stream), an id (`ms`, `seq`), a kind, a tag and its bytes:

    kind 0    a tag and an entry, as TWRITE takes them
    kind 1    fields, as XADD takes them: the bytes are their RESP2 array, the tag the value of the field `tag` or empty

The last node of a stream is *active*: columns as plain lists and arrays, for appending. When it is full it is *sealed*:
an Arrow record batch that never changes, so that snapshots, Flight and other threads can have it as it is.

    ms u64 | seq u64 | [kind u8] | [offset u64] | tag binary | entry binary

`kind` is there if both kinds are, `offset` once the node has holes; otherwise offsets count up from the base. A sealed
node may lie on disk alone (`sealed_node`).

An id is handled as one number, `ms << 64 | seq`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from tidelog.streams.rows import (
    ENTRY_OVERHEAD_BYTES,
    FIELDS,
    SEQ_BITS,
    SEQ_MAX,
    TAGGED,
    Rows,
    index_of_id,
    pack_id,
    pack_ids,
    rows_without,
    size_of,
    unpack_id,
)
from tidelog.streams.sealed_node import SealedNode

__all__ = [
    "ENTRY_OVERHEAD_BYTES", "FIELDS", "SEQ_MAX", "TAGGED",
    "ActiveNode", "Node", "Rows", "SealedNode", "pack_id", "size_of", "unpack_id",
]  # fmt: skip


class ActiveNode:
    """The end of a stream: grows, and is sealed when it is full.

    Most streams have no other node, and there may be millions of them: what few need is made when it is needed.
    """

    __slots__ = ("base", "entries", "kind", "kinds", "ms", "offsets", "seen_count", "seqs", "size_bytes", "tags")

    def __init__(self, base: int) -> None:
        self.base = base
        """The offset of its first entry, or of the next one if it has none."""
        self.ms = array("Q")
        self.seqs = array("Q")
        self.kind = TAGGED
        """Of all its entries ..."""
        self.kinds: bytearray | None = None
        """... or of each, once they differ."""
        self.tags: list[bytes] = []
        self.entries: list[bytes] = []
        self.offsets: array[int] | None = None
        """Of its entries, once it has holes."""
        self.size_bytes = 0
        self.seen_count = -1
        """How many entries it had when somebody last looked whether it grows; -1: nobody has."""

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def disk_bytes(self) -> int:
        """As of a sealed node."""
        return 0

    @property
    def first_offset(self) -> int:
        return self.base if self.offsets is None else self.offsets[0]

    @property
    def last_offset(self) -> int:
        return self.base + len(self.entries) - 1 if self.offsets is None else self.offsets[-1]

    @property
    def last_id(self) -> int:
        return self.ms[-1] << SEQ_BITS | self.seqs[-1]

    def append(self, offset: int, ms: int, seq: int, kind: int, tags: list[bytes], entries: list[bytes]) -> None:
        """Entries of one moment: their offsets and the `seq` of their ids count up. Hot."""
        count, before = len(entries), len(self.entries)
        if not before:
            self.base, self.kind = offset, kind
        elif self.offsets is not None or offset != self.base + before:
            if self.offsets is None:
                self.offsets = array("Q", range(self.base, self.base + before))
            self.offsets.extend(range(offset, offset + count))
        if self.kinds is not None or kind != self.kind:
            if self.kinds is None:
                self.kinds = bytearray((self.kind,)) * before
            self.kinds += bytes((kind,)) * count
        self.size_bytes += size_of(tags, entries)
        if count == 1:
            self.ms.append(ms)
            self.seqs.append(seq)
            self.tags.append(tags[0])
            self.entries.append(entries[0])
            return
        self.ms += array("Q", (ms,)) * count
        self.seqs.extend(range(seq, seq + count))
        self.tags += tags
        self.entries += entries

    def index_of(self, offset: int) -> int:
        """The place of the first entry at or after an offset."""
        if self.offsets is not None:
            return bisect_left(self.offsets, offset)
        return min(max(offset - self.base, 0), len(self.entries))

    def index_of_id(self, number: int) -> int:
        """The place of the first entry at or after an id."""
        return index_of_id(self.ms, self.seqs, number)

    def offset_at(self, index: int) -> int:
        return self.base + index if self.offsets is None else self.offsets[index]

    def id_at(self, index: int) -> int:
        return self.ms[index] << SEQ_BITS | self.seqs[index]

    def ids(self, start: int, stop: int) -> list[int]:
        return pack_ids(self.ms[start:stop], self.seqs[start:stop])

    def rows(self, start: int, stop: int) -> Rows:
        """A copy of the entries between two places."""
        if self.offsets is None:
            offsets: Sequence[int] = range(self.base + start, self.base + stop)
        else:
            offsets = self.offsets[start:stop]
        kinds = bytes((self.kind,)) * (stop - start) if self.kinds is None else self.kinds[start:stop]
        return Rows(
            offsets, self.ms[start:stop], self.seqs[start:stop], kinds, self.tags[start:stop], self.entries[start:stop]
        )

    def drop_first(self, count: int) -> None:
        """Remove its first entries, but not all."""
        self.size_bytes -= size_of(self.tags[:count], self.entries[:count])
        self.base = self.offset_at(count)
        if self.kinds is not None:
            del self.kinds[:count]
        if self.offsets is not None:
            del self.offsets[:count]
        del self.ms[:count], self.seqs[:count], self.tags[:count], self.entries[:count]
        self.seen_count = max(self.seen_count - count, -1)

    def without(self, indices: Sequence[int]) -> ActiveNode | None:
        """The same without some of its entries; None: nothing is left."""
        rows = rows_without(self.rows(0, len(self)), indices)
        return ActiveNode.of_rows(rows) if rows.entries else None

    @classmethod
    def of_rows(cls, rows: Rows) -> ActiveNode:
        """A node of these entries, of which there is at least one."""
        node = cls(rows.offsets[0])
        if rows.offsets[-1] - rows.offsets[0] + 1 != len(rows.offsets):
            node.offsets = array("Q", rows.offsets)
        node.ms, node.seqs = array("Q", rows.ms), array("Q", rows.seqs)
        node.kind = rows.kinds[0]
        if bytes(rows.kinds).count(node.kind) != len(rows.kinds):
            node.kinds = bytearray(rows.kinds)
        node.tags, node.entries = list(rows.tags), list(rows.entries)
        node.size_bytes = size_of(node.tags, node.entries)
        return node

    def copy(self) -> ActiveNode:
        """An independent copy."""
        return ActiveNode.of_rows(self.rows(0, len(self))) if self.entries else ActiveNode(self.base)

    def sealed(self) -> SealedNode:
        return SealedNode.of_rows(self.rows(0, len(self)))


Node = ActiveNode | SealedNode
