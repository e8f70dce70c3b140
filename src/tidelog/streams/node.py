"""Nodes: runs of at most `NODE_ENTRIES_MAX` entries of one stream, in order.

An entry has an offset (its place in the stream), an id (`ms`, `seq`), a kind, a tag and its bytes:

    kind 0    a tag and an entry, as TWRITE takes them
    kind 1    fields, as XADD takes them: the bytes are their RESP2 array, the tag the value of the field `tag` or empty

The last node of a stream is *active*: columns as plain lists and arrays, for appending. When it is full it is *sealed*:
an Arrow record batch that never changes, so that snapshots, Flight and other threads can have it as it is.

    ms u64 | seq u64 | [kind u8] | [offset u64] | tag binary | entry binary

`kind` is there if both kinds are, `offset` once the node has holes; otherwise offsets count up from the base. Whatever
removes entries in the middle of a sealed node makes a new one. A sealed node that nobody reads becomes *cold*: only its
compressed bytes are kept (`cold`), which are the same record batch.

An id is handled as one number, `ms << 64 | seq`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from operator import ge
from typing import Final

import pyarrow as pa

from tidelog.errors import FormatError
from tidelog.streams.cold import OPENED
from tidelog.streams.columns import Columns, binary_column, numbers, u64_column
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

__all__ = [
    "ENTRY_OVERHEAD_BYTES", "FIELDS", "SEQ_MAX", "TAGGED",
    "ActiveNode", "Node", "Rows", "SealedNode", "pack_id", "size_of", "unpack_id",
]  # fmt: skip

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""Ends every Arrow IPC stream."""


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
        self.seen_count = 0
        """How many entries it had when somebody last looked whether it grows."""

    def __len__(self) -> int:
        return len(self.entries)

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
        self.seen_count = max(self.seen_count - count, 0)

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


class SealedNode:
    """A node that no longer changes: an Arrow record batch, or its compressed bytes."""

    __slots__ = (
        "_batch",
        "_batch_bytes",
        "_kept",
        "cold_bytes",
        "count",
        "first_offset",
        "is_idle",
        "last_id",
        "last_offset",
        "stays_warm",
    )

    def __init__(
        self, batch: pa.RecordBatch | None, cold_bytes: bytes | None, first: int, last: int, count: int, last_id: int
    ) -> None:
        self._batch = batch
        """None: it is compressed."""
        self._batch_bytes = 0 if batch is None else int(batch.nbytes)
        self._kept: Columns | None = None
        """Its columns, once somebody has looked and while it is warm."""
        self.cold_bytes = cold_bytes
        """Compressed, as an Arrow IPC stream."""
        self.first_offset = first
        self.last_offset = last
        self.count = count
        self.last_id = last_id
        self.is_idle = False
        """Nobody has read it since somebody last looked."""
        self.stays_warm = False
        """It was compressed, and did not become smaller."""

    @classmethod
    def of_rows(cls, rows: Rows) -> SealedNode:
        """Seal entries, of which there is at least one."""
        count, first, last = len(rows.entries), rows.offsets[0], rows.offsets[-1]
        columns = {"ms": u64_column(rows.ms), "seq": u64_column(rows.seqs)}
        kind = rows.kinds[0]
        metadata = {b"base": b"%d" % first}
        if bytes(rows.kinds).count(kind) != count:
            columns["kind"] = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(bytes(rows.kinds))])
        else:
            metadata[b"kind"] = b"%d" % kind
        if last - first + 1 != count:
            columns["offset"] = u64_column(rows.offsets)
        columns["tag"] = pa.array(rows.tags, pa.binary())
        columns["entry"] = binary_column(rows.entries)
        batch = pa.RecordBatch.from_pydict(columns, metadata=metadata)
        return cls(batch, None, first, last, count, pack_id(rows.ms[-1], rows.seqs[-1]))

    @classmethod
    def of_ipc(cls, data: bytes) -> SealedNode:
        """A node that was written by `ipc`; `FormatError` if these bytes are none."""
        try:
            batch = _read(data)
            _check(batch, data)
            first, last, last_id = _ends(batch)
        except (pa.ArrowException, KeyError, IndexError, ValueError, TypeError, OSError) as error:
            raise FormatError(f"not a node of a stream: {type(error).__name__}") from error
        is_cold = len(data) < batch.nbytes
        return cls(None if is_cold else batch, data if is_cold else None, first, last, batch.num_rows, last_id)

    def __len__(self) -> int:
        return self.count

    @property
    def is_cold(self) -> bool:
        return self._batch is None

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        if self.cold_bytes is not None:
            return len(self.cold_bytes)
        return self._batch_bytes

    @property
    def batch(self) -> pa.RecordBatch:
        """Its record batch, opened if it is compressed."""
        self.is_idle = False
        if self._batch is not None:
            return self._batch
        assert self.cold_bytes is not None
        return OPENED.open(self, self.cold_bytes, _read).batch

    def read(self) -> pa.RecordBatch:
        """The same, without the cache of opened nodes; on any thread."""
        batch, cold_bytes = self._batch, self.cold_bytes
        if batch is not None:
            return batch
        assert cold_bytes is not None
        return _read(cold_bytes)

    def ipc(self) -> bytes:
        """As an Arrow IPC stream: the bytes that it has if it is compressed."""
        return self.cold_bytes if self.cold_bytes is not None else _write(self._batch, None)

    def packed(self) -> bytes:
        """The same, on any thread."""
        batch, cold_bytes = self._batch, self.cold_bytes  # in this order: `chill` sets the bytes first
        return cold_bytes if cold_bytes is not None else _write(batch, None)

    def compressed(self) -> bytes:
        """Its bytes, compressed. On any thread, while it is warm."""
        return _write(self._batch, "zstd")

    def chill(self, cold_bytes: bytes) -> None:
        """From now on only its compressed bytes are kept, if they are fewer."""
        if self._batch is not None and len(cold_bytes) < self._batch_bytes:
            self.cold_bytes = cold_bytes  # first: a thread that finds no batch finds these
            self._batch = self._kept = None
        else:
            self.stays_warm = True

    # --- the same as of an active node --------------------------------------------------------------------------

    @property
    def _is_dense(self) -> bool:
        return self.last_offset - self.first_offset + 1 == self.count

    def index_of(self, offset: int) -> int:
        if self._is_dense:
            return min(max(offset - self.first_offset, 0), self.count)
        return bisect_left(self._columns().offsets, offset)

    def _columns(self) -> Columns:
        self.is_idle = False
        if self._kept is not None:
            return self._kept
        if self._batch is not None:
            self._kept = Columns(self._batch)
            return self._kept
        assert self.cold_bytes is not None
        return OPENED.open(self, self.cold_bytes, _read)

    def index_of_id(self, number: int) -> int:
        columns = self._columns()
        return index_of_id(columns.ms, columns.seqs, number)

    def id_at(self, index: int) -> int:
        columns = self._columns()
        return pack_id(columns.ms[index], columns.seqs[index])

    def offset_at(self, index: int) -> int:
        return self.first_offset + index if self._is_dense else int(self._columns().offsets[index])

    def ids(self, start: int, stop: int) -> list[int]:
        columns = self._columns()
        return pack_ids(columns.ms[start:stop], columns.seqs[start:stop])

    def rows(self, start: int, stop: int) -> Rows:
        return self._columns().rows(self.first_offset, start, stop)

    def from_index(self, index: int) -> SealedNode:
        """The same without its first entries. It shares their memory as long as they are fewer than the others."""
        count = self.count - index
        if count <= index:
            return SealedNode.of_rows(self.rows(index, self.count))
        first, batch = self.offset_at(index), self.batch.slice(index)
        batch = batch.replace_schema_metadata({**batch.schema.metadata, b"base": b"%d" % first})
        return SealedNode(batch, None, first, self.last_offset, count, self.last_id)

    def without(self, indices: Sequence[int]) -> SealedNode | None:
        rows = rows_without(self.rows(0, self.count), indices)
        return SealedNode.of_rows(rows) if rows.entries else None


