"""Marks, selects and epochs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import FormatError
from tidelog.ids import U64_MAX, Cycle, Lsn, Ts
from tidelog.journal import control, record
from tidelog.journal.control import Epoch, Mark

U64 = st.integers(0, U64_MAX)
LSNS = st.lists(U64.map(Lsn), min_size=1, max_size=20)


def payload_of(encoded: bytes) -> bytes:
    (header,) = record.walk(encoded, 0, len(encoded))
    assert header.opcode >= record.CONTROL
    assert header.flags == 0
    assert header.end == len(encoded)
    return encoded[header.payload : header.payload_end]


@given(U64, U64, U64, LSNS)
def test_a_mark_is_decoded_as_it_was_encoded(cycle: int, last_ts: int, synced: int, ends: list[Lsn]) -> None:
    body = control.encode_mark_without_crc(Cycle(cycle), Ts(last_ts), Cycle(synced), ends)
    crc = crc32c(body)
    encoded = body + crc.to_bytes(4, "little")
    assert control.decode_mark(payload_of(encoded)) == Mark(Cycle(cycle), Ts(last_ts), Cycle(synced), tuple(ends), crc)
    assert len(encoded) == control.mark_bytes(len(ends))
    assert encoded.startswith(control.mark_prefix(len(ends)))


@pytest.mark.parametrize("shard_count", [1, 2, 10, 11, 256])
def test_the_prefix_of_a_mark_tells_its_number_of_shards(shard_count: int) -> None:
    prefixes = {control.mark_prefix(count) for count in range(1, 257)}
    assert len(prefixes) == 256
    size = 3 * 8 + shard_count * 8 + 4
    assert control.mark_prefix(shard_count) == record.encode_header(control.MARK, 0, size)


@given(st.integers(0, 2**63))
def test_a_select_is_decoded_as_it_was_encoded(database: int) -> None:
    assert control.decode_select(payload_of(control.encode_select(database))) == database


@given(U64, LSNS, U64, U64)
def test_an_epoch_is_decoded_as_it_was_encoded(epoch_id: int, lsns: list[Lsn], last_ts: int, first_ts: int) -> None:
    epoch = Epoch(epoch_id, tuple(lsns), Ts(last_ts), Ts(first_ts))
    encoded = control.encode_epoch(epoch)
    assert encoded[0] == control.EPOCH
    assert control.decode_epoch(control.EPOCH, payload_of(encoded)) == epoch


@given(U64, LSNS, U64)
def test_an_epoch_of_an_earlier_version_has_no_first_ts(epoch_id: int, lsns: list[Lsn], last_ts: int) -> None:
    payload = struct.pack(f"<{len(lsns) + 2}Q", epoch_id, *lsns, last_ts)
    assert control.decode_epoch(control.EARLIER_EPOCH, payload) == Epoch(epoch_id, tuple(lsns), Ts(last_ts), Ts(0))


@pytest.mark.parametrize("size", [0, 27, 28, 35, 37, 43])
def test_a_mark_of_another_size_is_a_format_error(size: int) -> None:
    with pytest.raises(FormatError, match=f"a mark has {size} bytes"):
        control.decode_mark(bytes(size))


@pytest.mark.parametrize(
    ("opcode", "size"),
    [(control.EARLIER_EPOCH, size) for size in (0, 8, 16, 23, 25)] + [(control.EPOCH, size) for size in (24, 31, 33)],
)
def test_an_epoch_of_another_size_is_a_format_error(opcode: int, size: int) -> None:
    with pytest.raises(FormatError, match=f"an epoch has {size} bytes"):
        control.decode_epoch(opcode, bytes(size))


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x03\x03"])
def test_a_malformed_select_is_a_format_error(payload: bytes) -> None:
    with pytest.raises(FormatError, match="a select record"):
        control.decode_select(payload)


@given(st.binary(max_size=80))
def test_any_payload_is_decoded_or_a_format_error(payload: bytes) -> None:
    decoders: list[Callable[[bytes], object]] = [control.decode_mark, control.decode_select]
    decoders += [partial(control.decode_epoch, opcode) for opcode in control.EPOCHS]
    for decode in decoders:
        try:
            decode(payload)
        except FormatError:
            continue


def test_controls_have_names_and_no_lsn() -> None:
    assert set(control.NAMES) == {control.MARK, control.SELECT, *control.EPOCHS}
    assert min(control.NAMES) >= record.CONTROL
