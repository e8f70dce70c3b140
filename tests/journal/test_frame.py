"""Frames: their head, and the geometry that a directory is made with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import FormatError, LimitExceeded
from tidelog.ids import U64_MAX, Lsn, Ts
from tidelog.journal import frame
from tidelog.journal.frame import CHECKSUM, CONTINUES, Geometry

U64 = st.integers(0, U64_MAX)


@given(U64, U64, st.none() | st.integers(0, 2**32 - 1), st.binary(max_size=8), st.binary(max_size=8))
def test_a_head_is_decoded_as_it_was_encoded(
    lsn: int, ts: int, offset: int | None, before: bytes, after: bytes
) -> None:
    encoded = frame.encode_header(Lsn(lsn), Ts(ts), offset)
    header = frame.decode_header(before + encoded + after, len(before))
    flags = CHECKSUM if offset is None else CHECKSUM | CONTINUES
    assert header == (flags, lsn, ts, offset, len(encoded))


@pytest.mark.parametrize("offset", [None, 0])
def test_a_head_has_20_bytes_or_24_with_a_continuation(offset: int | None) -> None:
    assert len(frame.encode_header(Lsn(0), Ts(0), offset)) == (20 if offset is None else 24)


@pytest.mark.parametrize("offset", [None, 7])
def test_a_head_that_is_cut_is_a_format_error(offset: int | None) -> None:
    encoded = frame.encode_header(Lsn(1), Ts(2), offset)
    for size in range(len(encoded)):
        with pytest.raises(FormatError, match="cut short"):
            frame.decode_header(encoded[:size])


@pytest.mark.parametrize("bit", range(2, 8))
def test_a_reserved_bit_is_a_format_error(bit: int) -> None:
    data = bytearray(frame.encode_header(Lsn(1), Ts(2)))
    data[3] |= 1 << bit
    with pytest.raises(FormatError, match="reserved bits") as caught:
        frame.decode_header(b"xx" + bytes(data), 2)
    assert caught.value.position == 5


def test_another_magic_is_a_format_error() -> None:
    data = b"DJ1" + frame.encode_header(Lsn(1), Ts(2))[3:]
    with pytest.raises(FormatError, match=r"b'DJ1' instead of b'DJ0'"):
        frame.decode_header(data)


@given(st.binary(max_size=30))
def test_any_bytes_are_a_head_or_a_format_error(data: bytes) -> None:
    try:
        header = frame.decode_header(b"DJ0" + data)
    except FormatError:
        return
    assert header.size <= 3 + len(data)


def test_without_a_checksum_records_reach_to_the_end_of_the_frame() -> None:
    assert frame.records_end(CHECKSUM, 4096) == 4092
    assert frame.records_end(0, 4096) == 4096


@pytest.mark.parametrize("frame_bytes", [0, 512, 1023, 1536 + 1, 8 * limits.MIB, -1024])
def test_a_frame_of_another_size_is_refused(frame_bytes: int) -> None:
    with pytest.raises(LimitExceeded, match="1, 2 or 4 MiB"):
        Geometry(frame_bytes)


@pytest.mark.parametrize("frames", [0, -1, 65])
def test_another_number_of_frames_is_refused(frames: int) -> None:
    with pytest.raises(LimitExceeded, match="1 to 64"):
        Geometry(limits.MIB, frames)


@pytest.mark.parametrize("frame_bytes", limits.FRAME_BYTES_CHOICES)
def test_a_record_below_the_size_of_a_whale_fits_a_frame_and_is_split_once_at_most(frame_bytes: int) -> None:
    geometry = Geometry(frame_bytes)
    assert geometry.payload_bytes_max == frame_bytes // 4
    assert geometry.segment_bytes == 64 * frame_bytes
    assert geometry.payload_bytes_max >= limits.RECORD_SPLIT_BYTES


def test_the_default_is_2_mib_and_64_frames() -> None:
    assert Geometry() == Geometry(2 * 1024 * 1024, 64)
