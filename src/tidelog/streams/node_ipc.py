"""The bytes of a sealed node: an Arrow IPC stream with one record batch.

    ms u64 | seq u64 | [kind u8] | [offset u64] | tag binary | entry binary

`kind` is there if both kinds are, and otherwise in the metadata. `offset` is there if the node has holes; otherwise
offsets count up from `base`, which is in the metadata.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import ge
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.errors import FormatError
from tidelog.streams.columns import binary_column, numbers, u64_column
from tidelog.streams.rows import FIELDS, SEQ_MAX, TAGGED, Rows, pack_id, pack_ids

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""Ends every Arrow IPC stream."""
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
_PLAIN: Final = pa.ipc.IpcWriteOptions(compression=None, use_threads=False)
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)


def batch_of(rows: Rows) -> pa.RecordBatch:
    """Entries, of which there is at least one."""
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
    columns["tag"] = binary_column(rows.tags)
    columns["entry"] = binary_column(rows.entries)
    return pa.RecordBatch.from_pydict(columns, metadata=metadata)


def encode_batch(batch: pa.RecordBatch, *, is_compressed: bool) -> bytes:
    """On any thread."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED if is_compressed else _PLAIN) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_batch(data: bytes) -> pa.RecordBatch:
    """The one record batch of an IPC stream whose bytes are proved. On any thread. `FormatError`: they are none."""
    try:
        return _read(data)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise FormatError(f"not a node of a stream: {type(error).__name__}") from error


def decode_checked(data: bytes) -> tuple[pa.RecordBatch, int, int]:
    """The same of bytes that nobody has proved, with its first and last offset."""
    try:
        batch = _read(data)
        _check(batch, data)
        return batch, *_ends(batch)
    except (pa.ArrowException, KeyError, IndexError, ValueError, TypeError, OSError) as error:
        raise FormatError(f"not a node of a stream: {type(error).__name__}") from error


def offsets_in(batch: pa.RecordBatch) -> array[int] | None:
    """The offsets of a node with holes; None: they count up."""
    return array("Q", numbers(batch, "offset").tobytes()) if "offset" in batch.schema.names else None


def selected(batch: pa.RecordBatch, first: int, count: int, offsets: Sequence[int] | None) -> pa.RecordBatch:
    """The entries with these offsets; None: so many from the first on. `FormatError`: they are not all there."""
    base = int(batch.schema.metadata[b"base"])
    metadata = {**batch.schema.metadata, b"base": b"%d" % first}
    if offsets is None and "offset" not in batch.schema.names:
        if not base <= first <= first + count <= base + batch.num_rows:
            raise FormatError(f"a node of {batch.num_rows} entries from {base} on has not {count} from {first} on")
        return batch.slice(first - base, count).replace_schema_metadata(metadata)
    there: Any = np.arange(base, base + batch.num_rows, dtype=np.uint64)
    if "offset" in batch.schema.names:
        there = np.frombuffer(numbers(batch, "offset"), dtype=np.uint64)
    wanted: Any = np.asarray(range(first, first + count) if offsets is None else offsets, dtype=np.uint64)
    places = np.searchsorted(there, wanted)
    if places[-1] >= len(there) or not (there[places] == wanted).all():
        raise FormatError(f"a node of {batch.num_rows} entries lacks some of those that are to be in it")
    taken = batch.take(u64_column(array("Q", places.tolist())))
    columns = {name: taken.column(name) for name in taken.schema.names if name != "offset"}
    if offsets is not None:
        columns["offset"] = u64_column(array("Q", wanted.tobytes()))
    return pa.RecordBatch.from_pydict(columns, metadata=metadata)


def _read(data: bytes) -> pa.RecordBatch:
    source = pa.BufferReader(data)
    with pa.ipc.open_stream(source, options=_ONE_THREAD) as reader:
        batches = iter(reader)
        batch = next(batches, None)
        if batch is None or next(batches, None) is not None or source.tell() != len(data):
            raise ValueError("there must be one batch, and nothing after it")
    return batch


def _check(batch: pa.RecordBatch, data: bytes) -> None:
    """Whether it is what `batch_of` makes; `ValueError` if not."""
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


def _ends(batch: pa.RecordBatch) -> tuple[int, int]:
    """First and last offset."""
    last = batch.num_rows - 1
    if "offset" in batch.schema.names:
        offsets = numbers(batch, "offset")
        ends = offsets[0], offsets[last]
    else:
        base = int(batch.schema.metadata[b"base"])
        ends = base, base + last
    if not 0 < ends[0] <= ends[1] < SEQ_MAX:
        raise ValueError("an offset is out of range")
    return ends


def first_id_in(batch: pa.RecordBatch) -> int:
    return pack_id(numbers(batch, "ms")[0], numbers(batch, "seq")[0])


def last_id_in(batch: pa.RecordBatch) -> int:
    last = batch.num_rows - 1
    return pack_id(numbers(batch, "ms")[last], numbers(batch, "seq")[last])