Node = ActiveNode | SealedNode


_TYPES: Final = {
    "ms": pa.uint64(),
    "seq": pa.uint64(),
    "kind": pa.uint8(),
    "offset": pa.uint64(),
    "tag": pa.binary(),
    "entry": pa.binary(),
}
_REQUIRED: Final = frozenset(["ms", "seq", "tag", "entry"])
_ONE_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""A node is small: handing its columns to other threads costs more than opening it."""


def _check(batch: pa.RecordBatch, data: bytes) -> None:
    """Whether it is what `of_rows` makes; `ValueError` if not."""
    batch.validate(full=True)
    if not data.endswith(_END_OF_STREAM):
        raise ValueError("it is cut short")
    names = batch.schema.names
    if not batch.num_rows or not _REQUIRED.issubset(names) or len(set(names)) != len(names):
        raise ValueError("rows or columns are missing")
    if any(_TYPES[field.name] != field.type for field in batch.schema) or any(each.null_count for each in batch):
        raise ValueError("a column has another type")
    if "kind" not in names and int(batch.schema.metadata[b"kind"]) not in (TAGGED, FIELDS):
        raise ValueError("a kind is unknown")
    if "kind" in names and not set(batch.column("kind").to_pylist()) <= {TAGGED, FIELDS}:
        raise ValueError("a kind is unknown")
    offsets = numbers(batch, "offset").tolist() if "offset" in names else []
    ids = pack_ids(numbers(batch, "ms"), numbers(batch, "seq"))
    if any(map(ge, offsets, offsets[1:])) or any(map(ge, ids, ids[1:])):
        raise ValueError("entries are out of order")


def _ends(batch: pa.RecordBatch) -> tuple[int, int, int]:
    """First and last offset, last id."""
    last = batch.num_rows - 1
    if "offset" in batch.schema.names:
        offsets = numbers(batch, "offset")
        ends = offsets[0], offsets[last]
    else:
        base = int(batch.schema.metadata[b"base"])
        ends = base, base + last
    if not 0 < ends[0] <= ends[1] < SEQ_MAX:
        raise ValueError("an offset is out of range")
    return *ends, pack_id(numbers(batch, "ms")[last], numbers(batch, "seq")[last])


def _write(batch: pa.RecordBatch, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _read(data: bytes) -> pa.RecordBatch:
    """The one record batch of an IPC stream; `ValueError` if it has more."""
    source = pa.BufferReader(data)
    with pa.ipc.open_stream(source, options=_ONE_THREAD) as reader:
        batches = iter(reader)
        batch = next(batches, None)
        if batch is None or next(batches, None) is not None or source.tell() != len(data):
            raise ValueError("there must be one batch, and nothing after it")
    return batch
