"""Batches: what goes in comes out, what is damaged is told, and nothing opens to more than it may."""

from __future__ import annotations

import re
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.days.days_of_events import at, on
from tidelog import limits
from tidelog.days.batch import pack, sealed, unpack, unpack_entry
from tidelog.days.message import EventId, Message
from tidelog.errors import FormatError

U64 = st.integers(0, 2**64 - 1)
MESSAGES = st.lists(
    st.builds(Message, st.builds(EventId, U64, U64), st.integers(0, 2**53), st.binary(max_size=50)),
    min_size=1,
    max_size=20,
    unique_by=lambda message: message.id,
).map(sorted)


@given(MESSAGES)
def test_what_is_packed_is_unpacked(messages: list[Message]) -> None:
    assert unpack(b"k", messages[-1].id, pack(messages)) == messages


def test_the_columns_are_what_is_promised() -> None:
    with pa.ipc.open_stream(pack(on(1, range(3)))) as reader:
        table = reader.read_all()
    assert {field.name: str(field.type) for field in table.schema} == {"id": "string", "event": "binary"}
    odd = [Message(EventId(1, 0), 5, b"")]
    with pa.ipc.open_stream(pack(odd)) as reader:
        assert reader.schema.names == ["id", "event", "timestamp_ms"]


def test_like_events_become_small() -> None:
    event = b'{"queue": "queue", "jobset": "jobs", "job": "01hxyz%06d", "state": "running", "node": "worker-%d"}'
    messages = [at(1, number, event % (number, number % 7)) for number in range(5000)]
    assert len(pack(messages)) < sum(len(message.event) for message in messages) / 5


def stream_of(**columns: pa.Array) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def test_a_batch_of_another_program_may_have_events_as_text_and_no_compression() -> None:
    packed = stream_of(id=pa.array(["5-1", "5-2"]), event=pa.array(["{}", "[]"]))
    assert unpack(b"k", EventId(5, 2), packed) == [
        Message(EventId(5, 1), 5, b"{}"),
        Message(EventId(5, 2), 5, b"[]"),
    ]


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"", "damaged"),
        (b"nonsense" * 10, "damaged"),
        (stream_of(id=pa.array(["5-2"])), "event"),
        (stream_of(event=pa.array([b""])), "id"),
        (stream_of(id=pa.array(["5-2"]), event=pa.array([None], pa.binary())), "nulls"),
        (stream_of(id=pa.array(["5-3"]), event=pa.array([b""])), "highest id is 5-3"),
        (stream_of(id=pa.array(["6-1", "5-2"]), event=pa.array([b"", b""])), "do not increase"),
        (stream_of(id=pa.array(["later"]), event=pa.array([b""])), "not an id"),
        (stream_of(id=pa.array([52]), event=pa.array([b""])), "not an id"),
    ],
)
def test_what_is_no_batch_is_told(packed: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=f"the-key.*5-2.*{reason}"):
        unpack(b"the-key", EventId(5, 2), packed)


def test_an_entry_without_a_batch_is_told() -> None:
    with pytest.raises(FormatError, match="no field `batch`"):
        unpack_entry(b"k", b"1-1", {b"event": b""})


def test_a_batch_cut_or_changed_anywhere_never_breaks_out() -> None:
    messages = on(1, range(50))
    packed = pack(messages)
    for end in range(0, len(packed) - 9, 7):  # the last 8 bytes only say that the stream ends
        with pytest.raises(FormatError):
            unpack(b"k", messages[-1].id, packed[:end])
    for place in range(len(packed)):
        changed = bytearray(packed)
        changed[place] ^= 0xFF
        try:
            unpack(b"k", messages[-1].id, bytes(changed))
        except FormatError:
            continue


def test_a_flipped_bit_anywhere_in_a_batch_is_refused() -> None:
    messages = on(1, range(50))
    name, field, entry_id = b"batch2", sealed(pack(messages)), str(messages[-1].id).encode()
    key = b"{q_j}_compressed_2024-05-01"
    assert unpack_entry(key, entry_id, {name: field}) == messages
    for bit in range(8 * len(field)):
        damaged = bytearray(field)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError, match=f"^{re.escape(key.decode())}: batch {entry_id.decode()} is damaged: "):
            unpack_entry(key, entry_id, {name: bytes(damaged)})
    for end in range(len(field)):
        with pytest.raises(FormatError):
            unpack_entry(key, entry_id, {name: field[:end]})
    for bit in range(8 * len(name)):
        other = bytearray(name)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError, match="newer version"):
            unpack_entry(key, entry_id, {bytes(other): field})


def test_a_batch_of_an_earlier_version_has_no_checksum_and_is_read() -> None:
    messages = on(1, range(50))
    assert unpack_entry(b"k", str(messages[-1].id).encode(), {b"batch": pack(messages)}) == messages


def test_arrow_alone_reads_a_batch_with_its_checksum() -> None:
    with pa.ipc.open_stream(sealed(pack(on(1, range(50))))) as reader:
        assert reader.read_all().num_rows == 50


def test_a_batch_that_would_open_to_too_much_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = [Message(EventId(1, 0), 1, bytes(3 * limits.MIB))]
    packed = pack(bomb)
    assert len(packed) < 10_000
    monkeypatch.setattr(limits, "DAYS_BATCH_OPENED_BYTES_MAX", 2 * limits.MIB)
    allocated = pa.total_allocated_bytes()
    with pytest.raises(FormatError, match="its uncompressed size is 31457"):
        unpack(b"k", EventId(1, 0), packed)
    assert pa.total_allocated_bytes() == allocated


def test_a_length_that_lies_is_not_believed() -> None:
    packed = pack([Message(EventId(1, 0), 1, bytes(3 * limits.MIB))])
    true_length = struct.pack("<q", 3 * limits.MIB)
    assert packed.count(true_length) >= 1
    lying = packed.replace(true_length, struct.pack("<q", 2**40))
    with pytest.raises(FormatError, match="more than"):
        unpack(b"k", EventId(1, 0), lying)
