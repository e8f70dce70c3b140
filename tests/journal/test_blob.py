"""References to whales, and what proves a whale."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import Corruption, FormatError
from tidelog.ids import U64_MAX, Lsn
from tidelog.journal import blob
from tidelog.journal.blob import BlobReference
from tidelog.ports import File
from tidelog.testing.disk import SimulatedDisk

WHALE = bytes(range(256)) * 9000
"""Larger than what is checked at a time, and not a multiple of it."""
U64 = st.integers(0, U64_MAX)


def file_with(data: bytes) -> File:
    disk = SimulatedDisk()
    disk.write_file("/blob", data)
    return disk.open("/blob", "read")


REFERENCE = BlobReference(Lsn(0), 100, len(WHALE), crc32c(WHALE))


@given(U64, U64, st.integers(0, limits.PAYLOAD_BYTES_MAX), st.integers(0, 2**32 - 1))
def test_a_reference_is_decoded_as_it_was_encoded(segment: int, position: int, length: int, crc: int) -> None:
    reference = BlobReference(Lsn(segment), position, length, crc)
    encoded = blob.encode_reference(reference)
    assert len(encoded) == blob.REFERENCE_BYTES == 28
    assert blob.decode_reference(encoded) == reference


@pytest.mark.parametrize("size", [0, 27, 29])
def test_a_reference_of_another_size_is_a_format_error(size: int) -> None:
    with pytest.raises(FormatError, match=f"{size} bytes instead of 28"):
        blob.decode_reference(bytes(size))


def test_a_reference_that_claims_more_than_a_payload_may_have_is_a_format_error() -> None:
    reference = BlobReference(Lsn(0), 0, limits.PAYLOAD_BYTES_MAX + 1, 0)
    with pytest.raises(FormatError, match="claims"):
        blob.decode_reference(blob.encode_reference(reference))


def test_a_whole_whale_is_read_and_checked() -> None:
    file = file_with(bytes(100) + WHALE + b"the next")
    assert blob.read_blob(file, REFERENCE) == WHALE
    blob.check_blob(file, REFERENCE)


def test_a_whale_that_is_cut_says_where_and_how_much_is_there() -> None:
    file = file_with(bytes(100) + WHALE[:-1])
    for check in (blob.read_blob, blob.check_blob):
        with pytest.raises(Corruption, match=f"cut short at {len(WHALE) - 1}") as caught:
            check(file, REFERENCE)
        assert (caught.value.path, caught.value.position) == ("/blob", 100)


@pytest.mark.parametrize("bit", [0, 8 * limits.MIB + 3, 8 * len(WHALE) - 1])
def test_a_flipped_bit_anywhere_in_a_whale_is_found(bit: int) -> None:
    damaged = bytearray(WHALE)
    damaged[bit // 8] ^= 1 << bit % 8
    file = file_with(bytes(100) + bytes(damaged))
    for check in (blob.read_blob, blob.check_blob):
        with pytest.raises(Corruption, match="the checksum of a blob"):
            check(file, REFERENCE)


def test_an_empty_file_holds_no_whale() -> None:
    with pytest.raises(Corruption, match="cut short at 0"):
        blob.check_blob(file_with(b""), REFERENCE)
