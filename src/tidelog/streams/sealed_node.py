"""A sealed node: entries that no longer change.

    hot     an Arrow record batch in memory
    cold    its bytes lie in a node file (`journal/node_files`); memory keeps where, and what is needed to find entries

In both forms memory has the first and last offset, the last id, the number of entries, and the offsets of a node with
holes. So operations, which only move bounds and make holes, never read a node. Whatever removes entries makes another
node. One of a cold node lies in the same place: what of those bytes is its own, its offsets say.

A node that becomes cold (`chill`) has the same entries as before, so nobody has to know. It never becomes hot again:
what is read of it, or was in memory when it became cold, is kept for a while by `cold.OPENED`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from tidelog.errors import Corruption, FormatError
from tidelog.journal.node_files import NodePlace
from tidelog.streams.cold import OPENED, OpenedNode
from tidelog.streams.columns import Columns
from tidelog.streams.node_ipc import (
    batch_of,
    decode_batch,
    decode_checked,
    encode_batch,
    first_id_in,
    last_id_in,
    offsets_in,
    selected,
)
from tidelog.streams.rows import Rows, index_of_id, pack_id, pack_ids, rows_without

UNKNOWN_ID: Final = 2**128 - 1
"""An id that no entry has."""


class NodeReference(NamedTuple):
    """A cold node, as a snapshot has it."""

    file_id: int
    position: int
    size: int
    crc: int
    opened_bytes: int
    first: int
    last: int
    entry_count: int
    first_id: int
    last_id: int
    is_whole: bool
    offsets: Sequence[int] | None


class SealedNode:
    """At least one entry."""

    __slots__ = (
        "_batch",
        "_first_id",
        "_kept",
        "count",
        "first_offset",
        "is_in_line",
        "is_whole",
        "last_id",
        "last_offset",
        "offsets",
        "opened",
        "opened_bytes",
        "place",
    )

    def __init__(
        self,
        batch: pa.RecordBatch | None,
        place: NodePlace | None,
        opened_bytes: int,
        first: int,
        last: int,
        count: int,
        first_id: int,
        last_id: int,
        offsets: array[int] | None,
        *,
        is_whole: bool = True,
    ) -> None:
        self._batch = batch
        """None: it is cold."""
        self._kept: Columns | None = None
        """Its columns, once somebody has looked and while it is hot."""
        self.opened: OpenedNode | None = None
        """Its columns while it is cold and open, of which `OPENED` takes care; None: it never was open."""
        self.place = place
        """Of its bytes, and perhaps of others'; None: it is hot."""
        self.opened_bytes = opened_bytes
        """What it takes, or took, in memory as a record batch."""
        self.first_offset = first
        self.last_offset = last
        self.count = count
        self._first_id = first_id
        """Of its first entry; `UNKNOWN_ID`: it has to be looked up."""
        self.last_id = last_id
        """Of its last entry. Of a cold node that has lost its last entry it may be larger: that of the entry it had."""
        self.offsets = offsets
        """Of its entries, if it has holes; None: they count up."""
        self.is_in_line = False
        """It is about to become cold (`cooling_line`)."""
        self.is_whole = is_whole
        """Nothing but its entries lies in its place."""

    def __del__(self) -> None:
        """On any thread."""
        if self.opened is not None:
            self.opened.go()

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch, first: int, last: int, offsets: array[int] | None) -> SealedNode:
        """One that is hot."""
        ids = first_id_in(batch), last_id_in(batch)
        return cls(batch, None, int(batch.nbytes), first, last, batch.num_rows, *ids, offsets)

    @classmethod
    def of_reference(cls, reference: NodeReference, place: NodePlace) -> SealedNode:
        """One that is cold."""
        offsets = None if reference.offsets is None else array("Q", reference.offsets)
        return cls(
            None,
            place,
            reference.opened_bytes,
            reference.first,
            reference.last,
            reference.entry_count,
            reference.first_id,
            reference.last_id,
            offsets,
            is_whole=reference.is_whole,
        )

    @property
    def reference(self) -> NodeReference:
        """What is noted of a cold node."""
        place = self.place
        assert place is not None
        return NodeReference(
            place.file.id,
            place.position,
            place.size,
            place.crc,
            self.opened_bytes,
            self.first_offset,
            self.last_offset,
            self.count,
            self._first_id,
            self.last_id,
            self.is_whole,
            self.offsets,
        )

    @classmethod
    def of_rows(cls, rows: Rows) -> SealedNode:
        """Seal entries, of which there is at least one."""
        first, last, count = rows.offsets[0], rows.offsets[-1], len(rows.entries)
        offsets = array("Q", rows.offsets) if last - first + 1 != count else None
        return cls.of_batch(batch_of(rows), first, last, offsets)

    @classmethod
    def of_ipc(cls, data: bytes) -> SealedNode:
        """A node that was written by `ipc`; `FormatError` if these bytes are none."""
        batch, first, last = decode_checked(data)
        return cls.of_batch(batch, first, last, offsets_in(batch))

    def __len__(self) -> int:
        return self.count

    @property
    def is_cold(self) -> bool:
        return self._batch is None

    @property
    def is_away(self) -> bool:
        """Whether reading it would mean to wait for a disk."""
        return self._batch is None and (self.opened is None or self.opened.batch is None)

    @property
    def size_bytes(self) -> int:
        """What its entries take in memory."""
        return 0 if self._batch is None else self.opened_bytes

    @property
    def disk_bytes(self) -> int:
        """What its entries take in a node file; not what others take that lie in the same place."""
        return 0 if self.place is None else self.place.live_bytes

    @property
    def is_remote(self) -> bool:
        """Whether its file lies only in an object store."""
        return self.place is not None and self.place.file.is_remote

    # --- hot and cold -------------------------------------------------------------------------------------------

    @property
    def batch(self) -> pa.RecordBatch:
        """Its record batch, read if it is cold."""
        return self._batch if self._batch is not None else self.columns.batch

    def read(self) -> pa.RecordBatch:
        """The same, without the cache of opened nodes. On any thread. `Corruption`: it cannot be read."""
        batch, place, is_whole = self.form()
        if batch is not None:
            return batch
        assert place is not None
        return self.decoded(place.read(), place, is_whole=is_whole)

    def form(self) -> tuple[pa.RecordBatch | None, NodePlace | None, bool]:
        """Its record batch, or its place and whether nothing else lies there. On any thread, while it is chilled."""
        is_whole, batch = self.is_whole, self._batch  # in this order: `chill` sets them in the other one
        return batch, self.place, is_whole

    def decoded(self, data: bytes, place: NodePlace, *, is_whole: bool) -> pa.RecordBatch:
        """Its record batch, of the data in a place that it has, or had. On any thread."""
        try:
            return self._own(decode_batch(data), is_whole=is_whole)
        except FormatError as error:
            raise Corruption(f"a node cannot be read: {error}", path=place.file.path, position=place.position) from None

    def _own(self, batch: pa.RecordBatch, *, is_whole: bool) -> pa.RecordBatch:
        """What is its own of what lies in its place."""
        if not is_whole:
            return selected(batch, self.first_offset, self.count, self.offsets)
        if batch.num_rows != self.count or last_id_in(batch) != self.last_id:
            raise FormatError("it is another node than the one referred to")
        return batch

    def ipc(self) -> bytes:
        """As an Arrow IPC stream: the bytes that it has if it is cold. On any thread."""
        if self._batch is None and self.is_whole:
            assert self.place is not None
            return self.place.read()
        return encode_batch(self.read(), is_compressed=False)

    def compressed(self) -> tuple[bytes, int]:
        """The same for a node file, and its last id. On any thread."""
        batch = self.read()
        return encode_batch(batch, is_compressed=True), last_id_in(batch)

    def chill(self, place: NodePlace, last_id: int) -> None:
        """What `compressed` gave lies there now, durably: memory can do without it."""
        self.last_id = last_id  # first: a thread that finds the new place compares with this
        self.place = place
        self._batch = self._kept = None
        self.is_whole = True

    def move(self, place: NodePlace) -> None:
        """The bytes of a cold node lie there now, as they were."""
        assert self.place is not None
        self.place = NodePlace(place.file, place.position, place.size, place.crc, self.place.live_bytes)

    # --- entries ------------------------------------------------------------------------------------------------

    @property
    def first_id(self) -> int:
        if self._first_id == UNKNOWN_ID:
            self._first_id = self.id_at(0)
        return self._first_id

    @property
    def known_first_id(self) -> int:
        """The same as far as memory knows it, and 0 if the node would have to be read."""
        return 0 if self._first_id == UNKNOWN_ID else self._first_id

    @property
    def top_id(self) -> int:
        """The id of its last entry."""
        return self.last_id if self._batch is not None or self.is_whole else self.id_at(self.count - 1)

    def index_of(self, offset: int) -> int:
        """The place of the first entry at or after an offset."""
        if self.offsets is not None:
            return bisect_left(self.offsets, offset)
        return min(max(offset - self.first_offset, 0), self.count)

    def offset_at(self, index: int) -> int:
        return self.first_offset + index if self.offsets is None else self.offsets[index]

    @property
    def columns(self) -> Columns:
        """Its columns, read if it is cold and not open. Hot."""
        if self._kept is not None:
            return self._kept
        if self._batch is not None:
            self._kept = Columns(self._batch)
            return self._kept
        columns = None if self.opened is None else self.opened.read()
        return OPENED.open(self) if columns is None else columns

    def index_of_id(self, number: int) -> int:
        """The place of the first entry at or after an id."""
        columns = self.columns
        return index_of_id(columns.ms, columns.seqs, number)

    def id_at(self, index: int) -> int:
        columns = self.columns
        return pack_id(columns.ms[index], columns.seqs[index])

    def ids(self, start: int, stop: int) -> list[int]:
        columns = self.columns
        return pack_ids(columns.ms[start:stop], columns.seqs[start:stop])

    def rows(self, start: int, stop: int) -> Rows:
        return self.columns.rows(self.first_offset, start, stop)

    # --- without some of them -----------------------------------------------------------------------------------

    def from_index(self, index: int) -> SealedNode:
        """The same without its first entries, but not all. It shares their memory as long as they are fewer than the
        others, and their place on disk."""
        count, first = self.count - index, self.offset_at(index)
        offsets = None if self.offsets is None else self.offsets[index:]
        if self.last_offset - first + 1 == count:
            offsets = None
        if self._batch is None:
            size = self.opened_bytes * count // self.count
            first_id = self._first_id if index == 0 else UNKNOWN_ID
            ids, place = (first_id, self.last_id), self._part(count)
            return SealedNode(None, place, size, first, self.last_offset, count, *ids, offsets, is_whole=False)
        if count <= index:
            return SealedNode.of_rows(self.rows(index, self.count))
        batch = self._batch.slice(index)
        batch = batch.replace_schema_metadata({**batch.schema.metadata, b"base": b"%d" % first})
        return SealedNode.of_batch(batch, first, self.last_offset, offsets)

    def without(self, indices: Sequence[int]) -> SealedNode | None:
        """The same without some of its entries; None: nothing is left."""
        if self._batch is not None:
            rows = rows_without(self.rows(0, self.count), indices)
            return SealedNode.of_rows(rows) if rows.entries else None
        gone = set(indices)
        left = array("Q", [self.offset_at(index) for index in range(self.count) if index not in gone])
        if not left:
            return None
        first, last, count = left[0], left[-1], len(left)
        size = self.opened_bytes * count // self.count
        offsets = left if last - first + 1 != count else None
        ids = self._first_id if first == self.first_offset else UNKNOWN_ID, self.last_id
        return SealedNode(None, self._part(count), size, first, last, count, *ids, offsets, is_whole=False)

    def _part(self, count: int) -> NodePlace:
        """Its place, with only so many of its entries."""
        assert self.place is not None
        return self.place.part(count, self.count)
