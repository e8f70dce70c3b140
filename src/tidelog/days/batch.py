"""A compressed entry: the field `batch2` holds many messages, and the entry's id is the highest id among them.

    batch2    | Arrow IPC stream ... | crc32c 4 |      little-endian, of everything before it
    batch     | Arrow IPC stream ... |                 as earlier versions wrote it: without a checksum, still read

The Arrow stream has one record batch whose buffers are compressed by zstd:

    id            string    the id of a message, <ms>-<seq>, which increases from row to row
    event         binary    its event
    timestamp_ms  uint64    only if the batch has messages whose time is not their id's <ms>

Columns instead of a list of pairs: ids shrink to almost nothing, and Spark and others read the events as they are.
Arrow's readers stop at the end of the stream, before the checksum. zstd and Arrow notice little damage themselves: of
all flipped bits, four in ten gave wrong events. The field has another name than before because versions that know no
checksum would not look at it; they refuse the entry, for it has no field `batch`.

Opening is bounded before it begins. Every compressed buffer says in its first 8 bytes how large it will be; they are
summed up from the metadata (`_opened_bytes`), for Arrow itself would allocate whatever they say.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from tidelog import limits
from tidelog.days.message import EventId, Message, parse_id, shown
from tidelog.errors import FormatError

ZSTD_LEVEL: Final = 6
"""By measurement, on JSON job events of 345 bytes in batches of 4 MB (`benchmarks/job_events.py`). Times smaller, at so
many MB/s of one core: 2: 13.1 at 335, 3: 12.4 at 284, 6: 13.8 at 154, 9: 14.2 at 97, 12: 14.4 at 34, 19: 16.0 at 1.
Reading a day takes longer than level 6 does, so that less would gain no time, and more would cost some."""
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", ZSTD_LEVEL))
_ID_PARTS: Final = "^(?P<ms>[0-9]{1,20})-(?P<seq>[0-9]{1,20})$"
_I64: Final = struct.Struct("<q")
_U32: Final = struct.Struct("<I")
FIELD: Final = b"batch2"
_FIELD_WITHOUT_CHECKSUM: Final = b"batch"
COLUMNS: Final = ("ms", "seq", "timestamp_ms", "event")
"""The columns of an opened batch: unsigned 64-bit numbers, and the bytes of the events."""


def pack(messages: Sequence[Message]) -> bytes:
    """The Arrow stream of a batch. The messages are in the order of their ids, and there is at least one."""
    columns = {
        "id": pa.array([str(message.id) for message in messages], pa.string()),
        "event": pa.array([message.event for message in messages], pa.binary()),
    }
    if any(message.timestamp_ms != message.id.ms for message in messages):
        columns["timestamp_ms"] = pa.array([message.timestamp_ms for message in messages], pa.uint64())
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def sealed(packed: bytes) -> bytes:
    """The bytes of the field: the stream, and its checksum."""
    return packed + _U32.pack(crc32c(packed))


def unpack(key: bytes, highest: EventId, packed: bytes) -> list[Message]:
    """The messages of the batch that stands in a compressed stream under an id; `FormatError` if it is none."""
    columns = unpack_columns(key, highest, packed)
    ms, seqs, times, events = (columns.column(name).to_pylist() for name in COLUMNS)
    return list(map(Message, map(EventId, ms, seqs), times, events))


def unpack_columns(key: bytes, highest: EventId, packed: bytes) -> Any:
    """The same as a record batch of `COLUMNS`."""
    try:
        return _unpack(highest, packed)
    except (pa.ArrowException, ValueError, KeyError, TypeError, struct.error, OSError, MemoryError) as error:
        raise FormatError(f"batch {highest} is damaged: {error}", path=shown(key)) from None


def unpack_entry(key: bytes, entry_id: bytes, values: Mapping[bytes, bytes]) -> list[Message]:
    """The messages of an entry of a compressed stream."""
    return unpack(key, parse_id(entry_id), packed_of_entry(key, entry_id, values))


def packed_of_entry(key: bytes, entry_id: bytes, values: Mapping[bytes, bytes]) -> bytes:
    """The Arrow stream of an entry of a compressed stream; `FormatError` if it is not what was written."""
    field = values.get(FIELD)
    if field is None:
        packed = values.get(_FIELD_WITHOUT_CHECKSUM)
        if packed is None:
            raise FormatError(
                f"entry {entry_id.decode()} is not a batch: it has no field `batch` or `batch2`. Did a newer version "
                "write it?",
                path=shown(key),
            )
        return packed
    packed = field[: -_U32.size]
    if len(field) < _U32.size or _U32.unpack(field[-_U32.size :])[0] != crc32c(packed):
        raise FormatError(f"batch {entry_id.decode()} is damaged: its checksum is wrong", path=shown(key))
    return packed


def _unpack(highest: EventId, packed: bytes) -> Any:
    opened_bytes = _opened_bytes(packed)
    if opened_bytes > limits.DAYS_BATCH_OPENED_BYTES_MAX:
        most = limits.DAYS_BATCH_OPENED_BYTES_MAX
        raise ValueError(f"its uncompressed size is {opened_bytes} bytes, more than {most}")
    with pa.ipc.open_stream(packed) as reader:
        table = reader.read_all()
    table.validate(full=True)
    events = _column(table, "event", pa.binary())
    ms, seqs = _ids(table)
    times = _column(table, "timestamp_ms", pa.uint64()) if "timestamp_ms" in table.column_names else ms
    if any(column.null_count for column in (events, ms, seqs, times)):
        raise ValueError("it has nulls")
    last = EventId(ms[-1].as_py(), seqs[-1].as_py()) if len(ms) else None
    if last != highest:
        raise ValueError(f"its highest id is {last or 'none'}")
    if not _increases(ms, seqs):
        raise ValueError("its ids do not increase")
    return pa.RecordBatch.from_arrays([ms, seqs, times, events], list(COLUMNS))


def _column(table: Any, name: str, wanted: Any) -> Any:
    found = table.column(name).cast(wanted).combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _ids(table: Any) -> tuple[Any, Any]:
    """Both halves of the ids."""
    text = _column(table, "id", pa.string())
    halves = pc.extract_regex(text, _ID_PARTS)
    if halves.null_count:
        wrong = text.filter(halves.is_null())[0].as_py()
        raise ValueError(f"{wrong!r} is not an id: an id has the form <ms>-<seq>")
    return halves.field("ms").cast(pa.uint64()), halves.field("seq").cast(pa.uint64())


def _increases(ms: Any, seqs: Any) -> bool:
    """Whether each id is larger than the one before it."""
    earlier, later = ms[:-1], ms[1:]
    is_next = pc.and_(pc.equal(earlier, later), pc.less(seqs[:-1], seqs[1:]))
    return pc.all(pc.or_(pc.less(earlier, later), is_next), min_count=0).as_py() is True


# --- how large it will be -------------------------------------------------------------------------------------------


def _opened_bytes(packed: bytes) -> int:
    """How many bytes the buffers of all record batches say they open to."""
    total = 0
    for message in pa.ipc.MessageReader.open_stream(packed):
        if message.type == "record batch":
            total += _opened_body_bytes(message.metadata.to_pybytes(), message.body)
        elif message.type != "schema":
            raise ValueError(f"a {message.type} does not belong in a batch")
    return total


def _opened_body_bytes(metadata: bytes, body: Any) -> int:
    """The same of one record batch. Its metadata are a flatbuffer.

    Message.header is field 2; RecordBatch.buffers, pairs of offset and length, is field 2, RecordBatch.compression 3.
    """
    header = _target(metadata, _field(metadata, _u32(metadata, 0), 2))
    buffers = _target(metadata, _field(metadata, header, 2))
    is_compressed = _field(metadata, header, 3) != 0
    total = 0
    for index in range(_u32(metadata, buffers)):
        offset, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * index)
        if not 0 <= offset <= offset + length <= body.size:
            raise ValueError("a buffer lies outside of its body")
        declared = length
        if is_compressed and length >= _I64.size:
            declared = _I64.unpack(body.slice(offset, _I64.size).to_pybytes())[0]
        total += declared if declared >= 0 else length  # -1: this one is as it is
    return total


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a table lies; 0 if the table does without."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if vtable < 0:
        raise ValueError("its metadata points outside of itself")
    entry = 4 + 2 * number
    has_entry = entry < struct.unpack_from("<H", metadata, vtable)[0]
    offset: int = struct.unpack_from("<H", metadata, vtable + entry)[0] if has_entry else 0
    return table + offset if offset else 0


def _target(metadata: bytes, place: int) -> int:
    """Where the thing lies that a field points to."""
    if not place:
        raise ValueError("its metadata is incomplete")
    return place + _u32(metadata, place)


def _u32(metadata: bytes, at: int) -> int:
    found: int = struct.unpack_from("<I", metadata, at)[0]
    return found
